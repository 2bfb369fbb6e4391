"""The view of queues: since when the first job of each is due."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.client.conftest import claim
from tests.client.tasks import greet, store

from mainspring.virtual.clock import Clock

pytestmark = pytest.mark.anyio
Sql = psycopg.Connection[TupleRow]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def due(sql: Sql) -> dict[str, datetime | None]:
    rows: dict[str, datetime | None] = dict(sql.execute("select name, due_since from mainspring.queues").fetchall())
    assert rows.pop("q:maintenance", NOON) is None  # it is known without a job
    return {name: since for name, since in rows.items() if name in ("a", "q:default")}


async def test_each_queue_says_since_when_its_first_job_is_due_and_not_started(client: Any, sql: Sql) -> None:
    clock = Clock(sql)
    clock.set(NOON)
    first = greet.job().at(NOON + timedelta(hours=1))
    await client.enqueue(first.on_queue("a"))
    await client.enqueue(first.at(NOON + timedelta(hours=2)).on_queue("a").with_priority(0))
    await client.enqueue(store.job(value=1))

    assert due(sql) == {"a": None, "q:default": NOON}
    clock.advance(hours=3)
    assert due(sql) == {"a": NOON + timedelta(hours=1), "q:default": NOON}
    assert len(claim(sql, "store")) == 1
    assert due(sql) == {"a": NOON + timedelta(hours=1), "q:default": None}


async def test_a_paused_queue_says_by_whom_and_what_is_parked_is_not_due(client: Any, sql: Sql) -> None:
    Clock(sql).set(NOON)
    await client.enqueue(greet.job().on_queue("a"))
    sql.execute("select mainspring.pause('a', 'user', 'ada', 'deploy')")
    sql.execute("update mainspring.waiting set due_then = due_at, due_at = 'infinity', gate = 'breaker:sms'")

    known = sql.execute(
        "select paused_by, pause_reason, due_since, parked_since from mainspring.queues where name = 'a'"
    ).fetchall()

    assert known == [("ada", "deploy", None, NOON)]
