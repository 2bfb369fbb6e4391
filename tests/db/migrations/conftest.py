"""Databases without a schema, on every PostgreSQL that we test with, and a short life of jobs in any schema."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.databases import Database, RunClusters, fresh_database
from tests.db.engine import Engine

from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.wire.sql import Sql
from mainspring.embedded import VOLATILE, Cluster


@pytest.fixture
def empty(volatile_cluster: Cluster) -> Iterator[Database]:
    with fresh_database(volatile_cluster, migrated=False) as database:
        yield database


@pytest.fixture
def empty15(cluster15: Cluster) -> Iterator[Database]:
    with fresh_database(cluster15, migrated=False) as database:
        yield database


@pytest.fixture
def empty16(run: RunClusters) -> Iterator[Database]:
    cluster = run.cluster("memory/16", version=16, settings=VOLATILE)
    with fresh_database(cluster, migrated=False) as database:
        yield database


def live_through(conn: psycopg.Connection[Any], schema: str = DEFAULT_SCHEMA) -> dict[str, str]:
    """Let jobs of a schema live through every verb of a worker and of people; answers verb → state it led to."""
    engine = Engine(conn)
    engine.sql = Sql(schema)
    ended: dict[str, str] = {}

    def state(job: Any) -> str:
        return engine.job(job).state

    for verb in ("complete", "fail", "reject", "bury", "snooze", "defer", "release", "stop"):
        claim = engine.started(task=verb)
        assert engine.end(claim, verb, delay="PT1H")
        ended[verb] = state(claim.id)
    lost = engine.enqueue("rescue").id
    assert [claim.id for claim in engine.claim(tasks=["rescue"], lease=timedelta(0))] == [lost]
    assert [(job, to) for job, _, to in engine.rescue()] == [(lost, "ready")]
    ended["rescue"] = state(lost)
    waiting = engine.enqueue("cancel", key="cancel").id
    assert engine.enqueue("cancel", key="cancel").id == waiting
    assert engine.cancel(waiting) == "cancelled"
    ended["cancel"] = state(waiting)
    return ended


#: What `live_through` must answer.
LIFE = {
    "complete": "succeeded",
    "fail": "retrying",
    "reject": "failed",
    "bury": "dead",
    "snooze": "scheduled",
    "defer": "scheduled",
    "release": "scheduled",
    "stop": "cancelled",
    "rescue": "ready",
    "cancel": "cancelled",
}
