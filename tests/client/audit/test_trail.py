"""The trail: every event with every field, in the order in which things happened, whatever clocks show."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import Engine

from mainspring import Client
from mainspring.audit import AuditEvent


def events(engine: Engine, job: UUID) -> list[str]:
    return [
        row[0].removeprefix("job.")
        for row in engine.rows("select event from mainspring.trail where job_id = %s order by place", job)
    ]


@pytest.mark.rule("ENG-20.01", "ENG-20.07")
@pytest.mark.parametrize("step", [timedelta(0), timedelta(seconds=1), timedelta(hours=-1)], ids=["still", "on", "back"])
def test_a_job_that_fails_twice_and_dies_leaves_its_whole_trail_in_order(engine: Engine, step: timedelta) -> None:
    job = engine.enqueue(max_attempts=2).id
    (claim,) = engine.claim()
    engine.clock.advance(step)
    engine.end(claim, "fail")
    engine.rows("update mainspring.waiting set due_at = mainspring.now() returning 1")
    (claim,) = engine.claim()
    engine.end(claim, "bury")

    assert events(engine, job) == ["enqueued", "started", "failed", "retried", "started", "failed", "deadlettered"]
    finals = engine.rows(
        "select detail -> 'final' from mainspring.trail where job_id = %s and event = 'job.failed' order by place", job
    )
    assert finals == [(False,), (True,)]


@pytest.mark.rule("ENG-20.01", "ENG-20.08")
def test_order_holds_over_snoozes_crashes_replay_and_success_in_one_instant(engine: Engine) -> None:
    job = engine.enqueue(max_attempts=9).id
    for verb in ("snooze", "snooze", "fail"):
        engine.end(engine.claim()[0], verb)
    engine.claim("gone", lease=timedelta(0))
    engine.rescue()
    engine.end(engine.claim()[0], "bury")
    engine.replay(job, reason="provider is back")
    engine.end(engine.claim()[0], "complete")

    whole = [
        "enqueued", "started", "deferred", "started", "deferred", "started", "failed", "retried", "started",
        "lease_expired", "started", "failed", "deadlettered", "replayed", "started", "succeeded",
    ]  # fmt: skip
    assert events(engine, job) == whole
    engine.clock.advance(seconds=1)
    assert engine.prune() == 1
    assert events(engine, job) == whole


@pytest.mark.rule("ENG-20.08")
def test_an_attempt_that_a_stop_interrupted_shows_and_a_claim_that_never_started_does_not(engine: Engine) -> None:
    job = engine.enqueue().id
    engine.end(engine.claim()[0], "release", started=False)
    engine.end(engine.claim()[0], "release", started=True)

    assert events(engine, job) == ["enqueued", "started", "released"]


def test_a_replaced_payload_says_whose_request_replaced_it(engine: Engine) -> None:
    job = engine.enqueue(key="k", mode="replace", actor_type="user", actor_id="ada", payload={"n": 1}).id
    engine.enqueue(
        key="k", mode="replace", actor_type="user", actor_id="bob", request_id="r2", payload={"n": 2},
        delay=timedelta(hours=1),
    )  # fmt: skip

    (row,) = engine.rows(
        "select actor_id, request_id, detail from mainspring.trail where job_id = %s and event = 'job.replaced'", job
    )
    later = (NOON + timedelta(hours=1)).isoformat()
    assert row == ("bob", "r2", {"before": {"due_at": NOON.isoformat()}, "after": {"due_at": later}})


@pytest.mark.rule("ENG-20.02")
def test_no_event_of_a_job_lacks_a_field(engine: Engine) -> None:
    engine.enqueue(key="k", mode="replace")
    engine.enqueue(key="k", mode="replace", payload={"n": 1})
    for verb in ("snooze", "fail", "bury", "complete", "reject", "stop"):
        job = engine.started(project_id=UUID(int=1)).id
        (running,) = engine.rows("select epoch from mainspring.running where id = %s", job)
        engine.settle("w1", {"epoch": running[0], "verb": verb}) if verb != "complete" else engine.complete(
            "w1", *running
        )
        engine.prioritize(job, 1)
        engine.reschedule(job, NOON)
        engine.cancel(job, reason="enough")
        engine.replay(job, reason="again")
    engine.pause()
    engine.resume()
    engine.clock.advance(days=1)
    engine.prune()

    fields = "org_id, at, event, actor_type, actor_id, by, request_id, correlation_id, place, detail"
    lacking = engine.rows(
        f"""select event from mainspring.trail t where num_nulls({fields}) > 0
            or (event like 'job.%' and num_nulls(job_id, task, job_type, attempt) > 0)""".replace("%", "%%")
    )
    assert lacking == []
    assert len(engine.rows("select distinct event from mainspring.trail")) > 12
    assert engine.rows("select distinct project_id from mainspring.trail where event = 'job.deferred'") == [
        (UUID(int=1),)
    ]


@pytest.mark.rule("ENG-20.06")
def test_what_an_operator_does_says_who_why_before_and_after(client: Client, engine: Engine) -> None:
    from mainspring import Caller, calling

    job = engine.enqueue(priority=2).id
    with calling(Caller(actor_type="user", actor_id="olga")):
        client.prioritize(job, 0, reason="urgent")
        client.reschedule(job, delay=timedelta(hours=1), reason="not yet")
        client.cancel(job, reason="no longer")
        client.pause("q:default", reason="deploy")
        client.resume("q:default", reason="deployed")

    query = """select event, by, detail ->> 'reason', detail -> 'before', detail -> 'after' from mainspring.trail
               where id is not null order by id"""
    due = {"due_at": NOON.isoformat()}, {"due_at": (NOON + timedelta(hours=1)).isoformat()}
    running = {"paused_at": None, "paused_by": None, "pause_reason": None}
    paused = {"paused_at": NOON.isoformat(), "paused_by": "olga", "pause_reason": "deploy"}
    assert engine.rows(query) == [
        ("job.prioritized", "olga", "urgent", {"priority": 2}, {"priority": 0}),
        ("job.rescheduled", "olga", "not yet", *due),
        ("job.cancel_requested", "olga", "no longer", {"state": "scheduled"}, {"state": "cancelled"}),
        ("job.cancelled", "olga", "no longer", {"state": "scheduled"}, {"state": "cancelled"}),
        ("queue.paused", "olga", "deploy", running, paused),
        ("queue.resumed", "olga", "deployed", paused, running),
    ]


@pytest.mark.rule("ENG-20.05")
@pytest.mark.parametrize("table", ["audit", "seal"])
@pytest.mark.parametrize(
    "statement", ["update mainspring.{} set org_id = 'eve'", "delete from mainspring.{}", "truncate mainspring.{}"]
)
def test_nobody_changes_removes_or_empties_it_not_even_its_owner(engine: Engine, table: str, statement: str) -> None:
    engine.cancel(engine.enqueue().id)
    engine.rows("select mainspring.seal('default', 10)")
    before = engine.rows(f"select x::text from mainspring.{table} x order by 1")
    assert before
    (owner,) = engine.rows("select tableowner = current_user from pg_tables where tablename = %s", table)
    assert owner == (True,)

    with pytest.raises(psycopg.Error) as caught:
        engine.conn.execute(statement.format(table).encode())

    assert caught.value.sqlstate == "MS004"
    assert engine.rows(f"select x::text from mainspring.{table} x order by 1") == before


def test_the_trail_has_the_fields_that_python_reads(database: Database) -> None:
    with database.connect() as conn:
        cursor = conn.execute("select * from mainspring.trail limit 0")
    assert cursor.description is not None
    assert {column.name for column in cursor.description} == {*AuditEvent.__struct_fields__, "job_type"}


@pytest.mark.mainspring_new
def test_trail_of_one_job_needs_no_scan_of_the_others(engine: Engine) -> None:
    for _ in range(5):
        engine.enqueue_many([{}] * 400)
    engine.conn.execute("analyze")
    (job,) = engine.rows("select id from mainspring.job limit 1")
    plan = "\n".join(
        row[0] for row in engine.rows("explain select * from mainspring.trail where job_id = %s order by place", job[0])
    )
    assert "Seq Scan on job" not in plan
    assert "Seq Scan on audit" not in plan or "rows=1 " in plan
