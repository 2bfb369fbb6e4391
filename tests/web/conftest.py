from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.databases import Database
from tests.worker.stage import Stage

import mainspring as ms

NAMES = ("CRON_SECRET", "APP_URL", "BASE_URL")


@pytest.fixture(autouse=True)
def no_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """What the machine of whoever runs the tests has set is not ours."""
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)


@pytest.fixture(autouse=True)
def own_log() -> Iterator[None]:
    """A command that logs in this process leaves nothing behind."""
    root = logging.getLogger()
    before = root.handlers[:], root.level
    yield
    root.handlers[:], root.level = before


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    with database.connect() as conn:
        async with ms.AsyncClient(database.dsn) as client:
            yield Stage(database, conn, client)


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("shop")


@pytest.fixture
def mainspring_app(tasks: ms.Registry) -> ms.Registry:
    return tasks
