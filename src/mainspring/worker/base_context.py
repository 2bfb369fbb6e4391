"""What the contexts of handlers share: the attempt, and what waits for its success."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from mainspring.audit import written_event
from mainspring.checks import check_subject
from mainspring.cipher import OrgKeys, Seal
from mainspring.db import audit, batches, jobs, steps
from mainspring.db.batches import Together, jobs_of, org_of
from mainspring.db.cipher import Keyring
from mainspring.db.readable import key_in, readable_job
from mainspring.db.steps import Report
from mainspring.db.wire.statement import Dialogue
from mainspring.db.wire.translate import is_lost
from mainspring.declare.caller import NOBODY, of_job
from mainspring.declare.envelope import complete, derived_key
from mainspring.errors import AfterCompletion, HandlerMistake, LeaseLost, MainspringError, ValidationError
from mainspring.job import SYSTEM, Enqueued, Job, NewJob
from mainspring.outcome import Cancelled, Snooze
from mainspring.text.document import MAX_BYTES
from mainspring.text.sanitize import mask, masked
from mainspring.text.texts import MAX_NAME, text_problem
from mainspring.together.chunk import EACH_CHECKPOINT
from mainspring.worker.attempt import Created, LiveAttempt
from mainspring.worker.block import block, is_inside_transaction, refuse_inside_transaction
from mainspring.worker.promise import Promise
from mainspring.worker.resources import Resources
from mainspring.worker.service import job_log
from mainspring.worker.steps import Memory, read, refuse_inside_step, written

T = TypeVar("T")
P = TypeVar("P", bound=Promise)
#: Jobs that are written in one piece with the job's success, and how.
EnqueueGroup = tuple[list[NewJob], Callable[[Sequence[NewJob]], Dialogue[list[Enqueued]]]]

NOTHING_WAITS: Final[Counter[Any]] = Counter()  # shared: most jobs enqueue nothing
MOST_PROGRESS = 1e15  # that a job may count to
OUTAGE_PAUSES = 1.0, 5.0  # seconds until the job is tried again, from and to
MOST_OUTAGES = 10  # that give an attempt back, other snoozes of the job included
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
    _completing = False  # in the block that ends the job
    _elsewhere: Literal["asked", "done"] | None = None  # the job was completed in a transaction of the handler's own
    _refused: BaseException | None = None  # why its last completion was refused
    _outage: BaseException | None = None  # what our database raised when it went away
    _waiting = NOTHING_WAITS  # by what it is: all that waits for the job's success
    _carried = NOTHING_WAITS  # of that, what a completion took along that was rolled back
    _promises: tuple[Promise, ...] = ()  # what the handler must await or enter
    _each = False  # a list is gone through

    def __init__(self, attempt: LiveAttempt, resources: Resources) -> None:
        self.job = attempt.claim
        self.result: Any = None
        self.follow_ups: list[NewJob] = []
        self.groups: list[EnqueueGroup] = []
        self._repeats: Counter[str] = Counter()  # of equal jobs that blocks in the middle have enqueued
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

    def completed(self, wanted: Sequence[NewJob]) -> list[NewJob]:
        """Jobs as follow-ups of this one, checked; refused where none can follow any more."""
        self._refuse_if_settled()
        refuse_inside_step("ctx.enqueue()")
        return complete(wanted, NOBODY)  # the handler's context makes them follow-ups

    def _sorted(self, wanted: Sequence[NewJob | Together]) -> tuple[list[NewJob], list[EnqueueGroup]]:
        """What is enqueued one by one, and what in one piece; completed and checked."""
        single = self.completed([job for job in wanted if not isinstance(job, Together)])
        groups = [self._planned(what) for what in wanted if isinstance(what, Together)]
        if is_inside_transaction():
            if groups:  # it could not be told from the one that an earlier attempt began
                raise MainspringError(
                    "ctx.enqueue() takes single jobs inside the block of ctx.transaction(): enqueue batches and flows "
                    "in ctx.complete(), or outside of blocks"
                )
            return self._named_for_retries(single), groups
        return [job for job in single if self._is_new(_name_of(job))], [
            group for group in groups if self._is_new(tuple(map(_name_of, group[0])))
        ]

    def _is_new(self, what: Any) -> bool:
        """Whether it waits from now on; not if it waits since a transaction that was rolled back, and is repeated."""
        if self._carried[what] > 0:
            self._carried[what] -= 1
            return False
        self._waiting = self._waiting or Counter()
        self._waiting[what] += 1
        return True

    def _named_for_retries(self, wanted: list[NewJob]) -> list[NewJob]:
        """Give jobs of a middle block keys that are the same on every attempt, so that a retry makes no second ones."""
        return [
            job if job.key is not None else replace(job, key=derived_key(self.job.id, job, self._repeats), mode="keep")
            for job in wanted
        ]

    def _planned(self, what: Together) -> EnqueueGroup:
        wanted = self.completed(jobs_of(what))
        org = org_of(wanted, self.job.org_id)
        return wanted, lambda sealed: batches.enqueue(self._sql, what, sealed, org)

    def _joining(self, wanted: Sequence[NewJob]) -> EnqueueGroup:
        return self.completed(wanted), lambda sealed: batches.join(self._sql, self.job, sealed)

    def tell_created(self, wanted: Sequence[NewJob], answers: list[Enqueued], *, committed: bool = False) -> None:
        """Tell of the follow-ups that are new; they are remembered until they are committed."""
        pairs = zip(wanted, answers, strict=False)  # an on-finish job waits, and is told of later
        new = [(job, answer.state) for job, answer in pairs if answer.answer == "created"]
        if committed:
            self._tell_committed(new)
        else:
            self._attempt.created = [*self._attempt.created, *new]

    def _tell_committed(self, created: Sequence[Created]) -> None:
        """Tell of jobs that are committed, whatever becomes of this one."""
        if created and self._resources.announcer is not None:
            self._resources.announcer.created(self._attempt, created)

    @contextmanager
    def _middle(self, conn: Any) -> Iterator[list[Created]]:
        """A block in the middle is open: what is enqueued and audited in it is written at its end, and goes with it.

        Yields what is to be told when it has committed.
        """
        outside, repeats = (self.follow_ups, self._notes, self._attempt.created), self._repeats.copy()
        self.follow_ups, self._notes, self._attempt.created = [], (), []
        created: list[Created] = []
        try:
            with self._block(conn, middle=True):
                yield created
            created += self._attempt.created
        except BaseException:
            self._repeats = repeats  # it may be tried again in this attempt
            raise
        finally:
            self.follow_ups, self._notes, self._attempt.created = outside

    def _write_middle(self) -> Dialogue[bool]:
        """What a block in the middle leaves, and the fence; says whether the job's cancellation was asked for."""
        yield from self._write_jobs()
        yield from self._write_notes()
        return (yield from steps.fence(self._sql, self._worker, self.job))

    @contextmanager
    def _block(self, conn: Any, *, middle: bool = False) -> Iterator[None]:
        """A block is open: the client joins it, and what it left for the job's success goes if the block fails.

        Once it is being committed, nobody knows whether it has failed.
        """
        before = self.follow_ups.copy(), self.groups.copy(), self._notes, self._attempt.created
        waiting = self._waiting.copy(), self._carried.copy()
        try:
            with block(conn, middle=middle):
                yield
        except BaseException:
            if not self._attempt.committing:
                self.follow_ups, self.groups, self._notes, self._attempt.created = before
                self._waiting, self._carried = waiting
            raise

    def _write_follow_ups(self) -> Dialogue[None]:
        """Everything that waited for the job's success."""
        yield from self._write_jobs()
        for wanted, write in self.groups:
            self.tell_created(wanted, (yield from write(wanted)))

    def _write_jobs(self) -> Dialogue[None]:
        if self.follow_ups:
            by_org = self.job.org_id == SYSTEM
            self.tell_created(
                self.follow_ups, (yield from jobs.enqueue_many(self._sql, self.follow_ups, by_org=by_org))
            )

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
        note = event, written_event(event, detail), about
        if is_inside_transaction() or self._is_new(note):
            self._notes += (note,)

    def _promise(self, what: P) -> P:
        """Remember what the handler must await or enter."""
        self._promises += (what,)
        return what

    @contextmanager
    def _ours(self, conn: Any = None) -> Iterator[None]:
        """What is raised here because our database, or this connection to it, went away is no failure of the job."""
        try:
            yield
        except Exception as error:
            if (conn is None or conn.closed) and is_lost(error):
                self._outage = error
            raise

    def put_off_by(self, error: BaseException) -> Snooze | None:
        """How the attempt is given back if an outage of our database ended it.

        So often at most: a statement of the handler's own may be what takes the database down.
        """
        attempt = self._attempt
        if error is not self._outage or attempt.settled or attempt.why or self.job.snoozes >= MOST_OUTAGES:
            return None
        job_log.warning("job %s of %s is deferred: the database went away", self.job.id, self.job.task)
        return Snooze(random.uniform(*OUTAGE_PAUSES))  # noqa: S311 (spreads returns, no secret)

    def _refuse_unkept(self) -> None:
        """Nothing commits beside what was to be a part of it and was not awaited, or entered."""
        for promise in self._promises:
            if not promise.kept:
                raise HandlerMistake(promise.mistake)

    def _check_result(self, result: Any) -> None:
        """Refuse what cannot be stored where it is given, before anything commits."""
        try:
            if result is not None:
                written("result", result, MAX_BYTES)
        except MainspringError as error:
            self._refused = error
            raise

    def _write_notes(self) -> Dialogue[None]:
        caller = of_job(self.job)
        for event, detail, subject in self._notes:
            yield from audit.record(self._sql, event, detail, caller, subject=subject, attempt=self.job.attempt)

    def _refuse_if_settled(self) -> None:
        if self._attempt.why == "lost":
            raise LeaseLost(job_id=self.job.id)
        if self._attempt.settled:
            raise AfterCompletion("the job is completed: nothing can be written for it any more", job_id=self.job.id)
        if self._elsewhere is not None:  # what came now would miss that transaction, or wait for its lock
            raise AfterCompletion("the job is completed by ctx.complete_in(): do this before it", job_id=self.job.id)

    def _begin_complete(self) -> None:
        """Whether the job may be completed now."""
        self._refuse_if_settled()
        try:
            refuse_inside_step("ctx.complete()")
            refuse_inside_transaction("ctx.complete()")
        except MainspringError as error:
            self._refused = error
            raise

    def _begin(self, what: str) -> None:
        """Whether something may begin that is kept: not without the lease, nor where it would not count."""
        self._refuse_if_settled()
        if self._completing:
            raise MainspringError(f"{what} comes before ctx.complete(), which ends the job: put it in front")
        refuse_inside_transaction(what)
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


def _name_of(job: NewJob) -> tuple[object, ...]:
    return job.task, bytes(job.payload), job.key


def _number(field: str, value: object) -> float:
    if not isinstance(value, int | float) or not -MOST_PROGRESS <= value <= MOST_PROGRESS:  # NaN is not either
        raise ValidationError(f"{field}: is not a number up to {MOST_PROGRESS:g}", field=field)
    return value
