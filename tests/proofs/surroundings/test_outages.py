"""Whatever keeps the database from taking writes, workers outlive it, wait politely, and go on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict
from psycopg.sql import SQL, Identifier
from tests.client.proxy import Proxy
from tests.databases import superuser
from tests.worker.stage import Stage

from mainspring import Context, Registry
from mainspring.config import WorkerConfig
from mainspring.embedded import Cluster
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio

CUT = """
select pg_terminate_backend(pid) from pg_stat_activity
where datname = current_database() and starts_with(application_name, 'mainspring worker')
"""
MOST_CONNECTS = 20  # a second


class Trouble:
    """Something that befalls the database, until it ends."""

    def __init__(self, stage: Stage, proxy: Proxy, cluster: Cluster) -> None:
        self._stage, self._proxy, self._cluster = stage, proxy, cluster
        self._name = Identifier(str(conninfo_to_dict(stage.dsn)["dbname"]))

    def shutdown(self, begins: bool) -> None:
        """57P01, and then nobody listens."""
        self._proxy.down = begins

    def starting(self, begins: bool) -> None:
        """57P03."""
        self._proxy.refusal = b"57P03" if begins else None

    def too_many_connections(self, begins: bool) -> None:
        """53300."""
        self._alter("connection limit {}", 0 if begins else -1)

    def read_only(self, begins: bool) -> None:
        """25006."""
        self._alter("set default_transaction_read_only = {}", begins)

    def _alter(self, change: str, value: Any) -> None:
        with superuser(self._cluster) as conn:
            conn.execute(SQL("alter database {} " + change).format(self._name, value))


TROUBLES: list[Callable[[Trouble, bool], None]] = [
    Trouble.shutdown,
    Trouble.starting,
    Trouble.too_many_connections,
    Trouble.read_only,
]


def busiest_second(times: list[float]) -> int:
    return max((sum(begin <= t < begin + 1 for t in times) for begin in times), default=0)


@pytest.mark.parametrize("befalls", TROUBLES, ids=lambda trouble: trouble.__name__)
async def test_a_worker_outlives_it_politely_starts_nothing_and_goes_on(
    stage: Stage, tasks: Registry, proxy: Proxy, volatile_cluster: Cluster, befalls: Callable[[Trouble, bool], None]
) -> None:
    began: list[str] = []

    @tasks.task
    async def work(*, name: str) -> str:
        began.append(name)
        return name

    trouble = Trouble(stage, proxy, volatile_cluster)
    config = WorkerConfig(poll_interval=timedelta(seconds=0.2), grace=timedelta(seconds=1))
    worker = Worker(proxy.dsn, tasks, config=config)
    await worker.start()
    try:
        stage.one("select job_id from mainspring.enqueue('work', '{\"name\": \"before\"}')")
        await stage.until(lambda: began == ["before"] and worker.counts["succeeded"] == 1)
        befalls(trouble, True)
        stage.rows(CUT)
        proxy.came.clear()
        job = stage.one("select job_id from mainspring.enqueue('work', '{\"name\": \"after\"}')")
        await asyncio.sleep(1.5)
        assert began == ["before"]
        assert 2 <= busiest_second(proxy.came) <= MOST_CONNECTS

        befalls(trouble, False)
        await stage.until(lambda: stage.one("select state from mainspring.jobs where id = %s", job) == "succeeded")
        assert began == ["before", "after"]
        assert stage.rows("select 1 from mainspring.attempt") == []
        await stage.until(lambda: worker.listening)
    finally:
        befalls(trouble, False)
        await worker.stop()


async def test_a_server_that_takes_no_writes_costs_a_job_no_attempt(
    stage: Stage, tasks: Registry, volatile_cluster: Cluster, proxy: Proxy
) -> None:
    stage.ledger()
    trouble = Trouble(stage, proxy, volatile_cluster)
    tries: list[int] = []

    @tasks.task
    async def work(ctx: Context) -> None:
        tries.append(ctx.attempt)
        if len(tries) == 1:
            trouble.read_only(True)
        async with ctx.complete() as conn:
            await conn.execute("insert into ledger values (%s, 'once')", [ctx.job.id])

    async with stage.work(tasks) as worker:
        job = await stage.enqueue(work.job())
        await stage.until(lambda: stage.rows("select 1 from mainspring.waiting where snoozes = 1"))  # by an old session
        trouble.read_only(False)
        stage.rows(CUT)
        stage.clock.advance(seconds=6)
        await stage.until(lambda: stage.effects() == ["once"])
        await stage.until(lambda: worker.counts["succeeded"])

    assert tries == [1, 1]
    assert stage.rows("select 1 from mainspring.attempt where error is not null") == []
    assert (await stage.job(job)).state == "succeeded"


async def test_a_client_leaves_a_server_that_has_become_read_only(
    stage: Stage, tasks: Registry, volatile_cluster: Cluster, proxy: Proxy
) -> None:
    @tasks.task
    async def work() -> None: ...

    trouble = Trouble(stage, proxy, volatile_cluster)
    trouble.read_only(True)
    with psycopg.connect(stage.dsn) as session:  # a new one, and so read-only
        assert session.execute("show default_transaction_read_only").fetchone() == ("on",)
    answer = asyncio.create_task(stage.client.enqueue(work.job()))
    await asyncio.sleep(0.1)
    assert not answer.done()  # refused, and tried again
    trouble.read_only(False)

    assert (await answer).answer == "created"
