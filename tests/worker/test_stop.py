from __future__ import annotations

import asyncio
import os
import signal
import threading
from datetime import timedelta
from typing import Any

import pytest
from tests.worker.stage import Stage

from mainspring import Context, Registry
from mainspring.config import WorkerConfig
from mainspring.errors import SchemaMissing
from mainspring.worker import Hosting, Worker
from mainspring.worker.cell import Cell

pytestmark = pytest.mark.anyio

NOW = timedelta(0)


@pytest.mark.rule("ENG-16.09", "ENG-3.10", "ENG-16.08")
async def test_a_stop_lets_short_jobs_finish_and_hands_long_ones_back_unburnt(stage: Stage, tasks: Registry) -> None:
    started: list[str] = []

    @tasks.task
    async def short() -> str:
        started.append("short")
        await asyncio.sleep(0.1)
        return "finished"

    @tasks.task
    async def long() -> None:
        started.append("long")
        await asyncio.Event().wait()

    first, second = await stage.enqueue(short.job()), await stage.enqueue(long.job())
    worker = stage.worker(tasks, grace=timedelta(seconds=0.5))
    await worker.start()
    await stage.until(lambda: len(started) == 2)
    await worker.stop()
    third = await stage.enqueue(short.job())

    assert await stage.result(first) == "finished"
    found = await stage.job(second)
    assert (found.state, found.attempt, found.error) == ("ready", 0, None)
    assert stage.events(second) == ["job.started", "job.released"]
    assert await stage.state(third) == "ready", "nothing is claimed any more"


@pytest.mark.rule("ENG-16.08")
async def test_a_handler_that_turns_its_interruption_into_an_error_has_not_failed(
    stage: Stage, tasks: Registry
) -> None:
    started = asyncio.Event()

    @tasks.task
    async def work(ctx: Context) -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            ctx.check()
            raise

    @tasks.task
    async def clumsy() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise KeyError("clean-up failed")

    jobs = [await stage.enqueue(work.job()), await stage.enqueue(clumsy.job())]
    async with stage.work(tasks, grace=NOW) as worker:
        await stage.until(lambda: started.is_set() and worker.running == 2)

    for job in jobs:
        found = await stage.job(job)
        assert (found.state, found.attempt, found.error) == ("ready", 0, None)


@pytest.mark.rule("ENG-3.10")
async def test_a_thread_that_does_not_stop_cannot_keep_the_worker_nor_change_its_job(
    stage: Stage, tasks: Registry
) -> None:
    go, started, ended = threading.Event(), threading.Event(), threading.Event()

    @tasks.task
    def stuck() -> str:
        started.set()
        go.wait(120)
        ended.set()
        return "too late"

    job = await stage.enqueue(stuck.job())
    worker = stage.worker(tasks, grace=NOW)
    await worker.start()
    await stage.until(started.is_set)
    await worker.stop()
    assert not ended.is_set()  # nobody has waited for it
    assert (await stage.job(job)).state == "ready"
    go.set()
    await stage.until(ended.is_set)

    found = await stage.job(job)
    assert (found.state, found.attempt) == ("ready", 0)


async def test_a_claim_that_is_under_way_when_the_stop_comes_is_given_back_unstarted(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    claimed, go, runs = asyncio.Event(), asyncio.Event(), list[int]()

    @tasks.task
    async def work() -> None:
        runs.append(1)

    worker = stage.worker(tasks)
    await worker.start()
    send = worker._parts.exchange._send

    async def slow(*args: Any) -> Any:
        answer = await send(*args)
        if any(found.jobs for found in answer.found):
            claimed.set()
            await go.wait()
        return answer

    monkeypatch.setattr(worker._parts.exchange, "_send", slow)
    job = await stage.enqueue(work.job())
    await asyncio.wait_for(claimed.wait(), 5)
    stopping = asyncio.create_task(worker.stop())
    await asyncio.sleep(0.05)
    go.set()
    await stopping

    found = await stage.job(job)
    assert (found.state, found.attempt, runs) == ("ready", 0, [])


async def test_jobs_that_were_held_are_given_back_at_once(stage: Stage, tasks: Registry) -> None:
    go = asyncio.Event()

    @tasks.task
    async def work() -> None:
        await go.wait()

    jobs = [await stage.enqueue(work.job()) for _ in range(3)]
    worker = stage.worker(tasks, concurrency=1)
    await worker.start()
    worker._parts.crews["async"]._duration = 0.001
    await stage.until(lambda: worker.running == 3)
    stopping = asyncio.create_task(worker.stop())
    await stage.until(lambda: stage.one("select count(*) from mainspring.waiting") == 2, seconds=0.8)
    go.set()
    await stopping

    ends = sorted([((await stage.job(job)).state, (await stage.job(job)).attempt) for job in jobs])
    assert ends == [("ready", 0), ("ready", 0), ("succeeded", 1)]


@pytest.mark.rule("ENG-16.09")
async def test_the_first_signal_waits_for_the_jobs_and_the_second_does_not(stage: Stage, tasks: Registry) -> None:
    started = asyncio.Event()

    @tasks.task
    async def long() -> None:
        started.set()
        await asyncio.Event().wait()

    job = await stage.enqueue(long.job())
    worker = stage.worker(tasks, grace=timedelta(seconds=30))
    running = asyncio.create_task(worker.run())
    await asyncio.wait_for(started.wait(), 5)
    os.kill(os.getpid(), signal.SIGTERM)
    await stage.until(lambda: stage.rows("select 1 from mainspring.worker where stopping"))
    assert not running.done()
    assert await stage.state(job) == "running"
    os.kill(os.getpid(), signal.SIGINT)
    await asyncio.wait_for(running, 5)

    found = await stage.job(job)
    assert (found.state, found.attempt) == ("ready", 0)
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL, "the signals are the program's again"


async def test_a_worker_can_be_stopped_while_it_waits_for_the_database(tasks: Registry) -> None:
    worker = Worker("postgresql://nobody@127.0.0.1:1/nowhere", tasks, config=WorkerConfig())
    running = asyncio.create_task(worker.run())
    await asyncio.sleep(0.15)
    assert not running.done()
    worker.request_stop()
    await asyncio.wait_for(running, 3)


async def test_a_worker_refuses_a_database_without_its_schema(stage: Stage, tasks: Registry) -> None:
    worker = Worker(stage.dsn, tasks, schema="elsewhere")
    with pytest.raises(SchemaMissing):
        await worker.run()


async def test_stopping_twice_is_harmless(stage: Stage, tasks: Registry) -> None:
    worker = stage.worker(tasks)
    await worker.start()
    await worker.stop()
    await worker.stop()

    assert stage.rows("select 1 from mainspring.worker") == []


async def test_a_stopped_worker_leaves_no_connection_behind(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            pass

    @tasks.task
    def threaded() -> None: ...

    await stage.enqueue_many([work.job(), threaded.job()])
    await stage.drain(tasks, wakeups=True)
    left = "select 1 from pg_stat_activity where application_name like 'mainspring worker%%' and datname = %s"
    await stage.until(lambda: not stage.rows(left, stage.conn.info.dbname))


async def test_who_waits_for_a_process_of_jobs_alone_fires_no_schedules_meanwhile(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    firing: list[bool] = []

    async def stop(cell: Cell) -> None:
        firing.append(worker._parts.scheduler is None or worker._parts.scheduler._task is not None)

    monkeypatch.setattr(Cell, "stop", stop)
    worker = Worker(stage.dsn, tasks, config=WorkerConfig(scheduler=True), hosting=Hosting(cell=["worker", "run"]))
    await worker.start()
    await worker.stop()

    assert firing[0] is False
