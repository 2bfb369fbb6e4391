"""Drains of no-op jobs by two peers, each in one process at the best settings found for it.

Both get what they need to shine: uvloop, their own schema in an empty database, jobs inserted in bulk, fresh
statistics before the clock starts, logging off. The clock stops at the last completion that the server recorded, so
what a peer does afterwards (a last poll, a shutdown) does not count against it.
"""

from __future__ import annotations

import argparse
import asyncio
import json
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


async def pgqueuer(dsn: str, jobs: int) -> float:
    """Return jobs/s of PgQueuer.

    TODO numbers
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

        manager = QueueManager(queries)

        @manager.entrypoint("noop")
        async def noop(job: Job) -> None: ...

        start_at = time.time()
        await manager.run(batch_size=500, mode=QueueExecutionMode.drain, dequeue_timeout=timedelta(milliseconds=50))
        ended = await pool.fetchrow(
            "select count(*), extract(epoch from max(created))::float8 from pgqueuer_log where status = 'successful'"
        )
    return rate(jobs, start_at, *ended)


async def procrastinate(dsn: str, jobs: int) -> float:
    """Return jobs/s of Procrastinate.

    TODO numbers
    """
    app = App(connector=PsycopgConnector())

    @app.task(name="noop")
    async def noop(**payload: Any) -> None: ...

    async with AsyncConnectionPool(dsn, min_size=32, max_size=32) as pool, app.open_async(pool):
        await app.schema_manager.apply_schema_async()
        for start in range(0, jobs, CHUNK):
            await noop.batch_defer_async(*[DECODED] * min(CHUNK, jobs - start))
        async with await AsyncConnection.connect(dsn, autocommit=True) as conn:
            await conn.execute("vacuum analyze")
            start_at = time.time()
            await asyncio.gather(
                *(
                    app.run_worker_async(concurrency=10, wait=False, listen_notify=False, install_signal_handlers=False)
                    for _ in range(16)
                )
            )
            cursor = await conn.execute(
                "select count(*), extract(epoch from max(at))::float8 from procrastinate_events"
                " where type = 'succeeded'"
            )
            ended = await cursor.fetchone()
    assert ended
    return rate(jobs, start_at, *ended)


def rate(jobs: int, start: float, done: int, end: float) -> float:
    """Return jobs/s, once it is sure that every job was done exactly once."""
    if done != jobs:
        raise RuntimeError(f"{done} jobs done instead of {jobs}")
    return jobs / (end - start)


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
