"""Rates inside a worker: who is let through when, and what is counted."""

from __future__ import annotations

import asyncio
import random
import time
from datetime import timedelta
from typing import Any, cast

import msgspec
import pytest
import uvloop
from tests.worker.limits.windows import largest
from tests.worker.stage import Stage
from tests.worker.test_crew import Begun, Moment, crew, held

import mainspring as ms
from mainspring.worker import handlers
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.crew import Crew
from mainspring.worker.rates import Rates
from mainspring.worker.thread_context import ThreadContext


def rated(size: int, n: int) -> tuple[Crew, Begun, Rates, Moment]:
    """A crew whose worker holds a share of so many a second."""
    clock = Moment()
    rates = Rates(loop=cast(Any, clock))
    some, begun = crew(size, rates=rates)
    rates.answered([("l/", n, 1, n, 1.0, 60.0, 0, 0)], {}, (), clock.now)
    return some, begun, rates, clock


def arrive(some: Crew, *epochs: int) -> list[LiveAttempt]:
    runs = [held(epoch, 10.0) for epoch in epochs]
    for run in runs:
        some._rates.receive(run, ["l/"])
        some.add(run)
    return runs


def test_what_a_rate_lets_through_starts_before_what_waits_for_a_slot() -> None:
    one, begun, rates, clock = rated(size=1, n=1)
    (first,) = arrive(one, 1)
    rates.entered(first)
    arrive(one, 2)
    one.add(held(3))
    one.add(held(4))
    clock.now += 1.1
    one.ended(0.1)
    assert begun == [1, 2]
    one.ended(0.1)
    assert begun == [1, 2, 3]


def test_what_waits_for_its_rate_needs_no_slot_and_room_for_others_is_asked_for() -> None:
    ten, begun, rates, _ = rated(size=10, n=2)
    for run in arrive(ten, *range(1, 8)):
        rates.entered(run)
    assert begun == [1, 2]
    assert ten.load == 7
    assert ten.want() == 8
    ten.add(held(9))
    assert begun == [1, 2, 9]


def test_what_passes_a_rate_that_is_far_away_waits_for_its_slot_like_any_other() -> None:
    one, begun, _, _ = rated(size=1, n=1000)
    arrive(one, 1)
    one.add(held(2))
    (third,) = arrive(one, 3)
    assert one.want() == 0
    one.ended(0.1)
    one.ended(0.1)
    assert begun == [1, 2, 3]
    assert third.passing, "it counts until its handler is entered"


def test_nothing_starts_after_an_outage_by_what_a_rate_had_let_through_before() -> None:
    one, _, rates, clock = rated(size=1, n=1000)
    _, second = arrive(one, 1, 2)
    one.close()
    rates.distrust()
    assert second.start_by < clock.now, "it goes back unburnt instead"


@pytest.mark.parametrize("n", [10, 400, 1000, 2000])
def test_no_window_holds_more_than_a_share_however_coarsely_it_is_counted(n: int) -> None:
    chance = random.Random(n)
    some, _, rates, clock = rated(size=10**6, n=n)
    stamps: list[float] = []
    for epoch in range(600 if n < 1000 else 150):  # of a large share 600 take seconds
        runs = arrive(some, *range(epoch * 1000, epoch * 1000 + chance.choice([1, 5, n // 7 + 1])))
        for run in runs:
            if run.passing:
                rates.enters(run)
                stamps.append(clock.now)
        clock.pass_until(clock.now + chance.choice([0.0001, 0.003, 0.05, 0.2]))
        for stale in some.give_back_gated():
            rates.give_back(stale)
        rates.answered([("l/", n, 1, n, 1.0, 60.0, 0, 0)], {}, (), clock.now)

    assert largest(stamps, 1.0) <= n
    assert largest(stamps, 1.0) > n // 2


def test_a_job_that_was_cancelled_while_it_waited_ends_without_being_counted() -> None:
    ten, begun, rates, clock = rated(size=10, n=1)
    first, second, third = arrive(ten, 1, 2, 3)
    rates.entered(first)
    second.cancelled = True
    clock.now += 0.1
    ten.opened()
    assert begun == [1, 2]
    rates.give_back(second)
    clock.now += 1.0
    ten.opened()
    assert begun == [1, 2, 3]
    assert third.passing


def test_an_entry_counts_until_its_handler_is_known_to_have_been_entered() -> None:
    ten, begun, rates, clock = rated(size=10, n=1)
    first, _ = arrive(ten, 1, 2)
    clock.now += 5.0  # on its way: a decision of the application took so long
    ten.opened()
    assert begun == [1]
    rates.entered(first)
    clock.now += 0.9
    ten.opened()
    assert begun == [1]
    clock.now += 0.2
    ten.opened()
    assert begun == [1, 2]


def test_one_that_was_entered_and_one_on_its_way_fill_a_rate_of_two() -> None:
    ten, begun, rates, clock = rated(size=10, n=2)
    (first,) = arrive(ten, 1)
    rates.entered(first)
    clock.now += 0.5
    arrive(ten, 2, 3)
    assert begun == [1, 2]
    clock.now += 0.6  # the first counts no longer
    ten.opened()
    assert begun == [1, 2, 3]


def test_one_that_goes_back_on_its_way_makes_room_for_another() -> None:
    ten, begun, rates, _ = rated(size=10, n=1)
    first, _ = arrive(ten, 1, 2)
    rates.give_back(first)
    ten.opened()
    assert begun == [1, 2]


def said(rates: Rates, clock: Moment) -> int:
    """How much of its rate the worker says it keeps."""
    (share,) = msgspec.json.decode(rates.report(clock.now, alone=True)[0])
    return int(share["n"])


def test_what_is_on_its_way_to_its_handler_is_kept_whoever_wants_more_and_when_the_worker_stops() -> None:
    ten, begun, rates, clock = rated(size=10, n=4)
    runs = arrive(ten, 1, 2, 3)
    rates.answered([("l/", 4, 1, 1, 1.0, 60.0, 0, 0)], {}, (), clock.now)  # others need more
    assert said(rates, clock) == 3
    rates.answered([("l/", 3, 2, 3, 1.0, 60.0, 0, 0)], {}, (), clock.now)
    rates.let_go()
    assert said(rates, clock) == 3
    for run in runs:
        rates.entered(run)
    rates.let_go()
    assert said(rates, clock) == 0
    assert begun == [1, 2, 3]


def test_what_is_on_its_way_goes_on_counting_beside_what_was_entered_until_it_has_come_to_its_handler() -> None:
    ten, begun, rates, clock = rated(size=10, n=7)
    for run in arrive(ten, 1, 2, 3, 4, 5):
        rates.entered(run)
    runs = arrive(ten, 6, 7)
    rates.answered([("l/", 7, 1, 5, 1.0, 60.0, 0, 0)], {}, (), clock.now)  # others need two of them
    assert said(rates, clock) == 7  # five entered, two that will be: nothing is free yet
    for run in runs:
        rates.entered(run)
    arrive(ten, 8)
    assert said(rates, clock) == 5  # the seven entries are told beside it
    assert begun == [1, 2, 3, 4, 5, 6, 7]


def test_what_is_on_its_way_counts_as_entered_once_the_share_may_be_somebody_elses() -> None:
    ten, _, rates, clock = rated(size=10, n=3)
    rates.entered(arrive(ten, 1)[0])
    arrive(ten, 2)
    rates.distrust()
    rates.let_go()
    told, _ = rates.report(clock.now, alone=True)
    assert msgspec.json.decode(told)[0]["counts"] == [1, 1]


def test_a_share_lasts_from_when_it_was_asked_for_and_not_once_the_database_is_away() -> None:
    ten, begun, rates, clock = rated(size=10, n=1)
    rates.distrust()
    arrive(ten, 1)
    assert begun == []
    rates.answered([("l/", 1, 1, 1, 1.0, 3.0, 0, 0)], {}, (), clock.now - 3.0)  # an answer that took three seconds
    ten.opened()
    assert begun == []
    rates.answered([("l/", 1, 1, 1, 1.0, 3.0, 0, 0)], {}, (), clock.now)
    ten.opened()
    assert begun == [1]


def test_an_answer_to_an_earlier_question_does_not_bring_back_what_is_being_given_up() -> None:
    ten, begun, rates, clock = rated(size=10, n=4)
    rates.answered([("l/", 4, 1, 2, 1.0, 60.0, 0, 0)], {}, (), clock.now)  # others need two of them
    rates.answered([("l/", 4, 1, 4, 1.0, 60.0, 0, 0)], {}, (), clock.now)  # was asked before anybody did
    arrive(ten, 1, 2, 3)
    assert begun == [1, 2]
    assert said(rates, clock) == 2


def test_an_answer_that_was_overtaken_forgets_nothing_that_was_entered() -> None:
    """An idle share's row was gone when the first of two turns asked; the second, heard of before it, made it anew."""
    ten, begun, rates, clock = rated(size=10, n=1)
    clock.now += 5.0
    rates.answered([("l/", 0, 2, 0, 1.0, 0.0, 0, 0)], {}, (), clock.now)  # it was let go
    clock.now += 1.0
    first_sent = clock.now
    clock.now += 0.1
    second_sent = clock.now
    clock.now += 0.1
    rates.answered([("l/", 1, 3, 1, 1.0, 60.0, 0, 0)], {}, (), second_sent)
    (one,) = arrive(ten, 1)
    rates.entered(one)
    assert begun == [1]

    assert rates.answered([], {}, (), first_sent) == []
    rates.answered([("l/", 1, 3, 1, 1.0, 60.0, 1, 0)], {}, (), clock.now)
    arrive(ten, 2)
    assert begun == [1]
    clock.now += 1.1
    ten.ended(0.1)
    assert begun == [1, 2]

    asked_since = clock.now + 0.1
    assert [share.gate for share in rates.answered([], {}, (), asked_since)] == ["l/"]  # it is gone indeed


def test_a_window_of_less_than_a_millisecond_opens_on_the_loop_that_commands_run_on() -> None:
    """uvloop makes no timer of what is due within half a millisecond, so there is none to ask when it rings."""

    async def enter() -> None:
        loop = asyncio.get_running_loop()
        rates = Rates(loop=loop)
        some, begun = crew(10, rates=rates)
        rates.answered([("l/", 1, 1, 1, 0.0004, 60.0, 0, 0)], {}, (), loop.time())
        waiting = dict[int, LiveAttempt]()
        for epoch in range(50):
            waiting[epoch] = held(epoch, loop.time())
            rates.receive(waiting[epoch], ["l/"])
            some.add(waiting[epoch])
            some.opened()
        entered = 0
        while entered < 50:
            for epoch in begun[entered:]:
                rates.entered(waiting[epoch])
                some.ended(0.0)
                entered += 1
            some.opened()
            await asyncio.sleep(0)

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(enter(), 60))


@pytest.mark.anyio
@pytest.mark.parametrize("kind", ["async", "thread"])
async def test_handlers_are_entered_no_more_often_than_the_rate_says(stage: Stage, kind: str) -> None:
    tasks = ms.Registry("rates")
    entered: list[float] = []

    if kind == "async":

        @tasks.task(name="work")
        async def work() -> None:
            entered.append(time.monotonic())
    else:

        @tasks.task(name="work")
        def work_in_thread() -> None:
            entered.append(time.monotonic())

    await stage.client.limits.set(ms.rate(task="work", most=5, per="200ms"))
    await stage.enqueue_many([tasks.get("work").job() for _ in range(25)])
    async with stage.work(tasks):
        await stage.until(lambda: len(entered) == 25)
    assert largest(entered, 0.2) <= 5
    assert stage.rows("select count(*), max(attempt) from mainspring.finished") == [(25, 1)]


@pytest.mark.anyio
async def test_a_worker_that_stops_lets_go_of_its_shares(stage: Stage) -> None:
    tasks = ms.Registry("rates")
    entered = asyncio.Event()

    @tasks.task
    async def work() -> None:
        entered.set()

    await stage.client.limits.set(ms.rate(task=work.name, most=5, per="1h"))
    await stage.enqueue(work.job())
    async with stage.work(tasks, poll_interval=timedelta(seconds=1)):
        await entered.wait()
    assert stage.rows("select n, count from mainspring.share") == [(0, [1])]


@pytest.mark.anyio
@pytest.mark.rule("ENG-25.02")
async def test_threads_that_are_held_up_on_their_way_to_their_handlers_exceed_no_rate(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks, entered, chance = ms.Registry("rates"), list[float](), random.Random(7)

    class HeldUp(ThreadContext):
        def __init__(self, *given: Any) -> None:
            time.sleep(chance.choice((0.0, 0.25)))
            super().__init__(*given)

    monkeypatch.setattr(handlers, "ThreadContext", HeldUp)

    @tasks.task
    def brisk(ctx: ms.SyncContext) -> None:
        entered.append(time.monotonic())

    await stage.client.limits.set(ms.rate(task="brisk", most=4, per="300ms"))
    await stage.enqueue_many([brisk.job()] * 24)
    async with stage.work(tasks):
        await stage.until(lambda: len(entered) == 24)
    assert largest(entered, 0.3) <= 4
