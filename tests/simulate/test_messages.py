"""Statements in one message: values arrive as they are, errors as errors."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.databases import Database

from mainspring.simulate.messages import Messages

pytestmark = pytest.mark.anyio
TYPED = "select %(value)s::{kind}"


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    with database.connect() as conn:
        yield conn


@pytest.mark.parametrize("same", [False, True])
@pytest.mark.parametrize(
    ("value", "kind"),
    [
        ('it\'s \\ "quoted" %s %(x)s $1 {a,b}; drop', "text"),
        ("", "text"),
        ("null", "text"),
        (None, "text"),
        (True, "boolean"),
        (7, "bigint"),
        (0.1, "float8"),
        (UUID("019d31f4-7e80-7002-a7e5-b82a888e9f4a"), "uuid"),
        (datetime(2026, 3, 29, 1, 0, 0, 1, tzinfo=UTC), "timestamptz"),
        (timedelta(days=-1, seconds=5, microseconds=7), "interval"),
        ([], "text[]"),
        (["a", 'b"c', "d\\e", "{f}", "null", "", None], "text[]"),
        ([1, 2], "bigint[]"),
        ([datetime(2026, 1, 1, tzinfo=UTC)], "timestamptz[]"),
    ],
)
async def test_a_value_arrives_as_it_is(conn: psycopg.Connection[Any], value: Any, kind: str, same: bool) -> None:
    query = TYPED.format(kind=kind)
    messages = Messages(conn, {query} if same else ())

    for _ in range(2):
        answer = await messages.execute(query, {"value": value})
        assert await answer.fetchall() == [(value,)]


async def test_statements_go_out_together_when_an_answer_is_wanted(conn: psycopg.Connection[Any]) -> None:
    messages = Messages(conn, ())
    conn.execute("create temp table seen (n integer)")
    for number in range(3):
        await messages.execute("insert into seen values (%s)", [number])
    assert conn.execute("select count(*) from seen").fetchone() == (0,)

    count = await messages.execute("select count(*) from seen")

    assert await count.fetchone() == (3,)


async def test_the_same_question_with_other_values_is_another(conn: psycopg.Connection[Any]) -> None:
    messages = Messages(conn, {"select %s::text, %s::text[]"})

    for values in (["a", ["b"]], ["a", ["c"]], ["a", ["b"]]):
        assert await (await messages.execute("select %s::text, %s::text[]", values)).fetchone() == tuple(values)


async def test_an_error_rolls_back_and_the_connection_goes_on(conn: psycopg.Connection[Any]) -> None:
    messages = Messages(conn, ())
    conn.execute("create temp table seen (n integer)")

    async def fail() -> None:
        async with messages.transaction():
            await messages.execute("insert into seen values (1)")
            await (await messages.execute("select 1 / %s::int", [0])).fetchall()

    with pytest.raises(psycopg.errors.DivisionByZero):
        await fail()

    async with messages.transaction():
        await messages.execute("insert into seen values (2)")
    assert await (await messages.execute("select array_agg(n) from seen")).fetchone() == ([2],)
