"""What the contexts of handlers share: the attempt, and what waits for its success."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec

from mainspring.audit import written_event
from mainspring.caller import NOBODY, of_job
from mainspring.cipher import Seal
from mainspring.db import audit, steps
from mainspring.db.cipher import Keyring
from mainspring.db.schema import Sql
from mainspring.db.statement import Flow
from mainspring.db.steps import Report
from mainspring.document import MAX_BYTES
from mainspring.envelope import complete
from mainspring.errors import LeaseLost, MainspringError, ValidationError
from mainspring.job import Enqueued, NewJob
from mainspring.outcome import Cancelled
from mainspring.sanitize import mask, masked
from mainspring.texts import MAX_NAME, text_problem
from mainspring.worker.reporter import Unsaid
from mainspring.worker.run import Run
from mainspring.worker.steps import Memory, read, refuse_inside_step, written

T = TypeVar("T")

#: Pauses between tries to keep what is done: a connection that broke must not make it be done again.
PAUSES = (0.1, 0.5, 2.0)
MOST = 1e15  # that a job may count to
LAST_WORD = 1.0  # seconds for the last report of an attempt


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


class Held:
    """What both contexts share: the attempt, and the follow-up jobs that wait for its success."""

    _memory: Memory | None = None  # made by the first step
    _serial = 0  # of the last report
    _notes: tuple[tuple[str, str], ...] = ()  # events of the domain, for the audit trail
    _in_transaction = False
    ring: Keyring | None = None  # where what jobs carry is encrypted

    def __init__(self, run: Run, sql: Sql, worker: str, unsaid: Unsaid) -> None:
        self.job = run.claim
        self.result: Any = None
        self.follow_ups: list[NewJob] = []
        self._run = run
        self._sql = sql
        self._worker = worker
        self._unsaid = unsaid

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the job to stop."""
        return self._run.cancelled

    def _completed(self, wanted: tuple[NewJob, ...]) -> list[NewJob]:
        self._refuse_if_settled()
        refuse_inside_step("ctx.enqueue()")
        return complete(wanted, NOBODY)  # the handler's context makes them follow-ups

    def _created(self, answers: list[Enqueued]) -> None:
        """Remember the follow-ups that are new, to be told after the commit."""
        pairs = zip(self.follow_ups, answers, strict=True)
        self._run.created = [(job, answer.state) for job, answer in pairs if answer.answer == "created"]

    def audit(self, event: str, **detail: object) -> None:
        """See Context."""
        self._refuse_if_settled()
        refuse_inside_step("ctx.audit()")
        self._notes += ((event, written_event(event, detail)),)

    @property
    def unwritten(self) -> bool:
        """Whether something waits for the job's success."""
        return bool(self.follow_ups or self._notes)

    def _write_notes(self) -> Flow[None]:
        caller = of_job(self.job)
        for event, detail in self._notes:
            yield from audit.record(self._sql, event, detail, caller, attempt=self.job.attempt)

    def _refuse_if_settled(self) -> None:
        if self._run.why == "lost":
            raise LeaseLost(job_id=self.job.id)
        if self._run.settled:
            raise MainspringError("the job has ended: its transaction was its success, nothing can follow it")

    def _begin(self, what: str) -> None:
        """Whether something may begin that is kept: not without the lease, nor where it would not count."""
        self._refuse_if_settled()
        if self._in_transaction:
            raise MainspringError(f"{what} comes before ctx.transaction(), which ends the job: put it in front")
        if self._run.cancelled:
            raise Cancelled

    def _begin_step(self, name: str) -> Memory:
        self._begin("a step")
        self._memory = self._memory or Memory()
        self._memory.use(name)
        return self._memory

    def _learn(self, cancelled: bool) -> None:
        """The database said, by the way, whether somebody asked for the job to stop."""
        self._run.cancelled = self._run.cancelled or cancelled

    def _report(self, done: float, total: float | None, note: str | None) -> None:
        if self._run.why == "lost":
            raise LeaseLost(job_id=self.job.id)
        if note and (problem := text_problem(note, MAX_NAME)):
            raise ValidationError(f"note: {problem}", field="note")
        self._serial += 1
        said = (_number("done", done), None if total is None else _number("total", total), note and mask(note))
        if not self._run.settled:
            self._unsaid[self.job.epoch] = Report(self.job.epoch, self._serial, *said)

    def _last_report(self) -> Flow[None] | None:
        """What was reported and is not written yet."""
        report = self._unsaid.pop(self.job.epoch, None)
        return None if report is None else steps.report(self._sql, self._worker, [report])

    def _closed(self, what: str, text: str) -> str:
        return text if self._run.seal is None else self._run.seal.close(what, text)

    def _opened(self, what: str, text: str) -> str:
        return text if self._run.seal is None else self._run.seal.open(what, text)

    def _saved(self, text: str | None, default: Any, wanted: Any) -> Any:
        """A checkpoint as the type that is wanted, or that the default has."""
        if text is None:
            return default
        return read(
            "checkpoint", self._opened("checkpoint", text), wanted or (Any if default is None else default.__class__)
        )

    def _ending(self) -> list[Any]:
        return [self._worker, self.job.epoch, encode_result(self.result, self._run.seal)]


def _number(field: str, value: object) -> float:
    if not isinstance(value, int | float) or not -MOST <= value <= MOST:  # NaN is not either
        raise ValidationError(f"{field}: is not a number up to {MOST:g}", field=field)
    return value
