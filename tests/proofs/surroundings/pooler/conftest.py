"""Here `database` is reached through PgBouncer, by whatever test runs below this directory."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.client.conftest import client, colour, connect, sql
from tests.conftest import check_invariants
from tests.databases import Database, fresh_database
from tests.db.conftest import engine
from tests.proofs.surroundings.pgbouncer import PgBouncer, Pooled, pooling
from tests.worker.conftest import stage, tasks

from mainspring.embedded import Cluster

__all__ = ["client", "colour", "connect", "engine", "sql", "stage", "tasks"]


@pytest.fixture(scope="session")
def bouncer(volatile_cluster: Cluster) -> Iterator[PgBouncer]:
    with pooling(volatile_cluster) as bouncer:
        yield bouncer


@pytest.fixture
def direct(volatile_cluster: Cluster) -> Iterator[Database]:
    """The same database, past the pooler."""
    with fresh_database(volatile_cluster) as database:
        yield database


@pytest.fixture
def database(direct: Database, bouncer: PgBouncer) -> Iterator[Database]:
    yield Pooled(bouncer.dsn(direct.dsn))
    bouncer.forget(direct.dsn)
    check_invariants(direct)
