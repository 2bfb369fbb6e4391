"""A server that says nothing: no client waits for ever, and what is unknown is said to be."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import warnings
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.client.conftest import Awaited, Connect, count
from tests.client.proxy import Proxy, proxied
from tests.client.tasks import greet
from tests.databases import Database

from mainspring import AsyncClient, Client, Registry
from mainspring.app import App
from mainspring.cipher import Cipher
from mainspring.db.wire import answer
from mainspring.errors import ConfigurationError, DatabaseUnavailable, JobExists
from mainspring.uuid7 import uuid7

pytestmark = [pytest.mark.anyio, pytest.mark.timeout(120)]  # what blocks the loop for ever is ended by the signal
Sql = psycopg.Connection[TupleRow]
SOON = 0.4
LONGEST = 60.0  # far above what is allowed even on a busy machine; a frozen server would take for ever


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    with proxied(database.dsn) as proxy:
        yield proxy


@asynccontextmanager
async def unanswered(sent: bool) -> AsyncIterator[None]:
    with pytest.raises(DatabaseUnavailable) as caught:
        async with asyncio.timeout(LONGEST):
            yield
    assert caught.value.sent is sent


@contextmanager
def stopped(sql: Sql, name: str = "mainspring client") -> Iterator[None]:
    """Sessions under SIGSTOP: the kernel goes on acknowledging for them."""
    pids = [row[0] for row in sql.execute(
        "select pid from pg_stat_activity where datname = current_database() and application_name = %s", [name]
    )]  # fmt: skip
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            os.kill(pid, signal.SIGCONT)


async def until(holds: Any) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.01)


async def test_an_enqueue_at_a_stopped_server_is_unknown_in_time_and_safe_to_repeat(connect: Connect, sql: Sql) -> None:
    client = connect(answered_within=SOON)
    await client.now()
    mine, keyed = greet.job().with_id(uuid7()), greet.job(name="Ada").with_key("once")
    with stopped(sql):
        async with unanswered(sent=True):
            await client.enqueue(mine)
    await until(lambda: count(sql) == 1)  # it was done after all, which nobody could know
    with pytest.raises(JobExists, match="earlier try"):
        await client.enqueue(mine)
    with stopped(sql):
        async with unanswered(sent=True):
            await client.enqueue(keyed)
    await until(lambda: count(sql) == 2)

    assert (await client.enqueue(keyed)).answer == "existing"
    assert count(sql) == 2


async def test_the_error_says_what_is_unknown_and_what_to_do(connect: Connect, sql: Sql) -> None:
    client = connect(answered_within=SOON)
    await client.now()
    words = r"not answered within 0.4 s: whether it was done is unknown; .* with the same id or key is safe"
    with stopped(sql), pytest.raises(DatabaseUnavailable, match=words):
        async with asyncio.timeout(LONGEST):
            await client.enqueue(greet.job())


VERBS: dict[str, Any] = {
    "a read": lambda client: client.now(),
    "a batch": lambda client: client.enqueue_many([greet.job(name=str(n)) for n in range(1100)]),
    "a cancel": lambda client: client.cancel(uuid7()),
    "a prune": lambda client: client.prune(["succeeded"], timedelta(days=1)),
    "a bulk replay": lambda client: Awaited(client.own.dead).replay_many(reason="again"),
    "a result": lambda client: client.result(uuid7(), timeout=60),
}


@pytest.mark.parametrize("verb", VERBS)
async def test_no_verb_outwaits_a_frozen_server(
    connect: Connect, proxy: Proxy, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(answer, "SIDE_QUESTION_S", 1)
    monkeypatch.setattr(answer, "STRAGGLING_PATIENCE_S", 0.1)
    client = connect(proxy.dsn, answered_within=SOON, timeout=0.3)
    await client.now()
    proxy.freeze()

    async with unanswered(sent=True):
        await VERBS[verb](client)


async def test_without_a_connection_nothing_was_sent(connect: Connect, proxy: Proxy) -> None:
    client = connect(f"{proxy.dsn} connect_timeout=2", answered_within=SOON, timeout=0.3)
    proxy.freeze()

    async with unanswered(sent=False):
        await client.enqueue(greet.job())


async def test_a_secured_client_and_one_with_keys_end_as_well(connect: Connect, proxy: Proxy, sql: Sql) -> None:
    secured = connect(proxy.dsn, answered_within=SOON, timeout=0.3, secured=True)
    sealing = connect(proxy.dsn, answered_within=SOON, timeout=0.3, cipher=Cipher(b"m" * 32))
    await secured.now()
    await sealing.enqueue(greet.job().for_org("a"))
    proxy.freeze()

    async with unanswered(sent=True):
        await secured.enqueue(greet.job())
    async with unanswered(sent=True):
        await sealing.enqueue(greet.job().for_org("b"))


async def test_enqueues_that_go_out_together_all_end(database: Database, proxy: Proxy) -> None:
    async with AsyncClient(proxy.dsn, answered_within=SOON, timeout=0.3) as client:
        await client.now()
        proxy.freeze()
        async with asyncio.timeout(LONGEST):
            ended = await asyncio.gather(*(client.enqueue(greet.job()) for _ in range(50)), return_exceptions=True)

    assert {type(error) for error in ended} == {DatabaseUnavailable}


async def test_a_close_ends(connect: Connect, colour: type[Client], proxy: Proxy) -> None:
    client = Awaited(colour(proxy.dsn, answered_within=SOON, timeout=0.3))
    await client.now()
    proxy.freeze()
    async with asyncio.timeout(LONGEST):
        await client.close()


async def test_a_callers_own_connection_is_left_alone(connect: Connect, database: Database, sql: Sql) -> None:
    client = connect(answered_within=SOON)
    is_async = isinstance(client.own, AsyncClient)
    own: Any = (
        await psycopg.AsyncConnection.connect(database.dsn, autocommit=True, application_name="mine")
        if is_async
        else psycopg.connect(database.dsn, autocommit=True, application_name="mine")
    )
    try:
        job = greet.job()
        with stopped(sql, "mine"):
            waiting = asyncio.ensure_future(
                own_enqueue(client.own, job, own) if is_async else asyncio.to_thread(client.own.enqueue, job, conn=own)
            )
            await asyncio.sleep(3 * SOON)
            assert not waiting.done()  # whose connection it is decides how long to wait

        assert (await waiting).answer == "created"
        assert own._notice_handlers == []
    finally:
        await own.close() if is_async else own.close()


async def own_enqueue(client: AsyncClient, job: Any, conn: Any) -> Any:
    return await client.enqueue(job, conn=conn)


async def test_what_rightly_takes_long_is_waited_for_while_the_server_works(
    connect: Connect, database: Database, sql: Sql
) -> None:
    client = connect(answered_within=SOON)
    await client.now()
    with database.connect() as holder, holder.transaction():
        holder.execute("lock table mainspring.finished in access exclusive mode")
        prune = asyncio.ensure_future(later(client, "prune", ["succeeded"], timedelta(days=1)))
        await asyncio.sleep(4 * SOON)
        assert not prune.done()

    assert await prune == 0


async def test_after_what_took_long_the_next_verb_ends_in_time_again(connect: Connect, database: Database) -> None:
    client = connect(answered_within=SOON, pool_size=1)
    await client.prune(["succeeded"], timedelta(days=1))
    with database.connect() as holder, holder.transaction():
        holder.execute("lock table mainspring.job in exclusive mode")
        async with unanswered(sent=True):
            await later(client, "enqueue", greet.job())


async def later(client: Awaited, verb: str, *given: Any) -> Any:
    own = client.own
    if isinstance(own, AsyncClient):
        return await getattr(own, verb)(*given)
    return await asyncio.to_thread(getattr(own, verb), *given)


async def test_a_verb_that_waits_for_a_lock_ends_in_time(connect: Connect, database: Database) -> None:
    client = connect(answered_within=SOON)
    await client.now()
    with database.connect() as holder, holder.transaction():
        holder.execute("lock table mainspring.job in exclusive mode")
        async with unanswered(sent=True):
            await later(client, "enqueue", greet.job())


async def test_a_repetition_does_not_begin_after_the_time_is_used_up(connect: Connect, proxy: Proxy, sql: Sql) -> None:
    client = connect(proxy.dsn, answered_within=SOON)
    await client.now()
    proxy.swallow()
    before = len(proxy.came)
    async with unanswered(sent=True):
        await client.enqueue(greet.job())

    assert len(proxy.came) == before
    await until(lambda: count(sql) == 1)


def test_the_time_is_set_by_the_application_and_by_the_environment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks = Registry("shop")
    assert App(tasks, dsn=database.dsn).client().seam.answered_within == 30
    assert App(tasks, dsn=database.dsn, answered_within=7).async_client().seam.answered_within == 7
    monkeypatch.setenv("MAINSPRING_ANSWERED_WITHIN_SECONDS", "2.5")
    assert App(tasks, dsn=database.dsn, answered_within=7).client().seam.answered_within == 2.5
    monkeypatch.setenv("MAINSPRING_ANSWERED_WITHIN_SECONDS", "0")
    with pytest.raises(ConfigurationError, match="answered_within"):
        App(tasks, dsn=database.dsn).client()
    with pytest.raises(ConfigurationError, match="answered_within"):
        Client(database.dsn, answered_within=float("nan"))


def test_a_connection_holds_nothing_that_holds_it(database: Database) -> None:
    gc.collect()
    gc.disable()
    try:
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            conn = answer.Answered.connect(database.dsn)
            del conn
        assert [warning.category for warning in caught] == [ResourceWarning]  # freed at once, without the collector
    finally:
        gc.enable()
