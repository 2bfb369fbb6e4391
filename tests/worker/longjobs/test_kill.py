"""A real worker process is killed in the middle of a stepped job: what it did is not done again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.databases import Database

import mainspring as ms
from mainspring.testing import Clock
from mainspring.worker import Worker

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ms.WorkerConfig(
    concurrency=5, poll_interval=timedelta(seconds=0.1), rescue_every=timedelta(seconds=0.1), grace=timedelta(seconds=1)
)
CALL = "insert into call (pid, step, attempt) values (%s, %s, %s)"
tasks = ms.Registry("kill")


@tasks.task
async def stepped(ctx: ms.Context, *, dsn: str, pages: int) -> list[int]:
    """Note each call of each step; hang in step 3 of the first attempt, until it is killed."""

    async def page(n: int) -> int:
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as conn:
            await conn.execute(CALL, [os.getpid(), n, ctx.attempt])
        if (ctx.attempt, n) == (1, 3):
            await asyncio.sleep(600)
        return 10 * n

    return [await ctx.step(f"page-{n}", page, n) for n in range(1, pages + 1)]


def start(dsn: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen([sys.executable, "-m", "tests.worker.longjobs.test_kill", dsn], cwd=ROOT)


def wait(holds: Callable[[], Any], seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.02)


@pytest.mark.rule("ENG-14.04", "ENG-6.08")
def test_steps_of_a_killed_worker_are_not_run_again(database: Database) -> None:
    with database.connect() as conn, ms.Client(database.dsn) as client:
        conn.execute("create table call (pid integer, step integer, attempt integer)")
        job = client.enqueue(stepped.job(dsn=database.dsn, pages=5)).id
        first = start(database.dsn)
        second: subprocess.Popen[bytes] | None = None
        try:
            wait(lambda: conn.execute("select 1 from call where step = 3").fetchone())
            first.kill()
            first.wait()
            Clock(conn).advance(seconds=61)  # the lease of the dead
            second = start(database.dsn)
            assert client.result(job, timeout=20) == [10, 20, 30, 40, 50]
        finally:
            for process in (first, second):
                if process is not None:
                    process.kill()
                    process.wait()
        calls = conn.execute("select step, attempt from call order by attempt, step").fetchall()
        found = client.get(job)

    assert calls == [(1, 1), (2, 1), (3, 1), (3, 2), (4, 2), (5, 2)], "only the step that was cut off is done again"
    assert found.attempt == 2


if __name__ == "__main__":
    asyncio.run(Worker(sys.argv[1], tasks, config=CONFIG).run())
