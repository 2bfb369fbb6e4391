"""Every verb on a job in every state: it moves the job if and only if the life-cycle table says so."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from uuid import UUID

import msgspec
import psycopg
import pytest
from tests.db.conftest import NOON
from tests.db.engine import ERROR, Engine
from tools import life_cycle

from mainspring.states import TRANSITIONS, State
from mainspring.uuid7 import uuid7

DOC = Path(__file__).resolve().parent.parent.parent / "docs" / "life-cycle.md"


@dataclass
class Target:
    """A job in a known state, and the epoch of its last claim."""

    id: UUID
    epoch: int = 0


def put(engine: Engine, state: State | None) -> Target:
    """A job brought into a state by real statements. Not cooperative, so that cancel cannot even ask while it runs."""
    if state is None:
        return Target(uuid7())
    delay = "PT1H" if state is State.SCHEDULED else None
    target = Target(engine.enqueue(cancellable=False, delay=delay).id)
    if state in {State.SCHEDULED, State.READY}:
        return target
    if state is State.CANCELLED:
        engine.cancel(target.id)
        return target
    (claim,) = engine.claim(lease=timedelta(seconds=1))
    target.epoch = claim.epoch
    ends = {State.RETRYING: "fail", State.SUCCEEDED: "complete", State.FAILED: "reject", State.DEAD: "bury"}
    if state in ends:
        assert engine.end(claim, ends[state], delay="PT1H")
    return target


def settle(verb: str) -> Callable[[Engine, Target], object]:
    move = {"verb": verb, "delay": "PT5S", "error": ERROR, "started": True}
    return lambda engine, job: engine.settle("w1", {"epoch": job.epoch, **move})


def enqueue(engine: Engine, job: Target) -> None:
    with suppress(psycopg.errors.UniqueViolation):
        engine.enqueue(id=job.id)


def reset(engine: Engine, job: Target) -> None:
    text = msgspec.json.encode([{"id": job.id, "task": "t", "payload": {"n": 2}}]).decode()
    engine.rows("select mainspring.reset_job(%s, e) from mainspring.envelopes(%s::json) e", job.id, text)


VERBS: dict[str, Callable[[Engine, Target], object]] = {
    "enqueue": enqueue,
    "claim": lambda engine, job: engine.claim(),
    "complete": lambda engine, job: engine.complete("w1", job.epoch),
    "fail": settle("fail"),
    "reject": settle("reject"),
    "bury": settle("bury"),
    "snooze": settle("snooze"),
    "defer": settle("defer"),
    "release": lambda engine, job: engine.settle("w1", {"epoch": job.epoch, "verb": "release", "started": True}),
    "stop": settle("stop"),
    "rescue": lambda engine, job: engine.rescue(),
    "cancel": lambda engine, job: engine.cancel(job.id),
    "reschedule": lambda engine, job: engine.reschedule(job.id, NOON + timedelta(hours=2)),
    "replay": lambda engine, job: engine.replay(job.id),
    "reset": reset,
    "prune": lambda engine, job: (engine.discard(job.id), engine.prune(age="-1 s")),  # open dead letters stay
}


def test_every_verb_of_the_table_is_tried_here() -> None:
    assert VERBS.keys() == TRANSITIONS.keys()


@pytest.mark.rule("ENG-3.12", "ENG-3.13")
@pytest.mark.parametrize("verb", TRANSITIONS)
def test_a_verb_moves_a_job_if_and_only_if_the_table_says_so(engine: Engine, verb: str) -> None:
    sources, results = TRANSITIONS[verb].before, TRANSITIONS[verb].after
    for state in (None, *State):
        engine.clear()
        engine.clock.set(NOON)
        job = put(engine, state)
        assert engine.state(job.id) == state
        engine.clock.advance(seconds=2)  # the lease is over; nothing became due
        before = engine.everything()

        VERBS[verb](engine, job)

        if state in sources:
            assert engine.everything() != before, f"{verb} did not move a job that is {state}"
            assert engine.state(job.id) in results
        else:
            assert engine.everything() == before, f"{verb} changed something about a job that is {state}"


@pytest.mark.rule("ENG-3.02", "ENG-3.03")
@pytest.mark.parametrize("state", [State.SCHEDULED, State.RETRYING])
def test_a_job_whose_time_has_come_is_ready_and_is_claimed_by_the_clock_alone(engine: Engine, state: State) -> None:
    job = put(engine, state)
    engine.clock.advance(minutes=59, seconds=59)
    assert engine.state(job.id) == state
    assert engine.claim() == []

    engine.clock.advance(seconds=1)

    assert engine.state(job.id) == State.READY
    (claim,) = engine.claim()
    now = engine.job(job.id)
    assert (now.state, now.attempt, now.epoch, now.worker) == ("running", claim.attempt, claim.epoch, "w1")
    assert claim.attempt == (2 if state is State.RETRYING else 1)
    assert claim.epoch > job.epoch
    assert now.lease_expires_at == engine.clock.now() + timedelta(seconds=60)


@pytest.mark.parametrize("verb", ["fail", "snooze", "defer", "release"])
def test_an_attempt_whose_cancellation_was_asked_for_is_not_repeated(engine: Engine, verb: str) -> None:
    claim = engine.started()
    assert engine.cancel(claim.id, reason="typo") == "cancel_requested"

    assert engine.end(claim, verb)

    assert engine.state(claim.id) == State.CANCELLED
    assert State.CANCELLED in TRANSITIONS[verb].after
    assert engine.claim() == []


def test_the_documented_diagram_is_the_table() -> None:
    assert DOC.read_text() == life_cycle.page()
