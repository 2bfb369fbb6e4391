"""Every kind of connection that a caller may hand to a client, behind one face.

A `Join` has the caller's connection, their own transactions and savepoints as their library writes them, and a client
of the right colour. Sync libraries run in a thread of their own, as in a web server; Django insists on it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from dataclasses import dataclass
from typing import Any

import asyncpg
import psycopg
import psycopg2
import psycopg2.extras
import sqlalchemy as sa
from psycopg.conninfo import conninfo_to_dict
from psycopg.rows import dict_row
from sqlalchemy import orm
from sqlalchemy.ext import asyncio as sa_async

from mainspring import AsyncClient, Client

Block = Callable[[], AbstractAsyncContextManager[Any]]


@dataclass(frozen=True)
class Join:
    """One way to join a caller's transaction."""

    conn: Any
    client: Any  # its verbs are awaited
    execute: Callable[[str], Any]  # awaited
    transaction: Block
    savepoint: Block
    hooked: bool  # whether the library lets us act after the commit


@dataclass(frozen=True)
class Sync:
    """What a sync library offers."""

    conn: Any
    execute: Callable[[str], Any]
    transaction: Callable[[], AbstractContextManager[Any]]
    savepoint: Callable[[], AbstractContextManager[Any]]
    hooked: bool = False


class InThread:
    """A client whose verbs run in one thread."""

    def __init__(self, client: Client, call: Callable[..., Any]) -> None:
        self._client, self._call = client, call

    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self._call(getattr(self._client, name), *args, **kwargs)


@asynccontextmanager
async def in_thread(dsn: str, make: Callable[[str], AbstractContextManager[Sync]]) -> AsyncIterator[Join]:
    loop = asyncio.get_running_loop()
    with ThreadPoolExecutor(1) as thread, Client(dsn) as client:

        async def call(verb: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
            return await loop.run_in_executor(thread, lambda: verb(*args, **kwargs))

        def block(enter: Callable[[], AbstractContextManager[Any]]) -> Block:
            @asynccontextmanager
            async def entered() -> AsyncIterator[None]:
                context = await call(enter)
                await call(context.__enter__)
                try:
                    yield
                except BaseException as error:
                    if not await call(context.__exit__, type(error), error, error.__traceback__):
                        raise
                else:
                    await call(context.__exit__, None, None, None)

            return entered

        making = make(dsn)
        sync = await call(making.__enter__)
        try:
            yield Join(
                sync.conn,
                InThread(client, call),
                lambda sql: call(sync.execute, sql),
                block(sync.transaction),
                block(sync.savepoint),
                sync.hooked,
            )
        finally:
            await call(making.__exit__, None, None, None)


# -- drivers ------------------------------------------------------------------------------------------------------


@contextmanager
def committing(conn: Any) -> Iterator[None]:
    """A transaction by hand."""
    try:
        yield
    except BaseException:
        conn.rollback()
        raise
    conn.commit()


@contextmanager
def savepoint_by_hand(execute: Callable[[str], Any]) -> Iterator[None]:
    execute("savepoint s")
    try:
        yield
    except BaseException:
        execute("rollback to savepoint s")
        raise
    execute("release savepoint s")


@contextmanager
def psycopg_plain(dsn: str) -> Iterator[Sync]:
    with psycopg.connect(dsn) as conn:
        yield Sync(conn, conn.execute, lambda: committing(conn), conn.transaction)


@contextmanager
def psycopg_dict_row(dsn: str) -> Iterator[Sync]:
    with psycopg.connect(dsn, row_factory=dict_row, autocommit=True) as conn:
        yield Sync(conn, conn.execute, conn.transaction, conn.transaction)


@contextmanager
def psycopg_raw_cursor(dsn: str) -> Iterator[Sync]:
    with psycopg.connect(dsn, cursor_factory=psycopg.RawCursor) as conn:
        yield Sync(conn, conn.execute, lambda: committing(conn), conn.transaction)


@asynccontextmanager
async def psycopg_async(dsn: str, **options: Any) -> AsyncIterator[Join]:
    async with AsyncClient(dsn) as client, await psycopg.AsyncConnection.connect(dsn, **options) as conn:
        yield Join(conn, client, conn.execute, conn.transaction, conn.transaction, hooked=False)


@contextmanager
def psycopg2_plain(dsn: str, **options: Any) -> Iterator[Sync]:
    conn = psycopg2.connect(dsn, **options)

    def execute(sql: str) -> None:
        with conn.cursor() as cursor:
            cursor.execute(sql)

    try:
        yield Sync(conn, execute, lambda: conn, lambda: savepoint_by_hand(execute))
    finally:
        conn.close()


def psycopg2_dict_rows(dsn: str) -> AbstractContextManager[Sync]:
    return psycopg2_plain(dsn, cursor_factory=psycopg2.extras.RealDictCursor)


def asyncpg_address(dsn: str) -> dict[str, Any]:
    given = conninfo_to_dict(dsn)
    return {"host": given["host"], "port": given["port"], "user": given["user"], "database": given["dbname"]}


@asynccontextmanager
async def asyncpg_plain(dsn: str) -> AsyncIterator[Join]:
    conn = await asyncpg.connect(**asyncpg_address(dsn))
    try:
        async with AsyncClient(dsn) as client:
            yield Join(conn, client, conn.execute, conn.transaction, conn.transaction, hooked=False)
    finally:
        await conn.close()


@asynccontextmanager
async def asyncpg_pool(dsn: str) -> AsyncIterator[Join]:
    async with (
        AsyncClient(dsn) as client,
        asyncpg.create_pool(**asyncpg_address(dsn), min_size=1) as pool,
        pool.acquire() as conn,
    ):
        yield Join(conn, client, conn.execute, conn.transaction, conn.transaction, hooked=False)


# -- SQLAlchemy ---------------------------------------------------------------------------------------------------
# Pools of one connection: joining must not need a second one.


def url(dsn: str, driver: str) -> sa.URL:
    given = conninfo_to_dict(dsn)
    query = {} if driver == "asyncpg" else {"host": str(given["host"]), "port": str(given["port"])}
    return sa.URL.create(f"postgresql+{driver}", str(given["user"]), database=str(given["dbname"]), query=query)


@contextmanager
def engine(dsn: str, driver: str) -> Iterator[sa.Engine]:
    made = sa.create_engine(url(dsn, driver), pool_size=1, max_overflow=0, pool_timeout=2)
    try:
        yield made
    finally:
        made.dispose()


def sqlalchemy_connection(driver: str) -> Callable[[str], AbstractContextManager[Sync]]:
    @contextmanager
    def make(dsn: str) -> Iterator[Sync]:
        with engine(dsn, driver) as made, made.connect() as conn:
            yield Sync(conn, lambda sql: conn.execute(sa.text(sql)), conn.begin, conn.begin_nested)

    return make


def sqlalchemy_session(driver: str) -> Callable[[str], AbstractContextManager[Sync]]:
    @contextmanager
    def make(dsn: str) -> Iterator[Sync]:
        with engine(dsn, driver) as made, orm.Session(made) as session:
            yield Sync(
                session, lambda sql: session.execute(sa.text(sql)), session.begin, session.begin_nested, hooked=True
            )

    return make


@contextmanager
def sqlalchemy_scoped_session(dsn: str) -> Iterator[Sync]:
    with engine(dsn, "psycopg") as made:
        session = orm.scoped_session(orm.sessionmaker(made))
        yield Sync(session, lambda sql: session.execute(sa.text(sql)), session.begin, session.begin_nested, hooked=True)
        session.remove()


@asynccontextmanager
async def async_engine(dsn: str, driver: str) -> AsyncIterator[sa_async.AsyncEngine]:
    given = asyncpg_address(dsn)
    arguments = {"host": given["host"], "port": given["port"]} if driver == "asyncpg" else {}
    made = sa_async.create_async_engine(
        url(dsn, driver), connect_args=arguments, pool_size=1, max_overflow=0, pool_timeout=2
    )
    try:
        yield made
    finally:
        await made.dispose()


def sqlalchemy_async_connection(driver: str) -> Callable[[str], AbstractAsyncContextManager[Join]]:
    @asynccontextmanager
    async def make(dsn: str) -> AsyncIterator[Join]:
        async with AsyncClient(dsn) as client, async_engine(dsn, driver) as made, made.connect() as conn:
            yield Join(conn, client, lambda sql: conn.execute(sa.text(sql)), conn.begin, conn.begin_nested, False)

    return make


def sqlalchemy_async_session(driver: str) -> Callable[[str], AbstractAsyncContextManager[Join]]:
    @asynccontextmanager
    async def make(dsn: str) -> AsyncIterator[Join]:
        async with (
            AsyncClient(dsn) as client,
            async_engine(dsn, driver) as made,
            sa_async.AsyncSession(made) as session,
        ):

            def execute(sql: str) -> Any:
                return session.execute(sa.text(sql))

            yield Join(session, client, execute, session.begin, session.begin_nested, hooked=True)

    return make


@asynccontextmanager
async def sqlalchemy_async_scoped_session(dsn: str) -> AsyncIterator[Join]:
    async with AsyncClient(dsn) as client, async_engine(dsn, "psycopg") as made:
        session = sa_async.async_scoped_session(sa_async.async_sessionmaker(made), scopefunc=lambda: "one request")
        yield Join(
            session, client, lambda sql: session.execute(sa.text(sql)), session.begin, session.begin_nested, True
        )
        await session.remove()


# -- Django -------------------------------------------------------------------------------------------------------


def django_settings(dsn: str) -> dict[str, Any]:
    given = conninfo_to_dict(dsn)
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": given["dbname"],
        "USER": given["user"],
        "HOST": given["host"],
        "PORT": given["port"],
    }


@contextmanager
def django_connection(dsn: str) -> Iterator[Any]:
    """Django's default connection, to this database; Django itself is set up once a process."""
    from django import setup
    from django.conf import settings
    from django.db import connection, connections

    if not settings.configured:
        settings.configure(DATABASES={"default": django_settings(dsn)}, USE_TZ=True)
        setup()
    connections.settings = connections.configure_settings({"default": django_settings(dsn)})
    if hasattr(connections._connections, "default"):  # of an earlier test, in this thread
        del connections["default"]
    try:
        yield connection
    finally:
        connections["default"].close()
        del connections["default"]


@contextmanager
def django(dsn: str) -> Iterator[Sync]:
    from django.db import transaction

    with django_connection(dsn) as connection:

        def execute(sql: str) -> None:
            with connection.cursor() as cursor:
                cursor.execute(sql)

        yield Sync(connection, execute, transaction.atomic, transaction.atomic, hooked=True)


@contextmanager
def django_wrapper(dsn: str) -> Iterator[Sync]:
    from django.db import connections

    with django(dsn) as proxied:
        yield Sync(connections["default"], proxied.execute, proxied.transaction, proxied.savepoint, hooked=True)


SYNC: dict[str, Callable[[str], AbstractContextManager[Sync]]] = {
    "psycopg": psycopg_plain,
    "psycopg with dict_row, autocommit": psycopg_dict_row,
    "psycopg with RawCursor": psycopg_raw_cursor,
    "psycopg2": psycopg2_plain,
    "psycopg2 with RealDictCursor": psycopg2_dict_rows,
    "SQLAlchemy Connection, psycopg": sqlalchemy_connection("psycopg"),
    "SQLAlchemy Connection, psycopg2": sqlalchemy_connection("psycopg2"),
    "SQLAlchemy Session, psycopg": sqlalchemy_session("psycopg"),
    "SQLAlchemy Session, psycopg2": sqlalchemy_session("psycopg2"),
    "SQLAlchemy scoped_session": sqlalchemy_scoped_session,
    "Django connection": django,
    "Django connections[...]": django_wrapper,
}
ASYNC: dict[str, Callable[[str], AbstractAsyncContextManager[Join]]] = {
    "async psycopg": psycopg_async,
    "async psycopg with dict_row, autocommit": lambda dsn: psycopg_async(dsn, row_factory=dict_row, autocommit=True),
    "asyncpg": asyncpg_plain,
    "asyncpg pool": asyncpg_pool,
    "SQLAlchemy AsyncConnection, psycopg": sqlalchemy_async_connection("psycopg"),
    "SQLAlchemy AsyncConnection, asyncpg": sqlalchemy_async_connection("asyncpg"),
    "SQLAlchemy AsyncSession, psycopg": sqlalchemy_async_session("psycopg"),
    "SQLAlchemy AsyncSession, asyncpg": sqlalchemy_async_session("asyncpg"),
    "SQLAlchemy async_scoped_session": sqlalchemy_async_scoped_session,
}


def joined(name: str, dsn: str) -> AbstractAsyncContextManager[Join]:
    """Open one of the ways by its name."""
    return in_thread(dsn, SYNC[name]) if name in SYNC else ASYNC[name](dsn)
