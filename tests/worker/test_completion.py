"""`ctx.complete()` is the last word: whatever a handler does after it is never hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from tests.worker.stage import Stage

import mainspring as ms
from mainspring import Context, Registry, Snooze, SyncContext, fixed
from mainspring.db.alerts import event_of
from mainspring.events import Event, JobFailedLate, JobSucceeded
from mainspring.health.alert import FAILED_LATE_ALERT
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio

AT_ONCE = fixed(0, attempts=3)
WRITE = "insert into ledger values (null, %s)"


def declare(tasks: Registry, colour: str, after: Callable[[Any], Any], **options: Any) -> Any:
    """A handler that completes its job with a row and the result 1, and then does something more."""

    @tasks.task(name="work", retry=AT_ONCE, **options)
    async def work(ctx: Context) -> Any:
        async with ctx.complete(result=1) as conn:
            await conn.execute(WRITE, ["done"])
        found = after(ctx)
        return await found if asyncio.iscoroutine(found) else found

    @tasks.task(name="in_thread", retry=AT_ONCE, **options)
    def in_thread(ctx: SyncContext) -> Any:
        with ctx.complete(result=1) as conn:
            conn.execute(WRITE, ["done"])
        return after(ctx)

    return work if colour == "async" else in_thread


def fails(_: object) -> None:
    raise RuntimeError("the printer is on fire")


def returns(_: object) -> str:
    return "too late"


def snoozes(_: object) -> None:
    raise Snooze(60)


def audits(ctx: Any) -> None:
    ctx.audit("shop.late")


def opens(ctx: Any, block: str) -> Any:
    if isinstance(ctx, SyncContext):
        with getattr(ctx, block)() as conn:
            conn.execute(WRITE, ["after"])
        return None

    async def open_it() -> None:
        async with getattr(ctx, block)() as conn:
            await conn.execute(WRITE, ["after"])

    return open_it()


@pytest.mark.parametrize(
    ("after", "code", "message"),
    [
        (fails, "INTERNAL_ERROR", "the printer is on fire"),
        (returns, "AFTER_COMPLETION", "give it to ctx.complete(result="),
        (snoozes, "AFTER_COMPLETION", "asked to be deferred after"),
        (audits, "AFTER_COMPLETION", "the job is completed"),
        (partial(opens, block="transaction"), "AFTER_COMPLETION", "the job is completed"),
        (partial(opens, block="complete"), "AFTER_COMPLETION", "the job is completed"),
    ],
)
async def test_what_a_handler_does_after_its_completion_is_recorded_told_and_alerted(
    stage: Stage, tasks: Registry, colour: str, after: Any, code: str, message: str
) -> None:
    stage.ledger()
    events: list[Event] = []
    task = declare(tasks, colour, after)

    job = await stage.enqueue(task.job())
    worker = Worker(stage.dsn, tasks, config=ms.WorkerConfig(wakeups=False, processes=1), observers=[events.extend])
    await worker.drain()

    found = await stage.job(job)
    assert (found.state, found.attempt, found.result, stage.effects()) == ("succeeded", 1, 1, ["done"])
    assert found.error is not None
    assert found.error["code"] == code
    assert message in found.error["message"]
    [attempt] = await stage.client.attempts(job)
    assert (attempt.outcome, (attempt.error or {})["code"]) == ("succeeded", code)
    told = [event for event in events if isinstance(event, JobSucceeded | JobFailedLate)]
    assert [(type(event), event.job_id) for event in told] == [(JobSucceeded, job), (JobFailedLate, job)]
    assert stage.events(job) == ["job.failed_late"]
    [alert] = await stage.client.alerts.list()
    assert (alert.name, alert.subject, alert.severity) == (FAILED_LATE_ALERT, task.name, "critical")
    assert event_of(alert).runbook == "docs/operations/alerts.md#failed-late"
    assert str(job) in alert.text
    assert worker.counts["failed_after_completion"] == 1


async def test_a_handler_that_hangs_after_its_completion_is_stopped_by_its_time_limit(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task(timeout=timedelta(seconds=0.3))
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            pass
        await asyncio.sleep(3600)

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, (found.error or {})["code"]) == ("succeeded", "TIMEOUT")


async def test_a_result_is_what_was_given_or_set_in_the_block(stage: Stage, tasks: Registry, colour: str) -> None:
    @tasks.task(name="work")
    async def work(ctx: Context, *, way: str) -> None:
        async with ctx.complete(result="given" if way == "given" else None):
            if way == "set":
                ctx.result = "set"

    @tasks.task(name="in_thread")
    def in_thread(ctx: SyncContext, *, way: str) -> None:
        with ctx.complete(result="given" if way == "given" else None):
            if way == "set":
                ctx.result = "set"

    task = work if colour == "async" else in_thread
    jobs = [await stage.enqueue(task.job(way=way)) for way in ("given", "set", "none")]
    await stage.drain(tasks)

    assert [(await stage.job(job)).result for job in jobs] == ["given", "set", None]
    assert [(await stage.job(job)).error for job in jobs] == [None, None, None]


# -- follow-ups of a block in the middle


def enqueuing(tasks: Registry, colour: str, then: Callable[[int], None]) -> Any:
    """A handler that enqueues three follow-ups in a block in the middle, two of them equal; `then` gets the attempt."""

    @tasks.task
    async def follow(*, n: int) -> None: ...

    @tasks.task(name="work", retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["reserved"])
            await ctx.enqueue(follow.job(n=1), follow.job(n=1))
            await ctx.enqueue(follow.job(n=2))
            ctx.audit("shop.reserved")
        then(ctx.attempt)

    @tasks.task(name="in_thread", retry=AT_ONCE)
    def in_thread(ctx: SyncContext) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["reserved"])
            ctx.enqueue(follow.job(n=1), follow.job(n=1))
            ctx.enqueue(follow.job(n=2))
            ctx.audit("shop.reserved")
        then(ctx.attempt)

    return work if colour == "async" else in_thread


async def test_follow_ups_of_a_middle_block_commit_with_it_and_a_retry_makes_no_second_ones(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    stage.ledger()
    seen: list[int] = []

    def fail_twice(attempt: int) -> None:
        seen.append(stage.one("select count(*) from mainspring.job where task = 'follow'"))
        if attempt < 3:
            raise RuntimeError("later")

    job = await stage.enqueue(enqueuing(tasks, colour, fail_twice).job())
    await stage.drain(tasks)

    assert seen == [3, 3, 3]
    assert await stage.state(job) == "succeeded"
    assert stage.effects() == ["reserved"] * 3  # its own rows are the handler's business
    assert stage.one("select count(*) from mainspring.audit where event = 'shop.reserved'") == 3
    assert stage.rows("select payload ->> 'n', state from mainspring.jobs where task = 'follow' order by 1") == [
        ("1", "succeeded"), ("1", "succeeded"), ("2", "succeeded"),
    ]  # fmt: skip


async def test_follow_ups_of_a_middle_block_that_fails_are_gone_and_its_repetition_has_the_same_keys(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def follow() -> None: ...

    @tasks.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        for last in (False, True) if ctx.attempt == 1 else (True,):
            try:
                async with ctx.transaction():
                    await ctx.enqueue(follow.job())
                    if not last:
                        raise ZeroDivisionError
            except ZeroDivisionError:
                continue
        if ctx.attempt == 1:
            raise RuntimeError("again")

    await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert stage.one("select count(*) from mainspring.job where task = 'follow'") == 1


async def test_a_batch_is_refused_in_a_middle_block(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def follow() -> None: ...

    @tasks.task(retry=fixed(0, attempts=1))
    async def work(ctx: Context) -> None:
        async with ctx.transaction():
            await ctx.enqueue(ms.batch("many", [follow.job()]))

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert "takes single jobs inside the block of ctx.transaction()" in str((await stage.job(job)).error)
