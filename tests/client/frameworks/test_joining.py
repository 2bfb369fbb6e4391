"""Enqueue in the caller's own transaction, with the real libraries."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from inspect import isawaitable
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.client.conftest import claim
from tests.client.frameworks.joins import Block, Join
from tests.client.tasks import greet
from tests.databases import Database

from mainspring import AsyncClient, Client
from mainspring.errors import ConfigurationError, JobExists, JobNotFound, KeyReused, TransitionRefused
from mainspring.uuid7 import uuid7
from mainspring.virtual.clock import Clock

pytestmark = pytest.mark.anyio
Sql = psycopg.Connection[TupleRow]


@asynccontextmanager
async def undone(block: Block) -> AsyncIterator[None]:
    """A transaction or savepoint that is rolled back."""
    with suppress(ZeroDivisionError):
        async with block():
            yield
            raise ZeroDivisionError


def rows(sql: Sql) -> tuple[int, int]:
    """How many bookings and jobs others can see."""
    row = sql.execute("select (select count(*) from booking), (select count(*) from mainspring.job)").fetchone()
    assert row is not None
    return row[0], row[1]


@pytest.mark.rule("ENG-18.07", "ENG-1.09")
async def test_a_job_commits_with_its_cause(join: Join, sql: Sql) -> None:
    async with join.transaction():
        await join.execute("insert into booking values (1)")
        answer = await join.client.enqueue(greet.job(), conn=join.conn)
        assert (answer.answer, answer.state) == ("created", "ready")
        assert rows(sql) == (0, 0)

    assert rows(sql) == (1, 1)
    assert (await join.client.get(answer.id)).id == answer.id


@pytest.mark.rule("ENG-18.07", "ENG-1.09", "ENG-1.06")
async def test_a_job_vanishes_with_its_cause(join: Join, sql: Sql) -> None:
    async def book() -> str:
        async with join.transaction():
            await join.client.enqueue_many([greet.job(), greet.job().with_key("k")], conn=join.conn)
            await join.execute("insert into booking values (1)")
            raise RuntimeError("the request failed")
        return "accepted"  # type: ignore[unreachable]  # the answer that must not be given

    with pytest.raises(RuntimeError, match="the request failed"):
        await book()

    assert rows(sql) == (0, 0)
    assert (await join.client.enqueue(greet.job().with_key("k"))).answer == "created"  # the key is free as well


async def test_a_job_follows_its_savepoint(join: Join, sql: Sql) -> None:
    async with join.transaction():
        await join.client.enqueue(greet.job(name="outer"), conn=join.conn)
        async with undone(join.savepoint):
            await join.client.enqueue(greet.job(name="rolled back"), conn=join.conn)
        async with join.savepoint():
            await join.client.enqueue(greet.job(name="released"), conn=join.conn)

    names = sql.execute("select payload ->> 'name' from mainspring.job order by 1").fetchall()
    assert names == [("outer",), ("released",)]


async def test_our_errors_are_ours_and_the_caller_s_transaction_goes_on_after_its_savepoint(
    join: Join, sql: Sql
) -> None:
    taken = await join.client.enqueue(greet.job(name="first").with_key("k").with_id(uuid7()))

    async with join.transaction():
        await join.execute("insert into booking values (1)")
        with pytest.raises(KeyReused) as reused:
            async with join.savepoint():
                await join.client.enqueue(greet.job(name="second").with_key("k"), conn=join.conn)
        with pytest.raises(JobExists) as exists:
            async with join.savepoint():
                await join.client.enqueue(greet.job().with_id(taken.id), conn=join.conn)
        await join.client.enqueue(greet.job(), conn=join.conn)

    assert reused.value.job_id == exists.value.job_id == taken.id
    assert rows(sql) == (1, 2)


async def test_cancel_and_reschedule_by_key_belong_to_the_transaction(join: Join, sql: Sql) -> None:
    now = Clock(sql).now()
    Clock(sql).set(now)
    client, conn = join.client, join.conn
    first = (await client.enqueue(greet.job().with_key("first"))).id
    second = (await client.enqueue(greet.job().with_key("second"))).id

    async def act() -> None:
        assert await client.cancel(key="first", reason="paid", conn=conn) == "cancelled"
        assert await client.reschedule(key="second", delay=timedelta(hours=1), conn=conn) == "scheduled"
        assert await client.cancel(key="unknown", conn=conn) == "not_found"

    async with undone(join.transaction):
        await act()
    assert [(await client.get(job)).state for job in (first, second)] == ["ready", "ready"]

    async with join.transaction():
        await act()
        assert (await client.get(first, conn=conn)).state == "cancelled"
        assert (await client.get(first)).state == "ready"
    assert (await client.get(first)).state == "cancelled"
    assert (await client.get(second)).due_at == now + timedelta(hours=1)


async def test_every_verb_understands_the_caller_s_connection(join: Join, sql: Sql) -> None:
    client, conn = join.client, join.conn
    odd = "a:b ::c :d %s %(e)s $1 'f' \\"
    async with join.transaction():
        job = (await client.enqueue(greet.job(name=odd).with_key(odd).on_queue(odd).for_org(odd), conn=conn)).id
        found = await client.get(job, org=odd, conn=conn)
        assert (found.payload["name"], found.queue, found.org_id, found.idempotency_key) == (odd,) * 4
        assert [found.id for found in await client.jobs(org=odd, queue=odd, limit=5, conn=conn)] == [job]
        assert await client.attempts(job, conn=conn) == []
        assert await client.prioritize(job, 0, conn=conn) == 2
        assert await client.depth(odd, conn=conn) == 1
        await client.pause(odd, reason=odd, conn=conn)
        assert odd in {queue.name for queue in await client.queues(conn=conn) if queue.paused_at}
        assert await client.resume(odd, conn=conn) is True
        assert await client.workers(conn=conn) == []
        assert (await client.now(conn=conn)).tzinfo is not None
        assert await client.cancel(job, org=odd, conn=conn) == "cancelled"
        with pytest.raises(TransitionRefused):
            await client.replay(job, reason="mended", conn=conn)
        with pytest.raises(JobNotFound):
            await client.get(job, org="other", conn=conn)
        assert await client.prune(["cancelled"], timedelta(0), conn=conn) == 1
    assert rows(sql) == (0, 0)


async def test_many_jobs_are_all_or_none_even_where_every_statement_commits(join: Join, sql: Sql) -> None:
    await join.client.enqueue(greet.job(name="other").with_key("taken"))
    jobs = [greet.job() for _ in range(1500)]

    with pytest.raises(KeyReused):
        await join.client.enqueue_many([*jobs, greet.job(name="mine").with_key("taken")], conn=join.conn)

    assert rows(sql) == (0, 1)


async def test_a_pause_in_the_caller_s_transaction_stops_nobody_before_its_commit(join: Join, sql: Sql) -> None:
    sql.execute("set lock_timeout = '2 s'")
    await join.client.enqueue_many([greet.job(), greet.job()])
    async with join.transaction():
        await join.client.pause("q:default", conn=join.conn)
        assert len(claim(sql, "greet", limit=1)) == 1

    assert claim(sql, "greet") == []


# -- hints --------------------------------------------------------------------------------------------------------


def hints(listener: Sql, sql: Sql) -> int:
    """How many hints have come, without waiting for one that does not."""
    sql.execute("notify mainspring, 'that is all'")
    for count, notice in enumerate(listener.notifies(timeout=20)):
        if notice.payload == "that is all":
            return count
    raise AssertionError("the listener is deaf")


async def test_an_idle_worker_is_woken_by_the_commit_and_not_before(join: Join, database: Database, sql: Sql) -> None:
    with database.connect() as listener:
        listener.execute("listen mainspring")
        sql.execute("select mainspring.raise_idle(60000)")
        async with join.transaction():
            await join.client.enqueue(greet.job(), conn=join.conn)
            assert hints(listener, sql) == 0

        assert hints(listener, sql) >= 1


async def test_a_worker_that_fell_idle_before_the_commit_is_woken_where_the_library_has_a_hook(
    join: Join, database: Database, sql: Sql
) -> None:
    with database.connect() as listener:
        listener.execute("listen mainspring")
        async with join.transaction():
            await join.execute("insert into booking values (1)")
            for _ in range(3):
                async with join.savepoint():
                    await join.client.enqueue(greet.job(), conn=join.conn)
            sql.execute("select mainspring.raise_idle(60000)")

        assert hints(listener, sql) == int(join.hooked)


async def test_a_transaction_that_was_rolled_back_wakes_nobody_nor_does_the_next(
    join: Join, database: Database, sql: Sql
) -> None:
    with database.connect() as listener:
        listener.execute("listen mainspring")
        async with undone(join.transaction):
            await join.client.enqueue(greet.job(), conn=join.conn)
            sql.execute("select mainspring.raise_idle(60000)")
        async with join.transaction():
            await join.execute("insert into booking values (1)")

        assert hints(listener, sql) == 0
        assert rows(sql) == (1, 0)


# -- what cannot be joined ----------------------------------------------------------------------------------------


async def enqueue_with(colour: type[Client] | type[AsyncClient], conn: Any) -> None:
    answer = colour("host=/nowhere").enqueue(greet.job(), conn=conn)
    if isawaitable(answer):
        await answer


@pytest.mark.parametrize("colour", [Client, AsyncClient])
@pytest.mark.parametrize("conn", ["postgresql://localhost/shop", 7, object()], ids=type)
async def test_what_is_no_connection_is_refused_clearly(colour: type[Client] | type[AsyncClient], conn: Any) -> None:
    kind = type(conn).__name__

    with pytest.raises(
        ConfigurationError, match=f"^conn: a builtins {kind} cannot be joined by {colour.__name__}; it takes"
    ):
        await enqueue_with(colour, conn)


async def test_a_connection_of_the_other_colour_is_refused_clearly(join: Join) -> None:
    wrong: type[Client] | type[AsyncClient] = Client if isinstance(join.client, AsyncClient) else AsyncClient

    with pytest.raises(ConfigurationError, match=f"^conn: .* cannot be joined by {wrong.__name__}; it takes"):
        await enqueue_with(wrong, join.conn)
