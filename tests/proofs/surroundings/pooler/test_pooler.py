"""A pooler is noticed by itself: nothing is prepared, nothing is listened for, and no session keeps a state."""

from __future__ import annotations

import asyncio
from datetime import timedelta

import psycopg
import pytest
from tests.databases import Database
from tests.proofs.surroundings.pgbouncer import PgBouncer, pooling
from tests.worker.stage import SETTINGS, Stage

from mainspring import Client, Context, Registry, SyncContext
from mainspring.config import WorkerConfig
from mainspring.db.wire.connect import AsyncConnection, Connection, options
from mainspring.embedded import Cluster
from mainspring.errors import DatabaseUnavailable
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio

#: What would be left in the pooler's sessions; a transaction's own locks are of the asking session only.
LEFT = """
select name from pg_prepared_statements where not from_sql
union all select locktype from pg_locks where locktype = 'advisory' and database =
  (select oid from pg_database where datname = current_database())
"""


async def test_a_pooler_is_noticed_and_a_direct_connection_is_not_taken_for_one(
    database: Database, direct: Database
) -> None:
    with Connection.connect(database.dsn, **options(database.dsn, "test")) as pooled:
        assert pooled.pooled
        assert pooled.prepare_threshold is None
    async with await AsyncConnection.connect(direct.dsn, **options(direct.dsn, "test")) as conn:
        assert not conn.pooled
        assert conn.prepare_threshold == 5


@pytest.mark.parametrize("listen", [False, True], ids=["polling", "listening past it"])
async def test_clients_and_workers_need_no_setting_and_leave_nothing_in_its_sessions(
    stage: Stage, tasks: Registry, direct: Database, listen: bool
) -> None:
    stage.ledger()

    @tasks.task
    async def plain(*, n: int) -> int:
        return n

    @tasks.task
    async def transactional(ctx: Context, *, n: int) -> None:
        async with ctx.complete() as conn:
            await conn.execute("insert into ledger values (%s, %s)", [ctx.job.id, f"async {n:03}"])

    @tasks.task
    def threaded(ctx: SyncContext, *, n: int) -> None:
        with ctx.complete() as conn:
            conn.execute("insert into ledger values (%s, %s)", [ctx.job.id, f"thread {n:03}"])

    settings = SETTINGS | {"wakeups": True, "poll_interval": timedelta(seconds=0.1)}
    settings |= {"listen_dsn": direct.dsn} if listen else {}
    worker = Worker(stage.dsn, tasks, config=WorkerConfig(**settings))
    await worker.start()
    try:
        count = 60  # often enough for a driver to prepare a statement
        for n in range(count):
            await stage.client.enqueue_many([task.job(n=n) for task in (plain, transactional, threaded)])
        await stage.until(lambda: worker.counts["succeeded"] == 3 * count, seconds=20)
        if listen:
            await stage.until(lambda: worker.listening)
        assert worker.listening is listen
    finally:
        await worker.stop()

    assert len(stage.effects()) == 2 * count
    for _ in range(16):  # every session in turn
        assert stage.rows(LEFT) == []


async def test_without_hints_no_enqueue_sends_any(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> str:
        return "found"

    config = WorkerConfig(**SETTINGS | {"wakeups": True, "poll_interval": timedelta(seconds=0.2)})
    worker = Worker(stage.dsn, tasks, config=config)
    await worker.start()
    try:
        await asyncio.sleep(0.3)
        assert await stage.result(await stage.enqueue(work.job())) == "found"
        assert stage.one("select last_value from mainspring.idle_until") == 0
    finally:
        await worker.stop()


async def test_start_up_parameters_that_a_pooler_refuses_are_named(database: Database) -> None:
    with (
        Client(f"{database.dsn} options='-c work_mem=1MB'", timeout=0.3) as client,
        pytest.raises(DatabaseUnavailable, match="unsupported startup parameter: options"),
    ):
        client.now()


def test_a_pooler_that_keeps_sessions_is_noticed_too(volatile_cluster: Cluster) -> None:
    with pooling(volatile_cluster, mode="session") as bouncer:
        dsn = bouncer.dsn(volatile_cluster.dsn())
        with Connection.connect(dsn, **options(dsn, "test")) as conn:
            assert conn.pooled


async def test_a_pooler_that_is_restarted_is_found_again(stage: Stage, tasks: Registry, bouncer: PgBouncer) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    async with stage.work(tasks) as worker:
        assert await stage.result(await stage.enqueue(work.job())) == "done"
        bouncer.forget(stage.dsn)  # every connection of this database is lost, on both sides
        bouncer.command(f"resume {psycopg.conninfo.conninfo_to_dict(stage.dsn)['dbname']}")
        await asyncio.sleep(0.1)
        job = (await stage.client.enqueue(work.job())).id
        await stage.until(lambda: worker.counts["succeeded"] == 2)
        assert await stage.state(job) == "succeeded"
        stage.conn.close()
