"""Workers whose handler completes its job in a transaction of its own, and may kill itself on the way."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Callable
from typing import Any

from tests.client.frameworks.joins import ASYNC, SYNC

from mainspring import Context, Registry, SyncContext, WorkerConfig, fixed
from mainspring.worker import Worker

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


def drain(dsn: str, way: str, point: str) -> None:
    """Work until nothing is due, and be killed at the point."""

    def reach(reached: str) -> None:
        if reached == point:
            os.kill(os.getpid(), signal.SIGKILL)

    config = WorkerConfig(wakeups=False, processes=1)
    asyncio.run(Worker(dsn, declare(way, dsn, reach), config=config).drain())
