"""The client for sync code."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar, overload
from uuid import UUID

import psycopg
from psycopg_pool import PoolTimeout

from mainspring.caller import NOBODY, Caller
from mainspring.cipher import Cipher, Keys
from mainspring.client.alerts import Alerts
from mainspring.client.audit import Audit
from mainspring.client.batches import Batches
from mainspring.client.breakers import Breakers
from mainspring.client.common import GONE_AFTER, Common, is_final, pauses, result_of, still_open
from mainspring.client.dead import DeadLetters
from mainspring.client.limits import Limits
from mainspring.client.schedules import Schedules
from mainspring.client.timers import Timers
from mainspring.config import DEFAULT_SCHEMA
from mainspring.db import jobs, queues, steps
from mainspring.db.adopt import adopt
from mainspring.db.batches import Together, jobs_of
from mainspring.db.bound import bound_door
from mainspring.db.cipher import erase
from mainspring.db.connect import PATIENCE, pool, why_not
from mainspring.db.explain import explain_job
from mainspring.db.jobs import Attempt, CancelOutcome
from mainspring.db.queues import Queue, WorkerRow
from mainspring.db.readable import key_among, key_in, readable_attempts, readable_job, readable_steps
from mainspring.db.run import psycopg_door, run
from mainspring.db.statement import Flow
from mainspring.db.steps import Step
from mainspring.db.translate import is_read_only, unavailable
from mainspring.errors import DatabaseUnavailable, JobExists
from mainspring.events import Observer, QueuePaused, QueueResumed
from mainspring.explain import Explanation
from mainspring.job import Enqueued, Job, NewJob
from mainspring.sanitize import mask
from mainspring.states import FINISHED

T = TypeVar("T")


class Client(Common):
    """Enqueues and manages jobs from sync code.

    ::

        client = ms.Client("postgresql://localhost/shop")
        client.enqueue(send_welcome.job(user_id=7))
        client.enqueue(send_welcome.job(user_id=8), conn=conn)  # part of conn's transaction

    On a schema that `mainspring schema secure` has secured, `secured=True` binds each statement to its organisation.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        caller: Caller = NOBODY,
        pool_size: int = 4,
        timeout: float = PATIENCE,
        secured: bool = False,
        observers: Sequence[Observer] = (),
        cipher: Cipher | None = None,
    ) -> None:
        super().__init__(dsn, schema=schema, caller=caller, secured=secured, observers=observers, cipher=cipher)
        self.dead = DeadLetters(self)
        self.alerts = Alerts(self)
        self.audit = Audit(self)
        self.batches = Batches(self)
        self.breakers = Breakers(self)
        self.limits = Limits(self)
        self.schedules = Schedules(self)
        self.timers = Timers(self)
        self._pool = pool(dsn, size=pool_size, name="mainspring client", timeout=timeout)

    @overload
    def enqueue(self, job: NewJob, *, conn: Any = None) -> Enqueued: ...
    @overload
    def enqueue(self, job: Together, *, conn: Any = None) -> list[Enqueued]: ...
    def enqueue(self, job: NewJob | Together, *, conn: Any = None) -> Enqueued | list[Enqueued]:
        """Enqueue one job; or a batch or a flow, all of it or nothing."""
        if isinstance(job, NewJob):
            return self.enqueue_many([job], conn=conn)[0]
        wanted = self._complete(jobs_of(job))
        if self._ring.cipher is not None:
            wanted = self._ring.sealed(wanted)
        if conn is None:
            return self._send(wanted, job)
        return self._tell(wanted, self._run(self._joined_together(job, wanted), conn), conn)

    def enqueue_many(self, jobs_: Sequence[NewJob], *, conn: Any = None) -> list[Enqueued]:
        """Enqueue jobs, all or none."""
        wanted = self._complete(jobs_)
        if self._ring.cipher is not None:
            wanted = self._ring.sealed(wanted)
        if conn is None:
            return self._send(wanted) if wanted else []
        return self._tell(wanted, self._run(self._joined(wanted), conn), conn)

    def get(self, job: UUID | None = None, *, key: str | None = None, org: str | None = None, conn: Any = None) -> Job:
        """One job, by its id, or the last one under a key, or JobNotFound."""
        return self._shown(self._run(jobs.get_by(self._sql, self._who(org), job, key), conn))

    def jobs(
        self,
        *,
        state: str | None = None,
        queue: str | None = None,
        task: str | None = None,
        before: UUID | None = None,
        limit: int = 50,
        org: str | None = None,
        conn: Any = None,
    ) -> list[Job]:
        """Jobs by state, queue and task, newest first; `before` continues after the last one seen."""
        filters: dict[str, Any] = {"state": state, "queue": queue, "task": task, "before": before, "limit": limit}
        found = self._run(jobs.select(self._sql, self._who(org), **filters), conn)
        return [self._shown(job) for job in found]

    def attempts(self, job: UUID, *, org: str | None = None, conn: Any = None) -> list[Attempt]:
        """The history of a job, oldest first."""
        found = self._run(jobs.attempts(self._sql, job, self._who(org)), conn)
        if key := key_among(found):
            whole = self._run(jobs.get(self._sql, job, self._who(org)), conn)
            found = readable_attempts(found, whole, self._keys(whole, key))
        return found

    def steps(self, job: UUID, *, org: str | None = None, conn: Any = None) -> list[Step]:
        """What a job has done and remembers, in order."""
        found = self._run(steps.listing(self._sql, job, self._who(org)), conn)
        if key := key_among(found):
            whole = self._run(jobs.get(self._sql, job, self._who(org)), conn)
            found = readable_steps(found, whole, self._keys(whole, key))
        return found

    def explain(self, job: UUID, *, org: str | None = None, conn: Any = None) -> Explanation:
        """Why a job runs or does not, by the claim's own predicates, one by one."""
        return self._run(explain_job(self._sql, job, self._who(org), GONE_AFTER), conn)

    def cancel(
        self,
        job: UUID | None = None,
        *,
        key: str | None = None,
        org: str | None = None,
        reason: str | None = None,
        conn: Any = None,
    ) -> CancelOutcome:
        """Stop a job by id or key: at once while it waits, by its token while it runs."""
        return self._run(jobs.cancel(self._sql, self._who(org), job=job, key=key, reason=reason), conn)

    def reschedule(
        self,
        job: UUID | None = None,
        *,
        key: str | None = None,
        org: str | None = None,
        at: datetime | None = None,
        delay: timedelta | None = None,
        reason: str | None = None,
        conn: Any = None,
    ) -> str:
        """Move a job that waits, by id or key, and return its state."""
        when: dict[str, Any] = {"at": at, "delay": delay, "reason": reason}
        return self._run(jobs.reschedule(self._sql, self._who(org), job=job, key=key, **when), conn)

    def prioritize(
        self, job: UUID, priority: int, *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> int:
        """Change the priority of a job that waits and return the old one."""
        return self._run(jobs.prioritize(self._sql, job, self._who(org), priority, reason), conn)

    def replay(self, job: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> None:
        """Make a failed or dead job ready again, attempts 0; the same as `dead.replay`."""
        return self.dead.replay(job, reason=reason, org=org, conn=conn)

    def prune(self, states: Sequence[str], age: timedelta, *, limit: int = 1000, conn: Any = None) -> int:
        """Remove at most `limit` jobs of these states that finished longer ago than `age`; returns how many."""
        return self._run(jobs.prune(self._sql, states, age, limit), conn)

    def pause(self, queue: str, *, reason: str | None = None, conn: Any = None) -> None:
        """Stop claims from a queue; running jobs finish."""
        self._run(queues.pause(self._sql, queue, self._who(), reason), conn)
        self._committed(conn, QueuePaused(queue, self._who().actor_id, reason and mask(reason)))

    def resume(self, queue: str, *, reason: str | None = None, conn: Any = None) -> bool:
        """Start claims from a queue again; False when it was not paused."""
        resumed = self._run(queues.resume(self._sql, queue, self._who(), reason), conn)
        if resumed:
            self._committed(conn, QueueResumed(queue, self._who().actor_id))
        return resumed

    def queues(self, *, conn: Any = None) -> list[Queue]:
        """Every queue that is declared, served or filled."""
        return self._run(queues.listing(self._sql), conn)

    def depth(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> int:
        """How many jobs of a queue are ready, counted up to a limit."""
        return self._run(queues.depth(self._sql, queue, limit), conn)

    def workers(self, *, conn: Any = None) -> list[WorkerRow]:
        """Worker processes, by their heartbeat."""
        return self._run(queues.workers(self._sql, GONE_AFTER), conn)

    def rotate(self, org: str, *, reason: str) -> None:
        """Give an organisation a new key for new writes; what older ones encrypted stays readable."""
        self._ring.rotate(self._who(org), reason)

    def erase(self, org: str, *, reason: str, conn: Any = None) -> int:
        """Delete an organisation's keys, so that nobody can read what they encrypted; returns how many there were."""
        count = self._run(erase(self._sql, self._who(org), reason), conn)
        self._ring.forget(org)
        return count

    def now(self, *, conn: Any = None) -> datetime:
        """The engine's clock."""
        return self._run(jobs.now(self._sql), conn)

    def result(self, job: UUID, *, org: str | None = None, timeout: float = 60.0) -> Any:
        """Wait until a job has ended and return what its handler returned."""
        deadline = time.monotonic() + timeout
        for pause in pauses():
            found = self.get(job, org=org)
            if found.state in FINISHED or time.monotonic() >= deadline:
                return result_of(found)
            time.sleep(pause)
        return None

    def close(self) -> None:
        """Close the client's own connections."""
        self._ring.close()
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _shown(self, job: Job) -> Job:
        key = key_in(job)
        return job if key is None else readable_job(job, self._keys(job, key))

    def _keys(self, job: Job, key: str) -> Keys:
        return self._ring.to_read(job.org_id, key)

    def _send(self, wanted: list[NewJob], what: Together | None = None) -> list[Enqueued]:
        lost = False
        for flow, pause in self._tries(wanted) if what is None else self._tries_together(what, wanted):
            try:
                return self._tell(wanted, self._run(flow, atomic=self._needs_transaction(wanted)))
            except (DatabaseUnavailable, JobExists) as error:
                if is_final(error, pause, lost):
                    raise
                lost = True
            time.sleep(pause or 0)
        raise AssertionError

    def _run(self, flow: Flow[T], conn: Any = None, *, atomic: bool = False) -> T:
        if conn is not None:
            with unavailable():
                return run(adopt(conn, self._sql["wake"]), flow, joined=True)
        with self._own() as own, own.transaction() if atomic else nullcontext():
            return run(bound_door(own, self._org) if self._secured else psycopg_door(own), flow)

    @contextmanager
    def _own(self) -> Iterator[psycopg.Connection[Any]]:
        with still_open():
            self._pool.open()
            try:
                own = self._pool.getconn()
            except PoolTimeout:
                raise DatabaseUnavailable(f"the database is unavailable: {why_not(self.dsn)}", sent=False) from None
        try:
            with unavailable():
                yield own
        except DatabaseUnavailable as error:
            if is_read_only(error):
                own.close()
            raise
        finally:
            if own.closed:  # the others of the pool are probably as lost
                self._pool.drain()
            self._pool.putconn(own)
