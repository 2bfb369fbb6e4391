"""Numbers are those of who asks: what another organisation's jobs do moves none of them, on a plain schema too."""

from __future__ import annotations

from typing import Any

import pytest
from tests.db.engine import Engine
from tests.web.api.dead import killed
from tests.web.api.visit import SOME_ID, ApiVisitor
from tests.worker.stage import Stage

from mainspring.limit import Limit
from mainspring.web.api.resources import OPERATIONS

pytestmark = pytest.mark.anyio

BREAKER = (
    "insert into mainspring.breaker (name, failures, within, pause, longest, probes, used_at)"
    " values ('stripe', 5, '30 s', '60 s', '60 s', 1, now())"
)
PARKED = (
    "update mainspring.waiting set due_then = due_at, due_at = 'infinity', gate = %s where id in (select w.id from"
    " mainspring.waiting w where w.org_id = %s and w.due_at <= now() limit 1)"
)


WORKER = (
    "insert into mainspring.worker (id, host, pid, version, queues, tasks, concurrency, started_at, seen_at, running,"
    " stopping) values ('w1', 'h', 1, '1', '{}', '{}', 10, now(), now(), %(running)s, false)"
    " on conflict (org_id, id) do update set running = %(running)s"
)


def without_ages(said: Any) -> Any:
    """An answer without what time alone moves."""
    if isinstance(said, dict):
        return {name: without_ages(value) for name, value in said.items() if not name.endswith(("_s", "seen_at"))}
    return [without_ages(one) for one in said] if isinstance(said, list) else said


async def seen_by(api: ApiVisitor, who: str) -> dict[str, Any]:
    """Everything that somebody sees who looks."""
    named = {"queues": "q:default", "limits": "two", "breakers": "stripe"}
    found = {}
    for one in OPERATIONS:
        if one.method == "GET" and one.role == "viewer" and not one.path.startswith(("/audit", "/schedule-preview")):
            noun = one.path.split("/")[1]
            path = one.path.format(name=named.get(noun, "greet"), id="w1" if noun == "workers" else SOME_ID)
            found[path] = without_ages((await api.get(who, path)).json())
    return found


def busy(engine: Engine, org: str) -> None:
    """Jobs of every kind: ready, later, running, dead, and waiting at a breaker and at a limit."""
    killed(engine, org_id=org, task="die")
    engine.started(worker="w1", task="go_on", org_id=org)
    for _ in range(4):
        engine.enqueue("greet", org_id=org, payload={"name": "Ada"})
    engine.enqueue("greet", org_id=org, payload={"name": "Ada"}, scheduled_for="2100-01-01T00:00:00Z")
    for gate in ("breaker:stripe", f"breaker:stripe:{org}/k", f"two/{org}"):
        assert engine.conn.execute(PARKED, [gate, org]).rowcount == 1


async def test_no_number_moves_by_what_others_do(api: ApiVisitor, stage: Stage) -> None:
    engine = Engine(stage.conn)
    await stage.client.limits.set(Limit(name="two", queue="q:default", concurrency=2, by="org"))
    stage.conn.execute(BREAKER.encode())
    stage.conn.execute(WORKER.encode(), {"running": 2})
    busy(engine, "globex")
    busy(engine, "acme")
    before, everybodys = await seen_by(api, "viewer.acme"), await seen_by(api, "vic")

    busy(engine, "globex")
    engine.enqueue("greet", org_id="globex", queue="q:of-globex", payload={"name": "Ada"})
    stage.conn.execute(WORKER.encode(), {"running": 3})
    await stage.client.alerts.open("needs-a-person", org="globex")

    assert await seen_by(api, "viewer.acme") == before
    assert await seen_by(api, "vic") != everybodys
    (lane,) = [one for one in before["/stats"]["queues"] if one["name"] == "q:default"]
    assert (lane["ready"], lane["later"], lane["running"]) == (1, 4, 1)
    assert before["/stats"]["workers"] == {"alive": 1, "stopping": 0, "slots": 10, "running": 1}
    assert (before["/stats"]["dead"], before["/stats"]["alerts"]) == ({"open": 1}, [])
    assert before["/stats"]["breakers"] == [{"name": "stripe", "open": False, "keys": 0, "waiting": 2}]
    assert before["/stats"]["limits"] == [{"name": "two", "waiting": 1}]
