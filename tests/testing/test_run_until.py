"""`run_until`: time passes until something is so."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from mainspring import Context, Registry, every
from mainspring.testing import Harness


@pytest.fixture
def ran(tasks: Registry, mainspring: Harness) -> list[tuple[str, timedelta]]:
    began, ran = mainspring.now(), list[tuple[str, timedelta]]()

    @tasks.task
    async def note(*, name: str) -> None:
        ran.append((name, mainspring.now() - began))

    for name, hours in (("a", 1), ("b", 3), ("c", 3), ("d", 5)):
        mainspring.client.enqueue(note.job(name=name).after(timedelta(hours=hours)))
    return ran


def names(ran: list[tuple[str, timedelta]]) -> list[str]:
    return [name for name, _ in ran]


def test_time_stops_where_the_condition_holds_and_nothing_more_runs(
    mainspring: Harness, ran: list[tuple[str, timedelta]]
) -> None:
    began = mainspring.now()

    done = mainspring.run_until(lambda: "b" in names(ran))

    assert ran == [("a", timedelta(hours=1)), ("b", timedelta(hours=3))]  # c is due at the same instant, and waits
    assert [run.at - began for run in done] == [timedelta(hours=1), timedelta(hours=3)]
    assert mainspring.now() == began + timedelta(hours=3)
    assert len(mainspring.drain()) == 1


def test_a_condition_that_holds_already_runs_nothing(mainspring: Harness, ran: list[tuple[str, timedelta]]) -> None:
    assert len(mainspring.run_until(lambda: True)) == 0
    assert ran == []


def test_up_to_an_instant_it_is_advance(mainspring: Harness, ran: list[tuple[str, timedelta]]) -> None:
    target = mainspring.now() + timedelta(hours=4)

    assert len(mainspring.run_until(target)) == 3
    assert mainspring.now() == target


def test_a_condition_that_never_holds_fails_the_test_and_says_why(
    mainspring: Harness, ran: list[tuple[str, timedelta]]
) -> None:
    with pytest.raises(AssertionError, match="the next is due"):
        mainspring.run_until(lambda: False, within=timedelta(hours=4))
    with pytest.raises(AssertionError, match=r"nothing else is due; .*1 jobs ran"):
        mainspring.run_until(lambda: False)


def test_jobs_that_enqueue_each_other_end(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task
    async def again(ctx: Context) -> None:
        await ctx.enqueue(again.job())

    mainspring.client.enqueue(again.job())
    with pytest.raises(AssertionError, match="20 jobs ran"):
        mainspring.run_until(lambda: False, limit=20)


def test_schedules_fire_on_the_way_at_their_exact_instants(mainspring: Harness, tasks: Registry) -> None:
    seen: list[timedelta] = []

    @tasks.task
    async def tick() -> None:
        seen.append(timedelta(minutes=mainspring.now().minute, seconds=mainspring.now().second))

    tasks.schedule("quarters", every(minutes=15), tick)

    done = mainspring.run_until(lambda: len(seen) == 3)

    assert {at.total_seconds() % 900 for at in seen} == {0}
    assert done.counts == {"succeeded": 3}


def test_the_condition_is_asked_in_the_thread_of_the_test(
    mainspring: Harness, ran: list[tuple[str, timedelta]]
) -> None:
    threads = set[int]()

    def so() -> bool:
        threads.add(threading.get_ident())
        found = mainspring.conn.execute("select count(*) from mainspring.finished").fetchone()
        return found == (2,)

    mainspring.run_until(so)

    assert threads == {threading.get_ident()}
    assert names(ran) == ["a", "b"]


@pytest.mark.anyio
async def test_in_the_loop_of_the_test_the_condition_may_be_async(
    mainspring: Harness, ran: list[tuple[str, timedelta]]
) -> None:
    async def so() -> bool:
        return "a" in names(ran)

    assert len(await mainspring.arun_until(so)) == 1
    assert len(await mainspring.arun_until(lambda: "b" in names(ran))) == 1
    assert len(await mainspring.arun_until(mainspring.now() + timedelta(hours=9))) == 2


def test_beside_a_worker_that_works_by_itself_it_is_refused(
    mainspring: Harness, ran: list[tuple[str, timedelta]]
) -> None:
    with mainspring.working(), pytest.raises(RuntimeError, match="wait_for"):
        mainspring.run_until(lambda: True)
