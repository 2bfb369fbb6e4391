"""Chunks: halved until the bad item stands alone, gone on with from where the last attempt stopped."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

import mainspring as ms
from mainspring.errors import DeclarationError
from mainspring.testing import Crash, Harness

RETRY = ms.fixed(0, attempts=2)


def sizes(mainspring: Harness) -> list[tuple[int, str]]:
    """The chunks that were there, in order: how many items, and how they ended."""
    return [(len(job.payload["rows"]), job.state) for job in reversed(mainspring.client.jobs(limit=1000))]


@pytest.mark.rule("STAFF-17.13")
@pytest.mark.parametrize("error", [RuntimeError("no answer"), ms.Permanent("closed")])
@pytest.mark.parametrize("colour", ["async", "thread"])
def test_one_bad_row_of_a_hundred_is_isolated_and_the_others_are_done_once(
    mainspring: Harness, tasks: ms.Registry, error: Exception, colour: str
) -> None:
    done: Counter[int] = Counter()

    def load_all(rows: list[int]) -> None:
        if 61 in rows:
            raise error
        done.update(rows)

    if colour == "async":

        @tasks.task(halve="rows", retry=RETRY)
        async def load(*, rows: list[int]) -> None:
            load_all(rows)
    else:

        @tasks.task(halve="rows", retry=RETRY)
        def load(*, rows: list[int]) -> None:
            load_all(rows)

    mainspring.client.enqueue(load.job(rows=list(range(100))))
    mainspring.drain(raise_errors=False)

    assert done == Counter(n for n in range(100) if n != 61)
    found = sizes(mainspring)
    bad = "failed" if isinstance(error, ms.Permanent) else "dead"
    assert [entry for entry in found if entry[1] != "succeeded"] == [(1, bad)]
    assert {100, 50, 25} <= {size for size, _ in found}
    assert len(found) <= 2 * 7 + 1


def test_halves_take_the_place_of_a_chunk_in_its_batch_and_before_what_waits_for_it(
    mainspring: Harness, tasks: ms.Registry
) -> None:
    seen: list[Any] = []

    @tasks.task(halve="rows", retry=RETRY)
    async def load(*, rows: list[int]) -> int:
        if 3 in rows and len(rows) > 1:
            raise RuntimeError("no answer")
        seen.append(rows)
        return len(rows)

    @tasks.task
    async def tell(ctx: ms.Context) -> None:
        batch = await ctx.batch()
        seen.append(batch and (batch.total, batch.succeeded))

    @tasks.task
    async def total(ctx: ms.Context) -> None:
        seen.append(sum(job.result for job in await ctx.parents()))

    chunk = load.job(rows=[1, 2, 3, 4]).for_org("acme").by("ada").with_priority(1).on_queue("q:critical")
    (first,) = mainspring.client.enqueue(ms.batch("rows", [chunk], on_finish=tell.job().for_org("acme"))).jobs
    mainspring.drain()
    assert seen == [[1, 2], [3], [4], (3, 3)]
    split = mainspring.client.get(first.id)
    assert (split.state, split.result["done"], split.result["code"]) == ("succeeded", 0, "INTERNAL_ERROR")
    assert "job.split" in [event.event for event in mainspring.client.audit.trail(first.id)]
    half = mainspring.client.get(UUID(split.result["split"][0]))
    assert (half.org_id, half.actor_id, half.priority, half.queue, half.parent_id, half.correlation_id) == (
        "acme", "ada", 1, "q:critical", first.id, split.correlation_id,
    )  # fmt: skip

    seen.clear()
    mainspring.client.enqueue(ms.chain(load.job(rows=[1, 2, 3, 4]), total.job()))
    mainspring.drain()
    assert seen == [[1, 2], [3], [4], 4]


@pytest.mark.rule("STAFF-17.12")
@pytest.mark.parametrize("colour", ["async", "thread"])
def test_a_list_that_was_stopped_after_60_of_100_goes_on_with_the_other_40(
    mainspring: Harness, tasks: ms.Registry, colour: str
) -> None:
    runs: list[list[int]] = []

    def work(n: int) -> None:
        runs[-1].append(n)
        if n == 59 and len(runs) == 1:
            stop.append(True)

    stop: list[bool] = []

    if colour == "async":

        @tasks.task(halve="rows", timeout=timedelta(seconds=1), retry=RETRY)
        async def load(ctx: ms.Context, *, rows: list[int]) -> None:
            runs.append([])
            async for row in ctx.each(rows, every=20):
                if stop and len(runs) == 1:
                    await asyncio.sleep(60)  # until its time is over
                work(row)
    else:

        @tasks.task(halve="rows", retry=RETRY)
        def load(ctx: ms.SyncContext, *, rows: list[int]) -> None:
            runs.append([])
            for row in ctx.each(rows):
                if stop and len(runs) == 1:
                    raise TimeoutError
                work(row)

    job = mainspring.client.enqueue(load.job(rows=list(range(100)))).id
    ran = mainspring.run_one(job, raise_errors=False)
    progress = mainspring.client.get(job).progress
    assert progress is not None
    assert (ran.state, progress.done, progress.total) == ("ready", 60, 100)
    mainspring.drain()
    assert runs == [list(range(60)), list(range(60, 100))]
    assert mainspring.client.get(job).attempt == 2


@pytest.mark.rule("STAFF-17.11")
def test_an_attempt_is_stopped_when_its_time_is_over_and_goes_on_from_its_checkpoint(
    mainspring: Harness, tasks: ms.Registry
) -> None:
    pages: list[int] = []

    @tasks.task(timeout=timedelta(seconds=0.3), retry=RETRY)
    async def export(ctx: ms.Context) -> None:
        for page in range(await ctx.resume_from(1), 4):
            pages.append(page)
            if (ctx.attempt, page) == (1, 3):
                await asyncio.sleep(60)
            await ctx.checkpoint(page + 1)

    @tasks.task
    async def other() -> None: ...

    assert other.timeout == timedelta(minutes=5)
    job = mainspring.client.enqueue(export.job()).id
    assert mainspring.run_one(job, raise_errors=False).state == "ready"
    (attempt,) = mainspring.client.attempts(job)
    assert attempt.error is not None
    assert (attempt.outcome, attempt.error["code"]) == ("retried", "TIMEOUT")
    mainspring.drain()
    assert pages == [1, 2, 3, 3]


def test_a_list_that_gets_no_further_in_its_time_is_halved_and_never_dies_whole(
    mainspring: Harness, tasks: ms.Registry
) -> None:
    done: list[int] = []

    @tasks.task(halve="rows", timeout=timedelta(seconds=0.2), retry=ms.fixed(0, attempts=1))
    async def load(ctx: ms.Context, *, rows: list[int]) -> None:
        async for row in ctx.each(rows):
            if row == 2:
                await asyncio.sleep(60)
            done.append(row)

    mainspring.client.enqueue(load.job(rows=[0, 1, 2, 3]))
    mainspring.drain(raise_errors=False)
    assert sorted(done) == [0, 1, 3]
    assert sizes(mainspring) == [(4, "succeeded"), (1, "dead"), (1, "succeeded")]


def test_a_chunk_that_killed_its_worker_is_halved_before_it_runs_again(mainspring: Harness, tasks: ms.Registry) -> None:
    done: list[int] = []

    @tasks.task(halve="rows")
    async def load(*, rows: list[int]) -> None:
        if 2 in rows:
            raise Crash
        done.extend(rows)

    mainspring.client.enqueue(load.job(rows=[0, 1, 2, 3]))
    for _ in range(6):
        mainspring.drain(raise_errors=False)
        mainspring.expire_leases()
    assert sorted(done) == [0, 1, 3]
    assert [entry for entry in sizes(mainspring) if entry[1] != "succeeded"] == [(1, "dead")]


def test_what_a_provider_put_off_is_tried_again_whole(mainspring: Harness, tasks: ms.Registry) -> None:
    seen: list[list[int]] = []

    @tasks.task(halve="rows", retry=RETRY)
    async def load(ctx: ms.Context, *, rows: list[int]) -> None:
        seen.append(rows)
        if ctx.attempt == 1:
            raise ms.RetryAfter(30)

    mainspring.client.enqueue(load.job(rows=[0, 1]))
    mainspring.drain(raise_errors=False)
    mainspring.advance(minutes=1)
    assert seen == [[0, 1]] * 2


def test_a_chunk_that_is_to_be_cancelled_is_not_halved(mainspring: Harness, tasks: ms.Registry) -> None:
    @tasks.task(halve="rows")
    async def load(ctx: ms.Context, *, rows: list[int]) -> None:
        mainspring.client.cancel(ctx.job.id)
        raise RuntimeError("no answer")

    mainspring.client.enqueue(load.job(rows=[0, 1]))
    mainspring.drain(raise_errors=False)
    assert sizes(mainspring) == [(2, "cancelled")]


def test_an_own_checkpoint_of_the_handler_is_not_taken_for_items_done(mainspring: Harness, tasks: ms.Registry) -> None:
    seen: list[list[int]] = []

    @tasks.task(halve="rows")
    async def load(ctx: ms.Context, *, rows: list[int]) -> None:
        seen.append(rows)
        await ctx.checkpoint(1)
        if len(rows) > 1:
            raise RuntimeError("no answer")

    mainspring.client.enqueue(load.job(rows=[0, 1]))
    mainspring.drain(raise_errors=False)
    assert seen == [[0, 1], [0], [1]]


def test_a_list_is_gone_through_once_in_an_attempt(mainspring: Harness, tasks: ms.Registry) -> None:
    @tasks.task
    async def twice(ctx: ms.Context) -> None:
        async for _ in ctx.each([1]):
            pass
        async for _ in ctx.each([2]):
            pass

    with pytest.raises(ms.MainspringError, match=r"ctx.each goes through one list"):
        mainspring.run_one(twice.job())


def test_a_task_halves_a_field_that_it_has(tasks: ms.Registry) -> None:
    with pytest.raises(DeclarationError, match=r"halve 'row' is not a field \(did you mean 'rows'\?\)"):

        @tasks.task(halve="row")
        async def load(*, rows: list[int]) -> None: ...
