"""What waiting behind an open breaker costs, and how soon all run once it closes: `make outage`.

python -m bench.breakers [--jobs 20000] [--pause 10] [--seconds 25]
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import os
import sys
import time
from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import psycopg
import uvloop

import mainspring as ms
from bench import ours
from bench.cluster import server
from mainspring.events import BreakerClosed, Event
from mainspring.worker import Worker

tasks = ms.Registry("outage")
up = False
ended: list[float] = []
late: list[float] = []


@tasks.task(needs=("far",), retry=ms.fixed(1, attempts=3))
async def call() -> None:
    """Call something that is down, or that answers after a moment."""
    await asyncio.sleep(0.005)
    if not up:
        raise ConnectionError("down")
    ended.append(time.monotonic())


@tasks.task
async def unrelated(*, at: float) -> None:
    """Say how late it is; the same process has enqueued it."""
    late.append(time.monotonic() - at)


@dataclass(frozen=True, slots=True)
class Cost:
    """What the server has done up to an instant."""

    at: float
    rows: int
    wal: int
    cpu: float


async def cost(dsn: str, cpu: float) -> Cost:
    """Rows inserted, updated and deleted in our tables, bytes of WAL, seconds of CPU."""
    rows = "select coalesce(sum(n_tup_ins + n_tup_upd + n_tup_del), 0)::bigint from pg_stat_user_tables"
    wal = "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"
    return Cost(time.monotonic(), await ours.ask(dsn, rows), await ours.ask(dsn, wal), cpu)


def server_cpu(backend: int) -> float:
    """Seconds of CPU of the server, which is this backend's parent, and of its living children."""
    seen: dict[str, tuple[str, float]] = {}
    for found in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):  # it has ended
            fields = found.read_text().rpartition(")")[2].split()
            seen[found.parent.name] = fields[1], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    main = seen[str(backend)][0]
    return sum(seconds for parent, seconds in seen.values() if parent == main)


@contextlib.asynccontextmanager
async def enqueuing(dsn: str) -> AsyncIterator[None]:
    """Others enqueue a job of the same queue every half second."""

    async def go() -> None:
        async with ms.AsyncClient(dsn) as client:
            while True:
                await client.enqueue(unrelated.job(at=time.monotonic()))
                await asyncio.sleep(0.5)

    going = asyncio.create_task(go())
    try:
        yield
    finally:
        going.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await going


async def outage(dsn: str, backend: int, jobs: int, pause: float, seconds: float) -> dict[str, float]:
    """One outage: what it costs while all wait, and how long recovery takes from the instant at which it closes."""
    global up
    ours.install(dsn)
    up = False
    ended.clear()
    late.clear()
    closed: list[float] = []

    def heard(events: Sequence[Event]) -> None:
        closed.extend(time.monotonic() for event in events if isinstance(event, BreakerClosed))

    far: Any = ms.breaker("far", failures=5, pause=timedelta(seconds=pause))
    await ours.fill(dsn, [call.job() for _ in range(jobs)])
    worker = Worker(dsn, tasks, breakers=[far], observers=[heard])
    await worker.start()
    try:
        async with enqueuing(dsn):
            settled = time.monotonic()
            waiting = f"select count(*) >= {jobs} - 5 from mainspring.waiting where gate is not null"
            await ours.until(lambda: ours.ask(dsn, waiting), 120)
            settled = time.monotonic() - settled
            first_late = max(late, default=0.0)
            await asyncio.sleep(2.0)
            late.clear()
            before = await cost(dsn, server_cpu(backend))
            await asyncio.sleep(seconds)
            await asyncio.sleep(0.5)  # statistics are written once a second at most
            after = await cost(dsn, server_cpu(backend))
            span = after.at - before.at
            lateness = max(late, default=float("nan"))
            up = True
            await ours.until(lambda: _is(len(ended) >= jobs), 120)
    finally:
        await worker.stop()
    done = sorted(ended)
    return {
        "until all wait, s": settled,
        "unrelated job until then, s": first_late,
        "rows written a second": (after.rows - before.rows) / span,
        "WAL, kB a second": (after.wal - before.wal) / span / 1000,
        "server CPU, cores": (after.cpu - before.cpu) / span,
        "unrelated job at the latest, s": lateness,
        "first 100 after closing, s": done[99] - closed[0],
        "all after closing, s": done[jobs - 1] - closed[0],
    }


async def _is(true: bool) -> bool:
    return true


async def main() -> None:
    parser = argparse.ArgumentParser(prog="make outage", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--pause", type=float, default=10.0)
    parser.add_argument("--seconds", type=float, default=25.0, help="how long the waiting is looked at")
    options = parser.parse_args()
    with server() as postgres:
        dsn = postgres.database()
        with psycopg.connect(dsn) as conn:
            found = await outage(dsn, conn.info.backend_pid, options.jobs, options.pause, options.seconds)
    for name, value in found.items():
        print(f"{name:32} {value:12,.2f}")


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        sys.exit(uvloop.run(main()))
