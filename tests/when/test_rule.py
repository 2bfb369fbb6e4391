"""Rules as values: made, compared, stored, described, asked."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime, timedelta, timezone
from typing import Any

import pytest

import mainspring as ms
from mainspring.when.occurrences import occurrences
from mainspring.when.rule import MON, WED, Rule, rule_from_text

NOON = datetime(2026, 6, 1, 12, tzinfo=UTC)


@pytest.mark.parametrize(
    ("rule", "words"),
    [
        (ms.cron("0 10 * * WED", zone="Europe/London"), "every Wednesday at 10:00 (Europe/London)"),
        (ms.cron("0,30 2 * * *"), "every day at 02:00 and 02:30 (UTC)"),
        (ms.cron("*/15 * * * *"), "every 15 minutes (UTC)"),
        (ms.cron("* * * * *"), "every minute (UTC)"),
        (ms.cron("5 * * * *"), "every hour at :05 (UTC)"),
        (ms.cron("0 */6 * * *"), "every 6 hours (UTC)"),
        (ms.cron("*/7 * * * *"), "minute 0, 7, 14, 21, 28, 35, 42, 49 and 56 of every hour (UTC)"),
        (ms.cron("*/20 9-17 * * MON-FRI"), "minute 0, 20 and 40 of hour 9 to 17, every weekday (UTC)"),
        (ms.cron("0 9 1,15 JAN *"), "on the 1st and 15th of January at 09:00 (UTC)"),
        (ms.cron("0 9 * JUN-AUG *"), "every day in June, July and August at 09:00 (UTC)"),
        (ms.cron("0 9 1-7 * *"), "on the 1st to 7th of every month at 09:00 (UTC)"),
        (ms.cron("0 9 13 * FRI"), "on the 13th of every month, and every Friday at 09:00 (UTC)"),
        (ms.cron("0 9 * * WED#2"), "on the 2nd Wednesday of every month at 09:00 (UTC)"),
        (ms.cron("0 9 * * 5L"), "on the last Friday of every month at 09:00 (UTC)"),
        (ms.daily("05:00", zone="Asia/Tokyo"), "every day at 05:00 (Asia/Tokyo)"),
        (ms.daily("02:30", gap="skip"), "every day at 02:30 (UTC), not where clocks jump over it"),
        (ms.daily("02:30", overlap="both"), "every day at 02:30 (UTC), both times where clocks repeat it"),
        (ms.weekly((MON, "thursday"), "10:00"), "every Monday and Thursday at 10:00 (UTC)"),
        (ms.monthly("last", "18:00"), "on the last day of every month at 18:00 (UTC)"),
        (ms.monthly((1, 15, "last"), "00:00"), "on the 1st, 15th and last day of every month at 00:00 (UTC)"),
        (ms.every(minutes=15), "every 15 minutes"),
        (ms.every(hours=1), "every hour"),
        (ms.every(hours=36), "every 1 day 12 hours"),
        (ms.every(seconds=1.5), "every 1 second 500 ms"),
        (ms.every(days=14, anchor=NOON), "every 14 days, counted from 2026-06-01 12:00:00 UTC"),
    ],
)
def test_a_rule_says_itself_in_words(rule: Rule, words: str) -> None:
    assert rule.describe() == words


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (ms.cron("0 10 * * WED"), ms.weekly(WED, "10:00")),
        (ms.cron("0 10 * * 3"), ms.weekly("Wednesday", "10:00")),
        (ms.cron("@daily"), ms.daily("00:00")),
        (ms.cron("0 0 L * *"), ms.monthly("last", "00:00")),
        (ms.cron("0 0 1-31 * MON"), ms.daily("00:00")),  # either matches
        (ms.cron("*/15 * * * *", gap="skip"), ms.cron("0,15,30,45 * * * *", overlap="both")),  # policies do not apply
        (ms.every(hours=1), ms.every(timedelta(minutes=60))),
        (ms.every(hours=1), ms.every(hours=1, anchor=NOON)),  # the same instants
        (ms.daily("05:00").in_zone("Asia/Tokyo"), ms.daily("05:00", zone="Asia/Tokyo")),
    ],
)
def test_rules_that_mean_the_same_are_equal(one: Rule, other: Rule) -> None:
    assert one == other
    assert hash(one) == hash(other)


@pytest.mark.parametrize(
    "other",
    [
        ms.daily("05:01"),
        ms.daily("05:00", zone="Asia/Tokyo"),
        ms.daily("05:00", gap="skip"),
        ms.daily("05:00", overlap="last"),
        ms.every(days=1),
        "0 5 * * *",
    ],
)
def test_rules_that_differ_are_unequal(other: object) -> None:
    assert ms.daily("05:00") != other


def test_fixed_hours_are_not_the_hours_of_a_star() -> None:
    assert ms.cron("0 0,6,12,18 * * *") != ms.cron("0 */6 * * *")


def test_a_stored_rule_is_plain_json() -> None:
    rule = ms.every(minutes=15, anchor=datetime(2026, 1, 1, 2, tzinfo=timezone(timedelta(hours=2))))

    assert json.loads(json.dumps(rule.to_json())) == {
        "kind": "every",
        "interval": "PT900S",
        "anchor": "2026-01-01T00:00:00Z",
        "zone": "UTC",
    }


@pytest.mark.parametrize(
    ("stored", "field"),
    [
        (None, "rule"),
        ([], "rule"),
        ("0 5 * * *", "rule"),
        ({}, "rule"),
        ({"kind": "rrule"}, "rule"),
        ({"kind": "cron", "expression": "0 5 * * *", "zoen": "UTC"}, "rule"),
        ({"kind": "cron"}, "expression"),
        ({"kind": "cron", "expression": "0 0 31 2 *"}, "expression"),
        ({"kind": "cron", "expression": "0 5 * * *", "zone": "Mars/Phobos"}, "zone"),
        ({"kind": "cron", "expression": "0 5 * * *", "zone": None}, "rule"),
        ({"kind": "cron", "expression": "0 5 * * *", "gap": "jump"}, "rule"),
        ({"kind": "cron", "expression": "0 5 * * *", "interval": "PT1H"}, "interval"),
        ({"kind": "every"}, "interval"),
        ({"kind": "every", "interval": "PT0S"}, "interval"),
        ({"kind": "every", "interval": "-PT1H"}, "interval"),
        ({"kind": "every", "interval": 900}, "rule"),
        ({"kind": "every", "interval": "P99999999999D"}, "rule"),
        ({"kind": "every", "interval": "PT1H", "anchor": "2026-01-01T00:00:00"}, "anchor"),
        ({"kind": "every", "interval": "PT1H", "anchor": "infinity"}, "rule"),
        ({"kind": "every", "interval": "PT1H", "expression": "* * * * *"}, "expression"),
    ],
)
def test_a_stored_rule_is_checked_when_read(stored: object, field: str) -> None:
    with pytest.raises(ms.ValidationError) as refused:
        Rule.from_json(stored)

    assert refused.value.field == field
    assert str(refused.value).startswith(f"{field}: ")


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("0 10 * * WED", ms.weekly("wed", "10:00")),
        ("@hourly", ms.cron("0 * * * *")),
        ("every 15m", ms.every(minutes=15)),
        ("every 15 minutes", ms.every(minutes=15)),
        ("Every 1h 30m", ms.every(minutes=90)),
        ("every 1h30min", ms.every(minutes=90)),
        (" every day ", ms.every(days=1)),
        ("every 2 weeks", ms.every(days=14)),
    ],
)
def test_rules_as_people_write_them(text: str, rule: Rule) -> None:
    assert rule_from_text(text) == rule


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("every", "interval"),
        ("every 0s", "interval"),
        ("every -5m", "interval"),
        ("every 1ms", "interval"),
        ("every 1.5h", "interval"),
        ("every 5", "interval"),
        ("every 11 years", "interval"),
        ("every 4000 days", "interval"),
        ("every 999999999 weeks", "interval"),
        ("every " + "1s " * 5000, "expression"),
        ("hourly", "expression"),
        (None, "expression"),
    ],
)
def test_a_text_that_is_no_rule_is_refused(text: Any, field: str) -> None:
    with pytest.raises(ms.ValidationError) as refused:
        rule_from_text(text)

    assert refused.value.field == field


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": 0.001},
        {"seconds": 0.999999},
        {"seconds": float("nan")},
        {"days": float("inf")},
        {"days": 3654},
        {"days": 10**12},
        {"minutes": "5"},
        {"interval": 0.5},
        {"interval": "15 minutes"},
        {"interval": timedelta(hours=1), "hours": 1},
    ],
    ids=str,
)
def test_an_interval_is_from_a_second_to_ten_years(options: dict[str, Any]) -> None:
    with pytest.raises(ms.ValidationError, match=r"^interval: ") as refused:
        ms.every(options.pop("interval", None), **options)

    assert refused.value.field == "interval"


NO_INSTANTS = [
    datetime(2026, 1, 1),  # noqa: DTZ001  # naive, to be refused
    date(2026, 1, 1),
    1_767_225_600.0,
    float("inf"),
    float("-inf"),
    "2026-01-01T00:00:00Z",
    None,
    datetime.max.replace(tzinfo=UTC),
    datetime.max.replace(tzinfo=timezone(timedelta(hours=-14))),
    datetime.min.replace(tzinfo=UTC),
    datetime.min.replace(tzinfo=timezone(timedelta(hours=14))),
    datetime(9999, 12, 31, tzinfo=UTC),
    datetime(2201, 1, 1, tzinfo=UTC),
]


@pytest.mark.parametrize("wrong", NO_INSTANTS, ids=repr)
@pytest.mark.parametrize("rule", [ms.daily("05:00", zone="Asia/Tokyo"), ms.every(hours=1)], ids=["cron", "every"])
def test_what_is_no_instant_is_refused_by_the_name_of_its_field(rule: Rule, wrong: Any) -> None:
    for field, ask in (
        ("after", lambda: rule.next(wrong)),
        ("after", lambda: rule.ticks(wrong, NOON)),  # when asked, not when walked
        ("until", lambda: rule.ticks(NOON, wrong)),
        ("after", lambda: rule.last(wrong, NOON)),
        ("until", lambda: rule.last(NOON, wrong)),
    ):
        with pytest.raises(ms.ValidationError, match=f"^{field}: ") as refused:
            ask()
        assert refused.value.field == field
    if wrong is not None:
        with pytest.raises(ms.ValidationError, match=r"^anchor: "):
            ms.every(hours=1, anchor=wrong)


@pytest.mark.parametrize(
    "time",
    ["24:00", "5:00", "05:60", "05:00:00", "5", "", "noon", "\N{ARABIC-INDIC DIGIT ZERO}5:00", "05:00\n", None, 5],
)
def test_a_time_of_day_is_from_midnight_to_23_59(time: Any) -> None:
    with pytest.raises(ms.ValidationError, match=r"^time: "):
        ms.daily(time)


@pytest.mark.parametrize("days", ["wensday", "", "mo", "mon,wed", (), None, 3, ("mon", 5), [[]]])
def test_a_day_of_the_week_has_a_name(days: Any) -> None:
    with pytest.raises(ms.ValidationError, match=r"^days: "):
        ms.weekly(days, "10:00")


@pytest.mark.parametrize("days", [0, 32, -1, "first", "L", 1.0, True, (), None, [[]]])
def test_a_day_of_the_month_is_a_number_or_the_last(days: Any) -> None:
    with pytest.raises(ms.ValidationError, match=r"^days: "):
        ms.monthly(days, "10:00")


@pytest.mark.parametrize(
    "options", [{"gap": "jump"}, {"gap": None}, {"gap": []}, {"overlap": "fist"}, {"overlap": 1}], ids=str
)
def test_a_policy_is_one_of_those_that_exist(options: dict[str, Any]) -> None:
    with pytest.raises(ms.ValidationError, match=f"^{next(iter(options))}: is not one of"):
        ms.daily("05:00", **options)


def test_an_anchor_sets_the_phase_in_both_directions() -> None:
    rule = ms.every(days=14, anchor=datetime(2027, 1, 4, 9, tzinfo=UTC))
    ticks = [tick.at for tick in rule.ticks(datetime(2026, 12, 1, tzinfo=UTC), datetime(2027, 2, 1, tzinfo=UTC))]

    assert [f"{at:%m-%d %H}" for at in ticks] == ["12-07 09", "12-21 09", "01-04 09", "01-18 09"]


def test_months_without_the_day_have_no_tick() -> None:
    year = datetime(2026, 1, 1, tzinfo=UTC), datetime(2027, 1, 1, tzinfo=UTC)

    assert [tick.at.month for tick in ms.monthly(31, "12:00").ticks(*year)] == [1, 3, 5, 7, 8, 10, 12]


def test_the_last_tick_of_an_empty_or_reversed_span_is_none() -> None:
    rule = ms.daily("05:00")

    assert rule.last(NOON, NOON) is None
    assert rule.last(NOON, NOON - timedelta(days=9)) is None
    assert list(rule.ticks(NOON, NOON - timedelta(days=9))) == []


def test_the_last_tick_of_a_long_span_is_found_without_walking_it(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []

    def counted(*arguments: Any) -> Any:
        asked.append(1)
        return occurrences(*arguments)

    monkeypatch.setattr("mainspring.when.rule.occurrences", counted)
    rule = ms.cron("* * * 1 *", zone="America/New_York")
    tick = rule.last(datetime(1980, 1, 1, tzinfo=UTC), datetime(2026, 12, 31, tzinfo=UTC))
    assert tick is not None

    assert f"{tick.local:%F %R}" == "2026-01-31 23:59"
    assert len(asked) < 40
