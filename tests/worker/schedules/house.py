"""Schedulers in processes of their own, for tests that kill them: nothing but turns, one after another."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Callable
from typing import Any, TypeAlias

import mainspring as ms
from mainspring.db.cipher import Keyring
from mainspring.db.wire.connect import AsyncConnection, options
from mainspring.db.wire.sql import Sql
from mainspring.worker.schedules.fan_out import FanOut
from mainspring.worker.schedules.firing import Firing
from mainspring.worker.schedules.scheduler import turn

Process: TypeAlias = subprocess.Popen[bytes]

ENTITIES = """
    select id, jsonb_build_object('entity', id) from entity
    where %(after)s::int is null or id > %(after)s::int order by id limit %(limit)s
"""

tasks = ms.Registry("house")


@tasks.task
async def note(*, entity: int) -> None:
    """Never runs: what is looked at is the job."""


@tasks.task
async def tick() -> None:
    """Never runs: what is looked at is the fire."""


async def main(dsn: str) -> None:
    """Take turns until somebody kills us."""
    sql = Sql()
    firing = Firing(sql, tasks, Keyring(None, dsn, sql))
    fan_out = FanOut(sql, firing, None, None)
    async with await AsyncConnection.connect(dsn, **options(dsn, "a scheduler to be killed")) as conn:
        await firing.sync(conn)
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        while True:
            if not await turn(conn, firing, fan_out):
                await asyncio.sleep(0.01)


def start(dsn: str, *more: str) -> Process:
    """A scheduler; it says `ready` on its standard output."""
    return subprocess.Popen([sys.executable, "-m", "tests.worker.schedules.house", dsn, *more], stdout=subprocess.PIPE)


def ready(process: Process) -> None:
    """Wait until it takes turns."""
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"


def kill(process: Process) -> None:
    """End it as a power cut does."""
    process.kill()
    process.wait()
    assert process.stdout is not None
    process.stdout.close()


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a fact."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the schedulers do not get on"
        time.sleep(0.002)


def declare(options: Any) -> None:
    """Declare the schedule that fans out, where that is asked for."""
    if "fan-out" in options:
        tasks.schedule("fan-out", ms.daily("10:00"), note, entities=ENTITIES)


if __name__ == "__main__":
    declare(sys.argv[2:])
    asyncio.run(main(sys.argv[1]))
