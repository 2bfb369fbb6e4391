"""Cron expressions: five fields, strictly checked, as the local times that they name.

=============  ===============  ====================================================================
field          values           besides
=============  ===============  ====================================================================
minute         0-59
hour           0-23
day of month   1-31             `L`: the last day
month          1-12, JAN-DEC
day of week    0-7, SUN-SAT     0 and 7 are Sunday; `WED#2`: the second Wednesday; `FRIL`: the last Friday
=============  ===============  ====================================================================

Each takes `*`, lists (`1,15`), ranges (`MON-FRI`) and steps (`*/15`, `9-17/2`). Where day of month *and* day of week
are restricted (neither begins with `*`), a day that matches either counts. `@hourly`, `@daily`, `@weekly`, `@monthly`
and `@yearly` are spellings. Seconds, years, `W`, `?`, `@reboot` and `@every` are refused, and so is what never comes.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from calendar import monthrange
from collections.abc import Iterator
from datetime import date, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final, NoReturn

from mainspring.checks import LAST_YEAR
from mainspring.errors import ValidationError
from mainspring.text.texts import MAX_NAME, shown
from mainspring.when.zones import DAY_SECONDS

if TYPE_CHECKING:
    from cronsim import CronSim

SPELLINGS: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
LAST_DAY: Final = -1000  # as cronsim writes it, which is imported where an expression is read
_NAMES: Final = ("minute", "hour", "day of month", "month", "day of week")
_COUNTS: Final = (60, 24, 31, 12, 7)
_MONTHS: Final = "JAN|FEB|MAR|APR|MAY|JUN|JUL|AUG|SEP|OCT|NOV|DEC"
_WEEKDAYS: Final = "SUN|MON|TUE|WED|THU|FRI|SAT"
_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()


def _term(value: str, special: str = "") -> re.Pattern[str]:
    more = f"|{special}" if special else ""
    return re.compile(rf"(?:\*|{value}(?:-{value})?)(?:/(?P<step>\d{{1,3}}))?{more}", re.ASCII)


_TERMS: Final = (
    _term(r"\d{1,2}"),
    _term(r"\d{1,2}"),
    _term(r"\d{1,2}", "L"),
    _term(rf"(?:\d{{1,2}}|{_MONTHS})"),
    _term(rf"(?:\d|{_WEEKDAYS})", rf"(?:\d|{_WEEKDAYS})(?:L|#\d)"),
)


class Cron:
    """The local times that an expression names: `times` of the day, on matching days."""

    def __init__(self, fields: list[str], parsed: CronSim) -> None:
        self.fields = fields
        self.minutes = sorted(parsed.minutes)
        self.hours = sorted(parsed.hours)
        self.months = sorted(parsed.months)
        #: 1 to 31, and `LAST_DAY` for the last day.
        self.monthdays = parsed.days
        #: 0 to 7, or a pair: (weekday, n) for the n-th of a month, (weekday, `LAST_DAY`) for the last.
        self.weekdays = parsed.weekdays
        #: A day counts that matches the day of month or the day of week; else it has to match both.
        self.either = not parsed.day_and
        #: Seconds since local midnight.
        self.times = tuple(hour * 3600 + minute * 60 for hour in self.hours for minute in self.minutes)
        #: `*` or `*/n` hours: it runs whenever clocks show a matching time, in both halves of an overlap.
        self.steady = self.fields[1].startswith("*") or len(self.hours) == 24
        # Which days of a month match depends on its first weekday and its length only: 28 kinds of month.
        self._days: dict[tuple[int, int], tuple[int, ...]] = {}
        for year, month in _KINDS:
            kind = monthrange(year, month)
            days = (day for day in range(1, kind[1] + 1) if parsed.match_day(date(year, month, day)))
            self._days[kind] = tuple(days)
        #: Equal for two expressions that name the same times.
        self.meaning = (self.times, self.steady, tuple(self.months), tuple(self._days.values()))

    def ever(self) -> bool:
        """Whether any month has a matching day."""
        return any(days for (_, length), days in self._days.items() if length in self._lengths())

    def days(self, year: int, month: int) -> tuple[int, ...]:
        """The matching days of a month."""
        return self._days[monthrange(year, month)] if month in self.months else ()

    def walls(self, wall: int) -> Iterator[int]:
        """The local times from a given one on, up to the year 2200, in order."""
        number, second = divmod(wall, DAY_SECONDS)
        first = date.fromordinal(number + _EPOCH_DAY)
        year, month, day = first.year, first.month, first.day
        times = self.times
        while year <= LAST_YEAR:
            days = self.days(year, month)
            if days and days[-1] >= day:
                midnight = (date(year, month, 1).toordinal() - 1 - _EPOCH_DAY) * DAY_SECONDS
                for match in days[bisect_left(days, day) :]:
                    start = midnight + match * DAY_SECONDS
                    since = bisect_left(times, second) if match == day else 0
                    for time in times[since:] if since else times:
                        yield start + time
            year, month = (year, month + 1) if month < 12 else (year + 1, 1)
            day, second = 1, 0

    def _lengths(self) -> set[int]:
        return {
            length for month in self.months for length in ((28, 29) if month == 2 else (monthrange(2001, month)[1],))
        }


def _kinds() -> tuple[tuple[int, int], ...]:
    """One month of each first weekday and length."""
    found = {monthrange(year, month): (year, month) for year in range(2000, 2028) for month in range(1, 13)}
    return tuple(found[kind] for kind in sorted(found))


_KINDS: Final = _kinds()


def tidy(text: object) -> str:
    """An expression in one form: without surplus blanks, and `@daily` as its five fields.

    >>> tidy(" 0   10 * * wed"), tidy("@daily")
    ('0 10 * * WED', '0 0 * * *')
    """
    if not isinstance(text, str):
        _refuse("is missing" if text is None else "is not a text")
    if len(text) > MAX_NAME:
        _refuse(f"is longer than {MAX_NAME} characters")
    if not text.isascii() or not text.replace("\t", " ").isprintable():
        _refuse("has a character that no cron expression has")
    words = text.split()
    if not words:
        _refuse("is empty")
    if words[0].startswith("@"):
        spelling = SPELLINGS.get(" ".join(words).lower())
        if spelling is None:
            _refuse(f"{shown(words[0])!r} is not one of {', '.join(SPELLINGS)}")
        return spelling
    return " ".join(words).upper()


@lru_cache(maxsize=4096)
def parse(text: str) -> Cron:
    """The meaning of an expression, or a refusal that names the field of it that is wrong.

    >>> parse("0 10 * * WED").days(2026, 6)
    (3, 10, 17, 24)
    >>> parse("60 * * * *")
    Traceback (most recent call last):
    mainspring.errors.ValidationError: expression: minute '60' is not a list of 0-59
    """
    text = tidy(text)
    fields = text.split()
    if len(fields) != 5:
        _refuse(f"has {len(fields)} fields, not the five of {', '.join(_NAMES)}")
    for number, field in enumerate(fields):
        _check_field(number, field)
    parsed = _simulate(fields)
    cron = None if parsed is None else Cron(fields, parsed)
    if cron is None or not cron.ever():  # each field alone is right
        _refuse("never comes: no month has such a day")
    return cron


def _simulate(fields: list[str]) -> CronSim | None:
    from cronsim import CronSim, CronSimError

    # The weekdays of cronsim begin with Sunday, and its last Friday is `5L`.
    weekdays = re.sub(r"(?<!SUN)(?<!0)-SUN", "-7", fields[4])
    weekdays = re.sub(_WEEKDAYS, lambda name: str(_WEEKDAYS.split("|").index(name[0])), weekdays)
    try:
        return CronSim(" ".join([*fields[:4], weekdays]), datetime(2000, 1, 1))  # noqa: DTZ001  # not for instants
    except CronSimError:
        return None


_RANGES: Final = ("0-59", "0-23", "1-31 or L", "1-12 or JAN-DEC", "0-7 or SUN-SAT, with #n or L")


def _check_field(number: int, field: str) -> None:
    said = f"{_NAMES[number]} {shown(field)!r}"
    for term in field.split(","):
        match = _TERMS[number].fullmatch(term)
        if match is None:
            _refuse(f"{said} is not a list of {_RANGES[number]}")
        if match["step"] and not 1 <= int(match["step"]) < _COUNTS[number]:
            _refuse(f"{said} has a step that is not from 1 to {_COUNTS[number] - 1}")
    alone = ["*"] * 5
    alone[number] = field
    if _simulate(alone) is None:
        _refuse(f"{said} is not a list of {_RANGES[number]}")


def _refuse(problem: str) -> NoReturn:
    raise ValidationError(f"expression: {problem}", field="expression")
