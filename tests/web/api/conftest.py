from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.databases import Database
from tests.web.api.visit import ApiVisitor, visiting_api
from tests.worker.stage import Stage

import mainspring as ms


@pytest.fixture
def app(database: Database, tasks: ms.Registry) -> ms.App:
    @tasks.task(name="greet")
    async def greet(*, name: str) -> None: ...

    return ms.App(tasks, dsn=database.dsn, maintenance=False)


@pytest.fixture
async def api(app: ms.App, stage: Stage) -> AsyncIterator[ApiVisitor]:
    """A visitor of the API, with a token of each role, and the world behind it."""
    async with visiting_api(app) as visitor:
        yield visitor
