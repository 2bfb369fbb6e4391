"""How attempts end: what becomes of the job, and what is kept of the attempt."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.db.conftest import NOON
from tests.db.engine import ERROR, Engine
from tests.documents import RENTAL

from mainspring.outcome import Error, Failed, decide

RETRY = RENTAL.retry


def fail(engine: Engine, code: str = "INTERNAL_ERROR", error_class: Any = "retryable", worker: str = "w1") -> str:
    """Claim the one job that is due, let it fail, and do what `decide` says."""
    (claim,) = engine.claim(worker)
    move = decide(claim, Failed(Error(code, error_class, "no answer")), RETRY)
    error = {"code": code, "class": error_class, "message": "no answer"}
    verb = str(getattr(move, "verb", ""))
    assert engine.end(claim, verb, worker, delay=getattr(move, "delay", None), error=error)
    return verb


@pytest.mark.rule("ENG-3.04", "ENG-2.06")
def test_a_success_keeps_result_and_time_and_clears_the_lease(engine: Engine) -> None:
    claim = engine.started()
    engine.clock.advance(seconds=3)

    assert engine.complete_with("w1", {claim.epoch: {"pages": 2}}) == [claim.epoch]

    job = engine.job(claim.id)
    assert (job.state, job.result, job.attempt) == ("succeeded", {"pages": 2}, 1)
    assert (job.started_at, job.finished_at, job.updated_at) == (NOON, *[NOON + timedelta(seconds=3)] * 2)
    assert (job.worker, job.epoch, job.lease_expires_at, job.due_at, job.error) == (None,) * 5


def test_each_of_a_batch_keeps_its_own_result(engine: Engine) -> None:
    engine.enqueue_many([{}] * 5)
    claims = engine.claim()

    engine.complete_with("w1", {claim.epoch: n for n, claim in reversed(list(enumerate(claims)))})

    assert [engine.job(claim.id).result for claim in claims] == [0, 1, 2, 3, 4]


@pytest.mark.rule("ENG-3.05", "ENG-7.10", "ENG-7.03")
def test_a_retryable_failure_below_the_limit_waits_for_its_next_attempt(engine: Engine) -> None:
    id_ = engine.enqueue(max_attempts=3).id
    assert fail(engine) == "fail"

    job = engine.job(id_)
    assert (job.state, job.attempt, job.due_at) == ("retrying", 1, NOON + timedelta(seconds=60))
    assert (job.worker, job.epoch, job.lease_expires_at) == (None, None, None)
    assert job.error == {**ERROR, "attempt": 1, "at": NOON.isoformat()}


@pytest.mark.rule("ENG-3.06", "ENG-7.01", "ENG-8.11", "ENG-20.01", "ENG-20.07")
def test_a_job_that_fails_at_its_limit_is_dead_with_its_whole_history(engine: Engine) -> None:
    id_ = engine.enqueue(max_attempts=2).id
    engine.clock.advance(seconds=1)
    assert fail(engine) == "fail"
    engine.clock.advance(seconds=60)
    assert fail(engine, worker="w2") == "bury"

    engine.clock.advance(days=30)
    assert engine.claim() == []
    job = engine.job(id_)
    assert (job.state, job.attempt, job.queue) == ("dead", 2, "q:deadletter")
    assert job.error is not None
    assert job.error.keys() == {"code", "class", "message", "attempt", "at"}
    started, failed = (
        ["job.started", "job.failed"],
        engine.rows("select (detail ->> 'final')::bool from mainspring.audit where event = 'job.failed' order by id"),
    )
    assert failed == [(False,), (True,)]
    assert sorted(engine.events(id_)) == sorted(["job.enqueued", *started * 2, "job.retried", "job.deadlettered"])


@pytest.mark.rule("ENG-3.07", "ENG-8.08")
def test_a_permanent_failure_on_the_last_attempt_is_failed_not_dead(engine: Engine) -> None:
    id_ = engine.enqueue(max_attempts=1).id
    assert fail(engine, "VALIDATION_ERROR", "permanent") == "reject"
    assert engine.state(id_) == "failed"
    assert engine.claim() == []


@pytest.mark.rule("ENG-12.01", "ENG-3.07")
def test_a_second_permanent_failure_after_a_replay_is_poison(engine: Engine) -> None:
    id_ = engine.enqueue().id
    fail(engine, "VALIDATION_ERROR", "permanent")
    assert engine.replay(id_, reason="fixed it") == (True, None)

    assert fail(engine, "VALIDATION_ERROR", "permanent") == "bury"

    assert engine.state(id_) == "dead"
    assert len(engine.attempts(id_)) == 2


@pytest.mark.rule("ENG-3.09")
def test_snoozing_gives_the_attempt_back_and_is_counted(engine: Engine) -> None:
    id_ = engine.enqueue(max_attempts=1).id
    for n in range(1, 4):
        (claim,) = engine.claim()
        assert engine.end(claim, "snooze", delay="PT10M")
        job = engine.job(id_)
        due_at = engine.clock.now() + timedelta(minutes=10)
        assert (job.state, job.attempt, job.snoozes, job.due_at) == ("scheduled", 0, n, due_at)
        engine.clock.advance(minutes=10)
    assert engine.attempts(id_) == []
    assert engine.events(id_).count("job.deferred") == 3


@pytest.mark.rule("ENG-3.10")
def test_a_job_handed_back_at_a_stop_is_ready_with_its_former_attempts(engine: Engine) -> None:
    id_ = engine.enqueue().id
    fail(engine)
    engine.clock.advance(seconds=60)
    (claim,) = engine.claim()
    assert claim.attempt == 2

    assert engine.end(claim, "release")

    assert (engine.state(id_), engine.job(id_).attempt) == ("ready", 1)


@pytest.mark.rule("ENG-3.16")
def test_every_attempt_is_kept_in_order(engine: Engine) -> None:
    id_ = engine.enqueue().id
    fail(engine, worker="w1")
    engine.clock.advance(seconds=60)
    fail(engine, "TIMEOUT", worker="w2")
    engine.clock.advance(seconds=60)
    (claim,) = engine.claim("w3")
    assert [a.outcome for a in engine.attempts(id_)] == ["retried", "retried", "running"]
    engine.clock.advance(seconds=5)
    engine.end(claim, "complete", "w3")

    first, second, third = engine.attempts(id_)
    assert [(a.attempt, a.worker, a.outcome) for a in (first, second, third)] == [
        (1, "w1", "retried"),
        (2, "w2", "retried"),
        (3, "w3", "succeeded"),
    ]
    assert first.epoch < second.epoch < third.epoch == claim.epoch
    assert second.error is not None
    assert (second.error["code"], second.started_at) == ("TIMEOUT", NOON + timedelta(seconds=60))
    assert (third.started_at, third.ended_at) == (NOON + timedelta(seconds=120), NOON + timedelta(seconds=125))


@pytest.mark.rule("ENG-3.12", "ENG-7.11", "ENG-12.06")
@pytest.mark.parametrize("verb", ["reject", "bury"])
def test_a_replay_is_for_one_named_job_which_starts_anew(engine: Engine, verb: str) -> None:
    engine.enqueue_many([{"payload": {"n": 1}, "queue": "q:other", "max_attempts": 1}] * 2)
    one, other = engine.claim(queues=["q:other"])
    for claim in (one, other):
        engine.end(claim, verb)
    untouched = engine.job(other.id)

    assert engine.replay(one.id, reason="provider is back") == (True, None)

    job = engine.job(one.id)
    assert (job.state, job.attempt, job.queue, job.payload) == ("ready", 0, "q:other", {"n": 1})
    assert (job.result, job.finished_at) == (None, None)
    assert [a.attempt for a in engine.attempts(one.id)] == [1]
    assert engine.job(other.id) == untouched
    (event,) = engine.rows("select detail from mainspring.audit where event = 'job.replayed'")
    assert (event[0]["by"], event[0]["reason"]) == ("ada", "provider is back")
    assert event[0]["before"]["error"]["code"] == ERROR["code"]


def test_a_job_of_another_organisation_is_not_replayed(engine: Engine) -> None:
    claim = engine.started(org_id="a")
    engine.end(claim, "bury")
    assert engine.replay(claim.id, org="b") == (False, None)
    assert engine.state(claim.id) == "dead"


def test_several_ends_go_in_one_statement_and_lost_leases_are_left_out(engine: Engine) -> None:
    engine.enqueue_many([{}] * 4)
    claims = engine.claim()
    moves = [
        {"epoch": c.epoch, "verb": v, "error": ERROR}
        for c, v in zip(claims[:3], ["fail", "reject", "bury"], strict=True)
    ]

    found = engine.settle("w1", *moves, {"epoch": 0, "verb": "fail"}, moves[0])

    assert found == [claim.epoch for claim in claims[:3]]
    assert [engine.state(claim.id) for claim in claims] == ["ready", "failed", "dead", "running"]


def test_an_unknown_verb_settles_nothing(engine: Engine) -> None:
    engine.enqueue_many([{}] * 2)
    first, second = engine.claim()
    before = engine.everything()

    with pytest.raises(psycopg.Error) as caught:
        engine.settle("w1", {"epoch": first.epoch, "verb": "fail"}, {"epoch": second.epoch, "verb": "forget"})

    assert (caught.value.sqlstate, caught.value.diag.message_detail) == ("MS001", "verb")
    assert engine.everything() == before


@pytest.mark.rule("ENG-20.02")
def test_every_event_carries_the_fields_of_its_job(engine: Engine) -> None:
    project = UUID(int=7)
    fields: dict[str, Any] = {
        "org_id": "acme",
        "project_id": project,
        "actor_type": "user",
        "actor_id": "ada",
        "request_id": "r",
    }
    id_ = engine.enqueue(**fields, correlation_id="c", max_attempts=2).id
    fail(engine)
    engine.clock.advance(seconds=60)
    fail(engine)

    events = engine.rows(
        """
        select event, at is not null, org_id, project_id, actor_type, actor_id, request_id, correlation_id, task,
               attempt
        from mainspring.trail where job_id = %s order by attempt""",
        id_,
    )
    assert len(events) == 7
    assert {tuple(row[1:9]) for row in events} == {(True, "acme", project, "user", "ada", "r", "c", "t")}
    assert [row[9] for row in events] == [0, 1, 1, 1, 2, 2, 2]


@pytest.mark.rule("ENG-20.04")
def test_an_event_is_rolled_back_with_the_change_that_it_reports(engine: Engine) -> None:
    claim = engine.started()
    before = engine.everything()
    with engine.conn.transaction(force_rollback=True):
        engine.end(claim, "bury")
        assert engine.everything()["audit"]
    assert engine.everything() == before
