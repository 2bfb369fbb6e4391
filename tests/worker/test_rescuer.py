from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.worker.cpu import double
from tests.worker.cpu import tasks as cpu_tasks
from tests.worker.stage import Stage

from mainspring import Registry, WorkerConfig
from mainspring.db.schema import Sql
from mainspring.testing import Harness
from mainspring.worker.line import Line
from mainspring.worker.rescuer import Rescuer

pytestmark = pytest.mark.anyio

EAGER: dict[str, Any] = {"rescue_every": timedelta(milliseconds=20)}


@pytest.mark.rule("ENG-6.08", "ENG-5.06", "ENG-6.12", "ENG-6.11")
async def test_the_job_of_a_worker_that_is_gone_is_run_by_another(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    job = await stage.enqueue(work.job())
    stage.claim("gone", "work")
    stage.clock.advance(seconds=59)
    async with stage.work(tasks, **EAGER) as first, stage.work(tasks, **EAGER) as second:
        await asyncio.sleep(0.1)
        assert await stage.state(job) == "running", "its lease still holds"
        stage.clock.advance(seconds=1)
        assert await stage.result(job) == "done"

    assert first.id != second.id
    assert first.counts["rescued"] + second.counts["rescued"] == 1
    attempts = [(entry.worker, entry.outcome, entry.error) for entry in await stage.client.attempts(job)]
    assert attempts[0][:2] == ("gone", "expired")
    assert attempts[0][2] is not None
    assert attempts[0][2]["code"] == "LEASE_EXPIRED"
    assert attempts[1][0] in (first.id, second.id)
    assert (await stage.job(job)).attempt == 2


@pytest.mark.rule("ENG-3.08")
async def test_a_worker_runs_at_most_one_rescued_job_at_a_time_beside_the_others(stage: Stage, tasks: Registry) -> None:
    now, most, beside = 0, 0, 0

    @tasks.task
    async def suspect() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1

    @tasks.task
    async def innocent() -> None:
        nonlocal beside
        beside += now
        await asyncio.sleep(0.001)

    await stage.enqueue_many([suspect.job() for _ in range(5)])
    stage.claim("gone", "suspect")
    stage.clock.advance(seconds=61)
    stage.rows("select mainspring.rescue(1000, 3)")
    await stage.enqueue_many([innocent.job() for _ in range(300)])
    worker = await stage.drain(tasks, concurrency=20, batch=10)

    assert worker.counts["succeeded"] == 305
    assert most == 1
    assert beside > 0, "the others did not wait for it"


async def test_rescued_jobs_of_every_kind_of_handler_are_run(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def in_loop() -> None: ...

    @tasks.task
    def in_thread() -> None: ...

    tasks.include(cpu_tasks)
    await stage.enqueue_many([in_loop.job(), in_thread.job(), in_loop.job(), in_thread.job(), double.job(n=2)])
    for name in ("in_loop", "in_thread", "double"):
        stage.claim("gone", name)
    stage.clock.advance(seconds=61)
    stage.rows("select mainspring.rescue(1000, 3)")
    worker = await stage.drain(tasks)

    assert worker.counts["succeeded"] == 5
    assert stage.rows("select distinct state, attempt, crashes from mainspring.finished") == [("succeeded", 2, 1)]


@pytest.mark.rule("ENG-3.08")
def test_a_third_crash_is_the_end_whatever_attempts_remain(mainspring: Harness, tasks: Registry) -> None:
    runs: list[int] = []

    @tasks.task
    async def killer() -> None:
        runs.append(1)

    job = mainspring.client.enqueue(killer.job())
    for _ in range(3):
        mainspring.crash(job)
        mainspring.expire_leases()
    mainspring.drain()

    found = mainspring.client.get(job.id)
    assert (found.state, found.attempt, found.error and found.error["code"]) == ("dead", 3, "LEASE_EXPIRED")
    assert runs == []


async def test_a_job_held_behind_one_that_has_ended_is_freed(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work(*, n: int) -> int:
        return n

    first = await stage.enqueue(work.job(n=1).with_key("k"))
    (epoch,) = stage.claim("other", "work")
    second = await stage.enqueue(work.job(n=2).with_key("k"))
    assert await stage.state(second) == "scheduled"
    with stage.conn.transaction():  # the race that is left open: it ended unseen
        stage.rows("select mainspring.complete('other', array[%s]::bigint[])", epoch)
        stage.rows("update mainspring.waiting set after = %s, due_then = due_at, due_at = 'infinity'", first)
    async with stage.work(tasks, **EAGER):
        assert await stage.result(second) == 2


@pytest.mark.rule("ENG-16.11")
async def test_a_worker_shows_its_heartbeat_and_says_farewell(stage: Stage, tasks: Registry) -> None:
    go = asyncio.Event()

    @tasks.task
    async def work() -> None:
        await go.wait()

    await stage.enqueue(work.job())
    async with stage.work(tasks, concurrency=7) as worker:
        await stage.until(lambda: worker.running == 1 and stage.rows("select 1 from mainspring.worker"))
        worker._heartbeat.wake()
        await stage.until(lambda: stage.one("select running from mainspring.worker") == 1)
        (row,) = await stage.client.workers()
        go.set()
    assert (row.id, row.concurrency, row.running, row.stopping, row.gone) == (worker.id, 7, 1, False, False)
    assert row.host in worker.id
    assert row.started_at <= row.seen_at

    assert await stage.client.workers() == []


@pytest.mark.rule("ENG-16.11")
async def test_a_worker_that_missed_three_beats_is_gone(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    async with stage.work(tasks) as worker:
        await stage.until(lambda: stage.rows("select 1 from mainspring.worker"))
        await worker._heartbeat.stop()
        stage.clock.set(stage.one("select seen_at from mainspring.worker") + timedelta(seconds=30))
        assert [row.gone for row in await stage.client.workers()] == [False]
        stage.clock.advance(seconds=1)
        assert [row.gone for row in await stage.client.workers()] == [True]


@pytest.mark.rule("ENG-16.11")
async def test_a_stopping_worker_says_so(stage: Stage, tasks: Registry) -> None:
    go = asyncio.Event()

    @tasks.task
    async def work() -> None:
        await go.wait()

    await stage.enqueue(work.job())
    worker = stage.worker(tasks)
    await worker.start()
    await stage.until(lambda: worker.running)
    stopping = asyncio.create_task(worker.stop())
    await stage.until(lambda: stage.rows("select 1 from mainspring.worker where stopping"))
    assert [row.id for row in await stage.client.workers()] == [worker.id]
    go.set()
    await stopping


async def test_after_an_outage_living_workers_have_the_time_of_a_renewal(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    job = await stage.enqueue(work.job())
    stage.claim("alive", "work")
    stage.clock.advance(seconds=61)
    config = WorkerConfig(renew_every=timedelta(seconds=30))
    line = Line(stage.dsn, "rescuer", prepare=True)
    rescuer = Rescuer(line, Sql(), config, Counter(), lambda: None)
    away = Line("host=/nowhere", "rescuer", prepare=True)
    rescuer._line = away
    with pytest.raises(psycopg.OperationalError):
        await rescuer.tick()

    rescuer._line = line
    await rescuer.tick()
    assert await stage.state(job) == "running", "it counts as nobody's crash yet"

    rescuer._not_before -= 30
    await rescuer.tick()
    assert await stage.state(job) == "ready"
    await line.close()
