from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest
from tests.databases import Database
from tests.db.tenancy.town import Town


@pytest.fixture(params=[18, 15], ids="PostgreSQL {}".format)
def town(request: pytest.FixtureRequest) -> Iterator[Town]:
    """A secured database with two organisations."""
    with closing(Town(request.getfixturevalue("database" if request.param == 18 else "database15"))) as town:
        yield town


@pytest.fixture
def town18(database: Database) -> Iterator[Town]:
    with closing(Town(database)) as town:
        yield town
