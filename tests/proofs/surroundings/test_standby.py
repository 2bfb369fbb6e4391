"""A commit whose wait for a synchronous standby is broken off: PostgreSQL only warns, but nobody knows if it lasts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from tests.client.tasks import greet
from tests.databases import Database, fresh_database, superuser
from tests.worker.stage import SETTINGS, Stage

from mainspring import AsyncClient, Client, Context, Registry
from mainspring.config import WorkerConfig
from mainspring.embedded import Cluster
from mainspring.errors import DatabaseUnavailable
from mainspring.events import DatabaseAway, Event
from mainspring.job import NewJob
from mainspring.uuid7 import uuid7
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio

WAITING = "select pid from pg_stat_activity where wait_event = 'SyncRep' and application_name = %s"
CLIENT = "mainspring client"
SOON = 0.5


class Standby:
    """A standby that every commit waits for; here there is none."""

    def __init__(self, conn: psycopg.Connection[TupleRow]) -> None:
        self._conn = conn

    def wanted(self, names: str) -> None:
        self._conn.execute(f"alter system set synchronous_standby_names = '{names}'")
        self._conn.execute("select pg_reload_conf()")

    async def break_off(self, name: str = CLIENT, how: str = "pg_cancel_backend") -> None:
        """Wait until somebody waits for the standby, and end their wait."""
        async with asyncio.timeout(60):
            while not (found := self._conn.execute(WAITING, [name]).fetchall()):
                await asyncio.sleep(0.01)
        for (pid,) in found:
            self._conn.execute(f"select {how}(%s)", [pid])
        async with asyncio.timeout(60):
            while set(self._conn.execute(WAITING, [name]).fetchall()) & set(found):
                await asyncio.sleep(0.01)


@pytest.fixture
def place(durable_cluster: Cluster) -> Iterator[Database]:
    """A database that writes durably."""
    durable_cluster.start()
    with fresh_database(durable_cluster) as database:
        yield database


@pytest.fixture
def standby(durable_cluster: Cluster, place: Database) -> Iterator[Standby]:
    with superuser(durable_cluster) as conn:
        standby = Standby(conn)
        try:
            yield standby
        finally:
            standby.wanted("")


@pytest.fixture
async def stage(place: Database) -> AsyncIterator[Stage]:
    with place.connect() as conn:
        async with AsyncClient(place.dsn, answered_within=SOON) as client:
            yield Stage(place, conn, client)


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> Any:
    return request.param


def enqueue(client: Client | AsyncClient, job: NewJob, **given: Any) -> asyncio.Future[Any]:
    if isinstance(client, Client):
        return asyncio.ensure_future(asyncio.to_thread(lambda: client.enqueue(job, **given)))
    return asyncio.ensure_future(client.enqueue(job, **given))


async def close(client: Client | AsyncClient) -> None:
    await client.close() if isinstance(client, AsyncClient) else client.close()


@pytest.mark.parametrize("how", ["pg_cancel_backend", "pg_terminate_backend"])
async def test_an_enqueue_whose_wait_is_broken_off_is_unknown_until_a_standby_has_it(
    colour: Any, stage: Stage, standby: Standby, how: str
) -> None:
    client = colour(stage.dsn, answered_within=SOON)
    try:
        job = greet.job().with_id(uuid7())
        standby.wanted("nobody")
        waiting = enqueue(client, job)
        await standby.break_off(how=how)
        with pytest.raises(DatabaseUnavailable) as caught:
            await waiting
        assert caught.value.sent is True
        await stage.until(lambda: stage.rows("select id from mainspring.job") == [(job.id,)])  # here, and nowhere else
    finally:
        await close(client)


async def test_the_client_asks_again_and_that_answer_waits_for_a_standby_as_well(
    colour: Any, stage: Stage, standby: Standby
) -> None:
    client = colour(stage.dsn)
    try:
        standby.wanted("nobody")
        waiting = enqueue(client, greet.job())
        for _ in range(2):  # the enqueue, and the question what became of it
            await standby.break_off()
        standby.wanted("")

        answer = await waiting
        assert (answer.answer, stage.rows("select id from mainspring.job")) == ("created", [(answer.id,)])
    finally:
        await close(client)


async def test_other_verbs_say_so_too(colour: Any, stage: Stage, standby: Standby) -> None:
    client = colour(stage.dsn)
    try:
        standby.wanted("nobody")
        verb = client.pause
        waiting = (
            asyncio.ensure_future(asyncio.to_thread(verb, "q:default"))
            if isinstance(client, Client)
            else asyncio.ensure_future(verb("q:default"))
        )
        await standby.break_off()

        with pytest.raises(DatabaseUnavailable, match="standby was broken off: whether the commit lasts is unknown"):
            await waiting
    finally:
        await close(client)


async def test_on_a_callers_own_connection_it_is_unknown_and_nothing_of_ours_stays(
    colour: Any, stage: Stage, standby: Standby
) -> None:
    client = colour(stage.dsn)
    dsn = make_conninfo(stage.dsn, application_name="mine")
    own: Any = (
        psycopg.connect(dsn, autocommit=True)
        if isinstance(client, Client)
        else await psycopg.AsyncConnection.connect(dsn, autocommit=True)
    )
    try:
        standby.wanted("nobody")
        waiting = enqueue(client, greet.job(), conn=own)
        await standby.break_off("mine")

        with pytest.raises(DatabaseUnavailable) as caught:
            await waiting
        assert caught.value.sent is True
        assert not own.closed
        assert own._notice_handlers == []
    finally:
        own.close() if isinstance(client, Client) else await own.close()
        await close(client)


async def told(stage: Stage, seen: list[Event]) -> bool:
    """Whether the worker says that the database is away; that takes a moment, if it does at all."""
    with suppress(TimeoutError):
        await stage.until(lambda: any(isinstance(event, DatabaseAway) for event in seen), 2)
    return any(isinstance(event, DatabaseAway) for event in seen)


async def test_an_outcome_whose_wait_is_broken_off_is_asked_for_and_written_once(
    stage: Stage, standby: Standby
) -> None:
    tasks = Registry("test")
    began: list[str] = []
    seen: list[Event] = []
    stage.ledger()

    @tasks.task
    async def plain() -> None:
        began.append("plain")
        standby.wanted("nobody")

    @tasks.task
    async def in_transaction(ctx: Context) -> None:
        began.append("in transaction")
        async with ctx.complete() as conn:
            await conn.execute("insert into ledger values (%s, 'once')", [ctx.job.id])
            standby.wanted("nobody")

    for task in (plain, in_transaction):
        job = stage.one("select job_id from mainspring.enqueue(%s, '{}')", task.name)
        worker = Worker(stage.dsn, tasks, config=WorkerConfig(**SETTINGS), observers=[seen.extend])
        await worker.start()
        try:
            await standby.break_off(f"mainspring worker {worker.id}")
            while task is plain and not await told(stage, seen):
                await standby.break_off(f"mainspring worker {worker.id}")  # it was another's, such as the heartbeat's
            standby.wanted("")
            await stage.until(lambda: worker.counts["succeeded"] == 1)  # noqa: B023 (called in this turn)
        finally:
            await worker.stop()
        assert stage.one("select state from mainspring.jobs where id = %s", job) == "succeeded"

    assert began == ["plain", "in transaction"]
    assert stage.effects() == ["once"]
