from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

import pytest
from tests.worker.stage import Stage

from mainspring import Registry
from mainspring.worker.solitude import SOLITUDE_SILENCE_S, WORK_BETWEEN_SILENCES_S, Solitude

pytestmark = pytest.mark.anyio


def crashed(stage: Stage, task: str, times: int) -> None:
    """Let the waiting jobs of a task look as if they had crashed so many workers."""
    stage.rows("update mainspring.waiting set crashes = %s where task = %s", times, task)


@pytest.mark.rule("ENG-3.08")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_job_that_crashed_twice_runs_alone_in_its_worker(stage: Stage, tasks: Registry, colour: str) -> None:
    running: list[str] = []
    seen: list[list[str]] = []

    def look() -> None:
        held = [row[0] for row in stage.rows("select task from mainspring.running")]
        seen.append([*running, *held])

    if colour == "async":

        @tasks.task(name="killer")
        async def killer() -> None:
            look()
            await asyncio.sleep(0.05)
            look()
    else:

        @tasks.task(name="killer")
        def killer() -> None:
            look()

    @tasks.task
    async def other() -> None:
        running.append("other")
        await asyncio.sleep(0.01)
        running.remove("other")

    await stage.enqueue_many([killer.job(), killer.job()])
    crashed(stage, "killer", 2)
    await stage.enqueue_many([other.job() for _ in range(100)])
    worker = await stage.drain(tasks, concurrency=10, batch=10)

    assert worker.counts["succeeded"] == 102
    assert seen
    assert all(held == ["killer"] for held in seen), "neither beside others nor beside its like"


async def test_jobs_that_run_alone_are_found_while_every_slot_is_taken(stage: Stage, tasks: Registry) -> None:
    go = asyncio.Event()

    @tasks.task
    async def long() -> None:
        await go.wait()

    @tasks.task
    async def killer() -> None: ...

    await stage.enqueue_many([long.job(), killer.job()])
    crashed(stage, "killer", 2)
    eager: dict[str, Any] = {"concurrency": 1, "rescue_every": timedelta(milliseconds=20)}
    async with stage.work(tasks, **eager) as worker:
        solitude = worker._parts.exchange.pace.solitude
        await stage.until(lambda: worker.running == 1 and solitude.due)
        await stage.enqueue(long.job())
        go.set()
        await stage.until(lambda: worker.counts["succeeded"] == 3)


async def test_a_task_in_quarantine_runs_alone_and_its_first_success_lets_all_go(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    for worker in "abc":
        stage.rows("select mainspring.has_killed('work', %s)", worker)
    await stage.enqueue_many([work.job() for _ in range(20)])
    assert stage.claim("w", "work") == []
    async with stage.work(tasks) as alive:
        await stage.until(lambda: alive.counts["succeeded"] == 20)
    assert stage.rows("select from mainspring.quarantine") == []
    trail = stage.rows("select event, detail ->> 'reason' from mainspring.audit where job_id is null order by id")
    assert trail == [("quarantine.began", None), ("quarantine.ended", "a probe succeeded")]


async def test_a_worker_whose_probe_is_not_let_in_works_on() -> None:
    solitude = Solitude()
    solitude.look(True, 0.0)
    assert solitude.silent(0.0)
    assert solitude.asks(polling=False)

    solitude.took(False, 0.0)
    solitude.look(True, 0.5)
    assert not solitude.silent(0.5)
    solitude.look(True, 2.0)
    assert solitude.silent(2.0)


async def test_long_jobs_do_not_silence_a_worker_for_long() -> None:
    solitude = Solitude()
    solitude.look(True, 0.0)
    solitude.look(True, SOLITUDE_SILENCE_S - 1)
    assert solitude.silent(SOLITUDE_SILENCE_S - 1)
    assert not solitude.silent(SOLITUDE_SILENCE_S)

    solitude.look(True, SOLITUDE_SILENCE_S + WORK_BETWEEN_SILENCES_S - 1)
    assert not solitude.silent(SOLITUDE_SILENCE_S + WORK_BETWEEN_SILENCES_S - 1)
    solitude.look(True, SOLITUDE_SILENCE_S + WORK_BETWEEN_SILENCES_S)
    assert solitude.silent(SOLITUDE_SILENCE_S + WORK_BETWEEN_SILENCES_S)


async def test_a_worker_with_a_cell_never_falls_silent() -> None:
    wanted: list[int] = []
    solitude = Solitude(elsewhere=lambda: wanted.append(1))
    solitude.look(True, 0.0)
    assert wanted == [1]
    assert not solitude.silent(0.0)
    assert not solitude.asks(polling=True)


async def test_a_cell_asks_for_nothing_else() -> None:
    solitude = Solitude(only=True)
    assert solitude.silent(0.0)
    assert solitude.asks(polling=True)
