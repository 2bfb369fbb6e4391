from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any, cast

import psycopg
import pytest
from tests.worker.cpu import double
from tests.worker.cpu import tasks as cpu_tasks
from tests.worker.stage import Stage

from mainspring import Registry, WorkerConfig
from mainspring.db.wire.sql import Sql
from mainspring.testing import Harness
from mainspring.worker.connection import SharedConnection
from mainspring.worker.outbox import Outbox
from mainspring.worker.rates import Rates
from mainspring.worker.rescuer import Rescuer
from mainspring.worker.signal import Signal
from mainspring.worker.state import WorkerState

pytestmark = pytest.mark.anyio

EAGER: dict[str, Any] = {"rescue_every": timedelta(milliseconds=20)}


class Clear:
    """An exchange as a rescuer sees it."""

    def __init__(self, *, unsure: bool = False) -> None:
        self.unsure = unsure

    async def look_alone(self, conn: Any) -> None: ...


def rescuing(connection: SharedConnection, config: WorkerConfig, exchange: Clear) -> Rescuer:
    state = WorkerState("", config, Signal(), Outbox(), Rates())
    return Rescuer(connection, Sql(), state, cast(Any, exchange), set(), asyncio.Event())


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
    assert attempts[0][:2] == ("gone", "rescued")
    assert attempts[0][2] is not None
    assert attempts[0][2]["code"] == "LEASE_EXPIRED"
    assert attempts[1][0] in (first.id, second.id)
    assert (await stage.job(job)).attempt == 2


@pytest.mark.rule("ENG-3.08")
async def test_suspects_return_one_then_more_as_they_end_beside_the_others(stage: Stage, tasks: Registry) -> None:
    now, ended, most, beside = 0, 0, 0, 0

    @tasks.task
    async def suspect() -> None:
        nonlocal now, ended, most
        now += 1
        assert now <= ended + 1, "one more than have ended well"
        most = max(most, now)
        await asyncio.sleep(0.02)
        now -= 1
        ended += 1

    @tasks.task
    async def innocent() -> None:
        nonlocal beside
        beside += now
        await asyncio.sleep(0.001)

    await stage.enqueue_many([suspect.job() for _ in range(40)])
    stage.claim("gone", "suspect")
    stage.clock.advance(seconds=61)
    stage.rows("select mainspring.rescue(1000, 3)")
    await stage.enqueue_many([innocent.job() for _ in range(300)])
    worker = await stage.drain(tasks, concurrency=50, batch=30)

    assert worker.counts["succeeded"] == 340
    assert most > 4, "they come back quickly"
    assert beside > 0, "the others did not wait for them"


async def test_each_crew_asks_for_its_own_suspects(stage: Stage, tasks: Registry) -> None:
    go = asyncio.Event()

    @tasks.task
    async def in_loop() -> None:
        await go.wait()

    @tasks.task
    def in_thread() -> str:
        return "done"

    tasks.include(cpu_tasks)
    await stage.enqueue_many([in_loop.job(), in_loop.job()])
    threaded = await stage.enqueue(in_thread.job())
    for name in ("in_loop", "in_thread"):
        stage.claim("gone", name)
    stage.clock.advance(seconds=61)
    stage.rows("select mainspring.rescue(1000, 3)")
    async with stage.work(tasks):
        assert await stage.result(threaded) == "done", "whatever suspects of other kinds do"
        assert stage.one("select count(*) from mainspring.running where task = 'in_loop'") == 1
        go.set()


async def test_nobody_rescues_who_has_to_clear_up_what_he_holds(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    job = await stage.enqueue(work.job())
    stage.claim("me", "work")
    stage.clock.advance(seconds=61)
    line = SharedConnection(stage.dsn, "rescuer", prepare=True)
    exchange = Clear(unsure=True)
    rescuer = rescuing(line, WorkerConfig(), exchange)
    await rescuer.tick()
    assert await stage.state(job) == "running"

    exchange.unsure = False
    await rescuer.tick()
    assert await stage.state(job) == "ready"
    await line.close()


async def test_a_worker_that_lives_takes_back_the_crash_that_others_saw(stage: Stage, tasks: Registry) -> None:
    go, runs = asyncio.Event(), 0

    @tasks.task
    async def work() -> None:
        nonlocal runs
        runs += 1
        await go.wait()

    job = await stage.enqueue(work.job())
    async with stage.work(tasks) as worker:
        await stage.until(lambda: runs)
        with stage.conn.transaction():  # others see it silent for longer than its lease
            stage.clock.advance(seconds=61)
            stage.rows("select mainspring.rescue(1000, 3)")
            assert stage.rows("select attempt, crashes from mainspring.waiting") == [(1, 1)]
            stage.claim("other", "work", rescued=1)
        go.set()
        await stage.until(lambda: worker.counts["taken_back"] == 1)
    assert stage.rows("select crashes from mainspring.running") == [(0,)], "it runs elsewhere, and is no suspect"
    assert "job.crash_taken_back" in stage.events(job)


async def test_a_process_that_stood_still_takes_nothing_back(stage: Stage, tasks: Registry) -> None:
    go, runs = asyncio.Event(), 0

    @tasks.task
    async def work() -> None:
        nonlocal runs
        runs += 1
        await go.wait()

    await stage.enqueue(work.job())
    async with stage.work(tasks) as worker:
        await stage.until(lambda: runs)
        stage.steal("work")
        worker._parts.watch._looked -= 20  # nobody looked for a third of the lease: the job may have blocked the loop
        await worker._parts.watch.tick()
        go.set()
        await stage.until(lambda: worker.counts["stale"] == 1)
    assert worker.counts["taken_back"] == 0
    assert stage.rows("select crashes from mainspring.running") == [(1,)]


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
    assert stage.rows("select distinct state, attempt, crashes from mainspring.finished") == [("succeeded", 1, 1)]


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
        worker._parts.heartbeat.wake()
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
        await worker._parts.heartbeat.stop()
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
    line = SharedConnection(stage.dsn, "rescuer", prepare=True)
    rescuer = rescuing(line, config, Clear())
    away = SharedConnection("host=/nowhere", "rescuer", prepare=True)
    rescuer._connection = away
    with pytest.raises(psycopg.OperationalError):
        await rescuer.tick()

    rescuer._connection = line
    await rescuer.tick()
    assert await stage.state(job) == "running", "it counts as nobody's crash yet"

    rescuer._not_before -= 30
    await rescuer.tick()
    assert await stage.state(job) == "ready"
    await line.close()
