"""Drains of no-op jobs by two peers, each in one process at the best settings found for it.

Both get what they need to shine: uvloop, their own schema in an empty database, jobs inserted in bulk, fresh
statistics before the clock starts, no logs below errors. The clock stops at the last completion that the server
recorded, so what a peer does afterwards (a last poll, a shutdown) does not count against it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import time
from datetime import timedelta
from typing import Any

import asyncpg
import uvloop
from pgqueuer import Job, QueueManager
from pgqueuer.db import AsyncpgPoolDriver
from pgqueuer.queries import Queries
from pgqueuer.types import QueueExecutionMode
from procrastinate import App, PsycopgConnector
from psycopg import AsyncConnection
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import AsyncConnectionPool

from bench.cluster import server

CHUNK = 1_000  # jobs per bulk insert
PAYLOAD = b'{"user": 12345, "email": "someone@example.com", "subject": "Your order is on its way", "copies": [1, 2, 3]}'
DECODED: dict[str, Any] = json.loads(PAYLOAD)

logging.getLogger("procrastinate").setLevel(logging.ERROR)


async def pgqueuer(dsn: str, jobs: int) -> float:
    """Return jobs/s of PgQueuer: two managers in one loop, batches of 500, a pool of 5, no cap on tasks.

    Tried in turn, 30,000 jobs, median of 4 rounds on a busy machine (single runs differ by 30 % and more):
    one manager 14,800; two 16,900. One manager with batches of 250 13,700, 1,000 14,900, 2,000 16,000; a pool of 10
    14,200; max_concurrent_tasks=1000 14,900; no log aggregation 14,200; without fresh statistics 13,600.
    A second series: one manager 14,100; two 16,200, with batches of 1,000 12,900, of 2,000 13,700, with a pool of 8
    15,800; three 13,300. A heartbeat_timeout of 0 is no option: jobs then run twice.
    """
    where = conninfo_to_dict(dsn)
    async with asyncpg.create_pool(
        host=where["host"], port=where["port"], user=where["user"], database=where["dbname"], min_size=5, max_size=5
    ) as pool:
        queries = Queries(AsyncpgPoolDriver(pool))
        await queries.install()
        for start in range(0, jobs, CHUNK):
            number = min(CHUNK, jobs - start)
            await queries.enqueue(["noop"] * number, [PAYLOAD] * number, [0] * number)
        await pool.execute("vacuum analyze")

        async def noop(job: Job) -> None: ...

        managers = [QueueManager(queries) for _ in range(2)]
        for manager in managers:
            manager.entrypoint("noop")(noop)

        begun = time.time()
        poll = timedelta(milliseconds=50)  # how soon an emptied queue is noticed
        await asyncio.gather(
            *(m.run(batch_size=500, mode=QueueExecutionMode.drain, dequeue_timeout=poll) for m in managers)
        )
        ended = await pool.fetchrow(
            "select count(*), extract(epoch from max(created))::float8 from pgqueuer_log where status = 'successful'"
        )
    return rate(jobs, begun, *ended)


async def procrastinate(dsn: str, jobs: int) -> float:
    """Return jobs/s of Procrastinate: four workers in one loop, 10 jobs at once each, a pool of 10.

    A worker fetches one job at a time, so more workers help where more concurrency does not. The pool is ours because
    Procrastinate's own checks each connection before each use. Tried in turn, 3,000 jobs, median of 4 rounds on a busy
    machine, workers x concurrency: 1x1 505, 1x100 780, 4x10 1,122, 8x10 1,120, 16x10 1,014 (with its own pool 716,
    deleting jobs 1,084), 16x100 939, 32x10 878. Without fresh statistics 8x100 reached 565 to 767.
    """
    app = App(connector=PsycopgConnector())

    @app.task(name="noop")
    async def noop(**payload: Any) -> None: ...

    async with AsyncConnectionPool(dsn, min_size=10, max_size=10) as pool, app.open_async(pool):
        await app.schema_manager.apply_schema_async()
        for start in range(0, jobs, CHUNK):
            await noop.batch_defer_async(*[DECODED] * min(CHUNK, jobs - start))
        async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
            await conn.execute("vacuum analyze")
            begun = time.time()
            await asyncio.gather(
                *(
                    app.run_worker_async(concurrency=10, wait=False, listen_notify=False, install_signal_handlers=False)
                    for _ in range(4)
                )
            )
            cursor = await conn.execute(
                "select count(*), extract(epoch from max(at))::float8 from procrastinate_events"
                " where type = 'succeeded'"
            )
            ended = await cursor.fetchone()
    assert ended
    return rate(jobs, begun, *ended)


def rate(jobs: int, begun: float, done: int, end: float) -> float:
    """Return jobs/s, once it is sure that every job was done exactly once."""
    if done != jobs:
        raise RuntimeError(f"{done} jobs done instead of {jobs}")
    return jobs / (end - begun)


async def main() -> None:
    """Print the numbers of the peers alone."""
    parser = argparse.ArgumentParser(prog="python -m bench.peers", description=main.__doc__)
    parser.add_argument("--jobs", type=int, default=50_000, help="jobs; procrastinate gets a tenth (%(default)s)")
    jobs = parser.parse_args().jobs
    with server() as postgres:
        print(f"pgqueuer      {await pgqueuer(postgres.database(), jobs):10,.0f} jobs/s")
        print(f"procrastinate {await procrastinate(postgres.database(), max(jobs // 10, 1)):10,.0f} jobs/s")


if __name__ == "__main__":
    uvloop.run(main())
