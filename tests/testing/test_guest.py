"""Jobs inside of a test's own transaction, whatever library it comes from: nothing remains after its rollback."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import TupleRow, dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_async
from tests.client.frameworks.joins import async_engine, django_connection, engine
from tests.databases import Database

from mainspring import Client, Context, Permanent, Registry, Snooze, SyncContext
from mainspring.errors import ConfigurationError
from mainspring.testing import Clock, Guest, adrain, drain

Conn = psycopg.Connection[TupleRow]


@pytest.fixture(scope="session")
def own_tables() -> Sequence[str]:
    return ["create table mail (note text)"]


@pytest.fixture
def outside(database: Database) -> Iterator[Conn]:
    """Somebody else, who sees only what is committed."""
    with database.connect() as conn:
        yield conn


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with Client(database.dsn) as client:
        yield client


def committed(outside: Conn) -> list[Any]:
    """What is left of a test: its jobs, tickets, history and business rows."""
    tables = ("mainspring.job", "mainspring.waiting", "mainspring.finished", "mainspring.attempt", "mainspring.audit")
    return [row for table in (*tables, "mail") for row in outside.execute(f"select * from {table}".encode()).fetchall()]


# -- every way to hold a transaction open, and a look into it ---------------------------------------------------------

Way = Callable[[str], AbstractContextManager[tuple[Any, Callable[[str], list[Any]]]]]


@contextmanager
def by_psycopg(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn) as conn:
        yield conn, lambda sql: conn.execute(sql.encode()).fetchall()
        conn.rollback()


@contextmanager
def by_psycopg_block(dsn: str) -> Iterator[Any]:
    with psycopg.connect(dsn, autocommit=True, row_factory=dict_row) as conn, conn.transaction(force_rollback=True):
        yield conn, lambda sql: [tuple(row.values()) for row in conn.execute(sql.encode()).fetchall()]


@contextmanager
def by_sqlalchemy_connection(dsn: str) -> Iterator[Any]:
    with engine(dsn, "psycopg") as made, made.connect() as conn, conn.begin() as outer:
        yield conn, lambda sql: [tuple(row) for row in conn.execute(sa.text(sql)).all()]
        outer.rollback()


@contextmanager
def by_sqlalchemy_session(dsn: str) -> Iterator[Any]:
    """As SQLAlchemy's manual says: "joining a session into an external transaction"."""
    with engine(dsn, "psycopg") as made, made.connect() as conn, conn.begin() as outer:
        with orm.Session(conn, join_transaction_mode="create_savepoint") as session:
            yield session, lambda sql: [tuple(row) for row in session.execute(sa.text(sql)).all()]
        outer.rollback()


@contextmanager
def by_django(dsn: str) -> Iterator[Any]:
    """As django.test.TestCase and pytest-django's `db` do."""
    from django.db import transaction

    def ask(sql: str) -> list[Any]:
        with connection.cursor() as cursor:
            cursor.execute(sql)
            return list(cursor.fetchall())

    with django_connection(dsn) as connection, transaction.atomic():
        yield connection, ask
        transaction.set_rollback(True)


WAYS: dict[str, Way] = {
    "psycopg": by_psycopg,
    "psycopg autocommit block": by_psycopg_block,
    "SQLAlchemy Connection": by_sqlalchemy_connection,
    "SQLAlchemy Session": by_sqlalchemy_session,
    "Django": by_django,
}


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest) -> Way:
    return WAYS[request.param]


# -- what holds in each of them ---------------------------------------------------------------------------------------


def test_a_job_and_its_follow_up_run_in_the_transaction_and_go_with_it(
    way: Way, database: Database, outside: Conn, client: Client
) -> None:
    tasks = Registry("test")

    @tasks.task
    async def send(ctx: Context, *, to: str) -> None:
        async with ctx.complete() as tx:
            cursor = await tx.execute("select count(*), '{}'::jsonb from mail where note = %s", [to])
            assert await cursor.fetchone() == (0, {})  # rows and adapters are psycopg's own, whatever the caller's
            async with tx.transaction(), tx.cursor() as writes:
                await writes.execute("insert into mail values (%s)", [to])
            await ctx.enqueue(record.job(to=to))

    @tasks.task
    def record(ctx: SyncContext, *, to: str) -> None:
        with ctx.complete() as tx:
            tx.execute("insert into mail values (%s)", [f"recorded {to}"])

    with way(database.dsn) as (conn, ask):
        client.enqueue(send.job(to="ann"), conn=conn)

        done = drain(conn, tasks)

        assert [(run.task, run.state, run.attempt) for run in done] == [
            ("send", "succeeded", 1),
            ("record", "succeeded", 1),
        ]
        assert ask("select note from mail order by note") == [("ann",), ("recorded ann",)]
        assert ask("select state, count(*) from mainspring.jobs group by 1") == [("succeeded", 2)]
        assert committed(outside) == []
    assert committed(outside) == []


def test_failures_are_settled_as_a_worker_settles_them(
    way: Way, database: Database, outside: Conn, client: Client
) -> None:
    tasks = Registry("test")

    @tasks.task(name="flaky")
    async def flaky(ctx: Context) -> None:
        async with ctx.complete() as tx:
            await tx.execute("insert into mail values ('never')")
            raise ConnectionError("away")

    @tasks.task
    def refused(ctx: SyncContext) -> None:
        with ctx.complete() as tx:
            tx.execute("insert into mail values ('never')")
            raise Permanent("closed")

    @tasks.task
    async def broken(ctx: Context) -> None:
        async with ctx.complete() as tx:
            await tx.execute("select no_such_function()")

    @tasks.task
    def patient() -> None:
        raise Snooze(60)

    with way(database.dsn) as (conn, ask):
        for task in (flaky, refused, broken, patient):
            client.enqueue(task.job(), conn=conn)

        done = drain(conn, tasks, raise_errors=False)

        assert {run.task: run.state for run in done} == {
            "flaky": "retrying", "refused": "failed", "broken": "retrying", "patient": "scheduled",
        }  # fmt: skip
        assert ask("select * from mail") == []
        assert ask("select count(*) from mainspring.attempt") == [(3,)]
    assert committed(outside) == []


def test_a_handler_that_raises_fails_the_test_with_its_own_exception(
    way: Way, database: Database, outside: Conn, client: Client
) -> None:
    tasks = Registry("test")

    @tasks.task
    async def broken(*, n: int) -> None:
        raise ZeroDivisionError("here")

    with way(database.dsn) as (conn, ask):
        client.enqueue(broken.job(n=7), conn=conn)

        with pytest.raises(ZeroDivisionError, match="here") as caught:
            drain(conn, tasks)

        assert "broken" in caught.value.__notes__[0]
        assert ask("select state from mainspring.jobs") == [("retrying",)]


def test_what_waits_in_the_transaction_can_be_asserted(
    way: Way, database: Database, outside: Conn, client: Client
) -> None:
    tasks = Registry("test")

    @tasks.task
    async def send(*, to: str) -> None: ...

    with way(database.dsn) as (conn, _):
        guest = Guest(conn, tasks)
        guest.refute_enqueued(send)
        client.enqueue(send.job(to="ann").after(60), conn=conn)

        guest.assert_enqueued(
            send, payload={"to": "ann"}, at=timedelta(minutes=1), within=timedelta(seconds=5), count=1
        )
        with pytest.raises(AssertionError, match=r"payload.to is 'ann', not 'bob'"):
            guest.assert_enqueued(send, payload={"to": "bob"})
        assert len(guest.drain()) == 0, "it is due later"


def test_virtual_time_moves_and_goes_with_the_transaction(
    way: Way, database: Database, outside: Conn, client: Client
) -> None:
    tasks = Registry("test")

    @tasks.task
    async def send() -> None: ...

    before = Clock(outside).now()
    with way(database.dsn) as (conn, _):
        client.enqueue(send.job().after(timedelta(hours=4)), conn=conn)
        assert len(drain(conn, tasks)) == 0
        Clock(conn).advance(hours=4)
        assert [run.state for run in drain(conn, tasks)] == ["succeeded"]
    assert Clock(outside).now() - before < timedelta(minutes=5)


def test_plain_handlers_run_in_the_test_s_own_thread_without_a_loop(
    way: Way, database: Database, outside: Conn, client: Client
) -> None:
    tasks = Registry("test")
    seen: list[Any] = []

    @tasks.task
    def plain() -> None:
        async def nothing() -> None: ...

        asyncio.run(nothing())
        seen.append(threading.current_thread())

    with way(database.dsn) as (conn, _):
        client.enqueue(plain.job(), conn=conn)
        drain(conn, tasks)

    assert seen == [threading.current_thread()]


def test_steps_are_remembered_across_attempts(way: Way, database: Database, outside: Conn, client: Client) -> None:
    tasks = Registry("test")
    calls: list[str] = []

    def note(colour: str) -> str:
        calls.append(colour)
        return colour

    @tasks.task
    async def in_loop(ctx: Context) -> None:
        await ctx.step("note", note, "async")
        if ctx.attempt == 1:
            raise ConnectionError

    @tasks.task
    def in_thread(ctx: SyncContext) -> None:
        ctx.step("note", note, "plain")
        if ctx.attempt == 1:
            raise ConnectionError

    with way(database.dsn) as (conn, _):
        for task in (in_loop, in_thread):
            client.enqueue(task.job(), conn=conn)
        drain(conn, tasks, raise_errors=False)
        Clock(conn).advance(days=1)
        assert [run.state for run in drain(conn, tasks)] == ["succeeded"] * 2

    assert sorted(calls) == ["async", "plain"]
    assert committed(outside) == []


def test_handlers_use_django_s_own_connection(database: Database, outside: Conn, client: Client) -> None:
    from asgiref.sync import sync_to_async
    from django.db import connection, transaction

    tasks = Registry("test")

    def write(note: str) -> None:
        with transaction.atomic(), connection.cursor() as cursor:
            cursor.execute("insert into mail values (%s)", [note])

    @tasks.task
    def plain() -> None:
        write("plain")

    @tasks.task
    async def modern() -> None:
        await sync_to_async(write)("async")

    @tasks.task
    def careless() -> None:
        with connection.cursor() as cursor:
            cursor.execute("select no_such_function()")

    with by_django(database.dsn) as (conn, ask):
        for task in (plain, modern, careless):
            client.enqueue(task.job(), conn=conn)
        drain(conn, tasks, raise_errors=False)
        assert ask("select note from mail order by 1") == [("async",), ("plain",)], "and the transaction is well"
    assert committed(outside) == []


def test_a_session_shows_handlers_what_it_holds_and_reads_anew_what_they_wrote(
    database: Database, outside: Conn, client: Client
) -> None:
    class Base(orm.DeclarativeBase):
        pass

    class Order(Base):
        __tablename__ = "orders"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)
        state: orm.Mapped[str]

    outside.execute("create table orders (id int primary key, state text)")
    tasks = Registry("test")

    @tasks.task
    async def ship(ctx: Context, *, order: int) -> None:
        async with ctx.complete() as tx:
            await tx.execute("update orders set state = 'shipped' where id = %s", [order])

    with by_sqlalchemy_session(database.dsn) as (session, _):
        order = Order(id=7, state="new")
        session.add(order)
        client.enqueue(ship.job(order=7), conn=session)
        drain(session, tasks)
        assert order.state == "shipped"
    assert outside.execute("select * from orders").fetchall() == []


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["psycopg", "SQLAlchemy AsyncConnection", "SQLAlchemy AsyncSession"])
async def test_async_tests_drain_in_their_own_loop_and_transaction(
    kind: str, database: Database, outside: Conn
) -> None:
    from mainspring import AsyncClient

    tasks = Registry("test")
    told = asyncio.Event()

    @tasks.task
    async def send(ctx: Context) -> None:
        async with ctx.complete() as tx:
            await tx.execute("insert into mail values ('sent')")
        told.set()

    @tasks.task
    def plain(ctx: SyncContext) -> None:
        with ctx.complete() as tx:
            tx.execute("insert into mail values ('plain')")

    async def check(conn: Any) -> None:
        async with AsyncClient(database.dsn) as client:
            await client.enqueue_many([send.job(), plain.job()], conn=conn)
        done = await adrain(conn, tasks)
        assert done.counts == {"succeeded": 2}
        assert told.is_set()

    if kind == "psycopg":
        async with await psycopg.AsyncConnection.connect(database.dsn) as conn:
            await check(conn)
            await conn.rollback()
    else:
        async with async_engine(database.dsn, "psycopg") as made, made.connect() as own:
            if kind == "SQLAlchemy AsyncConnection":
                await check(own)
            else:
                async with sa_async.AsyncSession(own, join_transaction_mode="create_savepoint") as session:
                    await check(session)
            await own.rollback()
    assert committed(outside) == []


def test_a_connection_outside_of_a_transaction_is_refused(database: Database, outside: Conn) -> None:
    with pytest.raises(ConfigurationError, match="not in a transaction"):
        drain(outside, Registry("test"))
    with django_connection(database.dsn) as connection, pytest.raises(ConfigurationError, match="not in a transaction"):
        drain(connection, Registry("test"))


def test_a_driver_that_handlers_never_get_is_refused_by_name(database: Database) -> None:
    refused = pytest.raises(ConfigurationError, match="psycopg2 connection cannot be joined")
    with engine(database.dsn, "psycopg2") as made, made.connect() as conn, refused:
        drain(conn, Registry("test"))
    with pytest.raises(ConfigurationError, match="object cannot be joined"):
        drain(object(), Registry("test"))


def test_a_handler_cannot_end_the_test_s_transaction(
    way: Way, database: Database, outside: Conn, client: Client
) -> None:
    tasks = Registry("test")

    @tasks.task
    async def modern(ctx: Context) -> None:
        async with ctx.complete() as tx:
            await tx.commit()

    @tasks.task
    def plain(ctx: SyncContext) -> None:
        with ctx.complete() as tx:
            tx.commit()

    with way(database.dsn) as (conn, _):
        for task in (modern, plain):
            client.enqueue(task.job(), conn=conn)
        done = drain(conn, tasks, raise_errors=False)
        assert [run.state for run in done] == ["retrying"] * 2
    assert committed(outside) == []


def test_a_plain_handler_that_takes_too_long_keeps_the_connection_until_its_end(
    database: Database, outside: Conn, client: Client
) -> None:
    """Two threads must not talk on one connection; in production they have two."""
    tasks = Registry("test")

    @tasks.task(timeout=timedelta(milliseconds=50))
    def slow(ctx: SyncContext) -> None:
        with ctx.complete() as tx:
            for _ in range(3):
                tx.execute("insert into mail select 'late' from pg_sleep(0.05)")

    with by_psycopg(database.dsn) as (conn, ask):
        client.enqueue(slow.job(), conn=conn)
        (run,) = drain(conn, tasks, raise_errors=False)
        assert run.job.error is not None
        assert (run.state, run.job.error["code"]) == ("retrying", "TIMEOUT")
        assert ask("select count(*) from mail") == [(0,)]
    assert committed(outside) == []
