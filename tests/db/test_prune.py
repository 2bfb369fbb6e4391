"""Prune: what goes, and what outlives it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import Engine
from tests.proofs.chaos.races import Late

from mainspring.job import Claim
from mainspring.uuid7 import uuid7


def tried(engine: Engine, last: str, **fields: Any) -> Claim:
    """A job that failed once, crashed its worker once, and then ended."""
    claim = engine.started(**fields)
    engine.clock.advance(seconds=1)
    engine.end(claim, "fail")
    engine.claim("w2")
    engine.clock.advance(minutes=2)
    engine.rescue()
    (claim,) = engine.claim("w3")
    engine.clock.advance(seconds=1)
    assert engine.end(claim, last, "w3")
    assert engine.discard(claim.id) is (last in ("reject", "bury"))
    return claim


@pytest.mark.parametrize("last", ["complete", "reject", "bury", "stop"])
def test_clean_up_never_removes_the_trail(engine: Engine, last: str) -> None:
    claim = tried(engine, last)
    fields = "at, event, attempt, org_id, actor_type, actor_id, request_id, correlation_id, task"
    whole = f"select {fields} from mainspring.trail"
    before = sorted(engine.rows(whole))
    assert [row[1] for row in before].count("job.started") == 3
    engine.clock.advance(days=1)

    assert engine.prune() == 1

    assert engine.state(claim.id) is None
    assert sorted(engine.rows(whole)) == before
    left = engine.rows("select (select count(*) from mainspring.attempt), (select count(*) from mainspring.finished)")
    assert left == [(0, 0)]


@pytest.mark.rule("ENG-9.02", "ENG-9.03")
@pytest.mark.parametrize(
    ("verb", "status"), [("complete", "succeeded"), ("reject", "failed"), ("bury", "dead"), ("stop", "failed")]
)
def test_a_key_remembers_how_its_job_ended_once_that_is_pruned(engine: Engine, verb: str, status: str) -> None:
    claim = engine.started(key="k", mode="window", ttl=timedelta(days=7))
    engine.end(claim, verb)
    before = engine.status("k")
    assert before[0] == status
    engine.discard(claim.id)
    engine.clock.advance(days=1)

    engine.prune()

    reference = str(claim.id)
    expected = (None, reference) if verb != "complete" else (reference, None)
    assert engine.status("k") == (status, NOON + timedelta(days=7), *expected) == before
    answer = engine.enqueue(key="k", mode="window", ttl=timedelta(days=7))
    assert (answer.id, answer.answer, answer.state) == (claim.id, "existing", status)


def test_only_states_that_are_named_and_old_enough_go_in_bounded_batches(engine: Engine) -> None:
    dead = engine.started()
    engine.end(dead, "bury")
    for claim in [engine.started() for _ in range(5)]:
        engine.end(claim, "complete")
    engine.clock.advance(hours=1)
    young = engine.started()
    engine.end(young, "complete")
    waiting, running = engine.enqueue(delay=timedelta(days=90)).id, engine.started().id
    engine.clock.advance(minutes=1)

    counts = [engine.prune(["succeeded"], age="30 min", limit=2) for _ in range(4)]

    assert counts == [2, 2, 1, 0]
    assert [engine.state(id_) for id_ in (dead.id, young.id, waiting, running)] == [
        "dead",
        "succeeded",
        "scheduled",
        "running",
    ]


def test_a_failed_key_can_be_enqueued_anew_after_its_job_is_pruned(engine: Engine) -> None:
    claim = engine.started(key="k", mode="reset_failed")
    engine.end(claim, "reject")
    engine.discard(claim.id)
    engine.clock.advance(days=1)
    engine.prune()

    again = engine.enqueue(key="k", mode="reset_failed", payload={"n": 2})

    assert (again.answer, again.state) == ("created", "ready")
    assert engine.status("k") == ("pending", None, None, None)


def test_a_replayed_job_takes_its_key_back_from_one_that_is_pruned(engine: Engine) -> None:
    first = engine.started(key="k")
    engine.end(first, "bury")
    engine.end(engine.started(key="k", payload={"n": 2}), "complete")
    engine.clock.advance(days=1)
    engine.prune(["succeeded"])

    assert engine.replay(first.id) == (True, None)

    assert engine.status("k") == ("pending", None, None, None)
    assert engine.enqueue(key="k").id == first.id


def fix(engine: Engine, job: UUID) -> tuple[bool, UUID | None]:
    call = "select moved, in_the_way from mainspring.fix_forward(%s, null, %s, '{}', '[]', 'user', 'ada', 'why', false)"
    moved, in_the_way = engine.rows(call, job, uuid7())[0]
    return moved, in_the_way


@pytest.mark.parametrize(
    ("last", "again"),
    [
        ("stop", lambda engine, _: engine.enqueue(key="k", reset=True).answer == "reset"),
        ("bury", lambda engine, _: engine.enqueue(key="k", reset=True).answer == "reset"),
        ("bury", lambda engine, job: engine.replay(job) == (True, None)),
        ("bury", lambda engine, job: fix(engine, job) == (True, None)),
    ],
)
def test_clean_up_never_waits_for_a_key_whose_holder_may_want_the_job(
    database: Database, engine: Engine, last: str, again: Callable[[Engine, UUID], bool]
) -> None:
    """It has the ticket, the other has the key: if each waited for the other, one of them would be broken off."""
    claim, other = engine.started(key="k", mode="keep"), engine.started(key="other")
    for one in (claim, other):
        engine.end(one, last)
        engine.discard(one.id)
    engine.clock.advance(days=1)
    with database.connect() as watching:
        with engine.conn.transaction():
            assert engine.enqueue(key="k", mode="keep").answer == "existing"  # holds the key
            pruning = Late(database, lambda cleaner: cleaner.prune())
            waited = pruning.waits(Engine(watching), 2.0)
            assert again(engine, claim.id)
        assert pruning.end() == 1  # the other one
    assert not waited
    assert engine.state(other.id) is None
