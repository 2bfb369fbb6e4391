"""How the marketplace talks to its tables: named statements, and rows as values."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg.rows import dict_row

from mainspring.contrib.statements import Statements
from mainspring_apps.staffing.states import Refused

Conn = psycopg.Connection[Any]
T = TypeVar("T")

sql = Statements(__package__)


def many(conn: Conn, type_: type[T], name: str, /, **params: Any) -> list[T]:
    """The rows of a statement, each as a value whose fields are columns of it; other columns are left out."""
    with conn.cursor(row_factory=dict_row) as cursor:
        rows = cursor.execute(sql[name], params).fetchall()
    return [msgspec.convert({column: _utc(value) for column, value in row.items()}, type_) for row in rows]


def one(conn: Conn, type_: type[T], name: str, /, **params: Any) -> T | None:
    """The first row of a statement, or None."""
    rows = many(conn, type_, name, **params)
    return rows[0] if rows else None


def needed(conn: Conn, type_: type[T], name: str, /, **params: Any) -> T:
    """The row of a statement; who asked for what does not exist is told so by the name of the first parameter."""
    found = one(conn, type_, name, **params)
    if found is None:
        raise missing(*next(iter(params.items())))
    return found


def missing(field: str, value: object) -> Refused:
    """What is told of something that does not exist, and of what has nothing to do with who asks."""
    return Refused(f"{field}: there is no {field.removesuffix('_id').replace('_', ' ')} {value}", field=field)


def do(conn: Conn, name: str, /, **params: Any) -> int:
    """Run a statement; answers how many rows it has changed or found."""
    return conn.execute(sql[name], params).rowcount


def value(conn: Conn, name: str, /, **params: Any) -> Any:
    """The first column of the first row, or None."""
    row = psycopg.Cursor(conn).execute(sql[name], params).fetchone()
    return _utc(row[0]) if row else None


def column(conn: Conn, name: str, /, **params: Any) -> list[Any]:
    """The first column of every row."""
    return [_utc(row[0]) for row in psycopg.Cursor(conn).execute(sql[name], params).fetchall()]


def _utc(value: Any) -> Any:
    """Instants in UTC, whatever zone the session has: in a local one Python counts hours of the wall (STAFF-9.06)."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
