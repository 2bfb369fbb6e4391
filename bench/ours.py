"""Our side: the same work as the floor's, through the public API and with every default on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import psycopg

import mainspring as ms
from mainspring.db.schema.migrate import migrate
from mainspring.worker import Worker

CHUNK = 1_000
TEXT = "Your order is on its way"
#: All that a run may have filled; the rest was there from the beginning.
CLEAR = """
do $$ declare t regclass; filled boolean; begin
  for t in select c.oid from pg_class c where c.relnamespace = 'mainspring'::regnamespace and c.relkind in ('r', 'p')
             and not c.relispartition and c.relname not in ('migration', 'verb', 'queue') loop
    execute format('select exists (select from %s)', t) into filled;
    if filled then execute format('truncate %s cascade', t); end if;
  end loop;
  truncate effect;
end $$
"""
tasks = ms.Registry("bench")


@tasks.task
async def noop(*, user: int, email: str, subject: str, copies: list[int]) -> None:
    """Do nothing, with a payload of about a hundred bytes."""


@tasks.task
async def effect(ctx: ms.Context, *, user: int) -> None:
    """Write one row in the job's own transaction."""
    async with ctx.complete() as conn:
        await conn.execute("insert into effect (user_id) values (%s)", [user])


def noops(number: int) -> list[ms.NewJob]:
    return [noop.job(user=n, email="someone@example.com", subject=TEXT, copies=[1, 2, 3]) for n in range(number)]


def install(dsn: str) -> None:
    """Install the schema anew."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute("drop schema if exists mainspring cascade")
        conn.execute("drop table if exists effect")
        conn.execute("create table effect (user_id bigint not null)")
        migrate(conn)


def clear(dsn: str) -> None:
    """Start from empty tables; what is installed already is only emptied, in a tenth of the time."""
    with psycopg.connect(dsn, autocommit=True) as conn:
        if conn.execute("select to_regclass('mainspring.queue')").fetchone() == (None,):
            install(dsn)
        else:
            conn.execute(CLEAR)


async def fill(dsn: str, jobs: list[ms.NewJob]) -> None:
    async with ms.AsyncClient(dsn) as client:
        for start in range(0, len(jobs), CHUNK):
            await client.enqueue_many(jobs[start : start + CHUNK])


async def ask(dsn: str, query: Any) -> Any:
    async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
        row = await (await conn.execute(query)).fetchone()
        assert row is not None
        return row[0]


@asynccontextmanager
async def working(dsn: str, **options: Any) -> AsyncIterator[Worker]:
    worker = Worker(dsn, tasks, **options)
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def until(done: Callable[[], Awaitable[bool]], seconds: float = 600) -> None:
    deadline = time.monotonic() + seconds
    while not await done():
        if time.monotonic() > deadline:
            raise TimeoutError("the benchmark does not end")
        await asyncio.sleep(0.005)


async def drained(dsn: str, worker: Worker, jobs: int, start: datetime) -> float:
    """Jobs/s from `start` to the last completion that the server recorded; every job must have ended well, once."""

    async def done() -> bool:
        return worker.counts["succeeded"] >= jobs

    await until(done)
    while await ask(dsn, "select count(*) from mainspring.running"):
        await asyncio.sleep(0.005)
    finished = await ask(dsn, "select count(*) from mainspring.finished where state = 'succeeded'")
    if finished != jobs:
        raise RuntimeError(f"{finished} of {jobs} jobs finished")
    end = await ask(dsn, "select max(finished_at) from mainspring.finished")
    rate: float = jobs / (end - start).total_seconds()
    return rate


async def drain(dsn: str, jobs: int, make: Callable[[int], list[ms.NewJob]] = noops, **options: Any) -> float:
    """Jobs/s of one worker process with all defaults."""
    clear(dsn)
    await fill(dsn, make(jobs))
    async with working(dsn, **options) as worker:  # its first connections are yet to be made, unlike the floor's
        return await drained(dsn, worker, jobs, await ask(dsn, "select clock_timestamp()"))


async def transactional_drain(dsn: str, jobs: int) -> float:
    """Jobs/s when each handler writes one row in `ctx.complete()`."""
    return await drain(dsn, jobs, lambda number: [effect.job(user=n) for n in range(number)])


async def surprised_drain(dsn: str, jobs: int) -> float:
    """Jobs/s when the statements were prepared on empty, analysed tables and the jobs arrive all at once."""
    install(dsn)
    async with working(dsn) as worker, ms.AsyncClient(dsn) as client:
        for _ in range(8):  # the worker prepares its statements, and the generic plans are made
            await client.enqueue(noops(1)[0])
        await ask(dsn, "select 1 from pg_sleep(0.5)")
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("vacuum analyze")
        await client.pause("q:default")
        ready, before = noops(jobs), worker.counts["succeeded"]
        for start in range(0, jobs, CHUNK):
            await client.enqueue_many(ready[start : start + CHUNK])
        begun = await ask(dsn, "select clock_timestamp()")
        await client.resume("q:default")
        rate = await drained(dsn, worker, jobs + before, begun)
        return rate * jobs / (jobs + before)


async def bulk_enqueue(dsn: str, jobs: int, **options: Any) -> float:
    """Jobs/s of enqueues of a thousand jobs each; making, checking and encoding them counts."""
    clear(dsn)
    async with ms.AsyncClient(dsn, **options) as client:
        await client.enqueue_many(noops(CHUNK))
        start = time.perf_counter()
        for _ in range(0, jobs, CHUNK):
            await client.enqueue_many(noops(CHUNK))
        return jobs / (time.perf_counter() - start)


async def single_enqueue(dsn: str, n: int, **options: Any) -> float:
    """Commits/s of one enqueue after the other."""
    clear(dsn)
    async with ms.AsyncClient(dsn, **options) as client:
        for _ in range(10):
            await client.enqueue(noops(1)[0])
        start = time.perf_counter()
        for _ in range(n):
            await client.enqueue(noops(1)[0])
        return n / (time.perf_counter() - start)


async def coalesced_enqueue(dsn: str, n: int, concurrency: int = 100) -> float:
    """Jobs/s of single enqueues by a hundred callers at once."""
    clear(dsn)
    async with ms.AsyncClient(dsn) as client:

        async def caller(times: int) -> None:
            for _ in range(times):
                await client.enqueue(noops(1)[0])

        await caller(10)
        start = time.perf_counter()
        await asyncio.gather(*(caller(n // concurrency) for _ in range(concurrency)))
        return n / (time.perf_counter() - start)
