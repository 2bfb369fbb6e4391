"""A database, its engine, and hands that may do what no role may: those of a superuser who disables triggers."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import psycopg
import pytest
from tests.databases import Database, RunClusters, fresh_database
from tests.db.conftest import NOON
from tests.db.engine import Engine

from mainspring import Client
from mainspring.embedded import SUPERUSER, VOLATILE, Cluster

Forge = Callable[..., None]


@pytest.fixture(scope="session")
def quiet_cluster(run: RunClusters, worker_id: str) -> Cluster:
    """A server of our own: a seal waits for every transaction of the server, also for those of other tests."""
    return run.cluster(f"memory/18-quiet-{worker_id}", settings={**VOLATILE, "autovacuum": "off"})


@pytest.fixture
def database(quiet_cluster: Cluster) -> Iterator[Database]:
    with fresh_database(quiet_cluster) as database:
        yield database


@pytest.fixture
def engine(database: Database) -> Iterator[Engine]:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.clock.set(NOON)
        yield engine


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with Client(database.dsn) as client:
        yield client


@pytest.fixture
def forge(database: Database, quiet_cluster: Cluster) -> Iterator[Forge]:
    """Change what cannot be changed."""
    name = psycopg.conninfo.conninfo_to_dict(database.dsn)["dbname"]
    with psycopg.connect(quiet_cluster.dsn(str(name), user=SUPERUSER), autocommit=True) as conn:
        conn.execute("set session_replication_role = replica")  # triggers do not fire

        def execute(statement: str, *params: Any) -> None:
            assert conn.execute(statement.encode(), params).rowcount > 0, "nothing was forged"

        yield execute


def note(engine: Engine, org: str = "acme", event: str = "invoice.paid", **detail: Any) -> int:
    """A business event; answers its id."""
    query = "select mainspring.record_business(%s, %s, %s)"
    return int(engine.rows(query, event, json.dumps(detail), org)[0][0])
