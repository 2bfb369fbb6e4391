"""How an application talks to its tables: named statements, and rows as values.

::

    store = Store("shop")  # the statements in its folder `sql`
    booking = store.needed(conn, Booking, "booking", booking_id=7)
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any, TypeVar

import msgspec
import psycopg
from psycopg.rows import dict_row

from mainspring.contrib.statements import Statements
from mainspring_apps.frame.refusal import missing

Conn = psycopg.Connection[Any]
T = TypeVar("T")


class Store:
    """The statements of one application."""

    def __init__(self, package: str) -> None:
        self.sql = Statements(package)

    def many(self, conn: Conn, type_: type[T], name: str, /, **params: Any) -> list[T]:
        """The rows of a statement, each as a value whose fields are columns of it; other columns are left out."""
        with conn.cursor(row_factory=dict_row) as cursor:
            rows = cursor.execute(self.sql[name], params).fetchall()
        return [msgspec.convert({column: _utc(value) for column, value in row.items()}, type_) for row in rows]

    def one(self, conn: Conn, type_: type[T], name: str, /, **params: Any) -> T | None:
        """The first row of a statement, or None."""
        rows = self.many(conn, type_, name, **params)
        return rows[0] if rows else None

    def needed(self, conn: Conn, type_: type[T], name: str, /, **params: Any) -> T:
        """The row of a statement; who asked for what is not there is told so by the name of the first parameter."""
        found = self.one(conn, type_, name, **params)
        if found is None:
            raise missing(*next(iter(params.items())))
        return found

    def do(self, conn: Conn, name: str, /, **params: Any) -> int:
        """Run a statement; answers how many rows it has changed or found."""
        return conn.execute(self.sql[name], params).rowcount

    def value(self, conn: Conn, name: str, /, **params: Any) -> Any:
        """The first column of the first row, or None."""
        row = psycopg.Cursor(conn).execute(self.sql[name], params).fetchone()
        return _utc(row[0]) if row else None

    def column(self, conn: Conn, name: str, /, **params: Any) -> list[Any]:
        """The first column of every row."""
        return [_utc(row[0]) for row in psycopg.Cursor(conn).execute(self.sql[name], params).fetchall()]


def _utc(value: Any) -> Any:
    """Instants in UTC, whatever zone the session has: in a local one Python counts hours of the wall."""
    return value.astimezone(UTC) if isinstance(value, datetime) else value
