from __future__ import annotations

import pytest
from tests.databases import Database

import mainspring as ms


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("due")


@pytest.fixture
def mainspring_app(tasks: ms.Registry) -> ms.Registry:
    return tasks


@pytest.fixture
def app(database: Database, tasks: ms.Registry) -> ms.App:
    return ms.App(tasks, dsn=database.dsn, maintenance=False)
