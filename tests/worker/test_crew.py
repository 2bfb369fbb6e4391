from __future__ import annotations

from typing import Any, cast

import pytest
from msgspec.structs import replace
from tests.worker.claims import CLAIM

from mainspring import Registry
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.crew import Crew
from mainspring.worker.rates import Rates

tasks = Registry("test")


@tasks.task
async def work() -> None: ...


class Begun(list[int]):
    """The epochs that a crew has begun."""

    def __call__(self, run: LiveAttempt) -> None:
        self.append(run.claim.epoch)


class Moment:
    """A loop whose time is the test's."""

    now = 10.0

    def __init__(self) -> None:
        self.calls: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now

    def call_at(self, when: float, call: Any) -> None:
        self.calls.append((when, call))

    def call_soon(self, call: Any) -> None:
        self.calls.append((self.now, call))

    def pass_until(self, then: float) -> None:
        """Let it become so late, and call what was to be called by then."""
        self.now = then
        due = [call for when, call in self.calls if when <= then]
        self.calls = [(when, call) for when, call in self.calls if when > then]
        for call in due:
            call()


def crew(size: int = 2, most: int = 1000, rates: Rates | None = None) -> tuple[Crew, Begun]:
    begun = Begun()
    rates = rates or Rates(loop=cast(Any, Moment()))
    return Crew(["work"], size, {"q:default": 1}, most, rates, begun), begun


def held(epoch: int, since: float = 0.0) -> LiveAttempt:
    return LiveAttempt(replace(CLAIM, epoch=epoch), tasks.get("work"), since, since + 54)


def test_a_crew_starts_as_many_jobs_as_it_has_slots_and_holds_the_rest_in_order() -> None:
    two, begun = crew(2)
    for epoch in range(1, 5):
        two.add(held(epoch))
    assert (begun, two.running, two.load) == ([1, 2], 2, 4)

    two.ended(0.1)
    assert (begun, two.running, two.load) == ([1, 2, 3], 2, 3)


def test_as_long_as_handlers_are_slow_or_unknown_no_more_is_wanted_than_there_are_slots() -> None:
    ten, _ = crew(10)
    assert ten.want() == 10

    ten.add(held(1))
    assert ten.want() == 9


def test_a_job_that_came_too_late_to_its_slot_makes_a_crew_claim_no_more_than_it_has_slots() -> None:
    ten, _ = crew(10)
    for epoch in range(200):
        ten.add(held(epoch))
        ten.ended(0.01)
    assert ten.want() > 10
    ten.late()
    assert ten.want() == 10


def test_what_is_expected_to_start_within_50_ms_is_wanted_as_well_up_to_a_limit() -> None:
    ten, _ = crew(10, most=500)
    for epoch in range(200):
        ten.add(held(epoch))
        ten.ended(0.001)
    assert 10 < ten.want() <= 510

    for epoch in range(2000):
        ten.add(held(epoch))
        ten.ended(0.000_001)
    assert ten.want() == 510


def test_nothing_starts_while_the_database_is_away() -> None:
    two, begun = crew(2)
    two.open = False
    two.add(held(1))
    two.fill()
    assert begun == []

    two.open = True
    two.fill()
    assert begun == [1]


@pytest.mark.parametrize("since", [1.0, 2.0])
def test_jobs_held_too_long_are_let_go_and_the_others_kept(since: float) -> None:
    one, begun = crew(1)
    one.add(held(1, since=0.0))
    one.add(held(2, since=1.0))
    one.add(held(3, since=2.0))

    gone = [run.claim.epoch for run in one.give_back(since)]

    assert gone == [epoch for epoch, at in ((2, 1.0), (3, 2.0)) if at <= since]
    assert one.load == 3 - len(gone)
    assert one.want() == 0, "handlers are slow: nothing is claimed ahead any more"
    assert begun == [1], "what runs is kept"


def test_a_held_job_whose_lease_was_lost_does_not_start() -> None:
    one, begun = crew(1)
    one.add(held(1))
    lost = held(2)
    one.add(lost)
    one.add(held(3))
    lost.settled = True
    one.ended(0.1)

    assert begun == [1, 3]


def test_a_suspect_that_outlives_its_crash_lets_others_come_and_counts_once() -> None:
    clock = Moment()
    two, _ = crew(2, rates=Rates(loop=cast(Any, clock)))
    two.suspects.answered(two.suspects.ask(), 1)
    suspect = held(1)
    suspect.claim = replace(CLAIM, epoch=1, crashes=1)
    suspect.crew = two

    two.clear_after(suspect, 1.0)
    clock.pass_until(11.0)
    assert two.suspects.ask() == 0, "it waited for its slot for so long"
    suspect.began, suspect.handle = 11.5, cast(Any, "running")
    clock.pass_until(12.0)
    assert two.suspects.ask() == 0, "it has run for half a second"
    clock.pass_until(12.5)
    assert two.suspects.ask() == 2

    two.suspect_ended(suspect)
    assert two.suspects.ask() == 0, "it was counted before"
