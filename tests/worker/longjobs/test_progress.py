"""How far a job is can be seen from outside while it runs, and costs it nothing."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from tests.worker.longjobs.handlers import declare, until
from tests.worker.stage import Stage

from mainspring import Context, Registry, ValidationError, fixed
from mainspring.errors import LeaseLost
from mainspring.job import Progress

pytestmark = pytest.mark.anyio


def said(progress: Progress | None) -> tuple[float, float | None, str | None] | None:
    return None if progress is None else (progress.done, progress.total, progress.note)


async def test_progress_is_visible_while_the_job_runs(stage: Stage, tasks: Registry, colour: str) -> None:
    go_on = threading.Event()

    async def script(ctx: Any) -> None:
        await ctx.progress(3, 10, "reading page 3")
        await until(go_on)

    job = await stage.enqueue(declare(tasks, colour, script).job())
    async with stage.work(tasks):
        await stage.until(lambda: stage.one("select count(*) from mainspring.progress") == 1)
        found = await stage.job(job)
        go_on.set()

    assert (found.state, said(found.progress)) == ("running", (3, 10, "reading page 3"))
    assert stage.one("select progress ->> 'done' from mainspring.jobs") == "3"


@pytest.mark.parametrize("end", ["return", "raise", "transaction", "follow-up"])
async def test_the_last_word_of_an_attempt_is_always_written(
    stage: Stage, tasks: Registry, colour: str, end: str
) -> None:
    @tasks.task
    async def follow() -> None: ...

    async def script(ctx: Any) -> None:
        for n in range(1, 101):
            await ctx.progress(n, 100)
        if end == "raise":
            raise RuntimeError("at the very end")
        if end == "follow-up":
            await ctx.enqueue(follow.job())
        if end == "transaction" and colour == "async":
            async with ctx.complete():
                await ctx.progress(101, 101)
        elif end == "transaction":
            with ctx.complete():
                await ctx.progress(101, 101)

    job = await stage.enqueue(declare(tasks, colour, script, retry=fixed(0, attempts=1)).job())
    await stage.drain(tasks)

    assert said((await stage.job(job)).progress) == ((101, 101, None) if end == "transaction" else (100, 100, None))


async def test_a_tight_loop_costs_two_writes_a_second(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work(ctx: Context) -> None:
        for n in range(50_000):
            await ctx.progress(n, 50_000)

    await stage.enqueue(work.job())
    worker = stage.worker(tasks)
    await worker.drain()
    (serial,) = stage.rows("select serial from mainspring.progress")[0]
    writes = stage.one("select n_tup_ins + n_tup_upd from pg_stat_user_tables where relname = 'progress'")

    assert serial == 50_000
    assert writes <= 3


async def test_reports_of_a_worker_without_the_lease_are_left_out(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    job = await stage.enqueue(work.job())
    (old,) = stage.claim("old", "work")
    report = "select mainspring.report(%s, json_build_array(json_build_object('epoch', %s, 'serial', %s, 'done', %s)))"
    stage.rows(report, "old", old, 1, 5)
    assert said((await stage.job(job)).progress) == (5, None, None)
    (new,) = stage.steal("work", "new")
    stage.rows(report, "new", new, 1, 1)
    stage.rows(report, "old", old, 2, 6)
    stage.rows(report, "old", new, 2, 7)  # another worker's epoch

    assert said((await stage.job(job)).progress) == (1, None, None)


async def test_a_report_that_is_overtaken_does_not_come_back(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    job = await stage.enqueue(work.job())
    (epoch,) = stage.claim("w", "work")
    for serial, done in ((2, 20), (1, 10)):
        stage.rows(
            "select mainspring.report('w', json_build_array(json_build_object('epoch', %s, 'serial', %s, 'done', %s)))",
            epoch,
            serial,
            done,
        )

    assert said((await stage.job(job)).progress) == (20, None, None)


@pytest.mark.parametrize(
    ("args", "field"),
    [
        ((float("nan"),), "done"),
        ((float("inf"),), "done"),
        ((10**400,), "done"),
        (("7",), "done"),
        ((1, float("nan")), "total"),
        ((1, 2, "a\0b"), "note"),
        ((1, 2, "x" * 201), "note"),
    ],
    ids=["NaN", "infinite", "huge", "text", "total", "NUL", "long"],
)
async def test_a_report_that_is_none_is_refused_by_its_field(
    stage: Stage, tasks: Registry, colour: str, args: tuple[Any, ...], field: str
) -> None:
    seen: list[ValidationError] = []

    async def script(ctx: Any) -> None:
        try:
            await ctx.progress(*args)
        except ValidationError as error:
            seen.append(error)

    job = await stage.enqueue(declare(tasks, colour, script).job())
    await stage.drain(tasks)

    assert [error.field for error in seen] == [field]
    assert await stage.state(job) == "succeeded"


async def test_a_report_tells_a_handler_that_its_lease_is_lost(stage: Stage, tasks: Registry) -> None:
    seen: list[BaseException] = []
    begun, lost = threading.Event(), threading.Event()

    async def script(ctx: Any) -> None:
        begun.set()
        await until(lost)
        try:
            await ctx.progress(1)
        except LeaseLost as error:
            seen.append(error)
            raise

    await stage.enqueue(declare(tasks, "thread", script).job())
    async with stage.work(tasks) as worker:
        await stage.until(begun.is_set)
        for run in list(worker._attempts.values()):
            worker._parts.tracker.lose(run)
        lost.set()
        await stage.until(lambda: seen)
