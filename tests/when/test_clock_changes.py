"""What a rule does when clocks change."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import pairwise

import pytest

import mainspring as ms
from mainspring.when.occurrences import Gap, Overlap
from mainspring.when.rule import Rule


def local(rule: Rule, day: str, days: int = 1) -> list[str]:
    """The ticks in local days, as clocks show them."""
    start = datetime.fromisoformat(f"{day}T00:00+00:00")
    ticks = rule.ticks(start - timedelta(days=2), start + timedelta(days=days + 2))
    wanted = [f"{start + timedelta(days=n):%F}" for n in range(days)]
    return [f"{tick.local:%H:%M%z}" for tick in ticks if f"{tick.local:%F}" in wanted]


@pytest.mark.parametrize(("gap", "ticks"), [("shift", ["03:00-0400"]), ("skip", [])])
def test_a_time_that_is_jumped_over_shifts_to_the_jump_or_is_skipped(gap: Gap, ticks: list[str]) -> None:
    rule = ms.daily("02:30", zone="America/New_York", gap=gap)

    assert local(rule, "2026-03-08") == ticks


@pytest.mark.parametrize(
    ("overlap", "ticks"),
    [("first", ["01:30-0400"]), ("last", ["01:30-0500"]), ("both", ["01:30-0400", "01:30-0500"])],
)
def test_a_time_that_comes_twice_runs_the_first_the_last_or_both_times(overlap: Overlap, ticks: list[str]) -> None:
    rule = ms.daily("01:30", zone="America/New_York", overlap=overlap)

    assert local(rule, "2026-11-01") == ticks


def test_times_that_shift_to_one_instant_are_one_tick() -> None:
    assert local(ms.cron("0,30 2 * * *", zone="America/New_York"), "2026-03-08") == ["03:00-0400"]
    assert local(ms.cron("0 2,3 * * *", zone="America/New_York"), "2026-03-08") == ["03:00-0400"]
    assert local(ms.cron("0,30 2 * * *", zone="America/New_York", gap="skip"), "2026-03-08") == []


@pytest.mark.parametrize(
    ("zone", "day", "tick"),
    [
        ("America/Santiago", "2026-09-06", "01:00-0300"),
        ("Asia/Beirut", "2026-03-29", "01:00+0300"),
        ("Africa/Cairo", "2026-04-24", "01:00+0300"),
        ("America/Havana", "2026-03-08", "01:00-0400"),
    ],
)
def test_a_day_without_a_midnight_begins_at_its_first_instant(zone: str, day: str, tick: str) -> None:
    assert local(ms.daily("00:00", zone=zone), day) == [tick]
    assert local(ms.daily("00:00", zone=zone, gap="skip"), day) == []


@pytest.mark.parametrize(
    ("zone", "day", "time", "ticks"),
    [
        ("Australia/Lord_Howe", "2026-10-04", "02:15", ["02:30+1100"]),  # half an hour
        ("Australia/Lord_Howe", "2026-04-05", "01:45", ["01:45+1100"]),
        ("Antarctica/Troll", "2026-03-29", "02:30", ["03:00+0200"]),  # two hours
        ("Antarctica/Troll", "2026-10-25", "02:30", ["02:30+0200"]),
        ("Africa/Casablanca", "2026-02-15", "02:30", ["02:30+0100"]),  # Ramadan begins
        ("Africa/Casablanca", "2026-03-22", "02:30", ["03:00+0100"]),  # and ends
        ("Asia/Kathmandu", "2026-03-29", "02:30", ["02:30+0545"]),
    ],
)
def test_unusual_zones_run_once_a_day(zone: str, day: str, time: str, ticks: list[str]) -> None:
    assert local(ms.daily(time, zone=zone), day) == ticks


@pytest.mark.parametrize(
    ("zone", "missing"),
    [("Pacific/Apia", "2011-12-30"), ("Pacific/Kwajalein", "1993-08-21"), ("Pacific/Fakaofo", "2011-12-30")],
)
@pytest.mark.parametrize("time", ["00:00", "12:00", "23:59"])
@pytest.mark.parametrize("gap", ["shift", "skip"])
def test_a_date_that_does_not_exist_has_no_tick(zone: str, missing: str, time: str, gap: Gap) -> None:
    day = datetime.fromisoformat(f"{missing}T12:00+00:00")
    ticks = list(ms.daily(time, zone=zone, gap=gap).ticks(day - timedelta(days=4), day + timedelta(days=4)))

    assert missing not in {f"{tick.local:%F}" for tick in ticks}
    assert {f"{tick.local:%R}" for tick in ticks} == {time}
    assert {later.at - earlier.at for earlier, later in pairwise(ticks)} == {timedelta(days=1)}


def test_a_jump_over_midnight_belongs_to_the_evening() -> None:
    rule = ms.daily("23:30", zone="America/Nuuk")  # 23:00 on Saturday is followed by 00:00 on Sunday

    assert local(rule, "2026-03-28", 2) == ["00:00-0100", "23:30-0100"]
    assert local(ms.cron("0 0,23 * * *", zone="America/Nuuk"), "2026-03-29") == ["00:00-0100", "23:00-0100"]


def test_an_overlap_across_midnight_stays_in_order() -> None:
    rule = ms.cron("45 0,23 * * *", zone="America/St_Johns", overlap="both")  # 00:01 on Sunday, then 23:01 on Saturday
    start = datetime(2010, 11, 6, 12, tzinfo=UTC)
    ticks = [f"{tick.local:%a %H:%M%z}" for tick in rule.ticks(start, start + timedelta(days=1))]

    assert ticks == ["Sat 23:45-0230", "Sat 23:45-0330", "Sun 00:45-0330"]


@pytest.mark.parametrize("expression", ["*/15 * * * *", "15 */1 * * *", "30 */2 * * *"])
@pytest.mark.parametrize(("gap", "overlap"), [("shift", "first"), ("skip", "last")])
def test_hours_with_a_star_follow_elapsed_time(expression: str, gap: Gap, overlap: Overlap) -> None:
    rule = ms.cron(expression, zone="America/New_York", gap=gap, overlap=overlap)
    count = {"*/15 * * * *": (92, 100), "15 */1 * * *": (23, 25), "30 */2 * * *": (11, 12)}[expression]

    assert (len(local(rule, "2026-03-08")), len(local(rule, "2026-11-01"))) == count


def test_a_star_hour_runs_in_both_halves_of_an_overlap() -> None:
    rule = ms.cron("30 * * * *", zone="America/New_York")

    assert local(rule, "2026-11-01")[:4] == ["00:30-0400", "01:30-0400", "01:30-0500", "02:30-0500"]
    assert local(rule, "2026-03-08")[:3] == ["00:30-0500", "01:30-0500", "03:30-0400"]


def test_all_hours_by_number_mean_the_star() -> None:
    assert ms.cron("30 0-23 * * *") == ms.cron("30 * * * *")
    assert len(local(ms.cron("30 0-23 * * *", zone="America/New_York"), "2026-11-01")) == 25


def test_star_minutes_of_a_fixed_hour_run_once_a_day() -> None:
    rule = ms.cron("*/30 1 * * *", zone="America/New_York")

    assert local(rule, "2026-11-01") == ["01:00-0400", "01:30-0400"]


def test_every_counts_elapsed_time_whatever_clocks_do() -> None:
    rule = ms.every(hours=6, zone="America/New_York")
    ticks = [tick.at for tick in rule.ticks(datetime(2026, 3, 7, tzinfo=UTC), datetime(2026, 3, 10, tzinfo=UTC))]

    assert {later - earlier for earlier, later in pairwise(ticks)} == {timedelta(hours=6)}


def test_asking_in_the_zone_of_the_rule_gives_the_same_answer() -> None:
    rule = ms.every(hours=1, anchor=datetime(2026, 1, 1, tzinfo=UTC), zone="America/New_York")
    after = datetime(2026, 11, 1, 5, 30, tzinfo=UTC)  # the second half of the repeated hour begins at 06:00Z
    there = rule.next(after)
    assert there is not None

    assert rule.next(there.local) == rule.next(there.at)
    assert rule.in_zone("UTC").next(there.local) != rule.in_zone("UTC").next(after)
