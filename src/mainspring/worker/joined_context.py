"""What both contexts share of `ctx.complete_in()`: the job is completed in a transaction of its handler's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from mainspring.db import completion
from mainspring.db.alerts import open_alert
from mainspring.db.completion import End, Place
from mainspring.db.wire.session import is_lost_by
from mainspring.db.wire.statement import Dialogue
from mainspring.db.wire.translate import is_lost
from mainspring.errors import (
    AfterCompletion,
    CompletionNotCommitted,
    ConfigurationError,
    HandlerMistake,
    LeaseLost,
    SchemaMissing,
)
from mainspring.health.alert import LEFT_OPEN_ALERT, wrong
from mainspring.health.situation import Lock
from mainspring.job import SYSTEM
from mainspring.outcome import Snooze
from mainspring.text.raised import said
from mainspring.worker.base_context import BaseContext, encode_result
from mainspring.worker.block import is_inside_transaction
from mainspring.worker.service import log
from mainspring.worker.steps import refuse_inside_step

#: Pauses between looks at a handler's own transaction that is still open when the handler has ended.
OPEN_SESSION_PAUSES = (0.05, 0.2, 0.5)
ENDING_PATIENCE_S = 5.0  # for an async rollback of it
NOT_AWAITED = "ctx.complete_in() was not awaited: write `await ctx.complete_in(…)`"


class JoinedContext(BaseContext):
    """A context whose job may be completed elsewhere."""

    _joined: Any = None  # the connection that was given
    _driver: Any = None  # the driver's connection below it
    _forgotten: Lock | None = None  # the session whose transaction the handler left open

    @property
    def completed_elsewhere(self) -> bool:
        """Whether a transaction of the handler's own was to complete the job."""
        return self._elsewhere is not None

    def put_off_by(self, error: BaseException) -> Snooze | None:
        """The same for a transaction of the handler's own in our database."""
        if self._elsewhere == "done" and is_lost(error) and is_lost_by(self._driver):
            self._outage = error
        return super().put_off_by(error)

    def _end_of_it(self) -> Dialogue[End]:
        return completion.end(self._sql, self._worker, self.job)

    def _take_in(self, end: End) -> None:
        """What became of an earlier transaction: after a rollback its handler may try another."""
        if end == "undone":
            self._elsewhere, self._attempt.committing = None, False
            self._carried = self._waiting.copy()
        elif end == "committed":
            self._attempt.settled, self._attempt.committing = True, False
        elif end == "lost":
            raise LeaseLost(job_id=self.job.id)
        else:
            text = "the job is completed by ctx.complete_in() in a transaction that is still open: end that first"
            raise AfterCompletion(text, job_id=self.job.id)

    @contextmanager
    def _joining_elsewhere(self, result: Any) -> Iterator[None]:
        """The job is being completed; what is refused has not happened: the handler may complete it otherwise."""
        self._refuse_if_settled()
        try:
            refuse_inside_step("ctx.complete_in()")
            if self._completing or is_inside_transaction():
                raise HandlerMistake("ctx.complete_in() comes outside of the context's own blocks")
            if self.job.org_id == SYSTEM:
                raise HandlerMistake("a job of the organisation SYSTEM is completed by ctx.complete()")
            self._check_result(result)
            self.result = self.result if result is None else result
            self._elsewhere = "asked"
            yield
            self._refused = None
        except SchemaMissing:
            self._refused = HandlerMistake("conn: leads to another database than the worker's")
        except ConfigurationError as error:
            self._refused = HandlerMistake(str(error))
        except BaseException as error:
            self._refused = error
            raise
        finally:
            if self._elsewhere == "asked":
                self._elsewhere, self._attempt.committing = None, False
        if self._refused is not None:
            raise self._refused

    def _complete_elsewhere(self, own: Place) -> Dialogue[None]:
        """What `ctx.complete()` writes, in a transaction whose end is the handler's business."""
        session = (yield from completion.joined(self._sql, self.job, own)).pid
        self._refuse_unkept()
        yield from self._write_follow_ups()
        yield from self._write_notes()
        if (report := self._last_report()) is not None:
            yield from report
        result = encode_result(self.result, self._attempt.seal)
        self._attempt.session = session
        self._attempt.committing = True  # from here on its row is held until that transaction ends
        if self._attempt.why is not None:  # and its end is perhaps being written
            raise LeaseLost(job_id=self.job.id)
        yield from completion.complete_in(self._sql, self._worker, self.job, result)
        self._elsewhere = "done"

    def _left_open(self, session: Lock) -> None:
        """The handler has ended, or its time has, and its transaction has not: nobody would ever end it."""
        self._forgotten = session
        log.error("job %s of %s: %s, and is rolled back", self.job.id, self.job.task, self._forgotten_words())

    @contextmanager
    def _ending_it(self) -> Iterator[None]:
        """One way to end it; where it fails there is another, and at last somebody is told."""
        try:
            yield
        except Exception as error:
            log.warning("job %s of %s: its session was not ended: %s", self.job.id, self.job.task, said(error))

    def _forgotten_words(self) -> str:
        if self._joined is None:
            return f"ctx.complete_in(): the handler goes on after its time, with {self._forgotten} open"
        return f"ctx.complete_in(): its commit was forgotten; the handler left {self._forgotten} open"

    def _cannot_end(self) -> Dialogue[bool]:
        """Open an alert for somebody who can end it: until then nothing can be written for the job."""
        pid = self._attempt.session
        log.error("job %s of %s: session %d cannot be ended by its worker", self.job.id, self.job.task, pid)
        how = f"{self._forgotten_words()}; it cannot be ended from here: select pg_terminate_backend({pid})"
        about = wrong(LEFT_OPEN_ALERT, self.job.task, f"job {self.job.id}: {how}", "critical")
        return open_alert(self._sql, about, self.job.org_id, told=False)

    def _ended_elsewhere(self, end: End) -> None:
        """Take in what became of the transaction of the handler's own."""
        self._attempt.committing = False
        if end == "committed":
            self._attempt.settled = True
        elif end == "open":  # its row is held: to write anything for it would wait for who holds it
            self._attempt.settled, self._attempt.why = True, "lost"

    def ends_with(self, result: Any) -> bool:
        """The handler has returned: whether something waits for the job's success, to be written with it."""
        self._refuse_unkept()
        if self._attempt.settled:
            if result is not None and self._attempt.why != "lost":
                text = "what is returned after the completion is lost: give it to ctx.complete(result=…) or complete_in"
                raise AfterCompletion(text, job_id=self.job.id)
            return False
        if self._elsewhere == "asked":
            raise HandlerMistake(NOT_AWAITED)
        if self._elsewhere == "done":
            text = "ctx.complete_in() was rolled back, or never committed"
            text = text if self._forgotten is None else f"{self._forgotten_words()}, and it was rolled back"
            raise CompletionNotCommitted(text, job_id=self.job.id)
        if self._refused is not None:  # the handler went on as if it had not been: its rows are not fenced
            raise self._refused
        self.result = result if self.result is None else self.result
        return bool(self.follow_ups or self.groups or self._notes)
