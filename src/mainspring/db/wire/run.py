"""The two drivers of a dialogue: the only places that talk to a connection.

A connection is reached through a `Door`: one function that executes a statement and returns its rows. Doors for psycopg
are here; `mainspring.db.wire.adopt` opens those of other libraries' connections.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from contextlib import nullcontext
from typing import Any, TypeAlias, TypeVar

import psycopg
from psycopg.rows import tuple_row

from mainspring.db.wire.answer import taking_long
from mainspring.db.wire.statement import Dialogue, Row, Statement
from mainspring.db.wire.translate import translate

T = TypeVar("T")
NO_TRANSACTION = nullcontext()
Door: TypeAlias = Callable[[Statement[Any]], Sequence[Row]]
AsyncDoor: TypeAlias = Callable[[Statement[Any]], Awaitable[Sequence[Row]]]


def run(door: Door, dialogue: Dialogue[T], *, joined: bool = False) -> T:
    """Drive a dialogue through a sync door; `joined`: a caller's transaction, which has no room for what runs alone."""
    answer: Any = None
    while True:
        try:
            statement = dialogue.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # a generator's return value is untyped here
        try:
            rows = () if joined and statement.alone else door(statement)
        except Exception as error:
            if (ours := translate(error)) is None:
                raise  # never `from` itself: whoever walks the causes would walk in a circle
            raise ours from error
        answer = statement.read(rows)


async def run_async(door: AsyncDoor, dialogue: Dialogue[T], *, joined: bool = False) -> T:
    """Drive a dialogue through an async door."""
    answer: Any = None
    while True:
        try:
            statement = dialogue.send(answer)
        except StopIteration as done:
            return done.value  # type: ignore[no-any-return]  # a generator's return value is untyped here
        try:
            rows = () if joined and statement.alone else await door(statement)
        except Exception as error:
            if (ours := translate(error)) is None:
                raise  # never `from` itself: whoever walks the causes would walk in a circle
            raise ours from error
        answer = statement.read(rows)


def psycopg_door(conn: psycopg.Connection[Any]) -> Door:
    """A door to a psycopg connection; by a cursor of our own: the caller's kinds of rows and cursors are not ours."""

    def execute(statement: Statement[Any]) -> Sequence[Row]:
        how = taking_long(conn) if statement.long else NO_TRANSACTION
        with how, psycopg.Cursor(conn, row_factory=tuple_row) as cursor:
            cursor.execute(statement.sql, statement.params)
            return cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else ()

    return execute


def async_psycopg_door(conn: psycopg.AsyncConnection[Any]) -> AsyncDoor:
    """A door to an async psycopg connection."""
    cursor = psycopg.AsyncCursor(conn, row_factory=tuple_row)

    async def execute(statement: Statement[Any]) -> Sequence[Row]:
        with taking_long(conn) if statement.long else NO_TRANSACTION:
            await cursor.execute(statement.sql, statement.params)
        return await cursor.fetchall() if cursor.pgresult and cursor.pgresult.nfields else ()

    return execute
