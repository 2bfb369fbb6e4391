from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
from tests.databases import Database
from tests.worker.conftest import tasks
from tests.worker.stage import Stage

from mainspring import AsyncClient, Cipher

__all__ = ["tasks"]


@pytest.fixture
def cipher() -> Cipher:
    return Cipher(b"m" * 32)


@pytest.fixture
async def stage(database: Database, cipher: Cipher) -> AsyncIterator[Stage]:
    """A stage whose client encrypts."""
    with database.connect() as conn:
        async with AsyncClient(database.dsn, cipher=cipher) as client:
            yield Stage(database, conn, client)
