"""A caller's own connection as psycopg has it: what runs on it is part of the caller's open transaction.

A view is a connection over the same libpq connection. It has psycopg's own adapters and rows, whatever the caller's
library made of theirs, so that a handler finds what it finds in production, in either colour.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.pq.abc import PGconn

from mainspring.db.wire.adopt import origin
from mainspring.errors import ConfigurationError, MainspringError
from mainspring.job import Claim
from mainspring.worker.transactions import JobConnection, Transactions

_JOB, _ATTEMPT = "mainspring_job", "mainspring_attempt"
# A handler's transaction is bound to its organisation and project; afterwards the test's is bound as it was.
_SETTINGS = ["mainspring.org", "mainspring.project"]
_BOUND = "select coalesce(current_setting(%s, true), ''), coalesce(current_setting(%s, true), '')"
_BIND = "select set_config('mainspring.org', %s, true), set_config('mainspring.project', %s, true)"


class View(psycopg.Connection[Any]):
    """A sync view, for plain handlers and for ourselves."""

    def __init__(self, pgconn: PGconn, *, autocommit: bool = False) -> None:
        handlers = pgconn.notice_handler, pgconn.notify_handler
        super().__init__(pgconn)
        pgconn.notice_handler, pgconn.notify_handler = handlers  # the caller's
        self._autocommit = autocommit  # as it is already
        self.prepare_threshold = None  # the caller's names of prepared statements must not meet ours

    def commit(self) -> None:
        """Refused: it is the caller's transaction."""
        raise MainspringError("the transaction is the test's: leave the block of ctx.complete(), or raise")

    rollback = close = commit

    def __del__(self, *_: Any) -> None:
        """Nothing to close: the connection is the caller's."""


class AsyncView(JobConnection):
    """An async view, for async handlers: their transaction is a savepoint, and what begins or ends it says so."""

    def __init__(self, pgconn: PGconn, *, autocommit: bool = False) -> None:
        handlers = pgconn.notice_handler, pgconn.notify_handler
        super().__init__(pgconn)
        pgconn.notice_handler, pgconn.notify_handler = handlers
        self._autocommit = autocommit
        self.prepare_threshold = None
        self.ended = False

    async def command(self, text: str) -> None:
        """Like a JobConnection's, with a savepoint in place of the transaction."""
        if text.startswith("begin"):
            text = f"savepoint {_JOB}{text.removeprefix('begin')}"
        ends = text.endswith("commit")
        await super().command(f"{text.removesuffix('commit')}release savepoint {_JOB}" if ends else text)
        self.ended = ends

    async def close(self) -> None:
        """Refused: it is the caller's connection."""
        raise MainspringError("the connection is the test's")

    def __del__(self, *_: Any) -> None:
        """Nothing to close: the connection is the caller's."""


class Joined(Transactions):
    """The caller's connection where a worker has pools: handlers' own transactions are savepoints on it."""

    def __init__(self, pgconn: PGconn) -> None:
        self._pgconn = pgconn

    # -- for async handlers, as Transactions

    async def take(self, job: Claim) -> AsyncView:
        """A view in a new savepoint."""
        conn = AsyncView(self._pgconn)
        await conn.begin(job)
        conn.in_job = True
        return conn

    async def give(self, conn: JobConnection) -> None:
        """Take it back; a savepoint that was not released is rolled back."""
        conn.in_job = False
        assert isinstance(conn, AsyncView)
        if not conn.ended:
            await JobConnection.command(conn, f"rollback to savepoint {_JOB}; release savepoint {_JOB}")

    async def close(self) -> None:
        """Nothing to hang up."""

    # -- for plain handlers, as a pool

    def open(self) -> None:
        """Nothing to open."""

    @contextmanager
    def connection(self) -> Iterator[View]:
        """A view; the handler's transaction on it is a savepoint."""
        yield View(self._pgconn)

    # -- for both

    @asynccontextmanager
    async def attempt(self) -> AsyncIterator[None]:
        """Keep a handler's failed statement from breaking the caller's transaction.

        What a failing handler wrote outside of ctx.complete() stays, as it does in production where each of its
        statements commits, unless it is a statement that failed.
        """
        conn = View(self._pgconn)
        conn.execute(f"savepoint {_ATTEMPT}".encode())
        bound = conn.execute(_BOUND, _SETTINGS).fetchone()
        yield
        if self._pgconn.transaction_status == TransactionStatus.INERROR:
            conn.execute(f"rollback to savepoint {_ATTEMPT}".encode())
        conn.execute(f"release savepoint {_ATTEMPT}".encode())
        conn.execute(_BIND, bound)


def join(conn: Any) -> PGconn:
    """The libpq connection below a caller's, in its open transaction."""
    return _checked(_driver(conn))


def below(conn: Any) -> View:
    """A view of a caller's connection, in a transaction or not."""
    driver = _of_psycopg(_driver(conn))
    return View(driver.pgconn, autocommit=driver.autocommit)


def _driver(conn: Any) -> Any:
    match origin(conn):
        case "psycopg", "Connection":
            return conn
        case "django", _:
            conn.ensure_connection()
            return conn.connection
        case "sqlalchemy", "Connection":
            return conn.connection.driver_connection
        case "sqlalchemy", "Session" | "scoped_session":
            conn.flush()  # what the test has added is there for the handlers
            return conn.connection().connection.driver_connection
        case found, kind:
            raise ConfigurationError(
                f"conn: a {found} {kind} cannot be joined by drain; it takes a connection of psycopg 3, SQLAlchemy or "
                "Django (async ones go to adrain)"
            )


async def join_async(conn: Any) -> PGconn:
    """The same below an async connection."""
    match origin(conn):
        case "psycopg", "AsyncConnection":
            return _checked(conn)
        case "sqlalchemy", "AsyncConnection":
            return _checked((await conn.get_raw_connection()).driver_connection)
        case "sqlalchemy", "AsyncSession" | "async_scoped_session":
            await conn.flush()
            return _checked((await (await conn.connection()).get_raw_connection()).driver_connection)
        case _:
            return join(conn)


def refresh(conn: Any) -> None:
    """Let a session read anew what handlers may have changed."""
    if origin(conn)[1].lower().endswith("session"):
        conn.expire_all()


def _of_psycopg(driver: Any) -> psycopg.Connection[Any] | psycopg.AsyncConnection[Any]:
    if not isinstance(driver, psycopg.Connection | psycopg.AsyncConnection):
        kind = type(driver)
        raise ConfigurationError(
            f"conn: {kind.__module__.partition('.')[0]} {kind.__name__} cannot be joined: handlers get connections of "
            "psycopg 3, so tests need it too (SQLAlchemy: postgresql+psycopg)"
        )
    return driver


def _checked(given: Any) -> PGconn:
    driver = _of_psycopg(given)
    if driver.autocommit and driver.info.transaction_status == TransactionStatus.IDLE:
        raise ConfigurationError("conn: is not in a transaction: begin one, which the test rolls back")
    if driver.info.transaction_status == TransactionStatus.IDLE:
        View(driver.pgconn).execute("select 1")  # begin, as the driver itself would with its first statement
    return driver.pgconn
