from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.cli.conftest import cli
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import Engine

__all__ = ["cli"]  # the fixture


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(NOON)
        yield engine
