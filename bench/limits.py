"""Limits: does a rate hold in any window, what does one cost that is never reached, how long does a small one wait."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import subprocess
import sys
import time
from bisect import bisect_left
from collections.abc import Iterable
from datetime import datetime
from typing import Any

import psycopg

import mainspring as ms
from bench import ours
from bench.report import Sample
from mainspring.worker import Worker

PROCESSES = 4
tasks = ms.Registry("limits")
entered: list[float] = []


@tasks.task(queue="paid")
async def charge() -> None:
    """Remember when it was entered; all processes of a machine share this clock."""
    entered.append(time.monotonic())


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
    with psycopg.connect(dsn, autocommit=True) as conn, conn.cursor().copy("copy entered from stdin") as copy:
        for at in entered:
            copy.write_row([at])


def rate(dsn: str, jobs: int, most: int = 50) -> dict[str, float]:
    """Four processes under a rate a second: the largest window, and the part of the rate that was reached."""
    ours.install(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn, ms.Client(dsn) as client:
        conn.execute("drop table if exists entered")
        conn.execute("create table entered (at double precision)")
        client.limits.set(ms.rate("paid", most, per="1s"))
        client.enqueue_many([charge.job() for _ in range(jobs)])
        command = [sys.executable, "-m", "bench.limits", dsn]
        workers = [subprocess.Popen(command) for _ in range(PROCESSES)]
        try:
            deadline = time.monotonic() + 60 + 3 * jobs / most
            while conn.execute("select count(*) from mainspring.finished").fetchone() != (jobs,):
                if time.monotonic() > deadline:
                    raise TimeoutError("the benchmark does not end")
                time.sleep(0.2)
        finally:
            for worker in workers:
                worker.send_signal(signal.SIGTERM)
            for worker in workers:
                worker.wait(30)
        seen = sorted(at for (at,) in conn.execute("select at from entered").fetchall())
    if len(seen) != jobs:
        raise RuntimeError(f"{len(seen)} of {jobs} handlers were entered")
    first = bisect_left(seen, seen[0] + 1.0)  # what came at once, before the limit had anything to do
    return {"window": largest(seen, 1.0), "achieved": (jobs - first) / (seen[-1] - seen[first - 1]) / most}


async def drain(dsn: str, jobs: int, *limits: ms.Limit) -> float:
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
