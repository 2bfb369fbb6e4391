"""The client for async code."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

from mainspring.caller import NOBODY, Caller
from mainspring.client.coalesce import Coalescer
from mainspring.client.common import GONE_AFTER, Common, is_final, pauses, result_of, still_open
from mainspring.config import DEFAULT_SCHEMA
from mainspring.db import jobs, queues
from mainspring.db.adopt import adopt_async
from mainspring.db.connect import PATIENCE, async_pool, why_not
from mainspring.db.jobs import Attempt, CancelOutcome
from mainspring.db.queues import Queue, WorkerRow
from mainspring.db.run import AsyncDoor, async_psycopg_door, run_async
from mainspring.db.statement import Flow
from mainspring.db.translate import unavailable
from mainspring.errors import DatabaseUnavailable, JobExists
from mainspring.job import Enqueued, Job, NewJob
from mainspring.states import FINISHED

T = TypeVar("T")


class AsyncClient(Common):
    """Enqueues and manages jobs from async code; single enqueues that come together become one statement.

    ::

        async with ms.AsyncClient("postgresql://localhost/shop") as client:
            await client.enqueue(send_welcome.job(user_id=7))
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        caller: Caller = NOBODY,
        pool_size: int = 4,
        timeout: float = PATIENCE,
    ) -> None:
        super().__init__(dsn, schema=schema, caller=caller)
        self._pool = async_pool(dsn, size=pool_size, name="mainspring client", timeout=timeout)
        self._kept: tuple[psycopg.AsyncConnection[Any], AsyncDoor] | None = None
        self._coalescer = Coalescer(self._send)

    async def enqueue(self, job: NewJob, *, conn: Any = None) -> Enqueued:
        """Enqueue one job."""
        wanted = self._complete([job])
        if conn is None:
            return await self._coalescer.enqueue(wanted[0])
        return (await self._run(self._joined(wanted), conn))[0]

    async def enqueue_many(self, jobs_: Sequence[NewJob], *, conn: Any = None) -> list[Enqueued]:
        """Enqueue jobs, all or none."""
        wanted = self._complete(jobs_)
        if conn is None:
            return await self._send(wanted) if wanted else []
        return await self._run(self._joined(wanted), conn)

    async def get(self, job: UUID, *, org: str | None = None, conn: Any = None) -> Job:
        """One job, or JobNotFound."""
        return await self._run(jobs.get(self._sql, job, self._who(org)), conn)

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
        return await self._run(jobs.select(self._sql, self._who(org), **filters), conn)

    async def attempts(self, job: UUID, *, org: str | None = None, conn: Any = None) -> list[Attempt]:
        """The history of a job, oldest first."""
        return await self._run(jobs.attempts(self._sql, job, self._who(org)), conn)

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
        conn: Any = None,
    ) -> str:
        """Move a job that waits, by id or key, and return its state."""
        return await self._run(jobs.reschedule(self._sql, self._who(org), job=job, key=key, at=at, delay=delay), conn)

    async def prioritize(self, job: UUID, priority: int, *, org: str | None = None, conn: Any = None) -> int:
        """Change the priority of a job that waits and return the old one."""
        return await self._run(jobs.prioritize(self._sql, job, self._who(org), priority), conn)

    async def replay(self, job: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> None:
        """Make a failed or dead job ready again, attempts 0."""
        return await self._run(jobs.replay(self._sql, job, self._who(org), reason), conn)

    async def prune(self, states: Sequence[str], age: timedelta, *, limit: int = 1000, conn: Any = None) -> int:
        """Remove at most `limit` jobs of these states that finished longer ago than `age`; returns how many."""
        return await self._run(jobs.prune(self._sql, states, age, limit), conn)

    async def pause(self, queue: str, *, reason: str | None = None, conn: Any = None) -> None:
        """Stop claims from a queue; running jobs finish."""
        return await self._run(queues.pause(self._sql, queue, self._who(), reason), conn)

    async def resume(self, queue: str, *, conn: Any = None) -> bool:
        """Start claims from a queue again; False when it was not paused."""
        return await self._run(queues.resume(self._sql, queue, self._who()), conn)

    async def queues(self, *, conn: Any = None) -> list[Queue]:
        """Every queue that is declared, served or filled."""
        return await self._run(queues.listing(self._sql), conn)

    async def depth(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> int:
        """How many jobs of a queue are ready, counted up to a limit."""
        return await self._run(queues.depth(self._sql, queue, limit), conn)

    async def workers(self, *, conn: Any = None) -> list[WorkerRow]:
        """Worker processes, by their heartbeat."""
        return await self._run(queues.workers(self._sql, GONE_AFTER), conn)

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
        if self._kept is not None:
            await self._pool.putconn(self._kept[0])
            self._kept = None
        await self._pool.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _send(self, wanted: list[NewJob]) -> list[Enqueued]:
        lost = False
        for flow, pause in self._tries(wanted):
            try:
                return await self._run(flow, atomic=len(wanted) > jobs.BATCH)
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
        own, door = kept or await self._connection()
        try:
            if not atomic:
                return await run_async(door, flow)
            with unavailable():
                async with own.transaction():
                    return await run_async(door, flow)
        finally:
            if own.broken:  # the others of the pool are probably as lost
                await self._pool.drain()
            if self._kept is None and own.pgconn.transaction_status == TransactionStatus.IDLE:
                self._kept = own, door
            else:
                await self._pool.putconn(own)

    async def _connection(self) -> tuple[psycopg.AsyncConnection[Any], AsyncDoor]:
        with still_open():
            await self._pool.open()
            try:
                own = await self._pool.getconn()
                return own, async_psycopg_door(own)
            except PoolTimeout:
                why = await asyncio.to_thread(why_not, self.dsn)
                raise DatabaseUnavailable(f"the database is unavailable: {why}", sent=False) from None
