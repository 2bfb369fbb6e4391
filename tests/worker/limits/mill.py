"""Worker processes for the tests of limits, whose handlers write down when they were entered and left."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any, Self

import psycopg

import mainspring as ms
from mainspring.worker import Worker

ROOT = Path(__file__).resolve().parents[3]
LEASE = 1.0
MARKS = "create table mark (job_id uuid, at double precision, what text, n integer)"

tasks = ms.Registry("mill")


async def mark(ctx: ms.Context, what: str, n: int = 0) -> None:
    async with await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True) as conn:
        await conn.execute(
            "insert into mark values (%s, extract(epoch from clock_timestamp()), %s, %s)", [ctx.job.id, what, n]
        )


@tasks.task(queue="grind")
async def grind(ctx: ms.Context) -> None:
    """Remember when it began, by this machine's clock, before anything else is done."""
    at = time.time()
    async with ctx.complete() as conn:
        await conn.execute("insert into mark values (%s, %s, 'in', 0)", [ctx.job.id, at])


@tasks.task(queue="press", retry=ms.fixed(0, attempts=20))
async def press(ctx: ms.Context) -> None:
    """Stay a while, under the lock of one of the places: a place that is taken twice is an error that is seen."""
    async with await psycopg.AsyncConnection.connect(sys.argv[1], autocommit=True) as conn:
        for place in (1, 2, 3):
            found = await (await conn.execute("select pg_try_advisory_lock(77, %s)", [place])).fetchone()
            if found == (True,):
                break
        else:
            await conn.execute("insert into mark values (%s, 0, 'over', 0)", [ctx.job.id])
        await asyncio.sleep(0.05)


@tasks.task(queue="line", strand="s:{strand}", retry=ms.fixed(0.1, attempts=10))
async def step(ctx: ms.Context, *, strand: int, n: int) -> None:
    """Every third one fails once."""
    await mark(ctx, f"in {strand}", n)
    await asyncio.sleep(0.005)
    if n % 3 == 0 and ctx.attempt == 1:
        raise RuntimeError("once")
    await mark(ctx, f"out {strand}", n)


CONFIG = ms.WorkerConfig(
    concurrency=20,
    lease=timedelta(seconds=LEASE),
    renew_every=timedelta(seconds=LEASE / 4),
    rescue_every=timedelta(seconds=LEASE / 4),
    poll_interval=timedelta(seconds=0.1),
)


class Mill:
    """The worker processes of one test; whoever leaves ends them all."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.processes: list[subprocess.Popen[bytes]] = []
        self.conn = psycopg.connect(dsn, autocommit=True)
        self.conn.execute(MARKS.encode())

    def start(self, count: int = 1) -> None:
        command = [sys.executable, "-m", "tests.worker.limits.mill", self.dsn]
        self.processes += [subprocess.Popen(command, cwd=ROOT) for _ in range(count)]

    def rows(self, query: str, *params: Any) -> list[Any]:
        return self.conn.execute(query.encode(), params).fetchall()

    def wait(self, until: Callable[[], object], seconds: float = 40.0) -> None:
        deadline = time.monotonic() + seconds
        while not until():
            if time.monotonic() > deadline:
                raise AssertionError(f"not within {seconds:g} s: {self.states()}")
            time.sleep(0.02)

    def states(self) -> dict[str, int]:
        return dict(self.rows("select state, count(*) from mainspring.jobs group by 1"))

    def done(self) -> bool:
        return self.states().keys() <= {"succeeded"}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()
        self.conn.close()


def main(arguments: Sequence[str]) -> None:
    asyncio.run(Worker(arguments[1], tasks, config=CONFIG).run())


if __name__ == "__main__":
    main(sys.argv)
