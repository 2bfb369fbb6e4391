from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.databases import Database
from tests.worker.stage import Stage

from mainspring import AsyncClient, Registry


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    with database.connect() as conn:
        async with AsyncClient(database.dsn) as client:
            yield Stage(database, conn, client)


@pytest.fixture
def tasks() -> Registry:
    return Registry("test")


@pytest.fixture
def mainspring_app(tasks: Registry) -> Registry:
    return tasks


@pytest.fixture(params=["async", "thread"])
def colour(request: pytest.FixtureRequest) -> str:
    return str(request.param)
