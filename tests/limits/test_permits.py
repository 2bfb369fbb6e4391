"""A permit that nobody used is handed back, and the rate holds all the same."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from tests.db.engine import Engine
from tests.limits.conftest import NOON
from tests.limits.windows import largest

import mainspring as ms


def test_a_job_given_back_before_its_handler_was_entered_hands_its_permit_back(
    engine: Engine, client: ms.Client
) -> None:
    client.limits.set(ms.rate("q:default", 3, per="1s"))
    engine.clock.advance(seconds=1)
    engine.enqueue_many([{}] * 5)
    late, *others = engine.claim()
    assert len(others) == 2
    assert engine.claim() == []

    assert engine.end(late, "release", started=False)

    assert client.limits.list()[0].used == 2
    assert [job.id for job in engine.claim()] == [late.id]
    assert engine.claim() == []


@pytest.mark.parametrize("verb", [{"verb": "release", "started": True}, {"verb": "release"}, {"verb": "snooze"}])
def test_a_permit_that_may_have_been_used_stays_used(
    engine: Engine, client: ms.Client, verb: dict[str, object]
) -> None:
    client.limits.set(ms.rate("q:default", 1, per="1s"))
    engine.clock.advance(seconds=1)
    engine.enqueue_many([{}] * 2)
    (job,) = engine.claim()
    assert engine.settle("w1", {"epoch": job.epoch, **verb}) == [job.epoch]
    assert engine.claim() == []


def test_what_was_claimed_before_a_limit_was_set_has_no_permit_to_hand_back(engine: Engine, client: ms.Client) -> None:
    engine.enqueue_many([{}] * 3)
    before = engine.claim(n=1)[0]
    engine.clock.advance(seconds=1)
    client.limits.set(ms.rate("q:default", 1, per="1s"))
    engine.clock.advance(seconds=1)
    assert len(engine.claim()) == 1
    engine.end(before, "release", started=False)
    assert engine.claim() == []


@pytest.mark.rule("ENG-25.02")
@pytest.mark.parametrize("seed", range(3))
def test_no_window_holds_more_than_the_rate_whatever_is_late_or_given_back(
    engine: Engine, client: ms.Client, seed: int
) -> None:
    chance, most, entered, back = random.Random(seed), 5, list[float](), 0
    client.limits.set(ms.rate("q:default", most, per="1s"))
    engine.enqueue_many([{}] * 400)
    now = 1.0
    for _ in range(150):
        now += chance.choice((0.0, 0.003, 0.03, 0.2))
        engine.clock.set(NOON + timedelta(seconds=now))
        for job in engine.claim(n=chance.randint(1, 4)):
            assert job.permit is not None
            if chance.random() < 0.5:
                entered.append(now + chance.random() * min(job.permit.total_seconds(), 1.0))
                engine.complete("w1", job.epoch)
            else:
                engine.end(job, "release", started=False)
                back += 1
    assert back > 20
    assert len(entered) > 20
    assert largest(entered, 1.0) <= most


def test_an_hour_of_permits_handed_back_leaves_nothing_behind(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate("q:default", 2, per="1s"))
    engine.enqueue("t")
    for _ in range(20):
        engine.clock.advance(minutes=3)
        (job,) = engine.claim()
        engine.end(job, "release", started=False)
    assert engine.rows("select count(*) <= 1 from mainspring.unused") == [(True,)]
