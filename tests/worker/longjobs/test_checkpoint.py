"""A long loop goes on where an earlier attempt left it."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Any

import pytest
from tests.worker.longjobs.handlers import declare, until
from tests.worker.stage import Stage

from mainspring import Context, Registry, fixed
from mainspring.errors import LeaseLost
from mainspring.text.document import MAX_BYTES

pytestmark = pytest.mark.anyio

AT_ONCE = fixed(0, attempts=3)


@dataclass
class Cursor:
    page: int
    seen: list[str]


@pytest.mark.rule("ENG-14.04")
async def test_after_a_crash_behind_chunk_three_the_next_attempt_starts_at_chunk_four(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    done: list[tuple[int, int]] = []
    starts: list[int] = []  # not the number of its attempt: its worker lives, and may take the crash back
    crash = threading.Event()

    async def script(ctx: Any) -> None:
        starts.append(len(starts) + 1)
        start = starts[-1]
        for chunk in range(await ctx.resume_from(1), 7):
            done.append((start, chunk))
            await ctx.checkpoint(chunk + 1)
            if (start, chunk) == (1, 3):
                await until(crash)  # until its lease has expired and the job is somebody else's
                await ctx.checkpoint(99)

    job = await stage.enqueue(declare(tasks, colour, script, retry=AT_ONCE).job())
    async with stage.work(tasks) as worker:
        await stage.until(lambda: stage.rows("select 1 from mainspring.checkpoint where value::text = '4'"))
        with stage.conn.transaction():
            stage.clock.advance(seconds=61)
            stage.rows("select mainspring.rescue(10, 3)")
        crash.set()
        await stage.until(lambda: worker.counts["stale"])
        assert await stage.result(job) is None

    assert done == [(1, 1), (1, 2), (1, 3), (2, 4), (2, 5), (2, 6)]


@pytest.mark.rule("ENG-14.05", "ENG-6.05")
async def test_a_worker_without_the_lease_saves_no_checkpoint(stage: Stage, tasks: Registry, colour: str) -> None:
    seen: list[BaseException] = []
    saved, stolen = threading.Event(), threading.Event()

    async def script(ctx: Any) -> None:
        await ctx.checkpoint("mine")
        saved.set()
        await until(stolen)
        try:
            await ctx.checkpoint("too late")
        except BaseException as error:
            seen.append(error)
            raise

    await stage.enqueue(declare(tasks, colour, script).job())
    async with stage.work(tasks) as worker:
        await stage.until(saved.is_set)
        (epoch,) = stage.steal("work")
        stage.rows("""select mainspring.save_checkpoint('thief', %s, '"the thief''s"')""", epoch)
        stolen.set()
        await stage.until(lambda: worker.counts["stale"])

    assert [type(error) for error in seen] == [LeaseLost]
    assert stage.rows("select value, worker from mainspring.checkpoint") == [("the thief's", "thief")]


@pytest.mark.rule("ENG-14.03")
async def test_a_cancelled_job_stops_at_its_next_checkpoint_which_is_saved(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    chunks: list[int] = []
    begun, go_on = threading.Event(), threading.Event()

    async def script(ctx: Any) -> None:
        for chunk in range(3):
            chunks.append(chunk)
            begun.set()
            await until(go_on)
            await ctx.checkpoint(chunk)

    job = await stage.enqueue(declare(tasks, colour, script).job())
    async with stage.work(tasks):
        await stage.until(begun.is_set)
        await stage.client.cancel(job)
        go_on.set()
        await stage.until(lambda: stage.one("select count(*) from mainspring.finished") == 1)

    assert (chunks, await stage.state(job)) == ([0], "cancelled")
    assert stage.one("select value::text from mainspring.checkpoint") == "0"


async def test_a_checkpoint_comes_back_as_the_type_of_the_default(stage: Stage, tasks: Registry, colour: str) -> None:
    seen: list[Any] = []

    async def script(ctx: Any) -> None:
        seen.append(await ctx.resume_from(Cursor(0, [])))
        seen.append(await ctx.resume_from(None))
        await ctx.checkpoint(Cursor(7, ["a"]))
        seen.append(await ctx.resume_from(None, type=Cursor))
        if ctx.attempt == 1:
            raise RuntimeError("again")

    await stage.enqueue(declare(tasks, colour, script, retry=AT_ONCE).job())
    await stage.drain(tasks)

    saved = Cursor(7, ["a"])
    assert seen == [Cursor(0, []), None, saved, saved, {"page": 7, "seen": ["a"]}, saved]


@pytest.mark.parametrize("value", [object(), "\0", "x" * MAX_BYTES], ids=["unknown type", "NUL", "large"])
async def test_a_checkpoint_that_cannot_be_kept_is_refused(stage: Stage, tasks: Registry, value: Any) -> None:
    @tasks.task
    async def work(ctx: Context) -> None:
        await ctx.checkpoint(value)

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)
    error = (await stage.job(job)).error

    assert error is not None
    assert (error["code"], error["message"].partition(":")[0]) == ("VALIDATION_ERROR", "checkpoint")
