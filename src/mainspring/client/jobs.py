"""Verbs of jobs, queues and keys: those of the client itself."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import Any
from uuid import UUID

from mainspring.client.colour import Blocking, Verbs, Wait, Work, verb
from mainspring.db import decisions, jobs, queues, steps
from mainspring.db.cipher import erase
from mainspring.db.explain import explain_job
from mainspring.db.jobs import Attempt, CancelOutcome
from mainspring.db.queues import GONE_AFTER, HeldJob, QueueRow, WorkerRow
from mainspring.db.readable import key_among, readable_attempts, readable_steps
from mainspring.db.steps import Step
from mainspring.errors import ResultUnavailable
from mainspring.events import QueuePaused, QueueResumed
from mainspring.health.explain import Explanation
from mainspring.job import Id, Job
from mainspring.states import FINISHED
from mainspring.text.sanitize import mask
from mainspring.text.span import Span, span_of


class JobVerbs(Verbs):
    """See jobs and queues, and change what becomes of them."""

    @verb
    def get(
        self, job: Id | None = None, *, key: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[Job]:
        """One job, by its id, or the last one under a key, or JobNotFound."""
        dialogue = jobs.get_by(self.seam.sql, self.seam.who(org), job, key)
        return (yield from self.seam.shown((yield from self.seam.ask(dialogue, conn))))

    @verb
    def jobs(
        self,
        *,
        state: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        prefix: str | None = None,
        before: Id | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[list[Job]]:
        """Jobs by state, queue, task and the first digits of their ids, newest first; `before`: after this one."""
        filters: dict[str, Any] = {"state": state, "queue": queue, "task": task, "before": before, "limit": limit}
        dialogue = jobs.select(self.seam.sql, self.seam.who(org), prefix=prefix, **filters)
        found = yield from self.seam.ask(dialogue, conn)
        return (yield from self.seam.all_shown(found))

    @verb
    def attempts(self, job: Id, *, org: str | None = None, conn: Any = None) -> Work[list[Attempt]]:
        """The history of a job, oldest first."""
        seam, who = self.seam, self.seam.who(org)
        found = yield from seam.ask(jobs.attempts(seam.sql, job, who), conn)
        if key := key_among(found):
            whole = yield from seam.ask(jobs.get(seam.sql, job, who), conn)
            found = readable_attempts(found, whole, (yield from seam.keys_to_read(whole.org_id, key)))
        return found

    @verb
    def steps(self, job: Id, *, org: str | None = None, conn: Any = None) -> Work[list[Step]]:
        """What a job has done and remembers, in order."""
        seam, who = self.seam, self.seam.who(org)
        found = yield from seam.ask(steps.listing(seam.sql, job, who), conn)
        if key := key_among(found):
            whole = yield from seam.ask(jobs.get(seam.sql, job, who), conn)
            found = readable_steps(found, whole, (yield from seam.keys_to_read(whole.org_id, key)))
        return found

    @verb
    def explain(self, job: Id, *, org: str | None = None, conn: Any = None) -> Work[Explanation]:
        """Why a job runs or does not, by the claim's own predicates, one by one."""
        return self.seam.ask(explain_job(self.seam.sql, job, self.seam.who(org), GONE_AFTER), conn)

    @verb
    def cancel(
        self,
        job: Id | None = None,
        *,
        key: str | None = None,
        org: str | None = None,
        reason: str | None = None,
        conn: Any = None,
    ) -> Work[CancelOutcome]:
        """Stop a job by id or key: at once while it waits, by its token while it runs."""
        return self.seam.ask(jobs.cancel(self.seam.sql, self.seam.who(org), job=job, key=key, reason=reason), conn)

    @verb
    def reschedule(
        self,
        job: Id | None = None,
        *,
        key: str | None = None,
        org: str | None = None,
        at: datetime | None = None,
        delay: Span | None = None,
        reason: str | None = None,
        conn: Any = None,
    ) -> Work[str]:
        """Move a job that waits, by id or key, and return its state."""
        later = None if delay is None else span_of("delay", delay)
        when: dict[str, Any] = {"at": at, "delay": later, "reason": reason}
        return self.seam.ask(jobs.reschedule(self.seam.sql, self.seam.who(org), job=job, key=key, **when), conn)

    @verb
    def prioritize(
        self, job: Id, priority: int, *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[int]:
        """Change the priority of a job that waits and return the old one."""
        return self.seam.ask(jobs.prioritize(self.seam.sql, job, self.seam.who(org), priority, reason), conn)

    @verb
    def replay(self, job: Id, *, reason: str, org: str | None = None, conn: Any = None) -> Work[None]:
        """Make a failed or dead job ready again, attempts 0; the same as `dead.replay`."""
        return self.seam.ask(decisions.replay(self.seam.sql, job, self.seam.who(org), reason), conn)

    @verb
    def prune(self, states: Sequence[str], age: Span, *, limit: int = 1000, conn: Any = None) -> Work[int]:
        """Remove at most `limit` jobs of these states that finished longer ago than `age`; returns how many."""
        return self.seam.ask(jobs.prune(self.seam.sql, states, span_of("age", age), limit), conn)

    @verb
    def result(self, job: Id, *, org: str | None = None, timeout: Span = 60.0) -> Work[Any]:
        """Wait until a job has ended and return what its handler returned."""
        deadline = time.monotonic() + span_of("timeout", timeout).total_seconds()
        for pause in looks():
            found = yield from self.seam.ask(jobs.get_by(self.seam.sql, self.seam.who(org), job, None))
            if found.state in FINISHED or time.monotonic() >= deadline:
                return _result_of((yield from self.seam.shown(found)))
            yield Wait(pause)
        return None

    @verb
    def now(self, *, conn: Any = None) -> Work[datetime]:
        """The engine's clock."""
        return self.seam.ask(jobs.now(self.seam.sql), conn)

    # -- queues

    @verb
    def pause(self, queue: str, *, reason: str | None = None, conn: Any = None) -> Work[None]:
        """Stop claims from a queue; running jobs finish."""
        who = self.seam.who()
        yield from self.seam.ask(queues.pause(self.seam.sql, queue, who, reason), conn)
        self.seam.tell(conn, QueuePaused(queue, who.actor_id, reason and mask(reason)))

    @verb
    def resume(self, queue: str, *, reason: str | None = None, conn: Any = None) -> Work[bool]:
        """Start claims from a queue again; False when it was not paused."""
        who = self.seam.who()
        resumed = yield from self.seam.ask(queues.resume(self.seam.sql, queue, who, reason), conn)
        if resumed:
            self.seam.tell(conn, QueueResumed(queue, who.actor_id))
        return resumed

    @verb
    def queues(self, *, org: str | None = None, conn: Any = None) -> Work[list[QueueRow]]:
        """Every queue that is declared, served or filled, with what is ready: all of it, or of one organisation."""
        return self.seam.ask(queues.listing(self.seam.sql, org), conn)

    @verb
    def depth(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> Work[int]:
        """How many jobs of a queue are ready, counted up to a limit."""
        return self.seam.ask(queues.depth(self.seam.sql, queue, limit), conn)

    @verb
    def workers(self, *, org: str | None = None, conn: Any = None) -> Work[list[WorkerRow]]:
        """Worker processes, by their heartbeat, with what they run: all of it, or of one organisation."""
        return self.seam.ask(queues.workers(self.seam.sql, GONE_AFTER, org), conn)

    @verb
    def worker_jobs(
        self,
        worker: str,
        *,
        limit: int = 100,
        after: tuple[datetime, UUID] | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[list[HeldJob]]:
        """What a worker holds, those that have run longest first; `after` continues after the last one seen."""
        who = self.seam.who(org)
        return self.seam.ask(queues.worker_jobs(self.seam.sql, worker, who.org_id, limit, after), conn)

    # -- keys

    @verb
    def rotate(self, org: str, *, reason: str) -> Work[None]:
        """Give an organisation a new key for new writes; what older ones encrypted stays readable."""
        who = self.seam.who(org)
        yield Blocking(lambda: self.seam.keyring.rotate(who, reason))

    @verb
    def erase(self, org: str, *, reason: str, conn: Any = None) -> Work[int]:
        """Delete an organisation's keys, so that nobody can read what they encrypted; returns how many there were."""
        count = yield from self.seam.ask(erase(self.seam.sql, self.seam.who(org), reason), conn)
        self.seam.keyring.forget(org)
        return count


def _result_of(job: Job) -> Any:
    """What a succeeded job's handler returned; else the error that says how it stands."""
    if job.state != "succeeded":
        text = f"job {job.id} {'ended as' if job.state in FINISHED else 'has not ended, it is'} {job.state}"
        raise ResultUnavailable(text, job_id=job.id, state=job.state, error=job.error)
    return job.result


def looks() -> Iterator[float]:
    """How long to wait between looks at what shall end: short at first, a quarter of a second at last."""
    pause = 0.005
    while True:
        yield pause
        pause = min(pause * 1.5, 0.25)
