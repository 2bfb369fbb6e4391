"""A step is done once in the life of a job, whatever happens between its attempts."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pydantic import BaseModel
from tests.worker.longjobs.handlers import declare, until
from tests.worker.stage import Stage

from mainspring import Context, MainspringError, Registry, Snooze, ValidationError, fixed
from mainspring.dedupe import replacing, reset_failed
from mainspring.errors import LeaseLost
from mainspring.text.document import MAX_BYTES

pytestmark = pytest.mark.anyio

AT_ONCE = fixed(0, attempts=3)


@dataclass
class Invoice:
    id: int
    at: datetime


class Money(BaseModel):
    cents: int


class Journal(list[str]):
    """What really ran."""

    def doing(self, what: str, answer: Any = None) -> Any:
        def fn() -> Any:
            self.append(what)
            return answer

        return fn


async def test_a_retry_gets_what_earlier_steps_returned_without_calling_them(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    ran = Journal()

    async def script(ctx: Any) -> list[Any]:
        first = await ctx.step("first", ran.doing("first", {"id": 7}))
        second = await ctx.step("second", ran.doing("second", [1, None, "ä"]))
        if ctx.attempt < 3:
            raise RuntimeError("not yet")
        return [first, second, await ctx.step("third", ran.doing("third"))]

    work = declare(tasks, colour, script, retry=AT_ONCE)
    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert ran == ["first", "second", "third"]
    assert await stage.result(job) == [{"id": 7}, [1, None, "ä"], None]
    assert [(step.name, step.result) for step in await stage.client.steps(job)] == [
        ("first", {"id": 7}),
        ("second", [1, None, "ä"]),
        ("third", None),
    ]


async def test_a_step_that_raises_is_done_again(stage: Stage, tasks: Registry, colour: str) -> None:
    ran = Journal()

    def fails_once() -> str:
        ran.append("tried")
        if len(ran) == 1:
            raise RuntimeError("the provider is away")
        return "done"

    async def script(ctx: Any) -> str:
        answer: str = await ctx.step("call", fails_once)
        return answer

    job = await stage.enqueue(declare(tasks, colour, script, retry=AT_ONCE).job())
    await stage.drain(tasks)

    assert (ran, await stage.result(job)) == (["tried", "tried"], "done")


@pytest.mark.rule("ENG-14.03")
async def test_cancelled_during_step_one_step_two_never_starts(stage: Stage, tasks: Registry, colour: str) -> None:
    ran = Journal()
    begun, go_on = threading.Event(), threading.Event()

    async def script(ctx: Any) -> None:
        if colour == "async":

            async def one() -> None:
                ran.append("one")
                begun.set()
                await until(go_on)

            await ctx.step("one", one)
        else:

            def one_in_thread() -> None:
                ran.append("one")
                begun.set()
                assert go_on.wait(60)

            await ctx.step("one", one_in_thread)
        await ctx.step("two", ran.doing("two"))
        await ctx.step("three", ran.doing("three"))

    job = await stage.enqueue(declare(tasks, colour, script).job())
    async with stage.work(tasks):
        await stage.until(begun.is_set)
        assert await stage.client.cancel(job) == "cancel_requested"
        go_on.set()  # at once: the worker learns of it from the step's own answer
        await stage.until(lambda: stage.one("select count(*) from mainspring.finished") == 1)

    assert ran == ["one"]
    assert await stage.state(job) == "cancelled"
    assert [step.name for step in await stage.client.steps(job)] == ["one"]


@pytest.mark.rule("ENG-6.05")
async def test_a_worker_without_the_lease_keeps_no_step_and_learns_it(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    seen: list[BaseException] = []
    begun, stolen = threading.Event(), threading.Event()

    async def script(ctx: Any) -> None:
        try:
            await ctx.step("before", lambda: "mine")
            begun.set()
            await until(stolen)
            await ctx.step("after", lambda: "too late")
        except BaseException as error:
            seen.append(error)
            raise

    job = await stage.enqueue(declare(tasks, colour, script).job())
    async with stage.work(tasks) as worker:
        await stage.until(begun.is_set)
        stage.steal("work")
        stolen.set()
        await stage.until(lambda: worker.counts["stale"])

    assert [type(error) for error in seen] == [LeaseLost]
    assert [step.result for step in await stage.client.steps(job)] == ["mine"]
    assert stage.rows("select worker from mainspring.running") == [("thief",)], "the thief's run is untouched"


async def test_a_rescued_job_goes_on_after_the_steps_of_the_worker_that_died(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    ran = Journal()

    async def script(ctx: Any) -> int:
        for n in range(4):
            await ctx.step(f"chunk-{n}", ran.doing(f"chunk-{n}", n))
        attempt: int = ctx.attempt
        return attempt

    job = await stage.enqueue(declare(tasks, colour, script).job())
    (epoch,) = stage.claim("dead", "work")
    for n in range(2):
        stage.rows("select mainspring.remember('dead', %s, %s, '1')", epoch, f"chunk-{n}")
    stage.clock.advance(seconds=61)
    stage.rows("select mainspring.rescue(10, 3)")
    await stage.drain(tasks)

    assert ran == ["chunk-2", "chunk-3"]
    assert await stage.result(job) == 2


async def test_a_replay_goes_on_after_the_steps_that_are_done(stage: Stage, tasks: Registry, colour: str) -> None:
    ran = Journal()
    broken = True

    async def script(ctx: Any) -> None:
        await ctx.step("one", ran.doing("one"))
        if broken:
            raise RuntimeError("broken")
        await ctx.step("two", ran.doing("two"))

    job = await stage.enqueue(declare(tasks, colour, script, retry=fixed(0, attempts=1)).job())
    await stage.drain(tasks)
    assert await stage.state(job) == "dead"
    broken = False
    await stage.client.replay(job, reason="the bug is fixed")
    await stage.drain(tasks)

    assert ran == ["one", "two"]
    assert await stage.state(job) == "succeeded"


async def test_a_reset_with_a_new_payload_begins_from_the_first_step(stage: Stage, tasks: Registry) -> None:
    ran = Journal()

    @tasks.task(dedupe=reset_failed("{n}"), retry=fixed(0, attempts=1))
    async def work(ctx: Context, *, n: int, good: bool) -> None:
        await ctx.step("one", ran.doing(f"one, good: {good}"))
        await ctx.checkpoint(1)
        await ctx.progress(1)
        if not good:
            raise RuntimeError("bad")

    job = await stage.enqueue(work.job(n=1, good=False))
    await stage.drain(tasks)
    again = await stage.client.enqueue(work.job(n=1, good=True))
    assert (again.id, again.answer) == (job, "reset")
    assert await stage.client.steps(job) == []
    assert stage.one("select count(*) from mainspring.checkpoint") == 0
    await stage.drain(tasks)

    assert ran == ["one, good: False", "one, good: True"]


async def test_a_payload_that_replaces_another_drops_the_steps_that_were_done_for_it(
    stage: Stage, tasks: Registry
) -> None:
    ran = Journal()

    @tasks.task(dedupe=replacing("{n}"))
    async def work(ctx: Context, *, n: int, version: int) -> None:
        await ctx.step("one", ran.doing(f"version {version}"))
        if version == 1:
            raise Snooze(3600)

    await stage.enqueue(work.job(n=1, version=1))
    await stage.drain(tasks)
    assert (await stage.client.enqueue(work.job(n=1, version=2))).answer == "replaced"
    await stage.drain(tasks)

    assert ran == ["version 1", "version 2"]


async def test_prune_removes_what_the_job_remembered(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work(ctx: Context) -> None:
        await ctx.step("one", lambda: 1)
        await ctx.checkpoint(1)
        await ctx.progress(1, 1)

    await stage.enqueue(work.job())
    await stage.drain(tasks)
    counts = "select (select count(*) from mainspring.step) + (select count(*) from mainspring.checkpoint) + "
    counts += "(select count(*) from mainspring.progress)"
    assert stage.one(counts) == 3
    stage.clock.advance(days=400)
    await stage.client.prune(["succeeded"], timedelta(days=1))

    assert stage.one(counts) == 0


# -- values ----------------------------------------------------------------------------------------------------------


def invoice() -> Invoice:
    return Invoice(7, datetime(2026, 1, 1, tzinfo=UTC))


async def money() -> Money:
    return Money(cents=5)


@pytest.mark.parametrize(
    ("fn", "kind", "value"),
    [
        (invoice, None, Invoice(7, datetime(2026, 1, 1, tzinfo=UTC))),
        (money, None, Money(cents=5)),
        (lambda: {"id": 7, "at": "2026-01-01T00:00:00Z"}, Invoice, Invoice(7, datetime(2026, 1, 1, tzinfo=UTC))),
        (lambda: (1, 2), None, [1, 2]),
        (lambda: (1, 2), tuple[int, int], (1, 2)),
        (lambda: {"zz": 1, "a": 1.0, "10": 1e22}, None, {"zz": 1, "a": 1.0, "10": 1e22}),
        (lambda: None, None, None),
    ],
    ids=["annotated", "pydantic", "typed", "as JSON", "tuple", "order", "none"],
)
async def test_the_first_run_and_the_remembered_one_give_the_same_value(
    stage: Stage, tasks: Registry, fn: Any, kind: Any, value: Any
) -> None:
    seen: list[Any] = []

    @tasks.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        seen.append(await ctx.step("value", fn, type=kind) if kind else await ctx.step("value", fn))
        if ctx.attempt == 1:
            raise RuntimeError("again")

    await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert seen == [value, value]
    assert repr(seen[0]) == repr(seen[1]), "even in the order of fields and the kinds of numbers"


class Stranger:
    pass


@pytest.mark.parametrize(
    ("fn", "problem"),
    [
        (Stranger, "step 'x': cannot be written as JSON"),
        (lambda: "\0", "step 'x': contains a NUL character"),
        (lambda: "\ud800", "step 'x': cannot be written as JSON"),
        (lambda: "x" * MAX_BYTES, "step 'x': is larger than 256 KiB"),
    ],
    ids=["unknown type", "NUL", "surrogate", "large"],
)
async def test_a_result_that_cannot_be_kept_is_refused_by_the_step_s_name(
    stage: Stage, tasks: Registry, colour: str, fn: Any, problem: str
) -> None:
    async def script(ctx: Any) -> None:
        await ctx.step("x", fn)

    job = await stage.enqueue(declare(tasks, colour, script).job())
    await stage.drain(tasks)
    found = await stage.job(job)

    assert found.state == "failed"
    assert found.error is not None
    assert found.error["code"] == "VALIDATION_ERROR"
    assert problem in found.error["message"]
    assert await stage.client.steps(job) == []


async def test_a_result_that_comes_back_as_something_else_shows_in_the_first_run(stage: Stage, tasks: Registry) -> None:
    def says_int() -> int:
        return float("nan")  # type: ignore[return-value]  # the mistake

    @tasks.task
    async def work(ctx: Context) -> None:
        await ctx.step("x", says_int)

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)
    error = (await stage.job(job)).error

    assert error is not None
    assert "step 'x': does not come back as <class 'int'>" in error["message"]


async def test_an_error_about_a_result_does_not_repeat_it(stage: Stage, tasks: Registry) -> None:
    def says_money() -> Money:
        return {"cents": "hunter2"}  # type: ignore[return-value]  # the mistake

    @tasks.task
    async def work(ctx: Context) -> None:
        await ctx.step("x", says_money)

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)
    error = (await stage.job(job)).error

    assert error is not None
    assert "step 'x': does not come back as" in error["message"]
    assert "hunter2" not in error["message"]


# -- what a step refuses ---------------------------------------------------------------------------------------------


async def outcome_of(stage: Stage, tasks: Registry, colour: str, script: Any) -> list[BaseException]:
    """What a handler with this script runs into."""
    seen: list[BaseException] = []

    async def watched(ctx: Any) -> None:
        try:
            await script(ctx)
        except Exception as error:
            seen.append(error)

    await stage.enqueue(declare(tasks, colour, watched).job())
    await stage.drain(tasks)
    return seen


async def test_a_name_is_used_once_in_an_attempt(stage: Stage, tasks: Registry, colour: str) -> None:
    async def script(ctx: Any) -> None:
        await ctx.step("page", lambda: 1)
        await ctx.step("page", lambda: 2)

    (error,) = await outcome_of(stage, tasks, colour, script)

    assert isinstance(error, ValidationError)
    assert "step 'page': is done already in this attempt" in str(error)


@pytest.mark.parametrize("name", ["", " ", "x" * 201, "a\nb", None, 7])
async def test_a_name_is_a_text(stage: Stage, tasks: Registry, name: Any) -> None:
    (error,) = await outcome_of(stage, tasks, "async", lambda ctx: ctx.step(name, lambda: 1))

    assert isinstance(error, ValidationError)
    assert error.field == "step"
    assert stage.one("select count(*) from mainspring.step") == 0


@pytest.mark.parametrize("what", ["a step", "ctx.complete()", "ctx.enqueue()"])
async def test_what_a_remembered_step_would_leave_out_is_refused_inside_one(
    stage: Stage, tasks: Registry, what: str
) -> None:
    @tasks.task
    async def follow() -> None: ...

    async def script(ctx: Context) -> None:
        async def outer() -> None:
            match what:
                case "a step":
                    await ctx.step("inner", lambda: 1)
                case "ctx.complete()":
                    async with ctx.complete():
                        pass
                case _:
                    await ctx.enqueue(follow.job())

        await ctx.step("outer", outer)

    (error,) = await outcome_of(stage, tasks, "async", script)

    assert isinstance(error, MainspringError)
    assert str(error) == f"{what} cannot stand inside step 'outer': put it beside the step"


@pytest.mark.parametrize("verb", ["step", "checkpoint"])
async def test_what_is_kept_comes_before_the_transaction(stage: Stage, tasks: Registry, colour: str, verb: str) -> None:
    async def script(ctx: Any) -> None:
        async def keep() -> None:
            await (ctx.step("x", lambda: 1) if verb == "step" else ctx.checkpoint(1))

        if colour == "async":
            async with ctx.complete():
                await keep()
        else:
            with ctx.complete():
                await keep()

    (error,) = await outcome_of(stage, tasks, colour, script)

    assert f"a {verb} comes before ctx.complete()" in str(error)


async def test_a_plain_handler_s_step_is_a_plain_function(stage: Stage, tasks: Registry) -> None:
    async def coroutine() -> None: ...

    (error,) = await outcome_of(stage, tasks, "thread", lambda ctx: ctx.step("x", coroutine))

    assert "step 'x': a plain handler's steps are plain functions" in str(error)


async def test_steps_side_by_side_are_both_remembered(stage: Stage, tasks: Registry) -> None:
    ran = Journal()

    @tasks.task(retry=AT_ONCE)
    async def work(ctx: Context) -> list[int]:
        async def one(n: int) -> int:
            ran.append(f"{n}")
            await asyncio.sleep(0)
            return n

        answers = await asyncio.gather(*(ctx.step(f"n-{n}", one, n) for n in range(5)))
        if ctx.attempt == 1:
            raise RuntimeError("again")
        return answers

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert sorted(ran) == list("01234")
    assert await stage.result(job) == [0, 1, 2, 3, 4]


async def test_a_job_without_steps_asks_nothing_of_their_tables(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work(ctx: Context) -> None:
        ctx.check()

    await stage.client.enqueue_many([work.job() for _ in range(20)])
    await stage.drain(tasks)
    scans = stage.rows(
        "select relname, coalesce(idx_scan, 0) + seq_scan from pg_stat_user_tables "
        "where relname in ('step', 'checkpoint') and schemaname = 'mainspring'"
    )

    assert dict(scans) == {"step": 0, "checkpoint": 0}


async def test_a_step_that_is_done_survives_the_loss_of_every_connection(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    ran = Journal()

    def effect() -> str:
        ran.append("effect")
        stage.rows(
            "select pg_terminate_backend(pid) from pg_stat_activity "
            "where datname = current_database() and application_name like 'mainspring worker%%'"
        )
        return "done"

    async def script(ctx: Any) -> str:
        await ctx.step("warm", lambda: None)  # so that there is a connection to lose
        answer: str = await ctx.step("call", effect)
        return answer

    job = await stage.enqueue(declare(tasks, colour, script, retry=AT_ONCE).job())
    async with stage.work(tasks):
        assert await stage.result(job) == "done"

    assert ran == ["effect"]
    assert (await stage.job(job)).attempt == 1
