from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.contrib.stripe.till import Till
from tests.databases import Database
from tests.worker.stage import Stage

from mainspring import AsyncClient
from mainspring_sandbox import Sandbox


@pytest.fixture
async def till(database: Database) -> AsyncIterator[Till]:
    with database.connect() as conn:
        async with AsyncClient(database.dsn) as client:
            stage = Stage(database, conn, client)
            time = Till.stopped_at(stage)
            with Sandbox(clock=lambda: time[0]) as sandbox:
                till = Till(stage, sandbox, time)
                yield till
                await till.stripe.aclose()
                till.stripe.sync.close()
