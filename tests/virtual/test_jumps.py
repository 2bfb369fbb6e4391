"""The database's clock jumps while a worker runs: nothing early, nothing twice, and late by no more than the jump."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.worker.stage import Stage

from mainspring import Context, Registry, fixed
from mainspring.worker.bounds import RESCAN_AFTER_S

pytestmark = pytest.mark.anyio

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
EAGER: dict[str, Any] = {"rescue_every": timedelta(milliseconds=30)}


async def settled() -> None:
    """Time for a worker to do what it should not: dozens of its polls and rescues."""
    await asyncio.sleep(0.3)


async def test_a_job_enqueued_after_a_jump_back_is_found_below_the_claims_bounds(stage: Stage, tasks: Registry) -> None:
    """A worker's claims start near the last due time that they saw: an hour later than what comes now."""

    @tasks.task
    async def work() -> None: ...

    stage.clock.set(NOON)
    async with stage.work(tasks, concurrency=5, batch=5) as worker:
        await stage.enqueue_many([work.job() for _ in range(200)])
        await stage.until(lambda: worker.counts["succeeded"] >= 100)
        stage.clock.set(NOON - HOUR)
        begun = asyncio.get_running_loop().time()
        job = await stage.enqueue(work.job())
        await stage.result(job)
        assert asyncio.get_running_loop().time() - begun < RESCAN_AFTER_S + 2
        assert (await stage.job(job)).started_at == NOON - HOUR
        stage.clock.set(NOON)  # those that had become due, and then were not
        await stage.until(lambda: worker.counts["succeeded"] == 201)


@pytest.mark.rule("ENG-13.02")
async def test_a_jump_back_starts_nothing_before_its_time(stage: Stage, tasks: Registry) -> None:
    started: list[datetime] = []

    @tasks.task
    async def work(ctx: Context) -> None:
        started.append(ctx.job.claimed_at)

    due = NOON + timedelta(minutes=10)
    stage.clock.set(NOON)
    async with stage.work(tasks, **EAGER):
        job = await stage.enqueue(work.job().at(due))
        stage.clock.set(due - timedelta(seconds=1))
        await settled()
        stage.clock.set(due - HOUR)
        await settled()
        stage.clock.set(due - timedelta(microseconds=1))
        await settled()
        assert started == []
        stage.clock.set(due)
        await stage.result(job)
    assert started == [due]


async def test_a_jump_back_neither_loses_nor_repeats_what_runs(stage: Stage, tasks: Registry) -> None:
    runs, go = Counter[str](), asyncio.Event()

    @tasks.task
    async def work(*, name: str) -> None:
        runs[name] += 1
        await go.wait()

    stage.clock.set(NOON)
    async with stage.work(tasks, renew_every=timedelta(milliseconds=50), **EAGER) as worker:
        jobs = [await stage.enqueue(work.job(name=name)) for name in "ab"]
        await stage.until(lambda: worker.running == 2)
        stage.clock.set(NOON - HOUR)
        # Renewed by the new clock: if the worker dies, its jobs are not held for an hour more.
        expires = "select max(lease_expires_at) from mainspring.running"
        await stage.until(lambda: stage.one(expires) == NOON - HOUR + timedelta(seconds=60))
        await settled()
        go.set()
        for job in jobs:
            await stage.result(job)
    assert runs == {"a": 1, "b": 1}


async def test_a_retry_comes_no_sooner_after_a_jump_back(stage: Stage, tasks: Registry) -> None:
    @tasks.task(retry=fixed(60, attempts=2))
    async def work(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise ValueError("again")

    stage.clock.set(NOON)
    async with stage.work(tasks) as worker:
        job = await stage.enqueue(work.job())
        await stage.until(lambda: stage.rows("select 1 from mainspring.waiting where retrying"))
        stage.clock.set(NOON - HOUR)
        await settled()
        assert worker.counts["succeeded"] == 0
        stage.clock.set(NOON + timedelta(seconds=60))  # late by the jump, and no more
        await stage.result(job)
    assert (await stage.job(job)).attempt == 2


@pytest.mark.parametrize("others", [0, 2])
async def test_a_jump_ahead_takes_nothing_from_a_worker_that_lives(stage: Stage, tasks: Registry, others: int) -> None:
    """Every lease ends at once; whoever notices renews before anybody takes something back."""
    runs, go = Counter[int](), asyncio.Event()

    @tasks.task
    async def work(*, number: int) -> None:
        runs[number] += 1
        await go.wait()

    stage.clock.set(NOON)
    often: dict[str, Any] = {"rescue_every": timedelta(milliseconds=100)}
    async with stage.work(tasks, **often) as worker, AsyncExitStack() as beside:
        jobs = [await stage.enqueue(work.job(number=number)) for number in range(3)]
        await stage.until(lambda: worker.running == 3)
        for _ in range(others):  # they only rescue
            await beside.enter_async_context(stage.work(Registry("idle"), **often))
        await settled()
        stage.clock.set(NOON + DAY)
        await settled()
        await settled()
        go.set()
        for job in jobs:
            await stage.result(job)
            found = await stage.job(job)
            assert (found.state, found.attempt, found.crashes) == ("succeeded", 1, 0)
    assert runs == {0: 1, 1: 1, 2: 1}
    assert worker.counts["lost"] == worker.counts["stale"] == worker.counts["rescued"] == 0


async def test_after_a_jump_ahead_the_jobs_of_the_dead_are_taken_back_soon(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    stage.clock.set(NOON)
    job = await stage.enqueue(work.job())
    stage.claim("gone", "work")
    async with stage.work(tasks, **EAGER):
        await settled()
        stage.clock.set(NOON + DAY)
        assert await stage.result(job) == "done"


@pytest.mark.rule("ENG-13.02")
async def test_a_jump_ahead_starts_what_became_due_once_and_nothing_else(stage: Stage, tasks: Registry) -> None:
    runs: Counter[int] = Counter()

    @tasks.task
    async def work(*, hours: int) -> None:
        runs[hours] += 1

    stage.clock.set(NOON)
    async with stage.work(tasks, **EAGER), stage.work(tasks, **EAGER):
        hours = [1, 2, 23, 24, 25]
        await stage.enqueue_many([work.job(hours=n).at(NOON + n * HOUR).with_key(f"k{n}") for n in hours])
        await settled()
        assert not runs
        stage.clock.set(NOON + DAY)
        await stage.until(lambda: len(runs) == 4)
        stage.clock.set(NOON)  # and back again
        await settled()
        stage.clock.set(NOON + DAY)
        await settled()
    assert runs == {1: 1, 2: 1, 23: 1, 24: 1}


async def test_hints_go_on_after_the_clock_was_set_back(stage: Stage, tasks: Registry) -> None:
    """The last hint seems to lie in the future: it must not silence those that come."""

    @tasks.task
    async def work() -> None: ...

    async with stage.work(tasks, wakeups=True, poll_interval=timedelta(seconds=30)) as worker:
        await stage.until(lambda: worker.listening)
        ahead = "select setval('mainspring.{}', (extract(epoch from clock_timestamp()) * 1000)::bigint + 3600000)"
        for sequence in ("woken_at", "idle_until"):
            stage.rows(ahead.format(sequence))
        heard = worker.counts["hints"]
        begun = asyncio.get_running_loop().time()
        job = await stage.enqueue(work.job())
        await stage.result(job)
        assert asyncio.get_running_loop().time() - begun < 5
        assert worker.counts["hints"] > heard
        stage.rows("select mainspring.raise_idle(1000)")
        left = "select last_value - extract(epoch from clock_timestamp()) * 1000 from mainspring.idle_until"
        assert stage.one(left) < 60_000
