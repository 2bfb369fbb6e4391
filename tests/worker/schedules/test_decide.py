"""Which instants fire: the policies alone, without a database."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from mainspring import cron, daily, every
from mainspring.when.fire import MOST_MISSED_COUNTED, FirePolicy, decide, jitter, spread
from mainspring.when.rule import Rule

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)
MINUTELY = cron("* * * * *")


def outcome(rule: Rule, away: timedelta, *, busy: bool = False, **policy: object) -> list[tuple[str, str, int]]:
    """What becomes of a rule after nobody looked for a while, until a second past noon."""
    now = NOON + timedelta(seconds=1)
    found = decide(rule, now - away, now, FirePolicy(**policy), busy=busy)  # type: ignore[arg-type]
    return [(f"{one.tick.at:%d %H:%M}", one.how, one.instants) for one in found]


@pytest.mark.rule("ENG-13.09")
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ({"catch_up": "skip"}, [("01 11:59", "missed", 29), ("01 12:00", "fired", 1)]),
        ({"catch_up": "latest"}, [("01 11:59", "missed", 29), ("01 12:00", "fired", 1)]),
        (
            {"catch_up": "all", "most": 2},
            [("01 11:58", "missed", 28), ("01 11:59", "fired", 1), ("01 12:00", "fired", 1)],
        ),
    ],
)
def test_half_an_hour_down_of_a_rule_of_minutes(policy: dict[str, Any], expected: list[tuple[str, str, int]]) -> None:
    assert outcome(MINUTELY, timedelta(minutes=30), **policy) == expected


def test_what_counts_as_on_time_where_the_clock_runs_fast_fires_one_by_one() -> None:
    fast: dict[str, Any] = {"catch_up": "skip", "on_time": timedelta(minutes=10)}
    late = [("01 11:58", "fired", 1), ("01 11:59", "fired", 1), ("01 12:00", "fired", 1)]
    assert outcome(MINUTELY, timedelta(minutes=3), **fast) == late
    assert outcome(MINUTELY, timedelta(minutes=11), **fast)[0] == ("01 11:59", "missed", 10)


def test_all_of_them_fire_if_that_is_asked_for() -> None:
    found = outcome(MINUTELY, timedelta(minutes=30), catch_up="all")
    assert len(found) == 30
    assert {how for _, how, _ in found} == {"fired"}


@pytest.mark.rule("ENG-13.09", "STAFF-0.08")
@pytest.mark.parametrize("away", [timedelta(hours=1), timedelta(days=3)])
def test_daily_rule_is_caught_up_once_or_never(away: timedelta) -> None:
    rule, days = daily("11:30"), max(away.days, 1)
    missed = [("31 11:30", "missed", days - 1)] if days > 1 else []
    assert outcome(rule, away, catch_up="latest") == [*missed, ("01 11:30", "fired", 1)]
    assert outcome(rule, away, catch_up="skip") == [("01 11:30", "missed", days)]
    assert outcome(rule, away, catch_up="all") == [(f"{d:02} 11:30", "fired", 1) for d in [30, 31, 1][-days:]]


@pytest.mark.rule("STAFF-0.08")
def test_deadline_decides_to_the_second() -> None:
    rule, late = daily("11:30"), timedelta(minutes=30, seconds=1)
    assert outcome(rule, timedelta(hours=1), within=late) == [("01 11:30", "fired", 1)]
    missed = decide(rule, NOON - timedelta(hours=1), NOON + timedelta(seconds=2), FirePolicy(within=late))
    assert [(one.how, one.reason) for one in missed] == [
        ("missed", "nobody looked for 30 min 2 s; it is caught up within 30 min 1 s")
    ]
    assert outcome(cron("0 * * * *"), timedelta(hours=9), catch_up="all", within=timedelta(hours=1, minutes=1)) == [
        ("01 10:00", "missed", 7), ("01 11:00", "fired", 1), ("01 12:00", "fired", 1)
    ]  # fmt: skip


def test_short_absence_loses_nothing_whatever_the_policy() -> None:
    for catch_up in ("skip", "latest", "all"):
        found = outcome(every(seconds=10), timedelta(seconds=45), catch_up=catch_up)
        assert [how for _, how, _ in found] == ["fired"] * 5


@pytest.mark.rule("ENG-13.10")
def test_busy_schedule_skips_and_a_free_one_fires_one_of_several() -> None:
    away = timedelta(seconds=25)
    assert [how for _, how, _ in outcome(every(seconds=10), away, running="skip", busy=True)] == ["skipped"] * 3
    assert [how for _, how, _ in outcome(every(seconds=10), away, running="skip")] == ["fired", "skipped", "skipped"]
    assert [how for _, how, _ in outcome(every(seconds=10), away, busy=True)] == ["fired"] * 3


def test_long_absence_of_a_rule_of_seconds_costs_little() -> None:
    found = outcome(every(seconds=1), timedelta(days=365))
    assert found == [("01 12:00", "missed", MOST_MISSED_COUNTED), ("01 12:00", "fired", 1)]
    assert len(outcome(every(seconds=1), timedelta(days=365), catch_up="all", most=5)) == 6


def test_clock_that_went_back_repeats_nothing() -> None:
    assert decide(MINUTELY, NOON, NOON - timedelta(hours=1), FirePolicy()) == []


def test_jitter_is_the_same_for_everybody_and_spread_over_the_window() -> None:
    window = timedelta(minutes=10)
    drawn = [jitter("o", f"schedule-{n}", "", NOON, window) for n in range(200)]
    assert drawn == [jitter("o", f"schedule-{n}", "", NOON, window) for n in range(200)]
    assert timedelta(0) <= min(drawn) < timedelta(minutes=1)
    assert timedelta(minutes=9) < max(drawn) < window
    assert jitter("o", "schedule-0", "", NOON + window, window) != drawn[0]


@pytest.mark.parametrize("count", [10, 100, 777])
def test_spread_is_even_however_many_there_are(count: int) -> None:
    places = sorted(spread(n, timedelta(seconds=count)).total_seconds() for n in range(count))
    gaps = [b - a for a, b in zip([0.0, *places], [*places, float(count)], strict=True)]
    assert max(gaps) < 3
    assert places[-1] < count
