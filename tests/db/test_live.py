"""The mode `live`: one job of a key waits while one runs, and never do two run at once."""

from __future__ import annotations

import threading
import time
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import Engine

from mainspring.job import Claim, Enqueued


def pair(engine: Engine, **fields: Any) -> tuple[Claim, UUID]:
    """A job under the key `k` that runs, and one that waits behind it."""
    claim = engine.started(key="k", payload={"n": 1})
    behind = engine.enqueue(key="k", payload={"n": 2}, **fields)
    assert (behind.answer, behind.state) == ("created", "scheduled")
    return claim, behind.id


def held_by(engine: Engine, id_: UUID) -> UUID | None:
    ((held,),) = engine.rows("select held_by from mainspring.jobs where id = %s", id_)
    return held  # type: ignore[no-any-return]  # a column of a query


@pytest.mark.rule("ENG-4.01")
def test_one_more_may_wait_behind_the_one_that_runs_and_no_third(engine: Engine) -> None:
    claim, behind = pair(engine)

    assert held_by(engine, behind) == claim.id
    assert engine.enqueue(key="k", payload={"n": 2}) == Enqueued(behind, "existing", "scheduled")
    with pytest.raises(psycopg.Error, match="taken by job"):
        engine.enqueue(key="k", payload={"n": 3})
    engine.clock.advance(days=1)
    engine.renew("w1", claim.epoch)
    assert engine.claim("w2") == []


@pytest.mark.rule("ENG-4.01", "ENG-9.04")
@pytest.mark.parametrize("verb", ["complete", "reject", "bury", "stop"])
def test_it_starts_after_the_one_before_has_ended_however(engine: Engine, verb: str) -> None:
    claim, behind = pair(engine)
    engine.clock.advance(seconds=10)

    engine.end(claim, verb)

    assert held_by(engine, behind) is None
    assert [(found.id, found.due_at) for found in engine.claim()] == [(behind, NOON + timedelta(seconds=10))]


@pytest.mark.parametrize("how", ["complete_one", "rescue", "cancel"])
def test_it_starts_after_the_one_before_was_completed_in_its_transaction_died_or_was_cancelled(
    engine: Engine, how: str
) -> None:
    claim, behind = pair(engine)
    if how == "complete_one":
        engine.ask("complete_one", ["w1", claim.epoch, None])
    elif how == "rescue":
        engine.clock.advance(minutes=2)
        assert engine.rescue(budget=1) == [(claim.id, "w1", "dead")]
    else:
        engine.end(claim, "fail", delay="PT1H")
        assert engine.cancel(claim.id) == "cancelled"

    assert [found.id for found in engine.claim()] == [behind]


@pytest.mark.parametrize("verb", ["fail", "snooze", "defer", "release", "rescue"])
def test_it_goes_on_waiting_while_the_one_before_is_tried_again(engine: Engine, verb: str) -> None:
    claim, behind = pair(engine)
    if verb == "rescue":
        engine.clock.advance(minutes=2)
        engine.rescue()
    else:
        engine.end(claim, verb)

    (again,) = engine.claim("w2")

    assert again.id == claim.id
    assert held_by(engine, behind) == claim.id


def test_its_own_time_still_counts_once_it_is_free(engine: Engine) -> None:
    claim, behind = pair(engine, delay=timedelta(hours=2))
    assert engine.job(behind).due_at == NOON + timedelta(hours=2)

    engine.end(claim, "complete")

    assert engine.job(behind).due_at == NOON + timedelta(hours=2)
    assert engine.claim() == []


def test_it_can_be_moved_while_it_waits(engine: Engine) -> None:
    claim, behind = pair(engine)

    assert engine.reschedule(behind, NOON + timedelta(hours=3)) == "scheduled"

    assert held_by(engine, behind) == claim.id
    engine.end(claim, "complete")
    assert engine.job(behind).due_at == NOON + timedelta(hours=3)


def test_replace_changes_the_one_that_waits_behind_and_says_where_it_stands(engine: Engine) -> None:
    claim, behind = pair(engine)

    assert engine.enqueue(key="k", mode="replace", payload={"n": 3}) == Enqueued(behind, "replaced", "scheduled")

    assert engine.job(claim.id).payload == {"n": 1}
    assert engine.job(behind).payload == {"n": 3}
    assert held_by(engine, behind) == claim.id


def test_cancelling_the_one_that_waits_returns_the_key_to_the_one_before(engine: Engine) -> None:
    claim, behind = pair(engine)

    assert engine.cancel(behind) == "cancelled"

    assert engine.value("job_by_key", {"org": "default", "key": "k"}) == claim.id
    engine.end(claim, "release")  # not started any more: the key is its, with its own payload
    assert engine.enqueue(key="k", payload={"n": 1}) == Enqueued(claim.id, "existing", "ready")
    with pytest.raises(psycopg.Error, match="taken by job"):
        engine.enqueue(key="k", payload={"n": 2})


@pytest.mark.rule("ENG-4.01")
@pytest.mark.parametrize("verb", ["complete", "reject", "bury", "cancel"])
def test_a_key_is_free_once_its_job_is_finished(engine: Engine, verb: str) -> None:
    if verb == "cancel":
        first = engine.enqueue(key="k", delay=timedelta(hours=1)).id
        engine.cancel(first)
    else:
        claim = engine.started(key="k")
        first = claim.id
        engine.end(claim, verb)

    again = engine.enqueue(key="k", payload={"n": 2})

    assert (again.answer, again.state) == ("created", "ready")
    assert again.id != first


def test_replay_is_refused_while_another_job_of_the_key_lives(engine: Engine) -> None:
    claim = engine.started(key="k")
    engine.end(claim, "bury")
    second = engine.started(key="k", payload={"n": 2})
    before = engine.everything()

    assert engine.replay(claim.id) == (False, second.id)
    assert engine.everything() == before

    engine.end(second, "complete")
    assert engine.replay(claim.id) == (True, None)
    assert engine.value("job_by_key", {"org": "default", "key": "k"}) == claim.id
    assert engine.enqueue(key="k").answer == "existing"


def test_a_replay_that_moves_nothing_leaves_the_key_where_it_is(engine: Engine) -> None:
    first = engine.started(key="k")
    engine.end(first, "complete")
    second = engine.started(key="k", payload={"n": 2})
    engine.end(second, "bury")
    before = engine.everything()

    assert engine.replay(first.id) == (False, None)

    assert engine.everything() == before


def test_a_job_enqueued_while_the_one_before_ended_is_freed_by_the_rescuer(database: Database, engine: Engine) -> None:
    """The completion cannot see a ticket that is not committed yet, and must not wait for it."""
    claim = engine.started(key="k")
    with database.connect() as caller:
        with caller.transaction():
            behind = Engine(caller).enqueue(key="k", payload={"n": 2})
            engine.end(claim, "complete")
        assert engine.claim() == []

        assert engine.value("release_held") == 1

    assert [found.id for found in engine.claim()] == [behind.id]
    assert engine.value("release_held") == 0


def test_cancel_and_enqueue_lock_key_and_ticket_in_the_same_order(database: Database, engine: Engine) -> None:
    _, behind = pair(engine)
    answers: list[str] = []
    with database.connect() as other:
        thread = threading.Thread(target=lambda: answers.append(Engine(other).cancel(behind)))
        with engine.conn.transaction():
            engine.rows("select from mainspring.idempotency where key = 'k' for update")  # what an enqueue does first
            thread.start()
            while engine.rows("select cardinality(pg_blocking_pids(%s))", other.info.backend_pid) == [(0,)]:
                time.sleep(0.002)
            replaced = engine.enqueue(key="k", mode="replace", payload={"n": 3})  # a deadlock, if cancel had the ticket
        thread.join()

    assert replaced.answer == "replaced"
    assert answers == ["cancelled"]
