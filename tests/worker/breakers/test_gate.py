"""What one process decides by itself, by a clock that the test holds."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring.circuit import breaker
from mainspring.db.breakers import BreakerView
from mainspring.worker.local_breaker import LocalBreaker, whole

STRIPE = whole("stripe")
NOON = datetime(2030, 1, 1, 12, tzinfo=UTC)


def gate(**rule: Any) -> LocalBreaker:
    return LocalBreaker(STRIPE, breaker("stripe", **({"failures": 3} | rule if "rate" not in rule else rule)))


def calls(found: LocalBreaker, failed: bool | None, times: int, now: float = 0.0) -> None:
    for _ in range(times):
        found.leave(found.enter(now), failed, now)


def seen(state: Any, wait: float = 0.0, troubled: bool = True, held: bool = False) -> BreakerView:
    return BreakerView(*STRIPE, state, wait, troubled, NOON, held)


def test_own_failures_open_it_at_once_and_the_database_hears_of_each_once() -> None:
    found = gate()
    calls(found, True, 2)
    before = found.closed
    calls(found, True, 1)

    assert (before, found.closed) == (True, False)
    calls(found, True, 5)  # they say nothing new
    (call,) = found.take(2.0)
    assert (call.ages, call.probe, found.take(2.0)) == ([2.0, 2.0, 2.0], None, [])


def test_what_the_database_said_before_it_heard_does_not_close_it() -> None:
    found = gate()
    calls(found, True, 3)

    assert not found.learn(seen("closed"), 0.0)
    assert not found.closed
    found.take(0.0)
    assert found.learn(seen("closed"), 0.0)  # it knows better: somebody holds it closed, say
    assert found.closed


def test_what_a_person_holds_closed_neither_opens_nor_holds_calls_back_until_it_is_released() -> None:
    found = gate()
    calls(found, True, 3)
    assert found.learn(seen("closed", held=True), 0.0)  # though it has not heard all: whatever calls say
    calls(found, True, 10, 1.0)
    under_way = [found.enter(1.0) for _ in range(10)]
    assert (found.closed, found.crowded(1.0), found.idle(1000.0)) == (True, False, False)

    found.take(1.0)
    found.learn(seen("closed"), 1.0)
    assert found.crowded(1.0)
    found.leave(under_way[0], True, 1.0)
    assert not found.closed


def test_what_was_not_heard_is_said_again() -> None:
    found = gate()
    calls(found, True, 3)
    found.leave(found.enter(0.0, probe=7), False, 0.0)
    for call in found.take(1.0):
        found.put_back(call, 1.0)

    probe, failures = found.take(3.0)
    assert (probe.probe, probe.succeeded, failures.ages) == (7, 1, [3.0, 3.0, 3.0])


def test_successes_are_said_beside_failures_only() -> None:
    found = gate(rate=0.5, calls=100)
    calls(found, False, 10)
    assert not found.unreported()
    assert found.unreported(thorough=True)
    found.learn(seen("closed"), 0.0)  # another process has seen failures
    assert found.unreported()
    assert found.take(0.0)[0].succeeded == 10


def test_nothing_but_failures_for_so_long_opens_it_and_a_success_anywhere_begins_the_row_anew() -> None:
    found = gate(failing_for=timedelta(seconds=60), within=timedelta(seconds=5))
    calls(found, True, 1, 0.0)
    calls(found, False, 1, 30.0)
    assert [call.succeeded for call in found.take(30.0)] == [1]  # the database should know
    calls(found, True, 1, 40.0)
    found.take(40.0)
    found.learn(seen("closed", troubled=False), 41.0)  # somebody else's call has succeeded
    calls(found, True, 1, 42.0)
    calls(found, True, 1, 101.0)
    before = found.closed
    calls(found, True, 1, 102.0)

    assert (before, found.closed) == (True, False)


def test_nothing_is_counted_by_number_while_all_is_well() -> None:
    found = gate()
    calls(found, False, 10)
    assert not found.unreported(thorough=True)


def test_who_is_put_off_hears_when_the_next_probe_is() -> None:
    found = gate(pause=timedelta(seconds=60))
    found.learn(seen("open", 42.0), 0.0)

    assert {found.put_off(1.0, NOON).after.total_seconds() for _ in range(3)} == {42.0}
    assert not found.half_open(41.0)
    assert found.half_open(42.0)


def test_the_databases_clock_says_when_to_ask() -> None:
    found = gate(pause=timedelta(seconds=60))
    found.learn(seen("open", 42.0), 0.0)

    assert not found.may_ask(1.0, NOON + timedelta(seconds=41))
    assert found.put_off(1.0, NOON + timedelta(seconds=40)).after == timedelta(seconds=2)
    assert found.may_ask(1.0, NOON + timedelta(seconds=42))  # it was moved, and the job was claimed since
    assert found.may_ask(43.0, NOON)  # the job has been running for a while


def test_while_a_probe_runs_nobody_asks_for_a_moment() -> None:
    found = gate(pause=timedelta(seconds=60))
    found.refused(10.0, 0.0, NOON)

    assert not found.may_ask(10.1, NOON)
    assert found.may_ask(10.3, NOON)


def test_a_call_that_began_before_it_closed_says_nothing() -> None:
    found = gate()
    late = [found.enter(0.0) for _ in range(3)]
    found.learn(seen("open", 1.0), 1.0)
    found.learn(None, 5.0)
    for call in late:
        found.leave(call, True, 6.0)

    assert found.closed
    assert not found.unreported()


def test_a_gate_that_is_quiet_may_be_forgotten() -> None:
    found = gate(within=timedelta(seconds=30))
    assert found.idle(0.0)
    call = found.enter(0.0)
    assert not found.idle(0.0)
    found.leave(call, True, 0.0)
    found.take(0.0)
    assert not found.idle(29.0)
    assert found.idle(31.0)


@pytest.mark.anyio
async def test_after_a_silence_the_first_calls_go_ahead_and_the_others_wait_how_they_fare() -> None:
    clock = asyncio.get_running_loop().time
    found = gate()
    first = [found.enter(clock()) for _ in range(3)]
    assert found.crowded(clock())

    others = [asyncio.create_task(found.see(clock)) for _ in range(5)]
    await asyncio.sleep(0.02)
    assert not any(other.done() for other in others)
    found.leave(first[0], False, clock())
    await asyncio.wait_for(asyncio.gather(*others), 0.5)

    assert not found.crowded(clock())  # one has succeeded: nobody waits any more


@pytest.mark.anyio
async def test_nobody_waits_for_the_first_longer_than_a_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.worker.local_breaker.FIRST_CALLS_S", 0.05)
    clock = asyncio.get_running_loop().time
    found = gate()
    for _ in range(3):
        found.enter(clock())

    await asyncio.wait_for(found.see(clock), 1.0)
