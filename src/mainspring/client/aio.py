"""The client for async code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar, overload
from uuid import UUID

from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

from mainspring.caller import NOBODY, Caller
from mainspring.cipher import Cipher, Keys
from mainspring.client.alerts import AsyncAlerts
from mainspring.client.audit import AsyncAudit
from mainspring.client.batches import AsyncBatches
from mainspring.client.breakers import AsyncBreakers
from mainspring.client.coalesce import Coalescer
from mainspring.client.common import GONE_AFTER, Common, is_final, pauses, result_of, still_open
from mainspring.client.dead import AsyncDeadLetters
from mainspring.client.limits import AsyncLimits
from mainspring.client.schedules import AsyncSchedules
from mainspring.client.timers import AsyncTimers
from mainspring.config import DEFAULT_SCHEMA
from mainspring.db import jobs, queues, steps
from mainspring.db.adopt import adopt_async
from mainspring.db.batches import Together, jobs_of
from mainspring.db.bound import async_bound_door
from mainspring.db.cipher import erase
from mainspring.db.connect import PATIENCE, AsyncConnection, async_pool, why_not
from mainspring.db.explain import explain_job
from mainspring.db.jobs import Attempt, CancelOutcome
from mainspring.db.queues import Queue, WorkerRow
from mainspring.db.readable import key_among, key_in, readable_attempts, readable_job, readable_steps
from mainspring.db.run import AsyncDoor, async_psycopg_door, run_async
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


class AsyncClient(Common):
    """Enqueues and manages jobs from async code; single enqueues that come together become one statement.

    ::

        async with ms.AsyncClient("postgresql://localhost/shop") as client:
            await client.enqueue(send_welcome.job(user_id=7))

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
        self.dead = AsyncDeadLetters(self)
        self.alerts = AsyncAlerts(self)
        self.audit = AsyncAudit(self)
        self.batches = AsyncBatches(self)
        self.breakers = AsyncBreakers(self)
        self.limits = AsyncLimits(self)
        self.schedules = AsyncSchedules(self)
        self.timers = AsyncTimers(self)
        self._pool = async_pool(dsn, size=pool_size, name="mainspring client", timeout=timeout)
        self._kept: tuple[AsyncConnection, AsyncDoor] | None = None
        self._coalescer = Coalescer(self._send)

    @overload
    async def enqueue(self, job: NewJob, *, conn: Any = None) -> Enqueued: ...
    @overload
    async def enqueue(self, job: Together, *, conn: Any = None) -> list[Enqueued]: ...
    async def enqueue(self, job: NewJob | Together, *, conn: Any = None) -> Enqueued | list[Enqueued]:
        """Enqueue one job; or a batch or a flow, all of it or nothing."""
        if not isinstance(job, NewJob):
            return await self._enqueue_together(job, conn)
        wanted = self._complete([job])
        if self._ring.cipher is not None:
            wanted = await self._sealed(wanted)
        if conn is None:
            return await self._coalescer.enqueue(wanted[0])
        return self._tell(wanted, await self._run(self._joined(wanted), conn), conn)[0]

    async def enqueue_many(self, jobs_: Sequence[NewJob], *, conn: Any = None) -> list[Enqueued]:
        """Enqueue jobs, all or none."""
        wanted = self._complete(jobs_)
        if self._ring.cipher is not None:
            wanted = await self._sealed(wanted)
        if conn is None:
            return await self._send(wanted) if wanted else []
        return self._tell(wanted, await self._run(self._joined(wanted), conn), conn)

    async def get(
        self, job: UUID | None = None, *, key: str | None = None, org: str | None = None, conn: Any = None
    ) -> Job:
        """One job, by its id, or the last one under a key, or JobNotFound."""
        return await self._shown(await self._run(jobs.get_by(self._sql, self._who(org), job, key), conn))

    async def jobs(
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
        found = await self._run(jobs.select(self._sql, self._who(org), **filters), conn)
        return [await self._shown(job) for job in found]

    async def attempts(self, job: UUID, *, org: str | None = None, conn: Any = None) -> list[Attempt]:
        """The history of a job, oldest first."""
        found = await self._run(jobs.attempts(self._sql, job, self._who(org)), conn)
        if key := key_among(found):
            whole = await self._run(jobs.get(self._sql, job, self._who(org)), conn)
            found = readable_attempts(found, whole, await self._keys(whole, key))
        return found

    async def steps(self, job: UUID, *, org: str | None = None, conn: Any = None) -> list[Step]:
        """What a job has done and remembers, in order."""
        found = await self._run(steps.listing(self._sql, job, self._who(org)), conn)
        if key := key_among(found):
            whole = await self._run(jobs.get(self._sql, job, self._who(org)), conn)
            found = readable_steps(found, whole, await self._keys(whole, key))
        return found

    async def explain(self, job: UUID, *, org: str | None = None, conn: Any = None) -> Explanation:
        """Why a job runs or does not, by the claim's own predicates, one by one."""
        return await self._run(explain_job(self._sql, job, self._who(org), GONE_AFTER), conn)

    async def cancel(
        self,
        job: UUID | None = None,
        *,
        key: str | None = None,
        org: str | None = None,
        reason: str | None = None,
        conn: Any = None,
    ) -> CancelOutcome:
        """Stop a job by id or key: at once while it waits, by its token while it runs."""
        return await self._run(jobs.cancel(self._sql, self._who(org), job=job, key=key, reason=reason), conn)

    async def reschedule(
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
        return await self._run(jobs.reschedule(self._sql, self._who(org), job=job, key=key, **when), conn)

    async def prioritize(
        self, job: UUID, priority: int, *, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> int:
        """Change the priority of a job that waits and return the old one."""
        return await self._run(jobs.prioritize(self._sql, job, self._who(org), priority, reason), conn)

    async def replay(self, job: UUID, *, reason: str, org: str | None = None, conn: Any = None) -> None:
        """Make a failed or dead job ready again, attempts 0; the same as `dead.replay`."""
        return await self.dead.replay(job, reason=reason, org=org, conn=conn)

    async def prune(self, states: Sequence[str], age: timedelta, *, limit: int = 1000, conn: Any = None) -> int:
        """Remove at most `limit` jobs of these states that finished longer ago than `age`; returns how many."""
        return await self._run(jobs.prune(self._sql, states, age, limit), conn)

    async def pause(self, queue: str, *, reason: str | None = None, conn: Any = None) -> None:
        """Stop claims from a queue; running jobs finish."""
        await self._run(queues.pause(self._sql, queue, self._who(), reason), conn)
        self._committed(conn, QueuePaused(queue, self._who().actor_id, reason and mask(reason)))

    async def resume(self, queue: str, *, reason: str | None = None, conn: Any = None) -> bool:
        """Start claims from a queue again; False when it was not paused."""
        resumed = await self._run(queues.resume(self._sql, queue, self._who(), reason), conn)
        if resumed:
            self._committed(conn, QueueResumed(queue, self._who().actor_id))
        return resumed

    async def queues(self, *, conn: Any = None) -> list[Queue]:
        """Every queue that is declared, served or filled."""
        return await self._run(queues.listing(self._sql), conn)

    async def depth(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> int:
        """How many jobs of a queue are ready, counted up to a limit."""
        return await self._run(queues.depth(self._sql, queue, limit), conn)

    async def workers(self, *, conn: Any = None) -> list[WorkerRow]:
        """Worker processes, by their heartbeat."""
        return await self._run(queues.workers(self._sql, GONE_AFTER), conn)

    async def rotate(self, org: str, *, reason: str) -> None:
        """Give an organisation a new key for new writes; what older ones encrypted stays readable."""
        await asyncio.to_thread(self._ring.rotate, self._who(org), reason)

    async def erase(self, org: str, *, reason: str, conn: Any = None) -> int:
        """Delete an organisation's keys, so that nobody can read what they encrypted; returns how many there were."""
        count = await self._run(erase(self._sql, self._who(org), reason), conn)
        self._ring.forget(org)
        return count

    async def now(self, *, conn: Any = None) -> datetime:
        """The engine's clock."""
        return await self._run(jobs.now(self._sql), conn)

    async def result(self, job: UUID, *, org: str | None = None, timeout: float = 60.0) -> Any:
        """Wait until a job has ended and return what its handler returned."""
        deadline = time.monotonic() + timeout
        for pause in pauses():
            found = await self.get(job, org=org)
            if found.state in FINISHED or time.monotonic() >= deadline:
                return result_of(found)
            await asyncio.sleep(pause)
        return None

    async def close(self) -> None:
        """Close the client's own connections."""
        await self._coalescer.drain()
        await asyncio.to_thread(self._ring.close)
        if self._kept is not None:
            await self._pool.putconn(self._kept[0])
            self._kept = None
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _enqueue_together(self, what: Together, conn: Any) -> list[Enqueued]:
        wanted = self._complete(jobs_of(what))
        if self._ring.cipher is not None:
            wanted = await self._sealed(wanted)
        if conn is None:
            return await self._send(wanted, what)
        return self._tell(wanted, await self._run(self._joined_together(what, wanted), conn), conn)

    async def _sealed(self, wanted: list[NewJob]) -> list[NewJob]:
        if self._ring.ready(wanted):
            return self._ring.sealed(wanted)
        return await asyncio.to_thread(self._ring.sealed, wanted)

    async def _shown(self, job: Job) -> Job:
        key = key_in(job)
        return job if key is None else readable_job(job, await self._keys(job, key))

    async def _keys(self, job: Job, key: str) -> Keys:
        known = self._ring.known(job.org_id, key)
        return known if known is not None else await asyncio.to_thread(self._ring.to_read, job.org_id, key)

    async def _send(self, wanted: list[NewJob], what: Together | None = None) -> list[Enqueued]:
        lost = False
        for flow, pause in self._tries(wanted) if what is None else self._tries_together(what, wanted):
            try:
                return self._tell(wanted, await self._run(flow, atomic=self._needs_transaction(wanted)))
            except (DatabaseUnavailable, JobExists) as error:
                if is_final(error, pause, lost):
                    raise
                lost = True
            await asyncio.sleep(pause or 0)
        raise AssertionError

    async def _run(self, flow: Flow[T], conn: Any = None, *, atomic: bool = False) -> T:
        if conn is not None:
            with unavailable():
                return await run_async(await adopt_async(conn, self._sql["wake"]), flow, joined=True)
        # One connection is kept at hand, with its door: a pool's bookkeeping would cost a third of an enqueue.
        kept, self._kept = self._kept, None
        if kept and kept[0].stale:  # its server was replaced
            await kept[0].close()
            await self._pool.putconn(kept[0])
            kept = None
        own, door = kept or await self._connection()
        try:
            if not atomic:
                return await run_async(door, flow)
            with unavailable():
                async with own.transaction():
                    return await run_async(door, flow)
        except DatabaseUnavailable as error:
            if is_read_only(error):
                await own.close()
            raise
        finally:
            if own.closed:  # the others of the pool are probably as lost
                await self._pool.drain()
            if self._kept is None and own.pgconn.transaction_status == TransactionStatus.IDLE:
                self._kept = own, door
            else:
                await self._pool.putconn(own)

    async def _connection(self) -> tuple[AsyncConnection, AsyncDoor]:
        with still_open():
            await self._pool.open()
            try:
                own = await self._pool.getconn()
                return own, async_bound_door(own, self._org) if self._secured else async_psycopg_door(own)
            except PoolTimeout:
                why = await asyncio.to_thread(why_not, self.dsn)
                raise DatabaseUnavailable(f"the database is unavailable: {why}", sent=False) from None
