"""`Client` and `AsyncClient`: the same verbs in both colours, each method one line over a flow of `mainspring.db`.

Without `conn` a verb uses the client's own pool; with it, it joins the caller's transaction: a psycopg, psycopg2,
SQLAlchemy or Django connection, and for the async client an async psycopg, SQLAlchemy or asyncpg one.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus
from psycopg_pool import PoolClosed, PoolTimeout

from mainspring.caller import NOBODY, Caller, current
from mainspring.coalesce import Coalescer
from mainspring.config import DEFAULT_SCHEMA
from mainspring.db import jobs, queues
from mainspring.db.adopt import adopt, adopt_async
from mainspring.db.connect import PATIENCE, async_pool, pool, why_not
from mainspring.db.jobs import Attempt, CancelOutcome, Who
from mainspring.db.queues import Queue, WorkerRow
from mainspring.db.run import AsyncDoor, async_psycopg_door, psycopg_door, run, run_async
from mainspring.db.schema import Sql
from mainspring.db.statement import Flow
from mainspring.db.translate import unavailable
from mainspring.envelope import complete
from mainspring.errors import ConfigurationError, DatabaseUnavailable, JobExists, ResultUnavailable
from mainspring.job import SYSTEM, Enqueued, Job, NewJob
from mainspring.states import FINISHED

T = TypeVar("T")
#: A heartbeat is every 10 s; three missed ones and the worker counts as gone.
GONE_AFTER = timedelta(seconds=30)
#: Pauses between tries of an enqueue whose connection was lost.
TRIES = (0.05, 0.2, 1.0, 3.0)


class _Common:
    """What both colours share: the statements, the caller's defaults, how a result is read."""

    def __init__(self, dsn: str, *, schema: str, caller: Caller) -> None:
        self.dsn = dsn
        self._sql = Sql(schema)
        self._caller = caller

    def _who(self, org: str | None = None) -> Who:
        """Who acts, for verbs that are audited; without an organisation a job id may be anybody's."""
        caller = current()
        who = caller if caller.actor_id is not None else self._caller
        # An empty organisation was said, and is refused: it must not mean all of them.
        org = next((said for said in (org, caller.org_id) if said is not None), self._caller.org_id)
        return Who(org, who.actor_type or "system", SYSTEM if who.actor_id is None else who.actor_id)

    def _complete(self, wanted: Sequence[NewJob]) -> list[NewJob]:
        return complete(wanted, self._caller)

    def _joined(self, wanted: Sequence[NewJob]) -> Flow[list[Enqueued]]:
        """In a caller's hands: one statement, because their connection may commit each by itself."""
        return jobs.enqueue_many(self._sql, wanted, batch=len(wanted) or 1)

    def _tries(self, wanted: Sequence[NewJob]) -> Iterator[tuple[Flow[list[Enqueued]], float | None]]:
        """An enqueue and its repetitions after the connection was lost, each with the pause that follows, if any."""
        first = jobs.enqueue_one(self._sql, wanted[0]) if len(wanted) == 1 else jobs.enqueue_many(self._sql, wanted)
        yield first, TRIES[0]
        for pause in (*TRIES[1:], None):
            yield jobs.enqueue_again(self._sql, wanted), pause


def _result(job: Job) -> Any:
    if job.state != "succeeded":
        text = f"job {job.id} {'ended as' if job.state in FINISHED else 'has not ended, it is'} {job.state}"
        raise ResultUnavailable(text, job_id=job.id, state=job.state, error=job.error)
    return job.result


@contextmanager
def _open() -> Iterator[None]:
    """Say it clearly when a client is used after its end."""
    try:
        yield
    except PoolClosed:
        raise ConfigurationError("the client is closed") from None


def _pauses() -> Iterator[float]:
    """How long to wait between looks at a job: short at first, a quarter of a second at last."""
    pause = 0.005
    while True:
        yield pause
        pause = min(pause * 1.5, 0.25)


def _final(error: DatabaseUnavailable | JobExists, pause: float | None, lost: bool) -> bool:
    """Whether a failed try is the last: later ones follow only where one may have committed without our knowledge."""
    if isinstance(error, DatabaseUnavailable):
        again = error.sent and pause is not None
        error.sent = error.sent or lost
        return not again
    return not lost or pause is None  # its id is taken: after a loss, by the try before, which was still under way


class Client(_Common):
    """Enqueues and manages jobs from sync code.

    ::

        client = ms.Client("postgresql://localhost/shop")
        client.enqueue(send_welcome.job(user_id=7))
        client.enqueue(send_welcome.job(user_id=8), conn=conn)  # part of conn's transaction
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
        self._pool = pool(dsn, size=pool_size, name="mainspring client", timeout=timeout)

    def enqueue(self, job: NewJob, *, conn: Any = None) -> Enqueued:
        """Enqueue one job."""
        return self.enqueue_many([job], conn=conn)[0]

    def enqueue_many(self, jobs_: Sequence[NewJob], *, conn: Any = None) -> list[Enqueued]:
        """Enqueue jobs, all or none."""
        wanted = self._complete(jobs_)
        if conn is None:
            return self._send(wanted) if wanted else []
        return self._run(self._joined(wanted), conn)

    def get(self, job: UUID, *, org: str | None = None, conn: Any = None) -> Job:
        """One job, or JobNotFound."""
        return self._run(jobs.get(self._sql, job, self._who(org)), conn)

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
        return self._run(jobs.select(self._sql, self._who(org), **filters), conn)

    def attempts(self, job: UUID, *, org: str | None = None, conn: Any = None) -> list[Attempt]:
        """The history of a job, oldest first."""
        return self._run(jobs.attempts(self._sql, job, self._who(org)), conn)

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
        conn: Any = None,
    ) -> str:
        """Move a job that waits, by id or key, and return its state."""
        return self._run(jobs.reschedule(self._sql, self._who(org), job=job, key=key, at=at, delay=delay), conn)

    def prioritize(self, job: UUID, priority: int, *, org: str | None = None, conn: Any = None) -> int:
        """Change the priority of a job that waits and return the old one."""
        return self._run(jobs.prioritize(self._sql, job, self._who(org), priority), conn)

    def replay(self, job: UUID, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> None:
        """Make a failed or dead job ready again, attempts 0."""
        return self._run(jobs.replay(self._sql, job, self._who(org), reason), conn)

    def prune(self, states: Sequence[str], age: timedelta, *, limit: int = 1000, conn: Any = None) -> int:
        """Remove at most `limit` jobs of these states that finished longer ago than `age`; returns how many."""
        return self._run(jobs.prune(self._sql, states, age, limit), conn)

    def pause(self, queue: str, *, reason: str | None = None, conn: Any = None) -> None:
        """Stop claims from a queue; running jobs finish."""
        return self._run(queues.pause(self._sql, queue, self._who(), reason), conn)

    def resume(self, queue: str, *, conn: Any = None) -> bool:
        """Start claims from a queue again; False when it was not paused."""
        return self._run(queues.resume(self._sql, queue, self._who()), conn)

    def queues(self, *, conn: Any = None) -> list[Queue]:
        """Every queue that is declared, served or filled."""
        return self._run(queues.listing(self._sql), conn)

    def depth(self, queue: str, *, limit: int = 10_000, conn: Any = None) -> int:
        """How many jobs of a queue are ready, counted up to a limit."""
        return self._run(queues.depth(self._sql, queue, limit), conn)

    def workers(self, *, conn: Any = None) -> list[WorkerRow]:
        """Worker processes, by their heartbeat."""
        return self._run(queues.workers(self._sql, GONE_AFTER), conn)

    def now(self, *, conn: Any = None) -> datetime:
        """The engine's clock."""
        return self._run(jobs.now(self._sql), conn)

    def result(self, job: UUID, *, org: str | None = None, timeout: float = 60.0) -> Any:
        """Wait until a job has ended and return what its handler returned."""
        deadline = time.monotonic() + timeout
        for pause in _pauses():
            found = self.get(job, org=org)
            if found.state in FINISHED or time.monotonic() >= deadline:
                return _result(found)
            time.sleep(pause)
        return None

    def close(self) -> None:
        """Close the client's own connections."""
        self._pool.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _send(self, wanted: list[NewJob]) -> list[Enqueued]:
        lost = False
        for flow, pause in self._tries(wanted):
            try:
                return self._run(flow, atomic=len(wanted) > jobs.BATCH)
            except (DatabaseUnavailable, JobExists) as error:
                if _final(error, pause, lost):
                    raise
                lost = True
            time.sleep(pause or 0)
        raise AssertionError

    def _run(self, flow: Flow[T], conn: Any = None, *, atomic: bool = False) -> T:
        if conn is not None:
            with unavailable():
                return run(adopt(conn, self._sql["wake"]), flow, joined=True)
        with self._own() as own, own.transaction() if atomic else nullcontext():
            return run(psycopg_door(own), flow)

    @contextmanager
    def _own(self) -> Iterator[psycopg.Connection[Any]]:
        with _open():
            self._pool.open()
            try:
                own = self._pool.getconn()
            except PoolTimeout:
                raise DatabaseUnavailable(f"the database is unavailable: {why_not(self.dsn)}", sent=False) from None
        try:
            with unavailable():
                yield own
        finally:
            if own.broken:  # the others of the pool are probably as lost
                self._pool.drain()
            self._pool.putconn(own)


class AsyncClient(_Common):
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
        for pause in _pauses():
            found = await self.get(job, org=org)
            if found.state in FINISHED or time.monotonic() >= deadline:
                return _result(found)
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
                if _final(error, pause, lost):
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
        with _open():
            await self._pool.open()
            try:
                own = await self._pool.getconn()
                return own, async_psycopg_door(own)
            except PoolTimeout:
                why = await asyncio.to_thread(why_not, self.dsn)
                raise DatabaseUnavailable(f"the database is unavailable: {why}", sent=False) from None
