"""While the database is away, the log says so once, however long it lasts, and once that it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Iterator
from datetime import timedelta

import pytest
from tests.client.proxy import Proxy
from tests.databases import Database, fresh_database

import mainspring as ms
from mainspring.config import WorkerConfig
from mainspring.db.gauges import Reader
from mainspring.embedded import Cluster
from mainspring.errors import DatabaseUnavailable
from mainspring.worker import service

pytestmark = pytest.mark.anyio

MOST = 5  # that it goes, that it is back, and at most three reasons between


@pytest.fixture
def place(durable_cluster: Cluster) -> Iterator[Database]:
    durable_cluster.start()
    with fresh_database(durable_cluster) as database:
        yield database


class Lines(logging.Handler):
    """Whatever anybody logs."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.said: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.levelno >= logging.WARNING:
            self.said.append(f"{record.name}: {record.getMessage()}".strip())


@pytest.fixture
async def lines() -> AsyncIterator[Lines]:
    handler = Lines()
    logging.root.addHandler(handler)
    yield handler
    logging.root.removeHandler(handler)


async def test_an_outage_of_any_length_is_a_handful_of_lines(
    durable_cluster: Cluster, place: Database, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LONGEST_BACKOFF_S", 0.2)  # more is tried in less time
    tasks = ms.Registry("shop")

    @tasks.task
    def in_a_thread(ctx: ms.SyncContext) -> None:
        with ctx.complete() as conn:
            conn.execute("select 1")

    @tasks.task(needs=("mail",))
    async def mailed() -> None: ...

    soon = timedelta(seconds=0.3)
    config = WorkerConfig(
        lease=3 * soon, renew_every=soon, rescue_every=soon, seal_every=soon, poll_interval=soon, grace=soon
    )
    app = ms.App(tasks, dsn=place.dsn, breakers=[ms.breaker("mail", failures=3)], config=config)
    worker, gauges = app.worker(), Reader(place.dsn, keep=0.1)
    async with ms.AsyncClient(place.dsn, timeout=0.2) as client:
        await worker.start()
        try:
            job = await client.enqueue(in_a_thread.job())
            assert await client.result(job.id) is None
            assert await asyncio.to_thread(gauges) is not None
            before = len(lines.said)
            durable_cluster.stop("immediate")
            for _ in range(6):
                await asyncio.sleep(0.2)
                await asyncio.to_thread(gauges)
                with pytest.raises(DatabaseUnavailable):
                    await client.now()
            away = lines.said[before:]
            await asyncio.to_thread(durable_cluster.start)
            job = await client.enqueue(in_a_thread.job())
            assert await client.result(job.id) is None
            assert await asyncio.to_thread(gauges) is not None
            async with asyncio.timeout(10):
                while not any("is back" in line for line in lines.said):
                    await asyncio.sleep(0.05)
        finally:
            await worker.stop()

    said = [line for line in lines.said[before:] if "mainspring.metrics" not in line]
    assert 1 <= len([line for line in said if "the database is away" in line]) <= MOST - 1, "\n".join(said)
    assert len([line for line in said if "the database is back after" in line]) == 1, "\n".join(said)
    assert len(said) <= MOST, "\n".join(said)
    assert len(lines.said) - before - len(said) <= MOST, "\n".join(away)  # of the gauges


async def test_a_start_that_waits_for_the_database_says_so_once(
    proxy: Proxy, lines: Lines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service, "LONGEST_BACKOFF_S", 0.1)
    proxy.down = True
    worker = ms.App(ms.Registry("shop"), dsn=proxy.dsn).worker()
    starting = asyncio.create_task(worker.start())
    async with asyncio.timeout(10):
        while len(proxy.came) < 10:  # tries
            await asyncio.sleep(0.01)
    proxy.down = False
    await starting
    await worker.stop()

    went, back = lines.said
    assert "the database is away: " in went
    assert "the database is back after " in back
