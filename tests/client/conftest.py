"""A client in both colours, behind one face that is always awaited."""

from __future__ import annotations

import inspect
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from psycopg.types.json import Json
from tests.databases import Database

from mainspring import AsyncClient, Client

Connect = Callable[..., Any]


class Awaited:
    """A client whose verbs are awaited, whatever its colour."""

    def __init__(self, client: Client | AsyncClient) -> None:
        self.own = client

    def __getattr__(self, name: str) -> Any:
        verb = getattr(self.own, name)

        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = verb(*args, **kwargs)
            return await answer if inspect.isawaitable(answer) else answer

        return call


@pytest.fixture(params=[Client, AsyncClient], ids=["sync", "async"])
def colour(request: pytest.FixtureRequest) -> type[Client] | type[AsyncClient]:
    return request.param  # type: ignore[no-any-return]  # pytest does not type its parameters


@pytest.fixture
async def connect(colour: type[Client] | type[AsyncClient], database: Database) -> AsyncIterator[Connect]:
    """Makes clients of one colour, and closes them."""
    async with AsyncExitStack() as stack:

        def make(dsn: str = database.dsn, **options: Any) -> Awaited:
            client = Awaited(colour(dsn, **options))
            stack.push_async_callback(client.close)
            return client

        yield make


@pytest.fixture
def client(connect: Connect) -> Any:
    return connect()


@pytest.fixture
def sql(database: Database) -> Any:
    with database.connect() as conn:
        yield conn


def claim(sql: psycopg.Connection[TupleRow], *tasks: str, limit: int = 100) -> list[int]:
    """Start the ready jobs of these tasks, as a worker `w` does, and return their epochs."""
    rows = sql.execute(
        """
        select epoch from mainspring.claim(
            'w', interval '60 s', %(limit)s, array['q:default'], array[%(limit)s::integer],
            array[timestamptz '-infinity'], array[timestamptz '-infinity'], array[timestamptz '-infinity'],
            array[timestamptz '-infinity'], %(tasks)s, false, 0)
        """,
        {"limit": limit, "tasks": list(tasks)},
    )
    return [row[0] for row in rows]


def complete(sql: psycopg.Connection[TupleRow], epochs: list[int], result: str | None = None) -> None:
    """End attempts as succeeded."""
    sql.execute("select mainspring.complete('w', %s, %s::jsonb[])", [epochs, [result] * len(epochs)])


def settle(sql: psycopg.Connection[TupleRow], epochs: list[int], verb: str) -> None:
    """End attempts otherwise."""
    error = {"code": "BUSINESS_RULE", "class": "permanent", "message": "no"}
    moves = [{"epoch": epoch, "verb": verb, "error": error} for epoch in epochs]
    sql.execute("select mainspring.settle('w', %s)", [Json(moves)])


def count(sql: psycopg.Connection[TupleRow]) -> int:
    """How many jobs there are."""
    row = sql.execute("select count(*) from mainspring.job").fetchone()
    assert row is not None
    return int(row[0])
