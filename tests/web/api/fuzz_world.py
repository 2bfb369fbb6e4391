"""A world in which every operation of the API finds something: of each kind of thing one that may be changed."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
from tests.db.engine import Engine
from tests.together.stage import enqueue_batch, enqueue_flow, job
from tests.web.api.dead import killed

import mainspring as ms
from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.db.jobs import Who
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.declare.credential import new_secret
from mainspring.limit import Limit

OLGA = Who(actor_type="user", actor_id="olga")
#: Who asks, by their own tokens.
ASKERS = {
    "root": Grant(role="admin", reveals=True),
    "operator": Grant(role="operator"),
    "viewer": Grant(role="viewer"),
    "admin.acme": Grant(role="admin", org="acme"),
    "operator.acme": Grant(role="operator", org="acme"),
}
GREETING = {"name": "Ada"}
#: Bodies whose fields must fit each other, which hardly any that is made up does.
BODIES: dict[str, dict[str, Any]] = {
    "create_limit": {"name": "more", "queue": "q:default", "concurrency": 3},
    "set_limit": {"queue": "q:default", "concurrency": 3, "by": "org"},
    "create_schedule": {"name": "nightly", "task": "greet", "cron": "0 3 * * *", "payload": GREETING},
    "change_schedule": {"task": "greet", "every": "1h", "payload": GREETING},
    "backfill_schedule": {"since": "2026-03-02T00:00:00Z", "until": "2026-03-04T00:00:00Z", "reason": "it was off"},
}
WORKER = (
    "insert into mainspring.worker (id, host, pid, version, queues, concurrency, started_at, seen_at)"
    " values ('w1', 'h', 7, '1', '{q:default}', 100, mainspring.now(), mainspring.now())"
)
BREAKER = (
    "insert into mainspring.breaker (name, failures, within, pause, longest, probes, used_at)"
    " values ('stripe', 5, '30 s', '60 s', '60 s', 1, now())"
)
HELD = "insert into mainspring.quarantine (task, held_at) values ('greet', now()) on conflict do nothing"


def things(dsn: str, conn: psycopg.Connection[Any]) -> dict[str, list[str]]:
    """Make them; gives what they are called, by the first word of the addresses under which they are found."""
    engine = Engine(conn)
    waits = [engine.enqueue("greet", org_id="acme", payload=GREETING, key=f"k{n}").id for n in range(3)]
    later = engine.enqueue("greet", org_id="acme", scheduled_for="2100-01-01T00:00:00Z").id
    dead = [killed(engine, org_id="acme", task="die", message=f"no {n}") for n in range(4)]
    runs = engine.started(task="go_on", org_id="acme", payload=GREETING).id
    done = engine.started(task="go_away", org_id="acme")
    engine.end(done, "complete")
    batch = enqueue_batch(engine, [job("greet", org_id="acme")], org_id="acme", on_finish=None)
    flow = enqueue_flow(
        engine,
        [job("greet", org_id="acme"), job("greet", org_id="acme")],
        [{"child": 1, "parents": [0], "anyway": False}],
    )
    for statement in (WORKER, BREAKER):
        conn.execute(statement.encode())
    with ms.Client(dsn) as client:
        client.limits.set(Limit(name="two", queue="q:default", concurrency=2, by="org"))
        client.schedules.create("digest", ms.cron("0 10 * * *"), "greet", payload=GREETING, org="acme")
        client.alerts.open("needs-a-person", org="acme")
        (alert,) = client.alerts.list(org="acme")
    door = psycopg_door(conn)
    run(door, access.create_user(Sql(), "ben", Grant(role="viewer", org="acme"), None, OLGA))
    run(door, access.create_link(Sql(), "ben", code := new_secret(), OLGA))
    opening = access.Opening(secret=new_secret(), address="203.0.113.9")
    run(door, access.sign_in_by_link(Sql(), code, opening))
    token = run(door, access.create_token(Sql(), "theirs", Grant(role="viewer", org="acme"), None, OLGA))
    jobs = [str(one) for one in (*waits, later, runs, done.id, *dead, *flow)]
    return {
        "jobs": jobs, "dead-letters": [str(one) for one in dead], "flows": [str(one) for one in flow],
        "batches": [str(batch)], "alerts": [str(alert.id)], "workers": ["w1"], "queues": ["q:default"],
        "limits": ["two"], "breakers": ["stripe"], "schedules": ["digest"], "quarantine": ["greet"],
        "tasks": ["greet"], "users": ["ben"], "tokens": [token.id],
    }  # fmt: skip


def tokens(do: Callable[[Any], Any]) -> dict[str, str]:
    """A token of each who asks."""
    return {name: do(access.create_token(Sql(), name, grant, None, OLGA)).text for name, grant in ASKERS.items()}
