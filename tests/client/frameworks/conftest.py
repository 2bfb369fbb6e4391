from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.client.frameworks.joins import ASYNC, SYNC, Join, joined
from tests.databases import Database


@pytest.fixture
def sql(database: Database) -> Iterator[psycopg.Connection[TupleRow]]:
    """Somebody else's connection, with a table of the caller's business."""
    with database.connect() as conn:
        conn.execute("create table booking (id integer primary key)")
        yield conn


@pytest.fixture(params=[*SYNC, *ASYNC])
async def join(request: pytest.FixtureRequest, database: Database, sql: object) -> AsyncIterator[Join]:
    async with joined(request.param, database.dsn) as join:
        yield join
