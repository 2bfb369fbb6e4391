"""How soon an idle worker starts a job, and what hints cost those who enqueue."""

from __future__ import annotations

import asyncio
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import mainspring as ms
from bench import ours
from bench.cluster import Server
from mainspring.cli.worker import collect_seldom
from mainspring.embedded import find_binaries
from mainspring.worker import Worker

ENQUEUE = """
select * from mainspring.enqueue_many(json_build_array(json_build_object('id', gen_random_uuid(), 'task', 'noop',
  'payload', json_build_object('user', 1, 'email', 'a', 'subject', 'b', 'copies', json_build_array(1)))))
"""
#: Commits/s since the first second of what was enqueued from then on.
COMMITS = """
select count(*) filter (where created_at > first + interval '1 s')
       / extract(epoch from max(created_at) - first - interval '1 s')::float8
from mainspring.job, (select min(created_at) as first from mainspring.job where created_at >= '{0}') f
where created_at >= '{0}' group by first
"""

REST = 0.02  # seconds between two jobs, as in the floor
tasks = ms.Registry("pickup")
_started: list[float] = []
_entered: dict[int, float] = {}


@tasks.task
async def mark() -> None:
    """Note when the handler was entered."""
    _started.append(time.perf_counter())


@tasks.task
async def timer(*, n: int) -> None:
    """Note when the handler was entered, by the wall clock that the database shares with us here."""
    _entered[n] = time.time()


async def _pickup(dsn: str, n: int, enqueue: Callable[[], Awaitable[float]]) -> float:
    """The median ms from the instant that `enqueue` returns to the handler's entry, with a worker that slept."""
    worker = Worker(dsn, tasks)
    await worker.start()
    taken = []
    try:
        await asyncio.sleep(0.5)
        for _ in range(n + 2):
            await asyncio.sleep(REST)  # the worker sleeps
            _started.clear()
            begun = await enqueue()
            while not _started:
                await asyncio.sleep(0.0005)
            taken.append(_started[0] - begun)
    finally:
        await worker.stop()
    return statistics.median(taken[2:]) * 1000  # the first ones prepare


async def pickup(dsn: str, n: int) -> float:
    """Through the client, from the call to the handler: the commit counts, as in the floor."""
    ours.clear(dsn)
    async with ms.AsyncClient(dsn) as client:

        async def enqueue() -> float:
            begun = time.perf_counter()
            task = asyncio.ensure_future(client.enqueue(mark.job()))
            await asyncio.sleep(0)
            await task
            return begun

        return await _pickup(dsn, n, enqueue)


async def pickup_sqlalchemy(dsn: str, n: int) -> float:
    """Inside a SQLAlchemy session, from the call of commit to the handler."""
    from psycopg.conninfo import conninfo_to_dict
    from sqlalchemy import text
    from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine

    ours.clear(dsn)
    engine = create_async_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(dsn))
    client = ms.AsyncClient(dsn)

    async def enqueue() -> float:
        async with AsyncSession(engine) as session:
            await session.execute(text("insert into effect values (1)"))
            await client.enqueue(mark.job(), conn=session)
            begun = time.perf_counter()
            await session.commit()
            return begun

    try:
        return await _pickup(dsn, n, enqueue)
    finally:
        await client.close()
        await engine.dispose()


async def pickup_django(dsn: str, n: int) -> float:
    """Inside a Django transaction in a thread, from the call of commit to the handler."""
    import django
    from django.conf import settings
    from django.db import connections, transaction
    from psycopg.conninfo import conninfo_to_dict

    ours.clear(dsn)
    where = conninfo_to_dict(dsn)
    database = {"ENGINE": "django.db.backends.postgresql", "NAME": where["dbname"], "USER": where["user"]}
    database |= {"HOST": where["host"], "PORT": where["port"]}
    if not settings.configured:
        settings.configure(DATABASES={"default": database})
        django.setup()
    client = ms.Client(dsn)

    def work() -> float:
        conn = connections["default"]
        with transaction.atomic():
            with conn.cursor() as cursor:
                cursor.execute("insert into effect values (1)")
            client.enqueue(mark.job(), conn=conn)
            begun = time.perf_counter()
        return begun  # noqa: RET504 (taken before the commit, returned after it)

    from concurrent.futures import ThreadPoolExecutor

    with ThreadPoolExecutor(1) as thread:
        loop = asyncio.get_running_loop()
        try:
            return await _pickup(dsn, n, lambda: loop.run_in_executor(thread, work))
        finally:
            await loop.run_in_executor(thread, lambda: connections["default"].close())
            client.close()


async def timers(dsn: str, n: int, seconds: float, *, fresh: bool = True) -> dict[str, float]:
    """Timers spread over some seconds: how many were early, and how late the others were, in ms."""
    if fresh:
        ours.clear(dsn)
    _entered.clear()
    worker = Worker(dsn, tasks)
    await worker.start()
    try:
        base = datetime.fromtimestamp(time.time() + 1.0 + n / 20_000).astimezone()
        due = [base + timedelta(seconds=seconds * i / n) for i in range(n)]
        await ours.fill(dsn, [timer.job(n=i).at(at) for i, at in enumerate(due)])

        async def done() -> bool:
            return len(_entered) == n

        await ours.until(done, seconds + 120)
    finally:
        await worker.stop()
    late = sorted((_entered[i] - at.timestamp()) * 1000 for i, at in enumerate(due))
    early = sum(1 for ms_ in late if ms_ < 0)
    return {"early": early, "p50": late[n // 2], "p99": late[int(n * 0.99)], "worst": late[-1]}


@contextmanager
def worker_process(dsn: str, *, wakeups: bool) -> Iterator[None]:
    """A worker in a process of its own, which hears hints or polls."""
    ours.clear(dsn)
    worker = subprocess.Popen([sys.executable, "-m", "bench.pickup", dsn, "on" if wakeups else "off"])
    try:
        yield
    finally:
        worker.terminate()
        worker.wait()


async def enqueuers(server: Server, dsn: str, clients: int, seconds: int) -> float:
    """Commits/s of pgbench clients that enqueue one job each, while a worker process runs them.

    The first second does not count: connections are made and statements planned in it, and a worker that polls sleeps
    through most of it, while one that hears hints is at work (with 64 clients 0.65 in that second, 0.95 later).
    """
    begun = await ours.ask(dsn, "select clock_timestamp()")
    with tempfile.TemporaryDirectory() as folder:
        script = Path(folder) / "enqueue.sql"
        script.write_text(ENQUEUE.strip().replace("\n", " ") + ";\n")
        pgbench = str(find_binaries(server.version) / "pgbench")
        options = ["-n", "-M", "prepared", "-j", "1", "-c", str(clients), "-T", str(seconds + 1)]
        command = [pgbench, *options, "-f", str(script), dsn]
        await asyncio.to_thread(subprocess.run, command, check=True, capture_output=True)

    async def caught_up() -> bool:
        return not await ours.ask(dsn, "select exists (select from mainspring.waiting)")

    await ours.until(caught_up)
    rate: float = await ours.ask(dsn, COMMITS.format(begun))
    return rate


async def _work(dsn: str, wakeups: bool) -> None:
    """The process of a worker."""
    collect_seldom()
    await Worker(dsn, ours.tasks, config=ms.WorkerConfig(wakeups=wakeups)).run()


if __name__ == "__main__":
    import uvloop

    arguments: list[Any] = sys.argv[1:]
    uvloop.run(_work(arguments[0], arguments[1] == "on"))
