from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.observe.conftest import Theatre

from mainspring import Context, Permanent, Registry, Snooze, SyncContext, fixed
from mainspring.events import (
    Bus,
    DatabaseAway,
    DatabaseBack,
    Event,
    JobDeadlettered,
    JobDeferred,
    JobEnqueued,
    JobFailed,
    JobLeaseExpired,
    JobLeaseLost,
    JobReleased,
    JobRetried,
    JobStale,
    JobStarted,
    JobSucceeded,
    WorkerStarted,
    WorkerStopped,
    WorkerStopping,
)
from mainspring.testing import Commit, at_commits
from mainspring.worker.context import JobContext
from mainspring.worker.leases import Renewer

pytestmark = pytest.mark.anyio

AT_ONCE = fixed(0, attempts=2)


async def test_a_job_that_fails_twice_and_dies_tells_its_whole_life_in_order(stage: Theatre, tasks: Registry) -> None:
    @tasks.task(retry=AT_ONCE)
    async def work() -> None:
        raise ValueError("no")

    job = await stage.enqueue(work.job().for_org("acme").traced(request_id="r", correlation_id="c"))
    await stage.drain(tasks)

    assert stage.heard.names(job) == [
        "job.started", "job.failed", "job.retried", "job.started", "job.failed", "job.deadlettered",
    ]  # fmt: skip
    first, last = stage.heard.of(JobFailed)
    assert (first.final, last.final, last.attempt, last.code, last.error_class) == (
        False, True, 2, "INTERNAL_ERROR", "retryable",
    )  # fmt: skip
    assert {(e.org_id, e.request_id, e.correlation_id, e.task, e.queue) for e in stage.heard.of(JobStarted)} == {
        ("acme", "r", "c", "work", "q:default")
    }
    assert stage.heard.of(JobRetried)[0].delay == 0


async def test_every_way_to_end_has_its_event(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def good() -> str:
        return "done"

    @tasks.task
    def plain(ctx: SyncContext) -> None: ...

    @tasks.task
    async def bad() -> None:
        raise Permanent("never")

    @tasks.task
    async def later() -> None:
        raise Snooze(3600)

    jobs = [await stage.enqueue(job) for job in (good.job(), plain.job(), bad.job(), later.job())]
    await stage.drain(tasks)

    assert [stage.heard.names(job)[1:] for job in jobs] == [
        ["job.succeeded"], ["job.succeeded"], ["job.failed"], ["job.deferred"],
    ]  # fmt: skip
    assert stage.heard.of(JobFailed)[0].final
    assert stage.heard.of(JobDeferred)[0].delay == 3600
    assert all(event.duration >= 0 for event in stage.heard.of(JobSucceeded))


async def test_lateness_is_counted_by_the_clock_of_the_database(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    stage.clock.set(stage.clock.now())
    await stage.enqueue(work.job())
    stage.clock.advance(hours=2)
    await stage.drain(tasks)

    (started,) = stage.heard.of(JobStarted)
    assert 7200 <= started.lateness < 7260


@pytest.mark.rule("ENG-22.10")
@pytest.mark.parametrize("way", ["async", "thread"])
async def test_a_transaction_that_rolls_back_tells_neither_success_nor_follow_ups(
    stage: Theatre, tasks: Registry, way: str
) -> None:
    stage.ledger()

    @tasks.task
    async def follow() -> None: ...

    def effect(ctx: Any) -> str:
        return f"insert into ledger values ('{ctx.job.id}', {1 if ctx.attempt > 1 else '1 / 0'})"

    if way == "async":

        @tasks.task(retry=AT_ONCE)
        async def work(ctx: Context) -> None:
            async with ctx.complete() as conn:
                await ctx.enqueue(follow.job())
                await conn.execute(effect(ctx))
    else:

        @tasks.task(retry=AT_ONCE)
        def work(ctx: SyncContext) -> None:
            with ctx.complete() as conn:
                ctx.enqueue(follow.job())
                conn.execute(effect(ctx))

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert stage.heard.names(job) == ["job.started", "job.failed", "job.retried", "job.started", "job.succeeded"]
    (created,) = stage.heard.of(JobEnqueued)
    assert (created.task, created.parent_id) == ("follow", job)
    assert stage.heard.names(created.job_id) == ["job.enqueued", "job.started", "job.succeeded"]


@pytest.mark.rule("ENG-22.10")
@pytest.mark.parametrize("way", ["async", "thread"])
async def test_what_a_middle_block_commits_is_told_though_the_job_fails_later(
    stage: Theatre, tasks: Registry, way: str
) -> None:
    @tasks.task(subject="n")
    async def follow(*, n: int) -> None: ...

    if way == "async":

        @tasks.task(retry=fixed(0, attempts=1))
        async def work(ctx: Context) -> None:
            await ctx.enqueue(follow.job(n=0))  # with the success that never comes
            async with ctx.transaction():
                await ctx.enqueue(follow.job(n=1))
                await ctx.client.enqueue(follow.job(n=2))
            await ctx.client.enqueue(follow.job(n=3))
            with suppress(ZeroDivisionError):
                async with ctx.transaction():
                    await ctx.client.enqueue(follow.job(n=4))
                    raise ZeroDivisionError
            raise RuntimeError
    else:

        @tasks.task(retry=fixed(0, attempts=1))
        def work(ctx: SyncContext) -> None:
            ctx.enqueue(follow.job(n=0))
            with ctx.transaction():
                ctx.enqueue(follow.job(n=1))
                ctx.client.enqueue(follow.job(n=2))
            ctx.client.enqueue(follow.job(n=3))
            with suppress(ZeroDivisionError), ctx.transaction():
                ctx.client.enqueue(follow.job(n=4))
                raise ZeroDivisionError
            raise RuntimeError

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert stage.heard.names(job) == ["job.started", "job.failed", "job.deadlettered"]
    assert sorted(event.subject["n"] for event in stage.heard.of(JobEnqueued)) == [1, 2, 3]
    names = stage.heard.names()
    assert names.index("job.enqueued") < names.index("job.failed")


async def test_follow_ups_whose_key_is_taken_are_not_told(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def follow() -> None: ...

    @tasks.task
    async def work(ctx: Context) -> None:
        await ctx.enqueue(follow.job().after(60).with_key("k"))

    for _ in range(2):
        await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert len(stage.heard.of(JobEnqueued)) == 1
    assert len(stage.heard.of(JobSucceeded)) == 2


@pytest.mark.rule("ENG-22.10")
async def test_an_outcome_that_the_database_refuses_is_stale_and_counts_as_nothing(
    stage: Theatre, tasks: Registry
) -> None:
    go = asyncio.Event()

    @tasks.task
    async def work() -> None:
        await go.wait()

    await stage.enqueue(work.job())
    async with stage.work(tasks) as worker:
        await stage.until(lambda: worker.running)
        stage.rows("update mainspring.running set worker = 'thief'")
        go.set()
        await stage.until(lambda: stage.heard.of(JobStale))

    assert stage.heard.of(JobStale)[0].outcome == "succeeded"
    assert (worker.counts["succeeded"], worker.counts["stale"]) == (0, 1)
    assert stage.heard.of(JobSucceeded) == []


@pytest.mark.parametrize("losses", [1, 2], ids=["once", "and once more when it was asked for"])
async def test_what_had_committed_when_its_answer_was_lost_is_told_as_what_it_was(
    stage: Theatre, tasks: Registry, monkeypatch: pytest.MonkeyPatch, losses: int
) -> None:
    @tasks.task(retry=AT_ONCE)
    async def work(*, n: int) -> int | None:
        if n == 2:
            raise ValueError("no")
        return n or None

    worker = stage.worker(tasks)
    await worker.start()
    send, lost = worker._parts.exchange._send, list[int]()

    async def deaf(*args: Any) -> Any:
        answer = await send(*args)
        if args[1].outcomes and not lost:
            lost.append(len(args[1].outcomes))
            raise psycopg.OperationalError("the answer was lost")
        return answer

    recorded = worker._parts.exchange._statements.recorded

    async def deaf_again(*args: Any) -> Any:
        if len(lost) < losses:
            lost.append(0)
            raise psycopg.OperationalError("the connection was lost")
        return await recorded(*args)

    monkeypatch.setattr(worker._parts.exchange, "_send", deaf)
    monkeypatch.setattr(worker._parts.exchange._statements, "recorded", deaf_again)
    await stage.enqueue_many([work.job(n=n) for n in range(3)])
    await stage.until(lambda: len(stage.heard.of(JobSucceeded)) == 2 and stage.heard.of(JobDeadlettered))
    await worker.stop()

    assert len(lost) == losses
    assert stage.heard.of(JobStale) == []
    assert sorted(event.final for event in stage.heard.of(JobFailed)) == [False, True]  # the lost one may be told later
    assert worker.counts["succeeded"] == 2
    assert len(stage.heard.of(DatabaseAway)) == len(stage.heard.of(DatabaseBack)) == 1


async def test_a_transaction_that_committed_though_its_handler_saw_an_error_counts_as_the_success_that_it_was(
    stage: Theatre, tasks: Registry
) -> None:
    lost = list[Commit]()

    def deaf(commit: Commit) -> None:
        if commit.when == "after":
            lost.append(commit)
            raise psycopg.OperationalError("the answer was lost")

    @tasks.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            await ctx.enqueue(follow.job())

    @tasks.task
    async def follow() -> None: ...

    job = await stage.enqueue(work.job())
    with at_commits(deaf):
        worker = await stage.drain(tasks)

    assert [commit.job.id for commit in lost] == [job]
    assert stage.heard.names(job) == ["job.started", "job.succeeded"]
    assert len(stage.heard.of(JobEnqueued)) == 1
    assert (worker.counts["succeeded"], worker.counts["stale"]) == (2, 0)
    assert stage.heard.of(WorkerStopped)[0].succeeded == 2


async def test_a_commit_whose_answer_is_late_is_told_though_the_lease_can_no_longer_be_trusted(
    stage: Theatre, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = JobContext._end

    async def slow(self: JobContext, conn: Any) -> None:
        await end(self, conn)
        self._attempt.trusted_until = 0.0
        await asyncio.sleep(0.6)  # the watch looks every quarter of a second

    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            pass

    monkeypatch.setattr(JobContext, "_end", slow)
    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert await stage.state(job) == "succeeded"
    assert stage.heard.names(job) == ["job.started", "job.succeeded"]


async def test_a_lost_lease_and_its_rescue_are_told_each_by_who_sees_it(stage: Theatre, tasks: Registry) -> None:
    @tasks.task(retry=fixed(0, attempts=1))
    async def work() -> None:
        await asyncio.sleep(60)

    job = await stage.enqueue(work.job().for_org("acme"))
    async with stage.work(tasks, rescue_every=timedelta(milliseconds=50)) as worker:
        await stage.until(lambda: stage.heard.of(JobStarted))
        stage.rows("update mainspring.running set lease_expires_at = mainspring.now()")  # as if it had been away
        await stage.until(lambda: stage.heard.of(JobLeaseExpired))
        next(service for service in worker._parts.services if isinstance(service, Renewer)).wake()
        await stage.until(lambda: stage.heard.of(JobLeaseLost))

    (expired,) = stage.heard.of(JobLeaseExpired)
    assert (expired.job_id, expired.state, expired.org_id, expired.attempt) == (job, "dead", "acme", 1)
    assert stage.heard.of(JobDeadlettered)[0].code == "LEASE_EXPIRED"


async def test_a_job_that_was_to_be_cancelled_is_told_as_cancelled_though_its_handler_failed(
    stage: Theatre, tasks: Registry
) -> None:
    @tasks.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        stage.rows("select mainspring.cancel(%s, null, 'user', '7', 'enough')", ctx.job.id)
        raise ValueError("no")

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert stage.heard.names(job) == ["job.started", "job.cancelled"]


async def test_a_worker_tells_its_own_life(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    await stage.enqueue(work.job())
    worker = await stage.drain(tasks)

    life = [event for event in stage.heard.events if event.name.startswith("worker.")]
    assert [type(event) for event in life] == [WorkerStarted, WorkerStopping, WorkerStopped]
    assert {event.worker for event in stage.heard.of(WorkerStarted)} == {worker.id}
    assert stage.heard.of(WorkerStopped)[0].succeeded == 1


async def test_jobs_interrupted_by_a_stop_are_released(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None:
        await asyncio.sleep(60)

    job = await stage.enqueue(work.job())
    async with stage.work(tasks, grace=timedelta(milliseconds=10)):
        await stage.until(lambda: stage.heard.of(JobStarted))

    assert stage.heard.names(job) == ["job.started", "job.released"]


@pytest.mark.parametrize("end", ["returns", "raises"])
async def test_what_a_handler_does_after_its_job_was_given_back_is_no_success(
    stage: Theatre, tasks: Registry, end: str
) -> None:
    ended = asyncio.Event()

    @tasks.task
    async def work() -> None:
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        await stage.until(lambda: stage.heard.of(JobReleased))
        ended.set()
        if end == "raises":
            raise ValueError("no")

    job = await stage.enqueue(work.job())
    async with stage.work(tasks, grace=timedelta(milliseconds=10)) as worker:
        await stage.until(lambda: stage.heard.of(JobStarted))
    await asyncio.wait_for(ended.wait(), 5)
    await asyncio.sleep(0.05)

    assert await stage.state(job) == "ready"
    assert stage.heard.names(job) == ["job.started", "job.released"]
    assert worker.counts["succeeded"] == 0


async def test_events_come_in_batches(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    await stage.enqueue_many([work.job() for _ in range(200)])
    await stage.drain(tasks)

    assert len(stage.heard.of(JobSucceeded)) == 200
    assert len(stage.heard.batches) < 60


async def test_an_observer_that_raises_harms_nobody_and_is_logged_once(
    stage: Theatre, tasks: Registry, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(batch: Sequence[Event]) -> None:
        raise RuntimeError("broken")

    @tasks.task
    async def work() -> None: ...

    stage.observers = [broken, stage.heard]
    job = await stage.enqueue(work.job())
    with caplog.at_level(logging.ERROR, "mainspring.events"):
        await stage.drain(tasks)

    assert await stage.state(job) == "succeeded"
    assert stage.heard.names(job) == ["job.started", "job.succeeded"]
    assert len(caplog.records) == 1


async def test_without_observers_no_event_is_made(
    stage: Theatre, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("an event was made for nobody")

    @tasks.task
    async def work() -> None: ...

    for kind in (JobStarted, JobSucceeded):
        monkeypatch.setattr(f"mainspring.worker.announcer.{kind.__name__}", never)
    stage.observers = []
    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert await stage.state(job) == "succeeded"


def test_a_bus_without_observers_is_false_and_forgets() -> None:
    bus = Bus()
    bus.emit(WorkerStarted("w", []))

    assert not bus
    assert bus._batch == []
