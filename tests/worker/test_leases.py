from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.worker.claims import CLAIM
from tests.worker.stage import Stage

from mainspring import Context, Registry, SyncContext
from mainspring.config import WorkerConfig
from mainspring.db.wire.sql import Sql
from mainspring.worker import Worker
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.connection import SharedConnection
from mainspring.worker.leases import Renewer
from mainspring.worker.tracker import trust

pytestmark = pytest.mark.anyio

SHORT: dict[str, Any] = {"lease": timedelta(seconds=0.8), "renew_every": timedelta(seconds=0.2)}
Ask = Callable[[psycopg.AsyncConnection[Any]], Awaitable[Any]]


def disturb(worker: Worker, monkeypatch: pytest.MonkeyPatch, renewal: Callable[[], Awaitable[None]]) -> None:
    """Let something happen before each renewal."""
    use = worker._parts.connection.use

    async def disturbed(ask: Ask) -> Any:
        if getattr(ask, "__name__", "") == "renew":
            await renewal()
        return await use(ask)

    monkeypatch.setattr(worker._parts.connection, "use", disturbed)


@pytest.mark.rule("ENG-6.06")
@given(lease=st.floats(0.01, 86_400))
def test_a_lease_is_trusted_for_a_while_but_never_as_long_as_it_lasts(lease: float) -> None:
    config = WorkerConfig(lease=timedelta(seconds=lease), renew_every=timedelta(seconds=lease) / 3)

    assert lease * 0.49 <= trust(config, 0.0) < lease


@pytest.mark.rule("ENG-6.02", "ENG-6.04")
async def test_a_long_job_keeps_its_lease_while_others_look_for_expired_ones(stage: Stage, tasks: Registry) -> None:
    runs: list[int] = []

    @tasks.task
    async def long(ctx: Context) -> None:
        runs.append(ctx.attempt)
        first = stage.one("select lease_expires_at from mainspring.running")
        await stage.until(lambda: stage.one("select mainspring.now()") > first)

    eager = timedelta(milliseconds=30)
    async with stage.work(tasks, **SHORT, rescue_every=eager), stage.work(tasks, **SHORT, rescue_every=eager):
        job = await stage.enqueue(long.job())
        await stage.result(job)

    assert runs == [1]
    assert (await stage.job(job)).attempt == 1


@pytest.mark.rule("ENG-6.07")
async def test_one_failed_renewal_is_tried_again_and_the_job_ends_normally(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    renewals: list[str] = []

    async def fail_once() -> None:
        renewals.append("try")
        if len(renewals) == 1:
            raise psycopg.OperationalError("the connection was cut")

    @tasks.task
    async def long() -> str:
        await stage.until(lambda: len(renewals) >= 3)
        return "done"

    async with stage.work(tasks, **SHORT) as worker:
        disturb(worker, monkeypatch, fail_once)
        job = await stage.enqueue(long.job())
        assert await stage.result(job) == "done"

    assert (await stage.job(job)).attempt == 1
    assert worker.counts["lost"] == 0


@pytest.mark.rule("ENG-6.06")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_worker_that_cannot_renew_stops_its_handler_before_the_lease_ends(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch, colour: str
) -> None:
    left: list[Any] = []

    def look() -> None:
        left.append(stage.one("select lease_expires_at - mainspring.now() from mainspring.running"))

    if colour == "async":

        @tasks.task(name="work")
        async def work() -> None:
            try:
                await asyncio.Event().wait()
            finally:
                look()
    else:

        @tasks.task(name="work")
        def work(ctx: SyncContext) -> None:
            while not ctx.cancelled:
                threading.Event().wait(0.005)
            look()

    async def cut_off() -> None:
        await asyncio.Event().wait()

    async with stage.work(tasks, **SHORT) as worker:
        disturb(worker, monkeypatch, cut_off)
        await stage.enqueue(work.job())
        async with asyncio.timeout(5):
            while not left:
                await asyncio.sleep(0.005)

    assert left[0] > timedelta(0)
    assert worker.counts["lost"] >= 1
    given_back = stage.rows("select attempt, crashes from mainspring.waiting")
    assert given_back == [(0, 0)], "the database answers, so it learns that nobody crashed"


@pytest.mark.rule("ENG-6.04", "ENG-6.05")
async def test_a_worker_learns_from_its_renewal_that_a_job_was_taken_over(stage: Stage, tasks: Registry) -> None:
    started, stopped = asyncio.Event(), asyncio.Event()

    @tasks.task
    async def work() -> None:
        started.set()
        try:
            await asyncio.Event().wait()
        finally:
            stopped.set()

    job = await stage.enqueue(work.job())
    async with stage.work(tasks, lease=timedelta(seconds=60), renew_every=timedelta(milliseconds=50)) as worker:
        await asyncio.wait_for(started.wait(), 5)
        (epoch,) = stage.steal("work")
        await asyncio.wait_for(stopped.wait(), 5)
        await stage.until(lambda: not worker.running)

    assert worker.counts["lost"] == 1
    assert stage.rows("select id, worker, epoch from mainspring.running") == [(job, "thief", epoch)]
    assert (await stage.job(job)).attempt == 2


@pytest.mark.rule("ENG-6.05")
async def test_a_late_success_changes_nothing_and_is_logged(
    stage: Stage, tasks: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    go = asyncio.Event()
    ended: list[str] = []

    @tasks.task
    async def work(*, way: str) -> str:
        await go.wait()
        ended.append(way)
        if way == "fail":
            raise ValueError
        return "stale"

    jobs = [await stage.enqueue(work.job(way=way)) for way in ("succeed", "fail")]
    async with stage.work(tasks) as worker:
        await stage.until(lambda: stage.one("select count(*) from mainspring.running") == 2)
        with stage.conn.transaction():
            stage.rows("select setval('mainspring.epoch', 1000)")
            stage.rows("update mainspring.running set worker = 'thief', epoch = nextval('mainspring.epoch')")
        go.set()
        await stage.until(lambda: worker.counts["stale"] == 2)

    assert sorted(ended) == ["fail", "succeed"]
    assert "lease_lost" in caplog.text
    assert {row[0] for row in stage.rows("select id from mainspring.running where worker = 'thief'")} == set(jobs)
    assert stage.rows("select 1 from mainspring.attempt") == []


@pytest.mark.rule("ENG-16.06")
@pytest.mark.parametrize("outcome", ["return", "raise", "time out"])
async def test_renewal_ends_with_the_attempt_whatever_its_outcome(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    renewals = 0

    async def count() -> None:
        nonlocal renewals
        renewals += 1

    @tasks.task(timeout=timedelta(seconds=0.3 if outcome == "time out" else 60))
    async def work() -> None:
        await stage.until(lambda: renewals >= 1)
        if outcome == "raise":
            raise ValueError
        if outcome == "time out":
            await asyncio.Event().wait()

    async with stage.work(tasks, lease=timedelta(seconds=60), renew_every=timedelta(milliseconds=20)) as worker:
        disturb(worker, monkeypatch, count)
        job = await stage.enqueue(work.job())
        await stage.until(lambda: not stage.rows("select 1 from mainspring.running") and renewals)
        before = renewals
        await asyncio.sleep(0.1)  # five renewal intervals

    assert renewals == before
    assert await stage.state(job) == ("succeeded" if outcome == "return" else "retrying")


async def test_a_renewal_that_meets_a_committing_transaction_does_not_take_it_for_lost(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def work() -> None: ...

    lost: list[LiveAttempt] = []
    run = LiveAttempt(CLAIM, work, 0.0, 60.0)
    line = SharedConnection(stage.dsn, "test", prepare=True)
    renewer = Renewer(line, Sql(), "me", WorkerConfig(), {CLAIM.epoch: run}, lost.append)

    run.committing = True
    await renewer.tick()
    assert lost == []

    run.committing = False
    await renewer.tick()
    assert lost == [run]
    await line.close()


@pytest.mark.rule("ENG-14.02", "ENG-14.03", "ENG-14.06")
@pytest.mark.parametrize("colour", ["async", "thread"])
async def test_a_cancelled_job_stops_between_its_steps(stage: Stage, tasks: Registry, colour: str) -> None:
    steps: list[int] = []

    if colour == "async":

        @tasks.task(name="work")
        async def work(ctx: Context) -> None:
            for step in range(3):
                ctx.check()
                steps.append(step)
                while not ctx.cancelled:
                    await asyncio.sleep(0.005)
    else:

        @tasks.task(name="work")
        def work(ctx: SyncContext) -> None:
            for step in range(3):
                ctx.check()
                steps.append(step)
                while not ctx.cancelled:
                    threading.Event().wait(0.005)

    async with stage.work(tasks, wakeups=True):
        job = await stage.enqueue(work.job())
        await stage.until(lambda: steps)
        assert await stage.client.cancel(job, reason="changed my mind") == "cancel_requested"
        await stage.until(lambda: stage.rows("select 1 from mainspring.finished"))

    assert steps == [0]
    found = await stage.job(job)
    assert (found.state, found.error and found.error["code"]) == ("cancelled", "CANCELLED")
    assert stage.events(job) == ["job.cancel_requested", "job.cancelled"]


@pytest.mark.rule("ENG-14.03")
async def test_the_token_is_seen_without_hints(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work(ctx: Context) -> None:
        while True:
            ctx.check()
            await asyncio.sleep(0.005)

    async with stage.work(tasks):
        job = await stage.enqueue(work.job())
        await stage.until(lambda: stage.rows("select 1 from mainspring.running"))
        await stage.client.cancel(job)
        await stage.until(lambda: stage.rows("select 1 from mainspring.finished"))

    assert await stage.state(job) == "cancelled"


@pytest.mark.rule("ENG-14.09", "ENG-14.08")
async def test_success_wins_if_the_handler_does_not_look_at_its_token(stage: Stage, tasks: Registry) -> None:
    go = asyncio.Event()

    @tasks.task
    async def work() -> str:
        await go.wait()
        return "done"

    async with stage.work(tasks):
        job = await stage.enqueue(work.job())
        await stage.until(lambda: stage.rows("select 1 from mainspring.running"))
        assert [await stage.client.cancel(job) for _ in range(2)] == ["cancel_requested"] * 2
        go.set()
        assert await stage.result(job) == "done"

    assert stage.events(job) == ["job.cancel_requested", "job.cancel_too_late"]


@pytest.mark.rule("ENG-14.02")
async def test_a_task_that_is_not_cancellable_goes_on(stage: Stage, tasks: Registry) -> None:
    go = asyncio.Event()
    told: list[bool] = []

    @tasks.task(cancellable=False)
    async def work(ctx: Context) -> None:
        await go.wait()
        told.append(ctx.cancelled)

    async with stage.work(tasks):
        job = await stage.enqueue(work.job())
        await stage.until(lambda: stage.rows("select 1 from mainspring.running"))
        assert await stage.client.cancel(job) == "not_cancellable"
        go.set()
        await stage.result(job)

    assert told == [False]


@pytest.mark.rule("ENG-14.01", "ENG-3.11")
async def test_a_cancelled_retry_never_runs(stage: Stage, tasks: Registry) -> None:
    runs: list[int] = []

    @tasks.task
    async def work() -> None:
        runs.append(1)
        raise ValueError

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)
    assert await stage.client.cancel(job) == "cancelled"
    stage.clock.advance(days=1)
    await stage.drain(tasks)

    assert runs == [1]
    assert await stage.state(job) == "cancelled"


def hold(worker: Worker) -> None:
    """Make the worker expect quick handlers, so that it claims more than it can start."""
    worker._parts.crews["async"]._duration = 0.001


async def test_a_job_that_cannot_start_soon_is_given_back_without_burning_an_attempt(
    stage: Stage, tasks: Registry
) -> None:
    go, started = asyncio.Event(), list[int]()

    @tasks.task
    async def work(*, n: int) -> None:
        started.append(n)
        await go.wait()

    jobs = [(await stage.client.enqueue(work.job(n=n))).id for n in range(3)]
    worker = stage.worker(tasks, concurrency=1)
    await worker.start()
    hold(worker)
    await stage.until(lambda: stage.one("select count(*) from mainspring.running") == 3)
    await stage.until(lambda: stage.one("select count(*) from mainspring.running") == 1)
    states = [((await stage.job(job)).state, (await stage.job(job)).attempt) for job in jobs]
    go.set()
    await worker.stop()

    assert states == [("running", 1), ("ready", 0), ("ready", 0)]
    assert started[0] == 0


@pytest.mark.rule("ENG-14.03")
async def test_a_job_cancelled_while_it_is_held_never_starts(stage: Stage, tasks: Registry) -> None:
    go, started = asyncio.Event(), list[int]()

    @tasks.task
    async def work(*, n: int) -> None:
        started.append(n)
        await go.wait()

    jobs = [(await stage.client.enqueue(work.job(n=n))).id for n in range(2)]
    async with stage.work(tasks, concurrency=1, wakeups=True) as worker:
        hold(worker)
        await stage.until(lambda: stage.one("select count(*) from mainspring.running") == 2)
        assert await stage.client.cancel(jobs[1]) == "cancel_requested"
        await stage.until(lambda: any(run.cancelled for run in worker._attempts.values()), seconds=0.9)
        go.set()
        await stage.until(lambda: not stage.rows("select 1 from mainspring.running"))

    assert started == [0]
    assert [await stage.state(job) for job in jobs] == ["succeeded", "cancelled"]
