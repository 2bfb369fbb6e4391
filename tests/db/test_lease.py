"""Leases: renewed, fenced, and taken back when they expire."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import psycopg
import pytest
from tests.databases import Database
from tests.db.engine import LEASE, Engine

from mainspring.job import Claim


def lost(engine: Engine) -> tuple[Claim, Claim]:
    """One job: the claim of w1, whose lease expired, and that of w2, which holds it now."""
    old = engine.started("w1")
    engine.clock.advance(LEASE)
    assert engine.rescue() == [(old.id, "w1", "ready")]
    (new,) = engine.claim("w2")
    assert new.id == old.id
    return old, new


def settle(verb: str) -> Callable[[Engine, str, int], bool]:
    return lambda engine, worker, epoch: bool(engine.settle(worker, {"epoch": epoch, "verb": verb}))


WRITES: dict[str, Callable[[Engine, str, int], bool]] = {
    "complete": lambda engine, worker, epoch: bool(engine.complete(worker, epoch)),
    "complete_with": lambda engine, worker, epoch: bool(engine.complete_with(worker, {epoch: 1})),
    "renew": lambda engine, worker, epoch: bool(engine.renew(worker, epoch)),
    **{verb: settle(verb) for verb in ("fail", "reject", "bury", "snooze", "defer", "release", "stop")},
}


@pytest.mark.rule("ENG-6.04", "ENG-6.05", "ENG-9.11")
@pytest.mark.parametrize("write", WRITES)
def test_who_lost_the_lease_changes_nothing(engine: Engine, write: str) -> None:
    old, new = lost(engine)
    before = engine.everything()

    assert not WRITES[write](engine, "w1", old.epoch)
    assert engine.everything() == before

    assert WRITES[write](engine, "w2", new.epoch)


@pytest.mark.rule("ENG-6.05")
@pytest.mark.parametrize("write", WRITES)
def test_an_epoch_is_worth_nothing_in_the_hands_of_another_worker(engine: Engine, write: str) -> None:
    """A crash of the database can issue an epoch twice: the worker is the other half of the token."""
    claim = engine.started("w1")
    before = engine.everything()

    assert not WRITES[write](engine, "w2", claim.epoch)

    assert engine.everything() == before


@pytest.mark.rule("ENG-6.09", "ENG-9.10")
def test_an_effect_cannot_be_committed_without_the_lease(engine: Engine) -> None:
    engine.conn.execute("create table effect (n int)")
    old, new = lost(engine)

    def commit(worker: str, epoch: int) -> None:
        with engine.conn.transaction():
            engine.conn.execute("insert into effect values (1)")
            engine.enqueue("follow_up")
            engine.ask("complete_one", [worker, epoch, '{"ok": true}'])

    with pytest.raises(psycopg.Error) as caught:
        commit("w1", old.epoch)
    assert caught.value.sqlstate == "MS005"
    assert engine.rows("select (select count(*) from effect), (select count(*) from mainspring.job)") == [(0, 1)]

    commit("w2", new.epoch)
    assert engine.rows("select (select count(*) from effect), (select count(*) from mainspring.job)") == [(1, 2)]
    assert engine.job(new.id).result == {"ok": True}


def test_a_renewed_lease_is_not_taken_back(engine: Engine) -> None:
    claim = engine.started()
    for _ in range(4):
        engine.clock.advance(seconds=30)
        assert engine.renew("w1", claim.epoch) == {claim.epoch: False}
        assert engine.job(claim.id).lease_expires_at == engine.clock.now() + LEASE
        assert engine.rescue() == []
        assert engine.claim("w2") == []


def test_one_renewal_serves_all_leases_and_tells_which_are_left(engine: Engine) -> None:
    engine.enqueue_many([{}] * 3)
    first, second, third = engine.claim()
    engine.end(second, "complete")
    engine.cancel(third.id)

    assert engine.renew("w1", first.epoch, second.epoch, third.epoch) == {first.epoch: False, third.epoch: True}


@pytest.mark.rule("ENG-3.08", "ENG-6.12")
def test_a_lease_is_taken_back_when_it_expires_not_before(engine: Engine) -> None:
    claim = engine.started()
    engine.clock.advance(LEASE - timedelta(microseconds=1))
    assert engine.rescue() == []
    engine.clock.advance(timedelta(microseconds=1))
    assert engine.rescue() == [(claim.id, "w1", "ready")]

    job = engine.job(claim.id)
    assert (job.state, job.attempt, job.crashes, job.due_at) == ("ready", 1, 1, engine.clock.now())
    (attempt,) = engine.attempts(claim.id)
    assert (attempt.attempt, attempt.worker, attempt.outcome) == (1, "w1", "rescued")
    assert attempt.error is not None
    assert attempt.error["code"] == "LEASE_EXPIRED"
    assert "job.lease_expired" in engine.events(claim.id)


@pytest.mark.rule("ENG-3.08")
@pytest.mark.parametrize(("limit", "claims"), [(1, 1), (2, 2), (5, 3), (1000, 3)])
def test_a_job_that_kills_its_workers_is_dead_after_its_attempts_or_three_crashes(
    engine: Engine, limit: int, claims: int
) -> None:
    id_ = engine.enqueue(max_attempts=limit).id

    count = 0
    while engine.claim(f"w{count}") or engine.claim(f"w{count}", alone=True):
        count += 1
        engine.clock.advance(LEASE)
        engine.rescue()

    job = engine.job(id_)
    assert (count, job.state, job.attempt, job.crashes, job.queue) == (claims, "dead", claims, claims, "q:deadletter")
    assert job.error is not None
    assert job.error["code"] == "LEASE_EXPIRED"
    assert [attempt.outcome for attempt in engine.attempts(id_)] == ["rescued"] * claims
    assert engine.events(id_).count("job.deadlettered") == 1


def test_crashes_are_counted_over_successes_of_others_and_ordinary_failures(engine: Engine) -> None:
    id_ = engine.enqueue(max_attempts=1000).id
    for crash in (True, False, True, False, True):
        (claim,) = engine.claim() or engine.claim(alone=True)
        if crash:
            engine.clock.advance(LEASE)
            engine.rescue()
        else:
            engine.end(claim, "fail")

    assert engine.state(id_) == "dead"


def test_a_rescue_takes_at_most_what_it_was_asked_for_oldest_first(engine: Engine) -> None:
    engine.enqueue_many([{}] * 3)
    order = []
    for _ in range(3):
        order += [claim.id for claim in engine.claim(n=1)]
        engine.clock.advance(seconds=1)
    engine.clock.advance(LEASE)

    assert [job for job, *_ in engine.rescue(limit=2)] == order[:2]
    assert [job for job, *_ in engine.rescue(limit=2)] == order[2:]


def test_a_cancellation_asked_for_survives_the_crash_of_the_worker(engine: Engine) -> None:
    claim = engine.started()
    assert engine.cancel(claim.id, reason="typo") == "cancel_requested"
    engine.clock.advance(LEASE)

    assert engine.rescue() == [(claim.id, "w1", "cancelled")]

    job = engine.job(claim.id)
    assert job.error is not None
    assert (job.state, job.error["code"], job.error["message"]) == ("cancelled", "CANCELLED", "typo")
    assert engine.claim() == []


def test_rescue_passes_over_a_job_that_is_just_being_completed(database: Database, engine: Engine) -> None:
    claim = engine.started()
    engine.clock.advance(LEASE)
    with database.connect() as other, other.transaction():
        assert Engine(other).complete("w1", claim.epoch) == [claim.epoch]
        engine.conn.execute("set lock_timeout = '1ms'")
        assert engine.rescue() == []
    assert engine.state(claim.id) == "succeeded"


def test_a_worker_finds_claims_whose_answer_it_never_got(engine: Engine) -> None:
    known, lost_ = engine.started(), engine.started()
    engine.started("w2")

    assert engine.ask("orphans", ["w1", [known.epoch]]) == [(lost_.epoch,)]
