"""Mistakes of a handler with its completion: none is taken for success, and none is tried again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import psycopg
import pytest
from tests.worker.stage import Stage

import mainspring as ms
from mainspring import Context, Registry, SyncContext, fixed
from mainspring.job import NewJob

pytestmark = pytest.mark.anyio

AGAIN = fixed(0, attempts=3)
WRITE = "insert into ledger (note) values ('paid')"
follows = Registry("follows")


@follows.task
async def follow(*, n: int = 1) -> None: ...


# mypy sees most of these mistakes; this file is about what it does not see.
async def not_awaited_enqueue(ctx: Any, dsn: str) -> None:
    ctx.enqueue(follow.job())


async def not_awaited_enqueue_in_the_block(ctx: Any, dsn: str) -> None:
    async with ctx.complete() as conn:
        await conn.execute(WRITE)
        ctx.enqueue(follow.job())


async def not_awaited_batch_beside_a_middle_block(ctx: Any, dsn: str) -> None:
    ctx.enqueue(ms.batch("many", [follow.job()]))
    async with ctx.transaction() as conn:
        await conn.execute(WRITE)


async def not_awaited_completion(ctx: Any, dsn: str) -> None:
    async with await psycopg.AsyncConnection.connect(dsn) as conn:
        ctx.complete_in(conn)


async def not_entered(ctx: Any, dsn: str) -> None:
    ctx.complete(result=7)


async def awaited_block(ctx: Any, dsn: str) -> None:
    await ctx.complete()


async def plain_with(ctx: Any, dsn: str) -> None:
    with ctx.complete():
        pass


async def unwritable_result(ctx: Any, dsn: str) -> None:
    async with ctx.complete(result=object()) as conn:
        await conn.execute(WRITE)


async def swallowed_result(ctx: Any, dsn: str) -> None:
    try:
        ctx.complete(result=object())
    except Exception:
        return


async def swallowed_block(ctx: Any, dsn: str) -> None:
    async with ctx.transaction():
        try:
            async with ctx.complete():
                pass
        except Exception:
            return


def not_entered_in_thread(ctx: Any, dsn: str) -> None:
    ctx.complete(result=7)


def swallowed_refusal(ctx: Any, dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        try:
            ctx.complete_in(conn)
        except Exception:
            conn.rollback()


def swallowed_place(ctx: Any, dsn: str) -> None:
    with ctx.transaction() as conn:
        try:
            ctx.complete_in(conn)
        except Exception:
            return


def unwritable_result_elsewhere(ctx: Any, dsn: str) -> None:
    with psycopg.connect(dsn) as conn:
        conn.execute(WRITE)
        ctx.complete_in(conn, result=object())


MISTAKES: dict[Callable[..., Any], str] = {
    not_awaited_enqueue: "ctx.enqueue() of follow was not awaited: write `await ctx.enqueue(…)`",
    not_awaited_enqueue_in_the_block: "ctx.enqueue() of follow was not awaited",
    not_awaited_batch_beside_a_middle_block: "ctx.enqueue() of many was not awaited",
    not_awaited_completion: "ctx.complete_in() was not awaited: write `await ctx.complete_in(…)`",
    not_entered: "ctx.complete() is a block: write `async with ctx.complete(result=…) as conn:`",
    awaited_block: "ctx.complete() is a block: write `async with",
    plain_with: "ctx.complete() is a block: write `async with",
    unwritable_result: "result: cannot be written as JSON: object is no type that JSON has",
    swallowed_result: "result: cannot be written as JSON: object is no type that JSON has",
    not_entered_in_thread: "ctx.complete() is a block: write `with ctx.complete(result=…) as conn:`",
    swallowed_refusal: "conn: its transaction is serializable",
    swallowed_place: "ctx.complete_in() comes outside of the context's own blocks",
    unwritable_result_elsewhere: "result: cannot be written as JSON: object is no type that JSON has",
}


async def test_a_mistake_fails_the_job_for_good_with_one_sentence_and_commits_nothing(
    stage: Stage, tasks: Registry
) -> None:
    stage.ledger()
    jobs = {}
    for handler in MISTAKES:
        jobs[handler] = await stage.enqueue(declared(tasks, handler, stage.dsn))
    await stage.drain(tasks)

    for handler, text in MISTAKES.items():
        found = await stage.job(jobs[handler])
        assert (found.state, found.attempt) == ("failed", 1), handler.__name__
        assert text in (found.error or {})["message"], handler.__name__
    assert stage.effects() == []
    assert stage.one("select count(*) from mainspring.job") == len(MISTAKES)


def declared(tasks: Registry, handler: Callable[..., Any], dsn: str) -> NewJob:
    if handler.__code__.co_flags & 0x80:  # async

        @tasks.task(name=handler.__name__, retry=AGAIN)
        async def work(ctx: Context) -> None:
            await handler(ctx, dsn)

        return work.job()

    @tasks.task(name=handler.__name__, retry=AGAIN)
    def in_thread(ctx: SyncContext) -> None:
        handler(ctx, dsn)

    return in_thread.job()


async def test_a_block_that_was_refused_in_the_middle_fails_the_job(stage: Stage, tasks: Registry) -> None:
    job = await stage.enqueue(declared(tasks, swallowed_block, stage.dsn))
    await stage.drain(tasks)

    assert "not inside the block of ctx.transaction()" in str((await stage.job(job)).error)


async def test_what_is_enqueued_by_a_task_of_its_own_counts_as_awaited(stage: Stage, tasks: Registry) -> None:
    import asyncio

    @tasks.task
    async def work(ctx: Context) -> None:
        async with asyncio.TaskGroup() as group:
            group.create_task(ctx.enqueue(follow.job(n=1)))
        await asyncio.gather(ctx.enqueue(follow.job(n=2)), ctx.enqueue(follow.job(n=3)))

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert (await stage.state(job), stage.one("select count(*) from mainspring.job")) == ("succeeded", 4)


# -- a transaction that its handler repeats


async def test_a_transaction_that_was_rolled_back_may_be_repeated_with_its_completion(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    """What was to be written with it is written once: what waited before, and what the repetition enqueues again."""
    stage.ledger()

    @tasks.task(name="work", retry=AGAIN)
    async def work(ctx: Context) -> None:
        await ctx.enqueue(follow.job(n=1))
        for deadlock in (True, True, False):
            async with await psycopg.AsyncConnection.connect(stage.dsn) as conn:
                await conn.execute(WRITE)
                await ctx.enqueue(follow.job(n=2), follow.job(n=2))
                await ctx.enqueue(ms.batch("many", [follow.job(n=3)]))
                await ctx.complete_in(conn, result=7)
                if deadlock:
                    await conn.rollback()

    @tasks.task(name="in_thread", retry=AGAIN)
    def in_thread(ctx: SyncContext) -> None:
        ctx.enqueue(follow.job(n=1))
        for deadlock in (True, True, False):
            with psycopg.connect(stage.dsn) as conn:
                conn.execute(WRITE)
                ctx.enqueue(follow.job(n=2), follow.job(n=2))
                ctx.enqueue(ms.batch("many", [follow.job(n=3)]))
                ctx.audit("shop.paid")
                ctx.complete_in(conn, result=7)
                if deadlock:
                    conn.rollback()

    job = await stage.enqueue((work if colour == "async" else in_thread).job())
    async with stage.work(tasks) as worker:
        await stage.until(lambda: worker.counts["succeeded"] or worker.counts["failed"])

    found = await stage.job(job)
    assert (found.state, found.attempt, found.result, found.error, stage.effects()) == (
        "succeeded", 1, 7, None, ["paid"],
    )  # fmt: skip
    assert stage.rows("select payload ->> 'n' from mainspring.job where task = 'follow' order by 1") == [
        ("1",), ("2",), ("2",), ("3",),
    ]  # fmt: skip
    if colour != "async":
        assert stage.one("select count(*) from mainspring.audit where event = 'shop.paid'") == 1


async def test_after_a_rollback_the_job_may_be_completed_by_its_own_block(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task(retry=AGAIN)
    def work(ctx: SyncContext) -> None:
        with psycopg.connect(stage.dsn) as conn:
            ctx.complete_in(conn)
            conn.rollback()
        with ctx.complete() as own:
            own.execute(WRITE)

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert (await stage.state(job), (await stage.job(job)).attempt, stage.effects()) == ("succeeded", 1, ["paid"])


async def test_after_a_commit_a_second_completion_is_refused(stage: Stage, tasks: Registry, colour: str) -> None:
    @tasks.task(name="work", retry=AGAIN)
    async def work(ctx: Context) -> None:
        for _ in range(2):
            async with await psycopg.AsyncConnection.connect(stage.dsn) as conn:
                await ctx.complete_in(conn)

    @tasks.task(name="in_thread", retry=AGAIN)
    def in_thread(ctx: SyncContext) -> None:
        for _ in range(2):
            with psycopg.connect(stage.dsn) as conn:
                ctx.complete_in(conn)

    job = await stage.enqueue((work if colour == "async" else in_thread).job())
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, (found.error or {})["code"]) == ("succeeded", "AFTER_COMPLETION")
