"""What the database refuses, whoever asks."""

from __future__ import annotations

import psycopg
import pytest
from tests.db.engine import Engine


def refused(engine: Engine, statement: str) -> str | None:
    """The SQLSTATE of a statement that must fail and must change nothing."""
    before = engine.everything()
    with pytest.raises(psycopg.Error) as caught:
        engine.conn.execute(statement.encode())
    assert engine.everything() == before
    return caught.value.sqlstate


@pytest.mark.rule("ENG-2.14")
@pytest.mark.parametrize(
    "change",
    [
        "payload = '{}'",
        "org_id = 'b'",
        "task = 'u'",
        "queue = 'q:other'",
        "actor_id = 'eve'",
        "key = 'k'",
        "max_attempts = 9",
        "scheduled_for = now()",
        "created_at = now()",
    ],
)
def test_a_job_is_written_once(engine: Engine, change: str) -> None:
    engine.enqueue(payload={"n": 1})
    assert refused(engine, f"update mainspring.job set {change}") == "MS004"


@pytest.mark.rule("ENG-2.14")
def test_even_a_reset_changes_only_the_payload_and_its_limits_and_never_while_it_runs(engine: Engine) -> None:
    claim = engine.started(payload={"n": 1})
    for verb in ("reset", "replace"):
        engine.conn.execute(f"set mainspring.verb = '{verb}'".encode())
        assert refused(engine, "update mainspring.job set payload = '{}'") == "MS004"
        assert refused(engine, "update mainspring.job set org_id = 'b'") == "MS004"
    engine.end(claim, "reject")
    engine.conn.execute("update mainspring.job set payload = '{}'")
    assert engine.job(claim.id).payload == {}


def test_a_job_leaves_by_prune_only(engine: Engine) -> None:
    claim = engine.started()
    engine.end(claim, "complete")
    assert refused(engine, "delete from mainspring.job") == "MS004"
    assert refused(engine, "delete from mainspring.finished") == "MS004"


@pytest.mark.rule("ENG-3.14", "ENG-3.13")
@pytest.mark.parametrize("verb", ["complete", "reject", "bury", "stop"])
def test_a_finished_job_does_not_change_by_direct_sql(engine: Engine, verb: str) -> None:
    claim = engine.started()
    engine.end(claim, verb)
    assert refused(engine, "update mainspring.finished set state = 'dead', attempt = 0") == "MS004"
    assert refused(engine, "delete from mainspring.finished") == "MS004"
    if verb == "complete":  # succeeded is final: not even the verbs that reopen others
        for reopening in ("replay", "reset"):
            engine.conn.execute(f"set mainspring.verb = '{reopening}'".encode())
            assert refused(engine, "delete from mainspring.finished") == "MS004"


@pytest.mark.rule("ENG-20.05")
@pytest.mark.parametrize("statement", ["update mainspring.audit set actor_id = 'eve'", "delete from mainspring.audit"])
def test_the_audit_trail_only_grows(engine: Engine, statement: str) -> None:
    engine.cancel(engine.enqueue().id)
    assert engine.everything()["audit"]
    assert refused(engine, statement) == "MS004"


@pytest.mark.rule("ENG-3.15")
@pytest.mark.parametrize(
    "statement",
    [
        "update mainspring.running set worker = null",
        "update mainspring.running set epoch = null",
        "update mainspring.running set lease_expires_at = null",
        "update mainspring.waiting set due_at = null",
        "update mainspring.waiting set after = gen_random_uuid()",
        "insert into mainspring.finished (id, org_id, state, attempt) values (gen_random_uuid(), 'a', 'dead', 1)",
        "insert into mainspring.finished (id, org_id, state, attempt, finished_at)"
        " values (gen_random_uuid(), 'a', 'running', 1, now())",
    ],
)
def test_a_ticket_has_what_its_state_needs(engine: Engine, statement: str) -> None:
    engine.started()
    engine.enqueue()
    assert (refused(engine, statement) or "").startswith("23")


@pytest.mark.rule("ENG-3.15", "ENG-2.06")
def test_only_a_running_job_shows_a_lease_and_only_a_finished_one_an_end(engine: Engine) -> None:
    engine.enqueue_many([{"delay": "PT1H"}, {}])
    claims = {verb: engine.started() for verb in ("fail", "complete", "reject", "bury", "stop")}
    for verb, claim in claims.items():
        engine.end(claim, verb, delay="PT1H")
    engine.started()

    shown = engine.rows(
        """
        select state, worker is not null and epoch is not null and lease_expires_at is not null,
               worker is not null or epoch is not null or lease_expires_at is not null, finished_at is not null
        from mainspring.jobs"""
    )
    ended = {"succeeded", "failed", "dead", "cancelled"}
    assert {row[0] for row in shown} >= ended | {"scheduled", "retrying", "running"}
    for state, has_all, has_any, has_end in shown:
        assert (has_all, has_any, has_end) == (state == "running", state == "running", state in ended)
