from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Sequence

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.client.frameworks.joins import ASYNC, SYNC, Join, joined
from tests.databases import Database


@pytest.fixture(scope="session")
def own_tables() -> Sequence[str]:
    """A table of the caller's business."""
    return ["create table booking (id integer primary key)"]


@pytest.fixture
def sql(database: Database) -> Iterator[psycopg.Connection[TupleRow]]:
    """Somebody else's connection."""
    with database.connect() as conn:
        yield conn


@pytest.fixture(params=[*SYNC, *ASYNC])
async def join(request: pytest.FixtureRequest, database: Database, sql: object) -> AsyncIterator[Join]:
    async with joined(request.param, database.dsn) as join:
        yield join
