"""Where the worker's tests play: a database, its clock, a client, and real workers in the test's own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
from psycopg.rows import TupleRow
from tests.databases import Database

from mainspring import AsyncClient, Registry
from mainspring.config import WorkerConfig
from mainspring.job import Enqueued, Job, NewJob
from mainspring.virtual.clock import Clock
from mainspring.worker import Worker
from mainspring.worker.executor import Authorize

SETTINGS: dict[str, Any] = {
    "wakeups": False,
    "poll_interval": timedelta(milliseconds=50),  # with 20, these tests cost a seventh more of CPU
    "grace": timedelta(seconds=1),
    "processes": 1,
}


#: A table for business effects; it takes an effect twice, so that the tests see it.
LEDGER = "create table if not exists ledger (job uuid, note text)"


class Stage:
    """One test's world."""

    def __init__(self, database: Database, conn: psycopg.Connection[TupleRow], client: AsyncClient) -> None:
        self.dsn, self.conn, self.client = database.dsn, conn, client
        self.clock = Clock(conn)

    def worker(self, registry: Registry, *, authorize: Authorize | None = None, **settings: Any) -> Worker:
        return Worker(self.dsn, registry, config=WorkerConfig(**(SETTINGS | settings)), authorize=authorize)

    @asynccontextmanager
    async def work(
        self, registry: Registry, *, authorize: Authorize | None = None, **settings: Any
    ) -> AsyncIterator[Worker]:
        """A worker that runs inside the block."""
        worker = self.worker(registry, authorize=authorize, **settings)
        await worker.start()
        try:
            yield worker
        finally:
            await worker.stop()

    async def drain(self, registry: Registry, *, authorize: Authorize | None = None, **settings: Any) -> Worker:
        """Run everything that is due."""
        worker = self.worker(registry, authorize=authorize, **settings)
        async with asyncio.timeout(60):
            await worker.drain()
        return worker

    async def enqueue(self, job: NewJob) -> UUID:
        return (await self.client.enqueue(job)).id

    async def enqueue_many(self, jobs: list[NewJob]) -> list[Enqueued]:
        return await self.client.enqueue_many(jobs)

    async def result(self, job: UUID, timeout: float = 60.0) -> Any:
        return await self.client.result(job, timeout=timeout)

    async def job(self, job: UUID) -> Job:
        return await self.client.get(job)

    async def state(self, job: UUID) -> str:
        return (await self.client.get(job)).state

    def rows(self, sql: str, *params: Any) -> list[TupleRow]:
        cursor = self.conn.execute(sql, params)
        return cursor.fetchall() if cursor.description else []

    def one(self, sql: str, *params: Any) -> Any:
        """The first column of the first row."""
        return self.rows(sql, *params)[0][0]

    def events(self, job: UUID) -> list[str]:
        """What the audit trail says of a job, in order."""
        return [row[0] for row in self.rows("select event from mainspring.audit where job_id = %s order by id", job)]

    def ledger(self) -> None:
        """Make the table for business effects, where the database has not come with it."""
        self.rows(LEDGER)

    def effects(self) -> list[str]:
        return [row[0] for row in self.rows("select note from ledger order by note")]

    def claim(
        self, worker: str, task: str, *, rescued: int = 0, alone: bool = False, queue: str = "q:default"
    ) -> list[int]:
        """Claim all jobs of a task as another worker, and return their epochs."""
        early = "array['0002-01-01'::timestamptz]"
        rows = self.rows(
            f"select epoch from mainspring.claim(%s, '60 s', 1000, array[%s], array[1000], {early}, {early}, {early}, "
            f"{early}, array[%s], false, %s::int, %s)",
            worker, queue, task, int(rescued), alone,
        )  # fmt: skip
        return [row[0] for row in rows]

    def steal(self, task: str, thief: str = "thief") -> list[int]:
        """Let the leases of all running jobs expire and give one of them to another worker, in one go."""
        with self.conn.transaction():
            self.clock.advance(seconds=61)
            self.rows("select mainspring.rescue(1000, 3)")
            return self.claim(thief, task, rescued=1)

    async def until(self, holds: Callable[[], object], seconds: float = 60.0) -> None:
        """Wait for a fact."""
        async with asyncio.timeout(seconds):
            while not holds():
                await asyncio.sleep(0.005)
