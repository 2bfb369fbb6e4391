from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime

import pytest
from tests.databases import Database
from tests.db.engine import Engine

#: Where the clock of these tests stands at first.
NOON = datetime(2026, 3, 2, 12, tzinfo=UTC)


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(NOON)
        yield engine
