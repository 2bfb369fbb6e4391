"""Breakers at work: a dependency that can be down, and an application whose breakers stand between."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.databases import Database
from tests.db.engine import Engine

import mainspring as ms
from mainspring.testing import Harness
from mainspring.virtual.clock import Clock

WITHIN, PAUSE = timedelta(seconds=30), timedelta(seconds=60)


class Dependency:
    """Something outside that is called, and remembers by whom."""

    def __init__(self) -> None:
        self.up = True
        self.calls: list[object] = []

    def call(self, about: object = None, error: Exception | None = None) -> None:
        self.calls.append(about)
        if not self.up:
            raise error or ConnectionError("down")

    def taken(self) -> list[object]:
        """The calls since somebody last asked."""
        found, self.calls = self.calls, []
        return found


@pytest.fixture
def dependency() -> Dependency:
    return Dependency()


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("test")


@pytest.fixture
def mainspring_app(tasks: ms.Registry) -> ms.App:
    breakers = [
        ms.breaker("stripe", failures=5, within=WITHIN, pause=PAUSE),
        ms.breaker("sms", failures=2, within=WITHIN, pause=PAUSE, longest=timedelta(minutes=3)),
        ms.breaker("webhook", failures=2, within=WITHIN, pause=PAUSE),
        ms.breaker("mail", rate=0.5, calls=4, within=WITHIN, pause=PAUSE, failing_for=PAUSE),
    ]
    return ms.App(tasks, breakers=breakers, maintenance=False)


def state(mainspring: Harness, name: str, key: str | None = None) -> str:
    """What a breaker does now."""
    found = [row.state for row in mainspring.client.breakers.show(name) if row.key == key]
    return found[0] if found else "closed"


RULE = {"within": "30 s", "pause": "60 s", "longest": "60 s", "probes": 1}


class Breaker:
    """The breaker `stripe` of a database, or a key of it."""

    def __init__(self, engine: Engine, **rule: Any) -> None:
        self.engine, self.conn, self.clock = engine, engine.conn, Clock(engine.conn)
        self.clock.set(self.clock.now())
        self.declare(**({"failures": 3} | rule if "rate" not in rule else rule))

    def declare(self, **rule: Any) -> None:
        rules = json.dumps([{"name": "stripe"} | RULE | rule])
        self.conn.execute("select mainspring.declare_breakers(%s::json)", [rules])

    def report(self, *ages: float, succeeded: int = 0, **about: Any) -> list[str]:
        call = {"org_id": "SYSTEM", "name": "stripe", "key": "", "ages": ages, "succeeded": succeeded} | about
        rows = self.conn.execute("select change from mainspring.report_calls(%s::json)", [json.dumps([call])])
        return [row[0] for row in rows]

    def probe(self, epoch: int, org: str = "SYSTEM", key: str = "") -> tuple[str, float]:
        asked = self.conn.execute(
            "select answer, wait from mainspring.ask_probe(%s, 'stripe', %s, %s)", [org, key, epoch]
        )
        answer = asked.fetchone()
        assert answer is not None
        return answer[0], answer[1]

    @property
    def state(self) -> str:
        return str(self.one("select mainspring.breaker_state(b) from mainspring.breaker b where key = ''"))

    def one(self, query: str) -> Any:
        found = self.conn.execute(query.encode()).fetchone()
        assert found is not None
        return found[0]

    def release(self, *gates: str, limit: int = 1000, **serves: list[str]) -> int:
        """Let go who may go: at these gates, or wherever jobs wait."""
        params = [list(gates) or None, serves.get("queues", ["q:default"]), serves.get("tasks", ["t"]), limit]
        asked = self.conn.execute("select mainspring.release_gates(%s, %s, %s, %s)", params).fetchone()
        assert asked is not None
        return int(asked[0])

    def park(self, count: int = 1, gate: str = "breaker:stripe", **about: Any) -> list[UUID]:
        """Jobs that a worker has claimed and that the breaker stopped."""
        jobs = self.engine.enqueue_many([about] * count)
        ours, queue = {job.id for job in jobs}, about.get("queue", "q:default")
        claims = [c for c in self.engine.claim(n=5000, queues=[queue], tasks=[about.get("task", "t")]) if c.id in ours]
        moves = [
            {"epoch": claim.epoch, "verb": "defer", "delay": "60 s", "started": False, "gate": gate} for claim in claims
        ]
        assert len(self.engine.settle("w1", *moves)) == count
        return [job.id for job in jobs]

    def waiting(self) -> dict[UUID, str | None]:
        """What each job waits at that has no due time."""
        return dict(self.engine.rows("select id, gate from mainspring.waiting where due_at = 'infinity'"))

    def running(self, lease: timedelta = timedelta(hours=2)) -> int:
        """A job under a lease, by its epoch."""
        self.engine.enqueue("t")
        (claim,) = self.engine.claim(n=1, lease=lease)
        return claim.epoch


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[TupleRow]]:
    with database.connect() as conn:
        yield conn


@pytest.fixture
def engine(conn: psycopg.Connection[TupleRow]) -> Engine:
    return Engine(conn)


@pytest.fixture
def stripe(engine: Engine) -> Breaker:
    return Breaker(engine)
