"""A test is told before and after each commit of a handler's block, and can let the worker die there."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from mainspring import Context, Registry, SyncContext
from mainspring.declare.task import Task
from mainspring.testing import Commit, Crash, Harness, at_commits

Seen = list[tuple[str, bool]]
MIDDLE, END = [("before", False), ("after", False)], [("before", True), ("after", True)]


def in_loop(tasks: Registry) -> Task[..., Any]:
    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.transaction() as conn:
            await conn.execute("insert into ledger values ('middle', %s)", [ctx.attempt])
        async with ctx.complete() as conn:
            await conn.execute("insert into ledger values ('end', %s)", [ctx.attempt])

    return work


def in_thread(tasks: Registry) -> Task[..., Any]:
    @tasks.task
    def work(ctx: SyncContext) -> None:
        with ctx.transaction() as conn:
            conn.execute("insert into ledger values ('middle', %s)", [ctx.attempt])
        with ctx.complete() as conn:
            conn.execute("insert into ledger values ('end', %s)", [ctx.attempt])

    return work


@pytest.fixture(params=[in_loop, in_thread], ids=["async", "thread"])
def work(request: pytest.FixtureRequest, mainspring: Harness, tasks: Registry) -> Task[..., Any]:
    mainspring.conn.execute("create table ledger (block text, attempt int)")
    made: Task[..., Any] = request.param(tasks)
    return made


def ledger(mainspring: Harness) -> list[tuple[str, int]]:
    return mainspring.conn.execute("select block, attempt from ledger order by attempt, block desc").fetchall()


def dying(seen: Seen, moment: tuple[str, bool]) -> Callable[[Commit], None]:
    """Dies once, at a moment."""

    def die(commit: Commit) -> None:
        seen.append((commit.when, commit.ends_job))
        if seen[-1] == moment and seen.count(moment) == 1:
            raise Crash

    return die


def test_each_block_is_told_before_and_after_it_commits_and_nobody_outside_of_the_test_s(
    mainspring: Harness, work: Task[..., Any]
) -> None:
    told = list[tuple[Commit, int]]()
    job = mainspring.client.enqueue(work.job())
    with at_commits(lambda commit: told.append((commit, len(ledger(mainspring))))):
        mainspring.drain()

    assert [(commit.when, commit.ends_job, rows) for commit, rows in told] == [
        ("before", False, 0), ("after", False, 1), ("before", True, 1), ("after", True, 2),
    ]  # fmt: skip
    assert {(commit.job.id, commit.job.task, commit.job.attempt) for commit, _ in told} == {(job.id, "work", 1)}
    mainspring.run_one(work.job())
    assert len(told) == 4


@pytest.mark.parametrize(
    ("moment", "left", "in_the_end"),
    [
        (MIDDLE[0], [], [("middle", 2), ("end", 2)]),
        (MIDDLE[1], [("middle", 1)], [("middle", 1), ("middle", 2), ("end", 2)]),
        (END[0], [("middle", 1)], [("middle", 1), ("middle", 2), ("end", 2)]),
        (END[1], [("middle", 1), ("end", 1)], [("middle", 1), ("end", 1)]),
    ],
    ids=["before the first", "after the first", "before the last", "after the last"],
)
def test_a_worker_that_dies_at_a_commit_keeps_what_was_committed_and_another_does_the_rest(
    mainspring: Harness,
    work: Task[..., Any],
    moment: tuple[str, bool],
    left: list[tuple[str, int]],
    in_the_end: list[tuple[str, int]],
) -> None:
    seen: Seen = []
    job = mainspring.client.enqueue(work.job())
    with at_commits(dying(seen, moment)):
        mainspring.drain()
        assert ledger(mainspring) == left
        mainspring.expire_leases()
        mainspring.drain()

    first = (MIDDLE + END)[: (MIDDLE + END).index(moment) + 1]
    assert seen == first + (MIDDLE + END if moment != END[1] else [])
    assert ledger(mainspring) == in_the_end
    found = mainspring.client.get(job.id)
    assert (found.state, found.attempt) == ("succeeded", 1 if moment == END[1] else 2)


def test_a_job_without_a_block_of_its_own_tells_nothing(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def plain() -> None: ...

    told: list[Commit] = []
    with at_commits(told.append):
        assert mainspring.run_one(plain.job()).state == "succeeded"
    assert told == []
