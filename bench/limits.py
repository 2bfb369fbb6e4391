"""Limits: does a rate hold in any window, what does one cost that is never reached, how long does a small one wait."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import statistics
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Any

import psycopg

import mainspring as ms
from bench import ours
from bench.report import Sample
from mainspring.db.wire.sql import Sql
from mainspring.limit import Limit
from mainspring.worker import Worker
from mainspring.worker.bounds import BEGINNING

PROCESSES = 4
tasks = ms.Registry("limits")
entered: list[float] = []


@tasks.task(queue="paid")
async def charge() -> None:
    """Remember when it was entered; all processes of a machine share this clock."""
    entered.append(time.monotonic())


@tasks.task(queue="press")
async def press() -> None:
    """Hold a place."""
    await asyncio.sleep(0.1)


@tasks.task(queue="line", strand="one")
async def step() -> None:
    """One after another."""
    await asyncio.sleep(0.001)


@tasks.task
async def serve() -> None:
    """Take as long as a call of another service."""
    await asyncio.sleep(0.02)


def largest(instants: Iterable[float], per: float) -> int:
    """The most that lie in any window of this length."""
    ordered = sorted(instants)
    return max((bisect_left(ordered, start + per) - n for n, start in enumerate(ordered)), default=0)


async def work(dsn: str) -> None:
    """One worker process: until it is told to stop, then it says what its handlers saw."""
    await Worker(dsn, tasks).run()
    if not entered:
        return
    with psycopg.connect(dsn, autocommit=True) as conn, conn.cursor().copy("copy entered from stdin") as copy:
        for at in entered:
            copy.write_row([at])


@contextlib.contextmanager
def working(dsn: str, count: int) -> Iterator[None]:
    """Worker processes."""
    workers = [subprocess.Popen([sys.executable, "-m", "bench.limits", dsn]) for _ in range(count)]
    try:
        yield
    finally:
        for worker in workers:
            worker.send_signal(signal.SIGTERM)
        for worker in workers:
            worker.wait(30)


def rate(dsn: str, jobs: int, most: int = 50) -> dict[str, float]:
    """Four processes under a rate a second: the largest window, and the part of the rate that was reached."""
    ours.install(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn, ms.Client(dsn) as client:
        conn.execute("drop table if exists entered")
        conn.execute("create table entered (at double precision)")
        client.limits.set(ms.rate("paid", most, per="1s"))
        client.enqueue_many([charge.job() for _ in range(jobs)])
        with working(dsn, PROCESSES):
            deadline = time.monotonic() + 60 + 3 * jobs / most
            while conn.execute("select count(*) from mainspring.finished").fetchone() != (jobs,):
                if time.monotonic() > deadline:
                    raise TimeoutError("the benchmark does not end")
                time.sleep(0.2)
        seen = sorted(at for (at,) in conn.execute("select at from entered").fetchall())
    if len(seen) != jobs:
        raise RuntimeError(f"{len(seen)} of {jobs} handlers were entered")
    return {"window": largest(seen, 1.0), "achieved": steady(seen, most)}


def steady(seen: Sequence[float], most: int) -> float:
    """The part of the rate that was reached, by how long it took from one handler to the one some windows' worth later.

    The median over all handlers, since they enter in bursts: of ten windows, one that is late at the very end made a
    tenth, and where in a burst the run ends decided the rest.
    """
    windows = len(seen) // most - 2
    ahead = windows * most
    return statistics.median(windows / (late - early) for early, late in zip(seen, seen[ahead:], strict=False))


def refill(dsn: str, jobs: int, most: int = 3) -> float:
    """Two processes under a limit of concurrency, handlers of 0.1 s: the part of what the places allow."""
    ours.install(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn, ms.Client(dsn) as client, working(dsn, 2):
        client.limits.set(ms.concurrency(task="press", most=most))
        while conn.execute("select count(*) from mainspring.worker").fetchone() != (2,):
            time.sleep(0.05)
        client.enqueue_many([press.job() for _ in range(jobs)])
        while conn.execute("select count(*) from mainspring.finished").fetchone() != (jobs,):
            time.sleep(0.05)
        took = "select extract(epoch from max(finished_at) - min(started_at))::float8 from mainspring.finished"
        row = conn.execute(took).fetchone()
    assert row is not None
    return float(jobs / most * 0.1 / row[0])


async def one_by_one(dsn: str, kind: str, jobs: int = 100) -> float:
    """Seconds for the jobs of one strand in order, 1 ms each, or of a fair queue, by a worker."""
    await asyncio.to_thread(prepare, dsn, kind, jobs)
    worker = Worker(dsn, tasks)
    await worker.start()
    try:
        done = f"select count(*) = {jobs} from mainspring.finished"
        await ours.until(lambda: ours.ask(dsn, done))
    finally:
        await worker.stop()
    spent = "select extract(epoch from max(finished_at) - min(started_at))::float8 from mainspring.finished"
    return float(await ours.ask(dsn, spent))


async def bare(dsn: str, kind: str, jobs: int = 100) -> float:
    """The same by a bare loop: claim one, wait 1 ms, complete it together with the next claim."""
    await asyncio.to_thread(prepare, dsn, kind, jobs)
    return await asyncio.to_thread(loop_of_claims, dsn, jobs)


def prepare(dsn: str, kind: str, jobs: int) -> None:
    ours.install(dsn)
    with ms.Client(dsn) as client:
        if kind == "strand":
            client.limits.set(ms.in_order(task="step"))
        else:
            client.limits.fair("line")
        client.enqueue_many([step.job().for_org("one") for _ in range(jobs)])


def loop_of_claims(dsn: str, jobs: int) -> float:
    sql, low, done = Sql(), [BEGINNING], list[int]()
    ask: list[Any] = ["bench", "60 s", 1, ["line"], [1], low, low, low, low, ["step"], False, 0, False, None]
    with psycopg.connect(dsn, autocommit=True) as conn:
        begun = time.monotonic()
        while len(done) < jobs:
            with conn.pipeline(), conn.transaction():
                conn.execute(sql["complete"], ["bench", done[-1:]])
                found = conn.execute(sql["claim"], ask)
            done += [row[14] for row in found.fetchall()]
            time.sleep(0.001)
        return time.monotonic() - begun


async def drain(dsn: str, jobs: int, *limits: Limit) -> float:
    """Jobs/s of one worker process, under limits that are never reached."""
    ours.install(dsn)
    async with ms.AsyncClient(dsn) as client:
        for limit in limits:
            await client.limits.set(limit)
    await ours.fill(dsn, ours.noops(jobs))
    async with ours.working(dsn) as worker:
        return await ours.drained(dsn, worker, jobs, await ours.ask(dsn, "select clock_timestamp()"))


async def small(dsn: str, flood: int, jobs: int = 100) -> Sample:
    """Seconds until an organisation's few jobs have ended, some times, while another's fill a fair queue, or alone.

    A worker of ten slots: where there is room for everybody, there is nothing to share.
    """
    ours.install(dsn)
    took: list[float] = []
    async with ms.AsyncClient(dsn) as client:
        await client.limits.fair("q:default")
        for _ in range(0, flood, ours.CHUNK):
            await client.enqueue_many([serve.job().for_org("flood") for _ in range(ours.CHUNK)])
        worker = Worker(dsn, tasks, config=ms.WorkerConfig(concurrency=10))
        await worker.start()
        try:
            await asyncio.sleep(1.0)
            for number in range(5):
                org = f"small{number}"
                begun: datetime = await ours.ask(dsn, "select clock_timestamp()")
                await client.enqueue_many([serve.job().for_org(org) for _ in range(jobs)])
                ended = f"select count(*) = {jobs} from mainspring.finished where org_id = '{org}'"
                await ours.until(lambda ended=ended: ours.ask(dsn, ended))  # type: ignore[misc]  # bound early
                last = f"select max(finished_at) from mainspring.finished where org_id = '{org}'"
                took.append(((await ours.ask(dsn, last)) - begun).total_seconds())
            left = await ours.ask(dsn, "select exists (select from mainspring.waiting where org_id = 'flood')")
            if flood and not left:
                raise RuntimeError("the flood was over too soon")
        finally:
            stopping: Any = worker.stop()
            await stopping
    return Sample(took)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(work(sys.argv[1]))
