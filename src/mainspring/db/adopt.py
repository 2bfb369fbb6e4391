"""Joining the caller's own transaction, whatever library their connection comes from.

Connections are told apart by the module that defines them, so that no optional library is imported here unless the
caller already uses it. Where the library lets us act after the commit, a hint wakes an idle worker; where it does not,
`enqueue_many` itself sends it when somebody is idle.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from mainspring.db.run import AsyncDoor, Door, async_psycopg_door, psycopg_door
from mainspring.db.statement import Row, Statement
from mainspring.errors import ConfigurationError


def adopt(conn: Any, hint: str) -> Door:
    """A door to a caller's sync connection; `hint` is the statement that wakes workers after the commit."""
    match _library(conn):
        case "psycopg", _:
            return psycopg_door(conn)
        case "sqlalchemy", "Session" | "scoped_session":
            _hint_after_session(conn() if callable(conn) else conn, hint)
            return _sqlalchemy_door(conn)
        case "sqlalchemy", "Connection":
            return _sqlalchemy_door(conn)
        case "django", _:
            from django.db import transaction

            transaction.on_commit(lambda: _django_hint(conn, hint), using=conn.alias, robust=True)
            return _cursor_door(conn)
        case "psycopg2", _:
            return _cursor_door(conn)
        case library, kind:
            raise ConfigurationError(
                f"conn: a {library} {kind} cannot be joined by Client; it takes a psycopg, psycopg2, SQLAlchemy or "
                "Django connection (async ones go to AsyncClient)"
            )


def adopt_async(conn: Any, hint: str) -> AsyncDoor:
    """A door to a caller's async connection."""
    match _library(conn):
        case "psycopg", "AsyncConnection":
            return async_psycopg_door(conn)
        case "sqlalchemy", "AsyncSession" | "async_scoped_session":
            _hint_after_session(conn.sync_session, hint)
            return _async_sqlalchemy_door(conn)
        case "sqlalchemy", "AsyncConnection":
            return _async_sqlalchemy_door(conn)
        case "asyncpg", _:
            return _asyncpg_door(conn)
        case library, kind:
            raise ConfigurationError(
                f"conn: a {library} {kind} cannot be joined by AsyncClient; it takes an async psycopg, SQLAlchemy or "
                "asyncpg connection (sync ones go to Client)"
            )


_KINDS = {
    "psycopg": ("AsyncConnection", "Connection"),
    "sqlalchemy": (
        "AsyncSession",
        "AsyncConnection",
        "async_scoped_session",
        "scoped_session",
        "Session",
        "Connection",
    ),
    "django": ("BaseDatabaseWrapper", "ConnectionProxy"),
    "psycopg2": ("connection",),
    "asyncpg": ("Connection", "PoolConnectionProxy"),
}


def _library(conn: Any) -> tuple[str, str]:
    for base in type(conn).__mro__:
        library = base.__module__.partition(".")[0]
        if base.__name__ in _KINDS.get(library, ()):
            return library, base.__name__
    return type(conn).__module__.partition(".")[0], type(conn).__name__


def _cursor_door(conn: Any) -> Door:
    def execute(statement: Statement[Any]) -> Sequence[Row]:
        with conn.cursor() as cursor:
            cursor.execute(statement.sql, statement.params)
            return list(cursor.fetchall()) if cursor.description else ()

    return execute


def _named(sql: str) -> str:
    """Placeholders as SQLAlchemy writes them."""
    return re.sub(r"%\((\w+)\)s", r":\1", sql)


def _sqlalchemy_door(conn: Any) -> Door:
    from sqlalchemy import text

    def execute(statement: Statement[Any]) -> Sequence[Row]:
        result = conn.execute(text(_named(statement.sql)), dict(statement.params))
        return list(result.all()) if result.returns_rows else ()

    return execute


def _async_sqlalchemy_door(conn: Any) -> AsyncDoor:
    from sqlalchemy import text

    async def execute(statement: Statement[Any]) -> Sequence[Row]:
        result = await conn.execute(text(_named(statement.sql)), dict(statement.params))
        return list(result.all()) if result.returns_rows else ()

    return execute


def _asyncpg_door(conn: Any) -> AsyncDoor:
    async def execute(statement: Statement[Any]) -> Sequence[Row]:
        names: list[str] = []

        def number(match: re.Match[str]) -> str:
            if match[1] not in names:
                names.append(match[1])
            return f"${names.index(match[1]) + 1}"

        sql = re.sub(r"%\((\w+)\)s", number, statement.sql)
        rows: Sequence[Row] = await conn.fetch(sql, *(statement.params[name] for name in names))
        return rows

    return execute


def _hint_after_session(session: Any, hint: str) -> None:
    """Wake workers once the session has committed, on a connection of its engine: the session's own is gone by then."""
    from sqlalchemy import event, text

    def wake(session: Any) -> None:
        session.info.pop("mainspring_hint", None)
        with session.get_bind().connect() as conn:
            conn.execute(text(hint))
            conn.commit()

    if not session.info.get("mainspring_hint"):  # one hint a transaction, however many jobs
        session.info["mainspring_hint"] = True
        event.listen(session, "after_commit", wake, once=True)


def _django_hint(conn: Any, hint: str) -> None:
    with conn.cursor() as cursor:
        cursor.execute(hint)
