"""`client.timers`: each verb is written once, over a dialogue of `mainspring.db`."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.client.enqueue import enqueue_job
from mainspring.client.seam import Seam
from mainspring.db import jobs, timers
from mainspring.db.jobs import CancelOutcome
from mainspring.db.timers import Timer
from mainspring.db.wire.statement import Statement, ask, nothing
from mainspring.db.wire.translate import has_no_transaction
from mainspring.job import Enqueued, NewJob

log = logging.getLogger("mainspring")
T = TypeVar("T")


class TimerVerbs(Verbs):
    """Jobs that start at an instant, addressed by a key: set, moved and cancelled with the business change.

    ::

        client.timers.set(auto_approve.job(time_log_id=9).at(deadline).with_key("auto-approve:9"), conn=conn)
        client.timers.get("auto-approve:9", conn=conn)
        client.timers.cancel("auto-approve:9", conn=conn)
    """

    @verb
    def set(self, job: NewJob, *, conn: Any = None) -> Work[Enqueued]:
        """Set a timer, or move the one under its key, with its payload: `created`, or `replaced` under the old id.

        One that has started is not moved: the new one is created, and starts after it.
        """
        return enqueue_job(self.seam, timers.timer(job), conn)

    @verb
    def get(self, key: str, *, org: str | None = None, conn: Any = None) -> Work[Timer | None]:
        """What is under way for a key, or None; in the caller's transaction it sees what that has done."""
        return self.seam.ask(timers.get(self.seam.sql, key, self.seam.who(org)), conn)

    @verb
    def cancel(
        self, key: str, *, org: str | None = None, reason: str | None = None, conn: Any = None
    ) -> Work[CancelOutcome]:
        """Stop what is under way for a key; the same as `client.cancel(key=...)`."""
        return self.seam.ask(jobs.cancel(self.seam.sql, self.seam.who(org), key=key, reason=reason), conn)

    @verb
    def cancel_many(
        self, keys: Sequence[str], *, org: str | None = None, reason: str | None = None, conn: Any = None
    ) -> Work[dict[str, CancelOutcome]]:
        """Stop what is under way for these keys, all in one statement; the answer for each."""
        return self.seam.ask(timers.cancel_many(self.seam.sql, keys, self.seam.who(org), reason), conn)

    @verb
    def try_set(self, job: NewJob, *, conn: Any = None) -> Work[Enqueued | None]:
        """Set or move a timer, but never stand in the way: None where that failed, which is logged.

        The caller's transaction goes on as if nobody had tried; a sweep finds what has no timer.
        """
        timer = timers.timer(job)  # what is no timer at all is refused
        said = f"timer {job.key} was not set"
        return _harmless(self.seam, lambda: enqueue_job(self.seam, timer, conn), conn, logging.ERROR, said)

    @verb
    def try_cancel_many(
        self, keys: Sequence[str], *, org: str | None = None, reason: str | None = None, conn: Any = None
    ) -> Work[dict[str, CancelOutcome] | None]:
        """Cancel, but never stand in the way: None where that failed, which is logged, and none is cancelled then.

        The timers then run, and their handlers find that there is nothing left to do.
        """

        def cancel() -> Work[dict[str, CancelOutcome]]:
            return self.seam.ask(timers.cancel_many(self.seam.sql, keys, self.seam.who(org), reason), conn)

        said = f"timers {', '.join(keys)} were not cancelled"
        return _harmless(self.seam, cancel, conn, logging.WARNING, said)


def _harmless(seam: Seam, work: Callable[[], Work[T]], conn: Any, level: int, said: str) -> Work[T | None]:
    """Do it behind a savepoint of the caller's transaction: what fails leaves a line in the log.

    A connection that commits by itself needs none: there, too, what fails has written nothing.
    """
    conn = seam.joins(conn)
    saved = False

    def say(statement: str) -> Work[None]:
        return seam.ask(ask(Statement(seam.sql[statement], {}, nothing)), conn)

    if conn is not None:
        try:
            yield from say("savepoint")
            saved = True
        except Exception as error:
            if not has_no_transaction(error):
                raise
    try:
        done = yield from work()
    except Exception as error:
        log.log(level, "%s: %s", said, type(error).__name__, exc_info=error)
        if saved:
            yield from say("rollback_to_savepoint")
        return None
    if saved:
        yield from say("release_savepoint")
    return done


class Timers(TimerVerbs, Sync):
    """Timers, for sync code."""


class AsyncTimers(TimerVerbs, Async):
    """Timers, for async code."""
