"""What the contexts of handlers share: the attempt, and what waits for its success."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import msgspec

from mainspring.audit import written_event
from mainspring.checks import check_subject
from mainspring.cipher import OrgKeys, Seal
from mainspring.db import audit, batches, jobs, steps
from mainspring.db.batches import Together, jobs_of, org_of
from mainspring.db.cipher import Keyring
from mainspring.db.readable import key_in, readable_job
from mainspring.db.steps import Report
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.caller import NOBODY, of_job
from mainspring.declare.envelope import complete
from mainspring.errors import LeaseLost, MainspringError, ValidationError
from mainspring.job import SYSTEM, Enqueued, Job, NewJob
from mainspring.outcome import Cancelled
from mainspring.text.document import MAX_BYTES
from mainspring.text.sanitize import mask, masked
from mainspring.text.texts import MAX_NAME, text_problem
from mainspring.together.chunk import EACH_CHECKPOINT
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.block import block, refuse_inside_db
from mainspring.worker.resources import Resources
from mainspring.worker.steps import Memory, read, refuse_inside_step, written

T = TypeVar("T")
#: Jobs that are written in one piece with the job's success, and how.
EnqueueGroup = tuple[list[NewJob], Callable[[Sequence[NewJob]], Dialogue[list[Enqueued]]]]

#: Pauses between tries to keep what is done: a connection that broke must not make it be done again.
PAUSES = (0.1, 0.5, 2.0)
MOST_PROGRESS = 1e15  # that a job may count to
LAST_REPORT = 1.0  # seconds for the last report of an attempt


def encode_result(result: Any, seal: Seal | None = None) -> str | None:
    """A result as it is stored; what PostgreSQL could not store is refused here, not in the batch of others."""
    if result is None:
        return None
    text = written("result", result, MAX_BYTES)
    if seal is not None:
        return seal.close("result", text)
    if mask(text) != text:  # people read results: a secret has no place in them
        text = written("result", masked(msgspec.json.decode(text)))
    return text


class BaseContext:
    """What both contexts share: the attempt, and the follow-up jobs that wait for its success."""

    _memory: Memory | None = None  # made by the first step
    _serial = 0  # of the last report
    _notes: tuple[tuple[str, str, str | None], ...] = ()  # events of the domain, for the audit trail
    _in_transaction = False
    _each = False  # a list is gone through

    def __init__(self, attempt: LiveAttempt, resources: Resources) -> None:
        self.job = attempt.claim
        self.result: Any = None
        self.follow_ups: list[NewJob] = []
        self.groups: list[EnqueueGroup] = []
        self._attempt = attempt
        self._resources = resources
        self._sql, self._worker = resources.sql, resources.worker

    @property
    def ring(self) -> Keyring | None:
        """The keys, where what jobs carry is encrypted."""
        return self._resources.ring if self._resources.encrypts else None

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the job to stop."""
        return self._attempt.cancelled

    def completed(self, wanted: tuple[NewJob, ...]) -> list[NewJob]:
        """Jobs as follow-ups of this one, checked; refused where none can follow any more."""
        self._refuse_if_settled()
        refuse_inside_step("ctx.enqueue()")
        return complete(wanted, NOBODY)  # the handler's context makes them follow-ups

    def _sorted(self, wanted: Sequence[NewJob | Together]) -> tuple[list[NewJob], list[EnqueueGroup]]:
        """What is enqueued one by one, and what in one piece; completed and checked."""
        single = self.completed(tuple(job for job in wanted if isinstance(job, NewJob)))
        return single, [self._planned(what) for what in wanted if not isinstance(what, NewJob)]

    def _planned(self, what: Together) -> EnqueueGroup:
        wanted = self.completed(tuple(jobs_of(what)))
        org = org_of(wanted, self.job.org_id)
        return wanted, lambda sealed: batches.enqueue(self._sql, what, sealed, org)

    def _joining(self, wanted: tuple[NewJob, ...]) -> EnqueueGroup:
        return self.completed(wanted), lambda sealed: batches.join(self._sql, self.job, sealed)

    def tell_created(self, wanted: Sequence[NewJob], answers: list[Enqueued]) -> None:
        """Remember the follow-ups that are new, to be told after the commit."""
        pairs = zip(wanted, answers, strict=False)  # an on-finish job waits, and is told of later
        new = [(job, answer.state) for job, answer in pairs if answer.answer == "created"]
        self._attempt.created = [*self._attempt.created, *new]

    @contextmanager
    def _block(self, conn: Any) -> Iterator[None]:
        """A block is open: the client joins it, and what it left for the job's success goes if the block fails.

        Once it is being committed, nobody knows whether it has failed.
        """
        before = self.follow_ups.copy(), self.groups.copy(), self._notes, self._attempt.created
        try:
            with block(conn):
                yield
        except BaseException:
            if not self._attempt.committing:
                self.follow_ups, self.groups, self._notes, self._attempt.created = before
            raise

    def _write_follow_ups(self) -> Dialogue[None]:
        """Everything that waited for the job's success."""
        if self.follow_ups:
            by_org = self.job.org_id == SYSTEM
            self.tell_created(
                self.follow_ups, (yield from jobs.enqueue_many(self._sql, self.follow_ups, by_org=by_org))
            )
        for wanted, write in self.groups:
            self.tell_created(wanted, (yield from write(wanted)))

    def _start_each(self, text: str | None, every: int) -> int:
        """How many items of the list are done already."""
        if every < 1:
            raise ValidationError("every: is not positive", field="every")
        if self._each:
            raise MainspringError("ctx.each goes through one list in an attempt: put what belongs together into one")
        self._each = True
        return self.done_of(text)

    def done_of(self, text: str | None) -> int:
        """How many items of its list a job has done, by its checkpoint."""
        match None if text is None else self._saved(text, None, None):
            case dict() as saved if saved.keys() == {EACH_CHECKPOINT}:
                return int(saved[EACH_CHECKPOINT])
            case _:  # the handler's own
                return 0

    def _parents_key(self, parents: Sequence[Job]) -> str | None:
        return next(filter(None, map(key_in, parents)), None)

    def _parents_shown(self, parents: Sequence[Job], keys: OrgKeys) -> list[Job]:
        return [job if key_in(job) is None else readable_job(job, keys) for job in parents]

    def audit(self, event: str, *, subject: str | None = None, **detail: object) -> None:
        """See Context."""
        self._refuse_if_settled()
        refuse_inside_step("ctx.audit()")
        about = None if subject is None else check_subject(subject)
        self._notes += ((event, written_event(event, detail), about),)

    @property
    def unwritten(self) -> bool:
        """Whether something waits for the job's success."""
        return bool(self.follow_ups or self.groups or self._notes)

    def _write_notes(self) -> Dialogue[None]:
        caller = of_job(self.job)
        for event, detail, subject in self._notes:
            yield from audit.record(self._sql, event, detail, caller, subject=subject, attempt=self.job.attempt)

    def _refuse_if_settled(self) -> None:
        if self._attempt.why == "lost":
            raise LeaseLost(job_id=self.job.id)
        if self._attempt.settled:
            raise MainspringError("the job has ended: its transaction was its success, nothing can follow it")

    def _begin(self, what: str) -> None:
        """Whether something may begin that is kept: not without the lease, nor where it would not count."""
        self._refuse_if_settled()
        if self._in_transaction:
            raise MainspringError(f"{what} comes before ctx.transaction(), which ends the job: put it in front")
        refuse_inside_db(what)
        if self._attempt.cancelled:
            raise Cancelled

    def _begin_step(self, name: str) -> Memory:
        self._begin("a step")
        self._memory = self._memory or Memory()
        self._memory.use(name)
        return self._memory

    def _learn(self, cancelled: bool) -> None:
        """The database said, by the way, whether somebody asked for the job to stop."""
        self._attempt.cancelled = self._attempt.cancelled or cancelled

    def _report(self, done: float, total: float | None, note: str | None) -> None:
        if self._attempt.why == "lost":
            raise LeaseLost(job_id=self.job.id)
        if note and (problem := text_problem(note, MAX_NAME)):
            raise ValidationError(f"note: {problem}", field="note")
        self._serial += 1
        said = (_number("done", done), None if total is None else _number("total", total), note and mask(note))
        if not self._attempt.settled:
            self._resources.reports[self.job.epoch] = Report(self.job.epoch, self._serial, *said)

    def _last_report(self) -> Dialogue[None] | None:
        """What was reported and is not written yet."""
        report = self._resources.reports.pop(self.job.epoch, None)
        return None if report is None else steps.report(self._sql, self._worker, [report])

    def _closed(self, what: str, text: str) -> str:
        return text if self._attempt.seal is None else self._attempt.seal.close(what, text)

    def _opened(self, what: str, text: str) -> str:
        return text if self._attempt.seal is None else self._attempt.seal.open(what, text)

    def _saved(self, text: str | None, default: Any, wanted: Any) -> Any:
        """A checkpoint as the type that is wanted, or that the default has."""
        if text is None:
            return default
        return read(
            "checkpoint", self._opened("checkpoint", text), wanted or (Any if default is None else default.__class__)
        )

    def _ending(self) -> list[Any]:
        return [self._worker, self.job.epoch, encode_result(self.result, self._attempt.seal)]


def _number(field: str, value: object) -> float:
    if not isinstance(value, int | float) or not -MOST_PROGRESS <= value <= MOST_PROGRESS:  # NaN is not either
        raise ValidationError(f"{field}: is not a number up to {MOST_PROGRESS:g}", field=field)
    return value
