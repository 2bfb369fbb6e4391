from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.proxy import Proxy, proxied
from tests.databases import Database
from tests.worker.conftest import stage, tasks

__all__ = ["stage", "tasks"]


@pytest.fixture
def proxy(database: Database) -> Iterator[Proxy]:
    """A way to the database that can be lost."""
    with proxied(database.dsn) as proxy:
        yield proxy
