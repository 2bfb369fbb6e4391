from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.databases import Database
from tests.db.engine import Engine

from mainspring import Client

NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    """The engine's statements, and a clock that stands at noon."""
    with database.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(NOON)
        yield engine


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with Client(database.dsn) as client:
        yield client
