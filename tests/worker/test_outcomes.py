from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from tests.documents import RENTAL
from tests.worker.stage import Stage

from mainspring import Context, Permanent, Registry, RetryAfter, Snooze, SyncContext, fixed
from mainspring.codes import CODES
from mainspring.outcome import Failure
from mainspring.retry import Retry
from mainspring.testing import Harness

pytestmark = pytest.mark.anyio

MINUTE = fixed(60, attempts=3)
AT_ONCE = fixed(0, attempts=3)
SOON = timedelta(milliseconds=50)


@pytest.mark.rule("ENG-3.06", "ENG-7.01", "ENG-8.07", "ENG-3.16")
def test_a_job_that_always_fails_runs_exactly_as_often_as_allowed_and_is_dead(
    mainspring: Harness, tasks: Registry
) -> None:
    runs = []

    @tasks.task(retry=MINUTE)
    async def broken(ctx: Context) -> None:
        runs.append(ctx.attempt)
        raise ValueError("again")

    job = mainspring.client.enqueue(broken.job())
    done = mainspring.advance(minutes=5, raise_errors=False)

    assert runs == [1, 2, 3]
    assert [run.state for run in done] == ["retrying", "retrying", "dead"]
    assert mainspring.client.get(job.id).state == "dead"
    assert [attempt.outcome for attempt in mainspring.client.attempts(job.id)] == ["retried", "retried", "dead"]


@pytest.mark.rule("ENG-3.05", "ENG-7.03")
def test_a_failed_attempt_is_tried_again_when_its_policy_says_and_not_before(
    mainspring: Harness, tasks: Registry
) -> None:
    runs = []

    @tasks.task(category=RENTAL)
    async def flaky() -> str:
        runs.append(1)
        if len(runs) == 1:
            raise ConnectionError("try later")
        return "done"

    found = mainspring.run_one(flaky.job(), raise_errors=False).job
    due = mainspring.now() + timedelta(seconds=60)
    assert (found.state, found.attempt, found.due_at) == ("retrying", 1, due)

    assert not mainspring.advance(seconds=59)
    assert [run.result for run in mainspring.advance(seconds=1)] == ["done"]
    assert len(runs) == 2


@pytest.mark.rule("ENG-7.09")
def test_the_limit_of_a_job_is_the_one_it_was_enqueued_with(mainspring: Harness, tasks: Registry) -> None:
    runs = []

    def declare(registry: Registry, attempts: int) -> Any:
        @registry.task(retry=fixed(1, attempts=attempts))
        async def work() -> None:
            runs.append(1)
            raise ValueError

        return work

    mainspring.client.enqueue(declare(Registry("before"), 5).job())
    declare(tasks, 3)
    mainspring.advance(seconds=12, raise_errors=False)

    assert len(runs) == 5


@pytest.mark.rule("ENG-8.04", "ENG-8.08", "ENG-3.07")
@pytest.mark.parametrize("attempts", [1, 3])
async def test_a_permanent_error_ends_the_job_as_failed_even_on_its_last_attempt(
    stage: Stage, tasks: Registry, attempts: int
) -> None:
    @tasks.task(retry=fixed(1, attempts=attempts))
    async def forbidden() -> None:
        raise Permanent("the booking is closed")

    job = await stage.enqueue(forbidden.job())
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, found.attempt) == ("failed", 1)
    assert found.error is not None
    assert (found.error["code"], found.error["message"]) == ("BUSINESS_RULE", "the booking is closed")


@pytest.mark.rule("ENG-8.02", "ENG-8.03", "ENG-8.05", "ENG-8.06")
async def test_every_registered_code_is_tried_again_or_fails_for_good_as_its_class_says(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task(retry=MINUTE)
    async def fail(*, code: str) -> None:
        raise Failure(code=code)

    jobs = {code: await stage.enqueue(fail.job(code=code)) for code in CODES}
    await stage.drain(tasks)

    for code, job in jobs.items():
        found = await stage.job(job)
        assert found.state == ("retrying" if CODES[code].error_class == "retryable" else "failed"), code
        assert found.attempt == 1
        assert found.error is not None
        assert (found.error["code"], found.error["class"]) == (code, CODES[code].error_class)


@pytest.mark.rule("ENG-8.02")
@pytest.mark.parametrize(
    ("error", "code"), [(TimeoutError("no answer"), "TIMEOUT"), (ConnectionResetError("gone"), "INTERNAL_ERROR")]
)
async def test_network_trouble_is_tried_again(stage: Stage, tasks: Registry, error: Exception, code: str) -> None:
    @tasks.task
    async def call() -> None:
        raise error

    job = await stage.enqueue(call.job())
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, found.error and found.error["code"]) == ("retrying", code)


@pytest.mark.rule("ENG-7.08")
def test_a_providers_hint_is_the_least_delay(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task(retry=fixed(5, attempts=3))
    async def limited() -> None:
        raise RetryAfter(120)

    found = mainspring.run_one(limited.job(), raise_errors=False).job

    assert (found.state, found.due_at) == ("retrying", mainspring.now() + timedelta(seconds=120))


@pytest.mark.rule("ENG-3.09")
def test_a_snooze_gives_the_attempt_back_and_is_counted(mainspring: Harness, tasks: Registry) -> None:
    seen = []

    @tasks.task
    async def patient(ctx: Context) -> str:
        seen.append(ctx.attempt)
        if len(seen) < 4:
            raise Snooze(30)
        return "at last"

    found = mainspring.run_one(patient.job()).job
    assert (found.state, found.attempt) == ("scheduled", 0)

    mainspring.advance(seconds=60)
    found = mainspring.client.get(found.id)
    assert (found.attempt, found.snoozes) == (0, 3)

    mainspring.advance(seconds=30)
    assert mainspring.client.result(found.id) == "at last"
    assert seen == [1, 1, 1, 1]


@pytest.mark.rule("ENG-3.09")
def test_a_job_that_is_put_off_for_longer_than_its_task_allows_is_dead(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task(snooze_limit=timedelta(minutes=2))
    async def never() -> None:
        raise Snooze(timedelta(seconds=50))

    job = mainspring.client.enqueue(never.job())
    mainspring.advance(seconds=200, raise_errors=False)

    found = mainspring.client.get(job.id)
    assert (found.state, found.snoozes, found.error and found.error["code"]) == ("dead", 2, "SNOOZED_TOO_LONG")


async def test_a_snooze_beyond_all_calendars_meets_the_limit_like_any_other(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def forever() -> None:
        raise Snooze(timedelta.max)

    job = await stage.enqueue(forever.job())
    await stage.drain(tasks)

    assert await stage.state(job) == "dead"


@pytest.mark.rule("ENG-7.12")
async def test_failing_jobs_do_not_block_the_head_of_their_queue(stage: Stage, tasks: Registry) -> None:
    order = []

    @tasks.task(retry=fixed(60, attempts=3))
    async def work(*, good: bool) -> None:
        order.append(good)
        if not good:
            raise ValueError("no")

    await stage.enqueue_many([work.job(good=False) for _ in range(10)])
    good = await stage.enqueue(work.job(good=True))
    # Two exchanges that claim at once may hand over in either order; one keeps the order exact.
    await stage.drain(tasks, concurrency=1, batch=2, exchanges=1)

    assert await stage.state(good) == "succeeded"
    assert order == [False] * 10 + [True]


@pytest.mark.rule("ENG-6.13", "ENG-8.06")
async def test_an_async_handler_that_takes_too_long_is_stopped_and_tried_again(stage: Stage, tasks: Registry) -> None:
    stopped = []

    @tasks.task(timeout=SOON, retry=MINUTE)
    async def endless() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            stopped.append(1)

    job = await stage.enqueue(endless.job())
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, found.attempt, found.error and found.error["code"]) == ("retrying", 1, "TIMEOUT")
    assert stopped == [1]


async def test_a_time_out_stays_one_whatever_the_handler_makes_of_its_cancellation(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task(timeout=SOON, retry=MINUTE)
    async def stubborn(ctx: Context, *, way: str) -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            if way == "check":
                ctx.check()
            raise KeyError("clean-up failed") from None

    jobs = [await stage.enqueue(stubborn.job(way=way)) for way in ("check", "raise")]
    await stage.drain(tasks)

    for job in jobs:
        found = await stage.job(job)
        assert (found.state, found.error and found.error["code"]) == ("retrying", "TIMEOUT")


@pytest.mark.rule("ENG-6.13")
async def test_a_thread_that_takes_too_long_is_told_and_keeps_its_slot_until_it_ends(
    stage: Stage, tasks: Registry
) -> None:
    go = threading.Event()
    told: list[bool] = []
    names: list[str] = []

    @tasks.task(timeout=SOON, retry=MINUTE)
    def stuck(ctx: SyncContext) -> None:
        go.wait(60)
        told.append(ctx.cancelled)

    @tasks.task
    def following() -> None:
        names.append("following")

    job = await stage.enqueue(stuck.job())
    async with stage.work(tasks, threads=1):
        await stage.until(lambda: stage.rows("select 1 from mainspring.waiting where retrying"))
        assert (await stage.job(job)).error is not None
        second = await stage.enqueue(following.job())
        await asyncio.sleep(0.1)
        assert names == []
        go.set()
        await stage.result(second)

    found = await stage.job(job)
    assert (found.state, found.attempt, found.error and found.error["code"]) == ("retrying", 1, "TIMEOUT")
    assert told == [True]


@pytest.mark.rule("ENG-8.09")
async def test_a_deadlock_in_a_handler_is_tried_again_and_then_succeeds(stage: Stage, tasks: Registry) -> None:
    stage.rows("create table account (id integer primary key, balance integer)")
    stage.rows("insert into account values (1, 0), (2, 0)")
    both = asyncio.Barrier(2)

    @tasks.task(retry=AT_ONCE)
    async def transfer(ctx: Context, *, giver: int, taker: int) -> None:
        async with ctx.complete() as conn:
            await conn.execute("update account set balance = balance - 1 where id = %s", [giver])
            if ctx.attempt == 1:
                await both.wait()
            await conn.execute("update account set balance = balance + 1 where id = %s", [taker])

    jobs = [await stage.enqueue(transfer.job(giver=g, taker=t)) for g, t in ((1, 2), (2, 1))]
    await stage.drain(tasks)

    assert [await stage.state(job) for job in jobs] == ["succeeded", "succeeded"]
    errors = stage.rows("select outcome, error ->> 'code' from mainspring.attempt")
    assert errors == [("retried", "DB_UNAVAILABLE")]
    assert stage.rows("select balance from account") == [(0,), (0,)]


@pytest.mark.rule("ENG-8.10", "ENG-8.11", "ENG-7.10", "ENG-19.07")
async def test_a_stored_error_is_complete_bounded_and_holds_no_secret(stage: Stage, tasks: Registry) -> None:
    key = "sk_live_" + "abcdefgh12345678"

    @tasks.task(retry=fixed(1, attempts=1))
    async def leaky() -> None:
        raise RuntimeError(f"could not log in with password=hunter2 and {key} as jane@example.com\x00" + "x" * 100_000)

    job = await stage.enqueue(leaky.job())
    now = stage.clock.advance(seconds=0)
    await stage.drain(tasks)

    error = (await stage.job(job)).error
    assert error is not None
    assert (error["code"], error["class"], error["attempt"]) == ("INTERNAL_ERROR", "retryable", 1)
    assert msgspec.convert(error["at"], type(now)) == now
    text = msgspec.json.encode(error).decode()
    assert len(text.encode()) <= 8192
    assert not any(secret in text for secret in ("hunter2", key, "jane"))
    assert "leaky" in error["stack"]


async def test_even_a_code_that_cannot_be_stored_is_made_fit(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def odd() -> None:
        raise Permanent("x", code="ODD\x00CODE")

    job = await stage.enqueue(odd.job())
    await stage.drain(tasks)

    assert (await stage.state(job)) == "failed"


@pytest.mark.rule("ENG-9.13", "ENG-12.01")
async def test_a_replayed_job_runs_again_and_a_second_permanent_failure_is_its_death(
    stage: Stage, tasks: Registry
) -> None:
    runs = []

    @tasks.task
    async def wrong() -> None:
        runs.append(1)
        raise Permanent("still wrong")

    job = await stage.enqueue(wrong.job())
    await stage.drain(tasks)
    assert await stage.state(job) == "failed"

    await stage.client.replay(job, reason="try again")
    await stage.drain(tasks)
    assert await stage.state(job) == "dead"
    assert len(runs) == 2


@pytest.mark.rule("ENG-9.01", "ENG-9.13")
async def test_a_key_that_has_succeeded_skips_the_handler_and_keeps_its_result(stage: Stage, tasks: Registry) -> None:
    runs = []

    @tasks.task
    async def once() -> str:
        runs.append(1)
        return "the invoice"

    first = await stage.enqueue(once.job().with_key("invoice:7", "keep"))
    await stage.drain(tasks)
    again = await stage.enqueue(once.job().with_key("invoice:7", "keep"))
    await stage.drain(tasks)

    assert again == first
    assert await stage.result(again) == "the invoice"
    assert runs == [1]


@pytest.mark.rule("ENG-9.14", "ENG-6.10")
async def test_every_attempt_offers_the_same_key_and_a_higher_fence(stage: Stage, tasks: Registry) -> None:
    seen = []

    @tasks.task(retry=AT_ONCE)
    async def call(ctx: Context) -> None:
        seen.append((ctx.job.id, ctx.idempotency_key, ctx.attempt, ctx.epoch))
        if ctx.attempt < 3:
            raise ConnectionError

    job = await stage.enqueue(call.job().with_key("order:9"))
    await stage.drain(tasks)

    assert [entry[:3] for entry in seen] == [(job, "order:9", n) for n in (1, 2, 3)]
    epochs = [entry[3] for entry in seen]
    assert epochs == sorted(set(epochs))


@pytest.mark.rule("ENG-9.09")
async def test_without_a_key_the_job_id_is_the_gate(stage: Stage, tasks: Registry) -> None:
    seen = []

    @tasks.task
    async def call(ctx: Context) -> None:
        seen.append(ctx.idempotency_key)

    job = await stage.enqueue(call.job())
    await stage.drain(tasks)

    assert seen == [str(job)]
    assert stage.rows("select key, status from mainspring.keys") == [(str(job), "succeeded")]
    assert stage.rows("select 1 from mainspring.idempotency") == []


def test_an_exponential_policy_spaces_the_attempts(mainspring: Harness, tasks: Registry) -> None:
    policy = Retry(5, timedelta(seconds=2), cap=timedelta(seconds=1024), jitter="none")

    @tasks.task(retry=policy)
    async def broken() -> None:
        raise ValueError

    mainspring.client.enqueue(broken.job())
    done = mainspring.advance(hours=1, raise_errors=False)

    assert [(later.at - run.at).total_seconds() for run, later in pairwise(done)] == [2, 4, 8, 16]
    assert done.runs[-1].state == "dead"
