"""Cron expressions: what they mean, and what is refused."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import mainspring as ms
from mainspring.when import zones
from mainspring.when.expression import parse, tidy

JANUARY = datetime(2026, 1, 1, tzinfo=UTC)


def days(expression: str, month: int = 1) -> tuple[int, ...]:
    return parse(expression).days(2026, month)


@pytest.mark.rule("ENG-13.08")
def test_five_fields_in_utc_and_a_step_of_one_is_each_minute() -> None:
    rule = ms.cron("*/1 * * * *")
    ticks = list(rule.ticks(JANUARY, JANUARY + timedelta(hours=1)))

    assert len(ticks) == 60
    assert rule.zone == "UTC"
    assert all(tick.local.utcoffset() == timedelta(0) for tick in ticks)


@pytest.mark.parametrize(
    ("expression", "matching"),
    [
        ("0 0 * * MON", (5, 12, 19, 26)),
        ("0 0 * * mon", (5, 12, 19, 26)),
        ("0 0 * * 1", (5, 12, 19, 26)),
        ("0 0 * * 0", (4, 11, 18, 25)),
        ("0 0 * * 7", (4, 11, 18, 25)),
        ("0 0 * * SAT-SUN", (3, 4, 10, 11, 17, 18, 24, 25, 31)),
        ("0 0 * * WED#2", (14,)),
        ("0 0 * * SAT#5", (31,)),
        ("0 0 * * MON#5", ()),
        ("0 0 * * 5L", (30,)),
        ("0 0 * * FRIL", (30,)),
        ("0 0 L * *", (31,)),
        ("0 0 1,L * *", (1, 31)),
        ("0 0 1-10/3 * *", (1, 4, 7, 10)),
        ("0 0 13 * FRI", (2, 9, 13, 16, 23, 30)),  # either
        ("0 0 */10 * SUN", (11,)),  # a star: both; of 1, 11, 21, 31 one is a Sunday
        ("0 0 * FEB-APR *", ()),
    ],
)
def test_days_that_match(expression: str, matching: tuple[int, ...]) -> None:
    assert days(expression) == matching


@pytest.mark.parametrize(
    ("expression", "times"),
    [("5/15 9 * * *", 4), ("0,30 9-17 * * *", 18), ("*/20 */6 * * *", 12), ("05 09 * * *", 1), ("* * * * *", 1440)],
)
def test_times_of_the_day(expression: str, times: int) -> None:
    assert len(parse(expression).times) == times


@pytest.mark.parametrize(
    ("spelling", "expression"),
    [
        ("@hourly", "0 * * * *"),
        ("@daily", "0 0 * * *"),
        ("@Midnight", "0 0 * * *"),
        ("@weekly", "0 0 * * SUN"),
        ("@monthly", "0 0 1 * *"),
        ("@yearly", "0 0 1 1 *"),
        ("@annually", "0 0 1 JAN *"),
    ],
)
def test_spellings_mean_their_five_fields(spelling: str, expression: str) -> None:
    assert ms.cron(spelling) == ms.cron(expression)
    assert len(tidy(spelling).split()) == 5


BAD: list[tuple[Any, str]] = [
    (None, "is missing"),
    (5, "is not a text"),
    ("", "is empty"),
    (" \t", "is empty"),
    ("* * * *", "has 4 fields"),
    ("0 * * * * *", "has 6 fields"),
    ("0 * * * * * 2026", "has 7 fields"),
    ("60 * * * *", "minute '60'"),
    ("-1 * * * *", "minute '-1'"),
    ("+1 * * * *", "minute"),
    ("1.5 * * * *", "minute"),
    ("0x1 * * * *", "minute"),
    ("*/0 * * * *", "step"),
    ("*/60 * * * *", "step"),
    ("*/100 * * * *", "step"),
    ("*/-5 * * * *", "minute"),
    ("*/5/5 * * * *", "minute"),
    ("0 */24 * * *", "hour"),
    ("0 24 * * *", "hour '24'"),
    ("5-1 * * * *", "minute '5-1'"),
    ("1,,2 * * * *", "minute '1,,2'"),
    (",1 * * * *", "minute"),
    ("0 0 0 * *", "day of month"),
    ("0 0 32 * *", "day of month"),
    ("0 0 15W * *", "day of month '15W'"),
    ("0 0 LW * *", "day of month 'LW'"),
    ("0 0 L-3 * *", "day of month"),
    ("0 0 L/2 * *", "day of month"),
    ("0 0 ? * *", "day of month"),
    ("0 0 * 0 *", "month '0'"),
    ("0 0 * 13 *", "month '13'"),
    ("0 0 * JANUARY *", "month"),
    ("0 0 * DEC-JAN *", "month"),
    ("0 0 * * 8", "day of week '8'"),
    ("0 0 * * L", "day of week"),
    ("0 0 * * FRI-MON", "day of week"),
    ("0 0 * * WED#0", "day of week"),
    ("0 0 * * WED#6", "day of week"),
    ("0 0 * * #2", "day of week"),
    ("0 0 30 2 *", "never comes"),
    ("0 0 31 2 *", "never comes"),
    ("0 0 31 4,6,9,11 *", "never comes"),
    ("0 0 */30 2 MON#5", "never comes"),  # the first of a month is never its fifth Monday
    ("@reboot", "'@reboot' is not one of"),
    ("@every 5m", "'@every' is not one of"),
    ("@daily * * * *", "is not one of"),
    ("\N{ARABIC-INDIC DIGIT THREE} * * * *", "character"),
    ("0 0 * * fr\N{LATIN SMALL LETTER DOTLESS I}", "character"),
    ("0\N{NO-BREAK SPACE}0 * * *", "character"),
    ("0 0 * * *\0", "character"),
    ("0 0 * * *\n0 1 * * *", "character"),
    ("0 0 * * *\x1b[2J", "character"),
    ("1," * 5000 + "1 * * * *", "longer than 200"),
    ("*" * 10_000, "longer than 200"),
]


@pytest.mark.rule("ENG-13.08")
@pytest.mark.parametrize(("expression", "problem"), BAD, ids=[repr(text)[:30] for text, _ in BAD])
def test_a_wrong_expression_is_refused_in_one_sentence(expression: Any, problem: str) -> None:
    with pytest.raises(ms.ValidationError) as refused:
        ms.cron(expression)

    assert refused.value.field == "expression"
    assert str(refused.value).startswith("expression: ")
    assert problem in str(refused.value)
    assert len(str(refused.value)) < 200
    assert str(refused.value).isprintable()


def test_the_leap_day_comes_in_leap_years() -> None:
    ticks = ms.cron("0 0 29 2 *").ticks(JANUARY, datetime(2110, 1, 1, tzinfo=UTC))

    assert [tick.at.year for tick in ticks] == [*range(2028, 2097, 4), 2104, 2108]


def test_blanks_and_case_do_not_matter() -> None:
    rule = ms.cron(" 0\t10  * jan Wed ")

    assert rule.expression == "0 10 * JAN WED"
    assert rule == ms.cron("0 10 * 1 3")


@pytest.mark.parametrize(
    "expression",
    [
        "0 0 29 2 *",
        "0 0 29 2 */6",
        "59 23 31 12 *",
        "0 0 */28 2 SUN#5",
        "* * * * *",
        "30 */5 29 2 *",
    ],
)
@pytest.mark.parametrize("zone", ["UTC", "America/Havana"])
def test_a_search_ends_within_50_ms_even_with_nothing_to_find(expression: str, zone: str) -> None:
    rule = ms.cron(expression, zone=zone)
    spent = []
    for _ in range(3):
        zones.forget()
        began = time.thread_time()
        for year in (2026, 2097, 2199):
            rule.next(datetime(year, 3, 1, tzinfo=UTC))
        spent.append((time.thread_time() - began) / 3)

    assert min(spent) < 0.05


def test_after_the_year_2200_there_is_nothing() -> None:
    end = datetime(2200, 12, 31, 23, 59, tzinfo=UTC)

    assert ms.cron("* * * * *").next(end) is None
    assert ms.every(seconds=1).next(end + timedelta(seconds=59)) is None
    assert ms.cron("0 0 29 2 *").next(datetime(2197, 1, 1, tzinfo=UTC)) is None
    assert ms.cron("* * * * *").next(end - timedelta(minutes=1)) is not None
