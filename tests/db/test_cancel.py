"""What people do to jobs: cancel, reschedule, prioritize."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID, uuid4

import psycopg
import pytest
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import Engine


def put(engine: Engine, state: str) -> UUID:
    if state == "retrying":
        claim = engine.started()
        engine.end(claim, "fail", delay="PT1H")
        return claim.id
    return engine.enqueue(delay=timedelta(hours=1) if state == "scheduled" else None).id


@pytest.mark.rule("ENG-14.01", "ENG-3.11", "ENG-14.06")
@pytest.mark.parametrize("state", ["scheduled", "ready", "retrying"])
def test_a_job_that_waits_is_cancelled_at_once_and_never_starts(engine: Engine, state: str) -> None:
    id_ = put(engine, state)
    assert engine.state(id_) == state

    assert engine.cancel(id_, reason="no longer wanted") == "cancelled"

    job = engine.job(id_)
    assert (job.state, job.finished_at) == ("cancelled", NOON)
    assert job.error is not None
    assert (job.error["code"], job.error["message"]) == ("CANCELLED", "no longer wanted")
    engine.clock.advance(days=400)
    assert engine.claim() == []
    assert requests(engine, id_) == [("job.cancel_requested", "ada"), ("job.cancelled", "ada")]


def requests(engine: Engine, id_: UUID) -> list[tuple[str, str]]:
    """The events about a cancellation, and who asked for it."""
    query = "select event, detail ->> 'by' from mainspring.audit where job_id = %s and event ~ 'cancel' order by id"
    return [(event, by) for event, by in engine.rows(query, id_)]


@pytest.mark.rule("ENG-14.02", "ENG-14.06", "ENG-14.08")
def test_a_running_job_gets_a_token_and_stops_by_itself(engine: Engine) -> None:
    claim = engine.started()

    assert engine.cancel(claim.id, reason="typo") == "cancel_requested"

    assert engine.state(claim.id) == "running"
    assert engine.job(claim.id).cancel_requested_at == NOON
    assert engine.ask("cancelled", ["w1"]) == [(claim.epoch,)]
    assert engine.cancel(claim.id) == "cancel_requested"
    assert engine.end(claim, "stop")
    job = engine.job(claim.id)
    assert job.error is not None
    assert (job.state, job.error["code"], job.error["message"]) == ("cancelled", "CANCELLED", "typo")
    assert [attempt.outcome for attempt in engine.attempts(claim.id)] == ["cancelled"]
    assert engine.cancel(claim.id) == "cancelled"
    assert requests(engine, claim.id) == [("job.cancel_requested", "ada"), ("job.cancelled", "ada")]


@pytest.mark.rule("ENG-14.02")
def test_a_job_that_cannot_stop_goes_on(engine: Engine) -> None:
    claim = engine.started(cancellable=False)
    before = engine.everything()

    assert engine.cancel(claim.id) == "not_cancellable"

    assert engine.everything() == before


@pytest.mark.rule("ENG-14.07", "ENG-14.08")
@pytest.mark.parametrize(
    ("verb", "answer"),
    [("complete", "already_finished"), ("reject", "already_finished"), ("bury", "already_finished")],
)
def test_a_finished_job_stays_as_it_ended(engine: Engine, verb: str, answer: str) -> None:
    claim = engine.started()
    engine.end(claim, verb)
    before = engine.everything()

    assert engine.cancel(claim.id) == answer
    assert engine.cancel(uuid4()) == "not_found"

    assert engine.everything() == before


@pytest.mark.rule("ENG-14.08")
def test_a_second_cancel_is_harmless(engine: Engine) -> None:
    id_ = engine.enqueue().id
    assert engine.cancel(id_) == "cancelled"
    before = engine.everything()
    assert engine.cancel(id_) == "cancelled"
    assert engine.everything() == before


@pytest.mark.rule("ENG-14.09")
def test_a_success_before_the_token_was_seen_wins_and_the_trail_says_so(engine: Engine) -> None:
    claim, plain = engine.started(), engine.started()
    engine.cancel(claim.id)

    assert set(engine.complete("w1", claim.epoch, plain.epoch)) == {claim.epoch, plain.epoch}

    assert engine.state(claim.id) == "succeeded"
    assert [event for event, _ in requests(engine, claim.id)] == ["job.cancel_requested", "job.cancel_too_late"]
    assert requests(engine, plain.id) == []


@pytest.mark.rule("ENG-14.10")
def test_another_organisations_job_is_not_found(engine: Engine) -> None:
    id_ = engine.enqueue(org_id="a", key="k").id
    before = engine.everything()

    assert engine.cancel(id_, org="b") == "not_found"
    assert engine.value("job_by_key", {"org": "b", "key": "k"}) is None
    assert engine.reschedule(id_, NOON, org="b") is None
    assert engine.prioritize(id_, 0, org="b") is None

    assert engine.everything() == before
    assert engine.cancel(id_, org="a") == "cancelled"


def test_a_cancel_that_meets_a_claim_asks_the_worker(database: Database, engine: Engine) -> None:
    """The job moves while we look: cancel waits for the claim to commit and then looks again."""
    id_ = engine.enqueue().id
    with database.connect() as worker, worker.transaction():
        (claim,) = Engine(worker).claim()
        engine.conn.execute("set lock_timeout = '20ms'")
        with pytest.raises(psycopg.errors.LockNotAvailable):
            engine.cancel(id_)
    assert engine.cancel(claim.id) == "cancel_requested"


@pytest.mark.rule("ENG-13.12")
@pytest.mark.parametrize("state", ["scheduled", "ready", "retrying"])
def test_a_job_that_waits_can_be_moved_in_time(engine: Engine, state: str) -> None:
    id_ = put(engine, state)
    later = NOON + timedelta(hours=5)

    assert engine.reschedule(id_, later) == ("retrying" if state == "retrying" else "scheduled")
    assert engine.job(id_).due_at == later
    assert engine.reschedule(id_, NOON - timedelta(days=1)) == "ready"
    assert [claim.id for claim in engine.claim()] == [id_]

    moved = engine.rows("select detail from mainspring.audit where event = 'job.rescheduled' order by id")
    assert [row[0]["by"] for row in moved] == ["ada", "ada"]
    assert moved[1][0]["before"] == {"due_at": later.isoformat()}
    assert moved[1][0]["after"] == {"due_at": NOON.isoformat()}


def test_moving_a_timer_by_its_key_keeps_its_id(engine: Engine) -> None:
    id_ = engine.enqueue(key="auto-approve:9", delay=timedelta(hours=4)).id
    found = engine.value("job_by_key", {"org": "default", "key": "auto-approve:9"})
    assert found == id_
    assert engine.reschedule(found, NOON + timedelta(hours=6)) == "scheduled"
    assert engine.enqueue(key="auto-approve:9").id == id_


@pytest.mark.rule("ENG-11.06")
def test_the_priority_of_a_job_that_waits_can_be_changed_and_is_audited(engine: Engine) -> None:
    engine.enqueue(priority=1)
    id_ = engine.enqueue(priority=3).id

    assert engine.prioritize(id_, 0) == 3

    assert engine.claim(n=1)[0].id == id_
    assert engine.prioritize(id_, 2) is None
    (event,) = engine.rows("select detail from mainspring.audit where event = 'job.prioritized'")
    assert event[0] == {
        "by": "ada",
        "by_type": "user",
        "reason": None,
        "before": {"priority": 3},
        "after": {"priority": 0},
    }


@pytest.mark.rule("ENG-11.03")
def test_a_priority_that_no_claim_would_find_is_refused(engine: Engine) -> None:
    id_ = engine.enqueue().id
    with pytest.raises(psycopg.Error) as caught:
        engine.prioritize(id_, 7)
    assert (caught.value.sqlstate, caught.value.diag.message_detail) == ("MS001", "priority")
    assert engine.job(id_).priority == 2
