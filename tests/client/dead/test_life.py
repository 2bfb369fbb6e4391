"""Dead letters with a worker: how jobs get there, what an alert may count on, and what clean-up leaves alone."""

from __future__ import annotations

from datetime import timedelta

import pytest
from tests.client.dead.conftest import Kill, events
from tests.db.engine import Engine
from tests.worker.conftest import stage, tasks
from tests.worker.stage import Stage

import mainspring as ms
from mainspring import Permanent, Registry

__all__ = ["stage", "tasks"]  # fixtures
pytestmark = pytest.mark.anyio


@pytest.mark.rule("ENG-12.01", "ENG-3.07", "ENG-12.04")
async def test_a_second_permanent_failure_after_a_replay_is_poison_and_its_successor_is_fresh(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def pay(*, cents: int) -> None:
        if cents < 0:
            raise Permanent("cents: is negative")

    dead = stage.client.dead
    job = await stage.enqueue(pay.job(cents=-1))
    await stage.drain(tasks)
    assert await stage.state(job) == "failed"
    await dead.replay(job, reason="perhaps it passes")
    await stage.drain(tasks)
    assert await stage.state(job) == "dead"
    assert stage.events(job).count("job.deadlettered") == 1

    still = await dead.fix(job, set={"cents": -2}, task=pay, reason="still wrong")
    assert still.successor is not None
    await stage.drain(tasks)
    assert await stage.state(still.successor) == "failed"  # no suspect: this is its first permanent failure
    good = await dead.fix(still.successor, set={"cents": 2}, task=pay, reason="the sign was wrong")
    assert good.successor is not None
    await stage.drain(tasks)

    assert await stage.state(good.successor) == "succeeded"
    assert await dead.list() == []
    chain = [await stage.job(id_) for id_ in (job, still.successor, good.successor)]
    assert [one.fixed_by for one in chain] == [still.successor, good.successor, None]
    assert [one.fixes for one in chain] == [None, job, still.successor]


@pytest.mark.rule("ENG-12.04")
def test_each_death_is_recorded_exactly_once(engine: Engine, kill: Kill) -> None:
    buried = kill("bury")
    crashed = engine.started(max_attempts=1).id
    engine.clock.advance(minutes=2)
    engine.rescue()
    failed = kill("reject")
    deaths = "select job_id from mainspring.audit where event = 'job.deadlettered' order by id"
    assert engine.rows(deaths) == [(buried,), (crashed,)]

    engine.replay(buried)
    (claim,) = engine.claim()
    engine.end(claim, "bury")

    assert engine.rows(deaths) == [(buried,), (crashed,), (buried,)]
    assert engine.state(failed) == "failed"


@pytest.mark.rule("ENG-27.01", "ENG-12.02")
def test_clean_up_leaves_open_dead_letters_and_takes_those_that_were_decided(engine: Engine, kill: Kill) -> None:
    open_ones = [kill("bury"), kill("reject")]
    discarded, fixed = kill("bury"), kill("reject")
    engine.discard(discarded)
    corrected = "'{}', '[]', 'user', 'ada', 'typo', false"
    engine.rows(f"select mainspring.fix_forward(%s, null, mainspring.uuid7(), {corrected})", fixed)
    successor = engine.job(fixed).fixed_by
    assert successor is not None
    for claim in engine.claim():
        engine.end(claim, "complete")
    engine.clock.advance(days=3650)

    assert engine.prune() == 3

    assert [engine.state(job) for job in open_ones] == ["dead", "failed"]
    assert [engine.state(job) for job in (discarded, fixed, successor)] == [None, None, None]
    assert engine.rows("select count(*) from mainspring.resolution") == [(0,)]
    assert len(events(engine, "job.discarded")) == len(events(engine, "job.fixed_forward")) == 1


async def test_a_dead_job_s_retries_start_anew_after_a_replay(stage: Stage, tasks: Registry) -> None:
    calls = []

    @tasks.task(retry=ms.fixed(60, attempts=2))
    async def flaky() -> None:
        calls.append(1)
        if len(calls) < 4:
            raise ConnectionError

    stage.clock.set(stage.clock.now())
    job = await stage.enqueue(flaky.job())
    for state in ("retrying", "dead"):
        await stage.drain(tasks)
        assert await stage.state(job) == state
        stage.clock.advance(timedelta(minutes=2))
    await stage.client.dead.replay(job, reason="it is back")
    for state in ("retrying", "succeeded"):
        await stage.drain(tasks)
        assert await stage.state(job) == state
        stage.clock.advance(timedelta(minutes=2))
    assert [a.outcome for a in await stage.client.attempts(job)] == ["retried", "dead", "retried", "succeeded"]
