"""Joining the caller's own transaction, whatever library their connection comes from.

Connections are told apart by the module that defines them, so that no optional library is imported here unless the
caller already uses it. Where the library lets us act after the commit, a hint wakes a worker that fell idle meanwhile;
where it does not, the hint that `enqueue_many` itself sends to idle workers, which arrives with the commit, must do.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from mainspring.db.wire.answer import confirmed
from mainspring.db.wire.run import AsyncDoor, Door, async_psycopg_door, psycopg_door
from mainspring.db.wire.statement import Row, Statement
from mainspring.errors import ConfigurationError

log = logging.getLogger("mainspring")


def adopt(conn: Any, hint: str) -> Door:
    """A door to a caller's sync connection; `hint` is the statement that wakes workers after the commit."""
    match origin(conn):
        case "psycopg", "Connection":
            return _psycopg_door(conn)
        case "psycopg2", "connection":
            from psycopg2.extensions import cursor

            return _cursor_door(lambda: conn.cursor(cursor_factory=cursor))  # the caller's may make rows of dicts
        case "sqlalchemy", "Connection":
            return _sqlalchemy_door(conn)
        case "sqlalchemy", "Session" | "scoped_session":
            session = conn() if callable(conn) else conn
            own = session.connection()
            _hint_after_session(session, own, hint)
            return _sqlalchemy_door(own)
        case "django", _:
            _hint_after_django(conn, hint)
            return _cursor_door(conn.cursor)
        case library, kind:
            raise ConfigurationError(
                f"conn: a {library} {kind} cannot be joined by Client; it takes a psycopg, psycopg2, SQLAlchemy or "
                "Django connection (async ones go to AsyncClient)"
            )


async def adopt_async(conn: Any, hint: str) -> AsyncDoor:
    """A door to a caller's async connection."""
    match origin(conn):
        case "psycopg", "AsyncConnection":
            return _async_psycopg_door(conn)
        case "asyncpg", _:
            return _asyncpg_door(conn)
        case "sqlalchemy", "AsyncConnection":
            return _async_sqlalchemy_door(conn)
        case "sqlalchemy", "AsyncSession" | "async_scoped_session":
            session = conn() if callable(conn) else conn
            own = await session.connection()
            _hint_after_session(session.sync_session, own.sync_connection, hint)
            return _async_sqlalchemy_door(own)
        case library, kind:
            raise ConfigurationError(
                f"conn: a {library} {kind} cannot be joined by AsyncClient; it takes an async psycopg, SQLAlchemy or "
                "asyncpg connection (sync ones go to Client)"
            )


_KINDS = {
    "psycopg": {"AsyncConnection", "Connection"},
    "psycopg2": {"connection"},
    "sqlalchemy": {
        "AsyncConnection",
        "AsyncSession",
        "Connection",
        "Session",
        "async_scoped_session",
        "scoped_session",
    },
    "django": {"BaseDatabaseWrapper", "ConnectionProxy"},
    "asyncpg": {"Connection", "PoolConnectionProxy"},
}


def is_async(conn: Any) -> bool:
    """Whether a connection is one that `AsyncClient` joins."""
    library, kind = origin(conn)
    return library == "asyncpg" or kind.lower().startswith("async")


def origin(conn: Any) -> tuple[str, str]:
    """The library that a connection comes from, and what it calls it there."""
    for base in type(conn).__mro__:
        library = base.__module__.partition(".")[0]
        if base.__name__ in _KINDS.get(library, ()):
            return library, base.__name__
    return type(conn).__module__.partition(".")[0], type(conn).__name__


def _psycopg_door(conn: Any) -> Door:
    door = psycopg_door(conn)

    def execute(statement: Statement[Any]) -> Sequence[Row]:
        with confirmed(conn):
            return door(statement)

    return execute


def _async_psycopg_door(conn: Any) -> AsyncDoor:
    door = async_psycopg_door(conn)

    async def execute(statement: Statement[Any]) -> Sequence[Row]:
        with confirmed(conn):
            return await door(statement)

    return execute


def _cursor_door(new_cursor: Callable[[], Any]) -> Door:
    def execute(statement: Statement[Any]) -> Sequence[Row]:
        with new_cursor() as cursor:
            cursor.execute(statement.sql, statement.params)
            return list(cursor.fetchall()) if cursor.description else ()

    return execute


def _sqlalchemy_door(conn: Any) -> Door:
    def execute(statement: Statement[Any]) -> Sequence[Row]:
        answer = conn.execute(_text(statement.sql), dict(statement.params))
        return list(answer.all()) if answer.returns_rows else ()

    return execute


def _async_sqlalchemy_door(conn: Any) -> AsyncDoor:
    async def execute(statement: Statement[Any]) -> Sequence[Row]:
        answer = await conn.execute(_text(statement.sql), dict(statement.params))
        return list(answer.all()) if answer.returns_rows else ()

    return execute


@lru_cache(maxsize=256)
def _text(sql: str) -> Any:
    """Our SQL as SQLAlchemy writes it: `(:name)` for a parameter, every other colon escaped."""
    from sqlalchemy import text

    return text(re.sub(r"%\((\w+)\)s", r"(:\1)", sql.replace(":", r"\:")))


def _asyncpg_door(conn: Any) -> AsyncDoor:
    async def execute(statement: Statement[Any]) -> Sequence[Row]:
        sql, names = _numbered(statement.sql)
        rows: Sequence[Row] = await conn.fetch(sql, *(statement.params[name] for name in names))
        return rows

    return execute


@lru_cache(maxsize=256)
def _numbered(sql: str) -> tuple[str, list[str]]:
    """Our SQL as asyncpg writes it: `$1` for a parameter, and the parameters' names in order."""
    names = list(dict.fromkeys(re.findall(r"%\((\w+)\)s", sql)))
    return re.sub(r"%\((\w+)\)s", lambda match: f"${names.index(match[1]) + 1}", sql), names


# -- after the commit ---------------------------------------------------------------------------------------------


@contextmanager
def _harmless() -> Iterator[None]:
    """The caller's transaction has committed: a hint that fails must not look as if it had not."""
    try:
        yield
    except Exception:
        log.warning("wakeup_failed: workers find the job when they poll", exc_info=True)


def _hint_after_session(session: Any, conn: Any, hint: str) -> None:
    """Wake workers once the session has committed, on the connection that it is about to give back."""
    from sqlalchemy import event

    if "mainspring" not in session.info:  # one listener a session: it cannot be removed while it is called
        event.listen(session, "after_commit", _wake_after_session)
    session.info["mainspring"] = conn, hint


def _wake_after_session(session: Any) -> None:
    conn, hint = session.info["mainspring"]
    if conn is None or (
        not conn.closed and conn.in_transaction()
    ):  # a savepoint was released, or there is an outer one
        return
    session.info["mainspring"] = None, hint
    if conn.closed:  # of a transaction that was rolled back
        return
    with _harmless():
        conn.execute(_text(hint))
        conn.commit()


@dataclass(frozen=True)
class _DjangoHint:
    """Wakes workers when Django has committed; a value, so that one transaction has one, however many jobs."""

    conn: Any
    hint: str

    def __call__(self) -> None:
        with _harmless(), self.conn.cursor() as cursor:
            cursor.execute(self.hint)


def _hint_after_django(conn: Any, hint: str) -> None:
    from django.db import connections, transaction

    wrapper = connections[conn.alias]
    wake = _DjangoHint(wrapper, hint)
    if wrapper.in_atomic_block and not any(wake == hook[1] for hook in wrapper.run_on_commit):
        transaction.on_commit(wake, using=conn.alias)
