"""Workers whose handler completes its job in a transaction of its own, and may kill itself on the way.

As a program it reads one command a line, `DSN<tab>WAY<tab>POINT`, and forks a worker for each, so that everything is
imported once. It answers with the number of the signal that ended the worker, 0 for none.
"""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.client.frameworks.joins import ASYNC, SYNC

from mainspring import Context, Registry, SyncContext, WorkerConfig, fixed
from mainspring.worker import Worker

ROOT = Path(__file__).resolve().parents[2]
POINTS = ("before completion", "before commit", "after commit")
Reach = Callable[[str], None]


def declare(way: str, dsn: str, reach: Reach = lambda point: None, **options: Any) -> Registry:
    """A task of each colour that writes a row and completes itself in one transaction of the caller's library."""
    tasks = Registry("shop")
    options = {"name": "work", "retry": fixed(0, attempts=3), **options}
    insert = "insert into ledger (note) values ('paid')"

    @tasks.task(**{**options, "name": "in_thread"})
    def in_thread(ctx: SyncContext) -> None:
        with SYNC[way](dsn) as caller:
            with caller.transaction():
                caller.execute(insert)
                reach(POINTS[0])
                ctx.complete_in(caller.conn, result={"paid": True})
                reach(POINTS[1])
            reach(POINTS[2])

    @tasks.task(**options)
    async def work(ctx: Context) -> None:
        async with ASYNC[way](dsn) as caller:
            async with caller.transaction():
                await caller.execute(insert)
                reach(POINTS[0])
                await ctx.complete_in(caller.conn, result={"paid": True})
                reach(POINTS[1])
            reach(POINTS[2])

    return tasks


def task_of(way: str) -> str:
    return "in_thread" if way in SYNC else "work"


class Nursery:
    """The other end of this program."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, dsn: str, way: str, point: str) -> int:
        """Let a worker drain the queue and die at a point."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(dsn, way, point, sep="\t", file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


@contextmanager
def nursery() -> Iterator[Nursery]:
    command = [sys.executable, "-m", "tests.worker.completing"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Nursery(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def drain(dsn: str, way: str, point: str) -> None:
    def reach(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    config = WorkerConfig(wakeups=False, processes=1)
    asyncio.run(Worker(dsn, declare(way, dsn, reach), config=config).drain())


def main() -> None:
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            drain(*line.rstrip("\n").split("\t"))
            os._exit(0)
        _, status = os.waitpid(child, 0)
        sys.stdout.write(f"{os.WTERMSIG(status) if os.WIFSIGNALED(status) else 0}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
