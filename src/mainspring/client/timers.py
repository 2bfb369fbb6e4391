"""`client.timers`: each verb is written once, over a dialogue of `mainspring.db`."""

from __future__ import annotations

from typing import Any

from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.client.enqueue import enqueue_job
from mainspring.db import jobs, timers
from mainspring.db.jobs import CancelOutcome
from mainspring.db.timers import Timer
from mainspring.job import Enqueued, NewJob


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


class Timers(TimerVerbs, Sync):
    """Timers, for sync code."""


class AsyncTimers(TimerVerbs, Async):
    """Timers, for async code."""
