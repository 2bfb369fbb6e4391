"""Others who act while time passes: time stops at their instants, in both colours."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any

import pytest

import mainspring as ms
from mainspring.testing import Harness

pytestmark = pytest.mark.anyio
tasks = ms.Registry("inn")
seen: list[tuple[str, datetime]] = []


@tasks.task
async def serve(ctx: ms.Context, *, guest: str) -> None:
    """Somebody was served."""
    async with ctx.complete() as conn:
        ((now,),) = await (await conn.execute("select mainspring.now()")).fetchall()
    seen.append((guest, now))


@pytest.fixture(scope="module")
def mainspring_app() -> ms.Registry:
    return tasks


@pytest.fixture(autouse=True)
def nothing_seen() -> None:
    seen.clear()


class Guest:
    """Comes at some instants, and orders."""

    def __init__(self, mainspring: Harness, *at: datetime, name: str = "guest") -> None:
        self.mainspring, self.name = mainspring, name
        self.at = list(at)
        self.came: list[datetime] = []

    def next_at(self, now: datetime) -> datetime | None:
        return self.at[0] if self.at else None

    def visit(self, now: datetime) -> object:
        self.came.append(now)
        self.at.pop(0)
        return self.mainspring.client.enqueue(serve.job(guest=self.name))


class Patient(Guest):
    """The same, async."""

    async def visit(self, now: datetime) -> None:
        super().visit(now)


@pytest.fixture(params=[Guest, Patient])
def guest(request: pytest.FixtureRequest, mainspring: Harness) -> Callable[..., Guest]:
    """Makes a guest who comes so many minutes from now."""

    def made(*minutes: int, name: str = "guest") -> Guest:
        found: Guest = request.param(mainspring, *map(in_minutes(mainspring), minutes), name=name)
        mainspring.visitors.append(found)
        return found

    return made


def in_minutes(mainspring: Harness) -> Callable[[int], datetime]:
    start = mainspring.now()
    return lambda minutes: start + timedelta(minutes=minutes)


def test_time_stops_where_a_visitor_wants_to_act_and_what_it_brings_runs_there(
    mainspring: Harness, guest: Callable[..., Guest]
) -> None:
    late, early, at = guest(30, 59, 61, name="late"), guest(5, 30, name="early"), in_minutes(mainspring)
    mainspring.client.enqueue(serve.job(guest="booked").at(at(30)))

    drained = mainspring.advance(hours=1)

    assert seen == [
        ("early", at(5)), ("booked", at(30)), ("late", at(30)), ("early", at(30)), ("late", at(59)),
    ]  # fmt: skip
    assert (drained.counts, late.came, early.came) == ({"succeeded": 5}, [at(30), at(59)], [at(5), at(30)])
    assert (late.at, mainspring.now()) == ([at(61)], at(60))


async def test_it_is_so_in_the_tests_own_loop(mainspring: Harness, guest: Callable[..., Guest]) -> None:
    guest(5, 30)
    at = in_minutes(mainspring)

    await mainspring.aadvance(minutes=10)
    assert seen == [("guest", at(5))]
    await mainspring.arun_until(lambda: len(seen) == 2)
    assert (seen[1:], mainspring.now()) == ([("guest", at(30))], at(30))


def test_drain_lets_those_come_whose_time_it_is(mainspring: Harness, guest: Callable[..., Guest]) -> None:
    guest(0, 0, 1)
    now = mainspring.now()

    mainspring.drain()

    assert seen == [("guest", now)] * 2


def test_a_condition_is_looked_at_between_visits_and_jobs(mainspring: Harness, guest: Callable[..., Guest]) -> None:
    visitor = guest(5)

    mainspring.run_until(lambda: visitor.came)
    assert seen == []  # it ordered, and time stopped there
    mainspring.drain()
    assert seen == [("guest", visitor.came[0])]


class Haunting:
    """Wants to act whenever it is asked."""

    def next_at(self, now: datetime) -> datetime | None:
        return now

    def visit(self, now: datetime) -> None:
        """Nothing comes of it."""


def test_who_wants_to_come_again_at_once_for_ever_fails_the_test(mainspring: Harness) -> None:
    mainspring.visitors.append(Haunting())

    for verb in (mainspring.drain, lambda **limit: mainspring.run_until(lambda: False, **limit)):
        with pytest.raises(AssertionError, match="visitors came 3 times"):
            verb(limit=3)


def test_what_a_visitor_raises_fails_the_test(mainspring: Harness) -> None:
    class Thief(Haunting):
        def visit(self, now: datetime) -> None:
            raise LookupError("nothing here to take")

    mainspring.visitors.append(Thief())

    with pytest.raises(LookupError, match="nothing here to take"):
        mainspring.drain()


def test_beside_a_real_worker_they_come_while_time_is_moved(mainspring: Harness, guest: Callable[..., Guest]) -> None:
    visitor, at = guest(5, 30, 61), in_minutes(mainspring)

    with mainspring.working():
        mainspring.advance(hours=1)
        mainspring.wait_for("job.succeeded")

    assert (visitor.came, mainspring.now()) == ([at(5), at(30)], at(60))


def test_other_threads_see_the_time_without_the_tests_connection(mainspring: Harness) -> None:
    mainspring.advance(days=3)
    with ThreadPoolExecutor(1) as elsewhere, mainspring.conn.lock:  # which a question would wait for
        seen_there: Any = elsewhere.submit(mainspring.now).result(timeout=5)

    assert seen_there == mainspring.now()
