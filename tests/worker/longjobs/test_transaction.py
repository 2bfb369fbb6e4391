"""A transaction in the middle of a job: committed before what follows, and only under the lease."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from tests.worker.stage import LEDGER, Stage

from mainspring import Context, MainspringError, Registry, SyncContext, fixed
from mainspring.errors import LeaseLost

pytestmark = pytest.mark.anyio

AT_ONCE = fixed(0, attempts=2)
WRITE = "insert into ledger values (null, %s)"
INSIDE = r"not inside the block of ctx\.transaction\(\)"


@pytest.fixture(scope="session")
def own_tables() -> Sequence[str]:
    return [LEDGER]


def declare(tasks: Registry, colour: str, during: Any, after: Any = None, **options: Any) -> Any:
    """A handler that writes `reserved`, calls `during` before the block ends and `after` when it has ended."""

    @tasks.task(name="reserve", **options)
    async def reserve(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["reserved"])
            during and await asyncio.to_thread(during)
        after and await asyncio.to_thread(after, ctx)

    @tasks.task(name="reserve_in_thread", **options)
    def reserve_in_thread(ctx: SyncContext) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["reserved"])
            during and during()
        after and after(ctx)

    return reserve if colour == "async" else reserve_in_thread


async def test_what_is_written_is_committed_before_the_job_goes_on(stage: Stage, tasks: Registry, colour: str) -> None:
    stage.ledger()
    seen: list[list[str]] = []
    task = declare(tasks, colour, None, lambda _: seen.append(stage.effects()))

    job = await stage.enqueue(task.job())
    await stage.drain(tasks)

    assert seen == [["reserved"]]
    assert await stage.state(job) == "succeeded"


async def test_an_attempt_that_fails_later_does_not_undo_it(stage: Stage, tasks: Registry, colour: str) -> None:
    stage.ledger()

    def fail(_: object) -> None:
        raise RuntimeError("no answer")

    job = await stage.enqueue(declare(tasks, colour, None, fail, retry=AT_ONCE).job())
    await stage.drain(tasks)

    assert stage.effects() == ["reserved", "reserved"]
    assert await stage.state(job) == "dead"


async def test_an_error_inside_the_block_rolls_it_back(stage: Stage, tasks: Registry, colour: str) -> None:
    stage.ledger()

    def fail() -> None:
        raise RuntimeError("no")

    await stage.enqueue(declare(tasks, colour, fail, retry=AT_ONCE).job())
    await stage.drain(tasks)

    assert stage.effects() == []


async def test_a_worker_without_the_lease_commits_nothing_there(stage: Stage, tasks: Registry, colour: str) -> None:
    stage.ledger()
    went_on: list[object] = []
    name = "reserve" if colour == "async" else "reserve_in_thread"
    task = declare(tasks, colour, lambda: stage.steal(name), went_on.append)

    await stage.enqueue(task.job())
    async with stage.work(tasks) as worker:  # the thief holds the job, so nothing ever drains
        await stage.until(lambda: worker.counts["lost"] or (not worker.running and worker.counts["claimed"]))

    assert (stage.effects(), went_on) == ([], [])


async def test_its_transaction_belongs_to_the_organisation_of_the_job(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    seen: list[Any] = []

    @tasks.task(name="who")
    async def who(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            row = await (await conn.execute("select current_setting('mainspring.org')")).fetchone()
        seen.append(row and row[0])

    @tasks.task(name="who_in_thread")
    def who_in_thread(ctx: SyncContext) -> None:
        with ctx.transaction() as conn:
            row = conn.execute("select current_setting('mainspring.org')").fetchone()
        seen.append(row and row[0])

    await stage.enqueue((who if colour == "async" else who_in_thread).job().for_org("acme"))
    await stage.drain(tasks)

    assert seen == ["acme"]


async def test_it_comes_before_the_transaction_that_ends_the_job(stage: Stage, tasks: Registry) -> None:
    @tasks.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            with pytest.raises(MainspringError, match="comes before"):
                async with ctx.transaction():
                    pass

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert await stage.state(job) == "succeeded"


async def test_a_handler_that_caught_the_loss_of_its_lease_learns_it(stage: Stage, tasks: Registry) -> None:
    caught: list[BaseException] = []

    @tasks.task
    async def work(ctx: Context) -> None:
        try:
            async with ctx.transaction() as conn:
                await conn.execute("select 1")
                await asyncio.to_thread(stage.steal, "work")
        except LeaseLost as error:
            caught.append(error)
            raise

    await stage.enqueue(work.job())
    async with stage.work(tasks) as worker:
        await stage.until(lambda: caught and not worker.running)

    assert [type(error) for error in caught] == [LeaseLost]


@pytest.mark.parametrize("what", ["transaction", "step", "checkpoint", "complete"])
async def test_nothing_that_needs_a_connection_begins_inside_it(
    stage: Stage, tasks: Registry, colour: str, what: str
) -> None:
    """As many handlers as there are connections would wait for each other; a transaction would even end the job."""
    stage.ledger()

    async def begin(ctx: Context) -> None:
        if what == "step":
            await ctx.step("one", lambda: 1, type=int)
        elif what == "checkpoint":
            await ctx.checkpoint(1)
        else:
            async with getattr(ctx, what)():
                pass

    def begin_in_thread(ctx: SyncContext) -> None:
        if what == "step":
            ctx.step("one", lambda: 1, type=int)
        elif what == "checkpoint":
            ctx.checkpoint(1)
        else:
            with getattr(ctx, what)():
                pass

    @tasks.task(name="nested", retry=AT_ONCE)
    async def nested(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute(WRITE, ["reserved"])
            with pytest.raises(MainspringError, match=INSIDE):
                await begin(ctx)
        await begin(ctx)  # after it all is well

    @tasks.task(name="nested_in_thread", retry=AT_ONCE)
    def nested_in_thread(ctx: SyncContext) -> None:
        with ctx.transaction() as conn:
            conn.execute(WRITE, ["reserved"])
            with pytest.raises(MainspringError, match=INSIDE):
                begin_in_thread(ctx)
        begin_in_thread(ctx)

    job = await stage.enqueue((nested if colour == "async" else nested_in_thread).job())
    await stage.drain(tasks)

    assert (await stage.state(job), stage.effects()) == ("succeeded", ["reserved"])
