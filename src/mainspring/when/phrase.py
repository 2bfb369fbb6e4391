"""Rules in words, and intervals as people write them."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import timedelta
from itertools import groupby
from typing import Final

from mainspring.errors import ValidationError
from mainspring.when.expression import LAST_DAY, Cron

# Not those of `calendar`, which speak the machine's language.
_MONTHS: Final = (
    *("January", "February", "March", "April", "May", "June"),
    *("July", "August", "September", "October", "November", "December"),
)
_WEEKDAYS: Final = ["Sunday", "Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
_UNITS: Final = (("week", 604_800), ("day", 86_400), ("hour", 3600), ("minute", 60), ("second", 1))
_SPAN: Final = re.compile(r"(\d{1,6})\s*(w|d|h|m|s|(?:week|day|hour|minute|min|second|sec)s?)", re.ASCII)
_MOST_TIMES: Final = 4
_MINUTES: Final = 1440


def cron_in_words(cron: Cron) -> str:
    """An expression in words.

    >>> from mainspring.when.expression import parse
    >>> [cron_in_words(parse(text)) for text in ("0 10 * * WED", "*/15 * * * *", "0 18 L * *")]
    ['every Wednesday at 10:00', 'every 15 minutes', 'on the last day of every month at 18:00']
    """
    time, day = _time(cron), _day(cron)
    if time.startswith("at"):
        return f"{day} {time}"
    return time if day == "every day" else f"{time}, {day}"


def interval_in_words(interval: timedelta) -> str:
    """An interval in words.

    >>> [interval_in_words(timedelta(minutes=minutes)) for minutes in (1, 15, 90)]
    ['every minute', 'every 15 minutes', 'every 1 hour 30 minutes']
    """
    seconds = interval // timedelta(seconds=1)
    rest = interval - timedelta(seconds=seconds)
    parts = []
    for unit, size in _UNITS[1:]:
        number, seconds = divmod(seconds, size)
        if number:
            parts.append(f"{number} {unit}{'s' if number > 1 else ''}")
    if rest:
        parts.append(f"{rest / timedelta(milliseconds=1):g} ms")
    return "every " + (" ".join(parts).removeprefix("1 ") if len(parts) == 1 else " ".join(parts))


def read_interval(text: str) -> timedelta:
    """An interval as people write it.

    >>> read_interval("15m"), read_interval("1h 30m"), read_interval("2 days")
    (datetime.timedelta(seconds=900), datetime.timedelta(seconds=5400), datetime.timedelta(days=2))
    """
    words = text.strip().lower()
    if words in {unit for unit, _ in _UNITS}:
        words = f"1 {words}"
    if not re.fullmatch(rf"{_SPAN.pattern}(?:\s*{_SPAN.pattern})*", words, re.ASCII):
        raise ValidationError("interval: is not a time span such as 15m, 1h 30m or 2 days", field="interval")
    sizes = {unit[0]: size for unit, size in _UNITS}
    return timedelta(seconds=sum(int(number) * sizes[unit[0]] for number, unit in _SPAN.findall(words)))


def _time(cron: Cron) -> str:
    minute, hour = cron.fields[:2]
    single = len(cron.minutes) == 1
    at = f" at :{cron.minutes[0]:02}" if single and cron.minutes[0] else ""
    if len(cron.times) == _MINUTES:
        return "every minute"
    if len(cron.hours) == 24 and single:
        return f"every hour{at}"
    if len(cron.hours) == 24 and (step := _step(minute, 60)):
        return f"every {step} minutes"
    if single and (step := _step(hour, 24)):
        return f"every {step} hours{at}"
    if len(cron.times) <= _MOST_TIMES:
        return "at " + _join([f"{time // 3600:02}:{time % 3600 // 60:02}" for time in cron.times])
    hours = "every hour" if len(cron.hours) == 24 else f"hour {_join(_rows(cron.hours))}"
    minutes = "every minute" if len(cron.minutes) == 60 else f"minute {_join(_rows(cron.minutes))}"
    return f"{minutes} of {hours}"


def _step(field: str, count: int) -> int | None:
    """The step of `*/n` where it divides the hour or the day evenly."""
    step = int(field[2:]) if field.startswith("*/") and field[2:].isdigit() else 0
    return step if step > 1 and count % step == 0 else None


def _day(cron: Cron) -> str:
    months = "every month" if len(cron.months) == 12 else _join([_MONTHS[number - 1] for number in cron.months])
    within = "" if months == "every month" else f" in {months}"
    day, weekday = _day_of_month(cron, months), _day_of_week(cron, months, within)
    if day and weekday:
        return f"{day}, and {weekday}" if cron.either else f"{day} if it matches {weekday}"
    return day or weekday or f"every day{within}"


def _day_of_month(cron: Cron, months: str) -> str:
    numbers = sorted(number for number in cron.monthdays if number != LAST_DAY)
    if len(numbers) == 31:
        return ""
    days = _rows(numbers, _ordinal) + (["last day"] if LAST_DAY in cron.monthdays else [])
    return f"on the {_join(days)} of {months}"


def _day_of_week(cron: Cron, months: str, within: str) -> str:
    plain = sorted({day or 7 for day in cron.weekdays if isinstance(day, int)})
    if len(plain) == 7:
        return ""
    parts = []
    if plain:
        names = "weekday" if plain == [1, 2, 3, 4, 5] else _join(_rows(plain, _WEEKDAYS.__getitem__))
        parts.append(f"every {names}{within}")
    for day, which in sorted(pair for pair in cron.weekdays if not isinstance(pair, int)):
        nth = "last" if which == LAST_DAY else _ordinal(which)
        parts.append(f"on the {nth} {_WEEKDAYS[day]} of {months}")
    return " and ".join(parts)


def _rows(numbers: list[int], name: Callable[[int], str] = str) -> list[str]:
    """Numbers by name, three or more in a row as one range."""
    words: list[str] = []
    for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0]):
        row = [number for _, number in run]
        words += [f"{name(row[0])} to {name(row[-1])}"] if len(row) > 2 else [name(number) for number in row]
    return words


def _ordinal(number: int) -> str:
    ending = {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{'th' if number in (11, 12, 13) else ending}"


def _join(words: list[str]) -> str:
    return " and ".join(filter(None, [", ".join(words[:-1]), words[-1]]))
