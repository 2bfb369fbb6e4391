"""Worker processes for the acceptance tests: their tasks, how one is started, and how a test waits for them."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import psycopg

import mainspring as ms
from mainspring.worker import Worker

ROOT = Path(__file__).resolve().parents[3]
SHORT, LONG = 1.0, 20.0  # leases in seconds: one that a crash must outlast, one that no slow machine loses


def config(lease: float) -> ms.WorkerConfig:
    return ms.WorkerConfig(
        concurrency=20,
        lease=timedelta(seconds=lease),
        renew_every=timedelta(seconds=lease / 4),
        rescue_every=timedelta(seconds=lease / 4),
        poll_interval=timedelta(seconds=0.25),
        grace=timedelta(seconds=0.6),
    )


tasks = ms.Registry("house")


@tasks.task
async def innocent(ctx: ms.Context, *, pause: float) -> None:
    """Take a while, and write down who did it."""
    await asyncio.sleep(pause)
    async with ctx.complete() as conn:
        await conn.execute("insert into done (job_id, pid) values (%s, %s)", [ctx.job.id, os.getpid()])


@tasks.task
async def killer() -> None:
    """Kill the worker."""
    os.kill(os.getpid(), signal.SIGKILL)


@tasks.task
async def hangs_once(ctx: ms.Context) -> None:
    """Never end on the first attempt."""
    if ctx.attempt == 1:
        await asyncio.sleep(600)


class House:
    """The worker processes of one test; whoever leaves the house ends them all."""

    def __init__(self, dsn: str) -> None:
        self.dsn = dsn
        self.processes: list[subprocess.Popen[bytes]] = []
        with psycopg.connect(dsn, autocommit=True) as conn:
            conn.execute("create table done (job_id uuid not null, pid integer not null)")

    def start(self, lease: float = LONG) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "tests.proofs.acceptance.house", self.dsn, str(lease)]
        process = subprocess.Popen(command, cwd=ROOT)
        self.processes.append(process)
        return process

    def one(self, query: str, *params: Any) -> Any:
        """The first value that a query answers."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            row = conn.execute(query.encode(), params).fetchone()
            return row[0] if row else None

    def states(self) -> dict[str, int]:
        """How many jobs stand in each state."""
        with psycopg.connect(self.dsn, autocommit=True) as conn:
            return dict(conn.execute("select state, count(*) from mainspring.jobs group by 1").fetchall())

    def wait(self, until: Callable[[], bool], seconds: float = 30.0) -> None:
        """Look again and again; the database may be away meanwhile."""
        deadline = time.monotonic() + seconds
        while time.monotonic() < deadline:
            with suppress(psycopg.OperationalError):
                if until():
                    return
            time.sleep(0.05)
        raise AssertionError(f"not within {seconds:g} s; the jobs are {self.states()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for process in self.processes:
            process.kill()
        for process in self.processes:
            process.wait()


if __name__ == "__main__":
    asyncio.run(Worker(sys.argv[1], tasks, config=config(float(sys.argv[2]))).run())
