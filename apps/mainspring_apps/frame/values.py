"""Values in a language: dates, instants and money of a message, and the spans and days that settings put into texts.

In English dates and times are written as in `2026-06-07`, which nobody reads in two ways; everything else is written as
people of that language do. A time always names its zone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from typing import Any, Final
from zoneinfo import ZoneInfo

from babel import Locale
from babel.dates import format_date, format_time, get_datetime_format, get_day_names
from babel.numbers import format_currency
from babel.units import format_unit

from mainspring.contrib.money import Money
from mainspring.errors import ValidationError

ENGLISH: Final = "en"
_MOMENT: Final = re.compile(r"(?P<local>[0-9:T-]{16}).*\[(?P<zone>.+)\]")
#: Where thousands are set apart only from here on, as Unicode's data say: babel does not know.
_GROUPED: Final = {"es": 10_000, "pl": 10_000, "pt": 10_000}
_UNITS: Final = (("hour", 3600), ("minute", 60), ("second", 1))


@dataclass(frozen=True)
class DayOfWeek:
    """A day of the week; Monday is 0."""

    number: int


@dataclass(frozen=True)
class Phrase:
    """A part of a text that is a text of the catalogue itself, with values of its own."""

    text: str
    values: Mapping[str, Value] = field(default_factory=dict)


Value = timedelta | DayOfWeek | Phrase | str | int
#: How a value of a message is written, of its text and a language.
Written = Callable[[str, str], str]


def moment(at: datetime, zone: str) -> str:
    """An instant as a message keeps it: with the clock and the name of a zone (RFC 9557).

    >>> from datetime import UTC
    >>> moment(datetime(2026, 6, 4, 4, tzinfo=UTC), "America/New_York")
    '2026-06-04T00:00-04:00[America/New_York]'
    """
    return f"{at.astimezone(ZoneInfo(zone)).isoformat(timespec='minutes')}[{zone}]"


def instant_of(text: str) -> datetime:
    """The instant that `moment` has written.

    >>> instant_of("2026-06-04T00:00-04:00[America/New_York]").isoformat()
    '2026-06-04T00:00:00-04:00'
    """
    return datetime.fromisoformat(text.partition("[")[0])


def say(written: Mapping[str, Written], data: Mapping[str, Any], language: str) -> Mapping[str, Any]:
    """The values of a message as people of a language write them; `written` says how, by their names.

    >>> say({"Amount": money, "Date": day}, {"ID": 7, "Amount": "1200.50 USD", "Date": "2028-02-29"}, "")
    {'ID': 7, 'Amount': '$1,200.50', 'Date': '2028-02-29'}
    >>> say({"Date": day}, {"ID": 7, "Date": "2026-06-07"}, "de")
    {'ID': 7, 'Date': '7. Juni 2026'}
    """
    return {name: _said(written[name], value, language or ENGLISH) if name in written else value
            for name, value in data.items()}  # fmt: skip


def _said(kind: Written, value: Any, language: str) -> Any:
    try:
        return kind(str(value), language)
    except (ValueError, ValidationError):  # no date and no amount: a text, which stays what it is
        return value


def locale(language: str) -> Locale:
    """The locale of a language, such as `de` or `pt-PT`."""
    return Locale.parse(language.replace("-", "_"))


def money(text: str, language: str) -> str:
    """An amount, with as many decimals as its currency has."""
    number, _, currency = text.partition(" ")
    amount = Money.of(number, currency)
    places = f".{'0' * amount.decimals}" if amount.decimals else ""
    pattern = locale(language).currency_formats["standard"].pattern.replace("0.00", f"0{places}")
    grouped = abs(amount.minor) >= _GROUPED.get(locale(language).language, 0) * 10**amount.decimals
    return format_currency(
        number, amount.currency, pattern, locale(language), currency_digits=False, group_separator=grouped
    )  # fmt: skip


def day(text: str, language: str) -> str:
    """A date."""
    found = date.fromisoformat(text)
    return str(found) if language == ENGLISH else format_date(found, "long", locale(language))


def minutes(text: str, language: str) -> str:
    """A number of minutes, as a time span."""
    return span(timedelta(minutes=int(text)), language)


def clock(text: str, language: str) -> str:
    """An instant that `moment` has written, by the clock of its zone."""
    found = _MOMENT.fullmatch(text)
    if found is None:
        return text
    local = datetime.fromisoformat(found["local"])
    if language == ENGLISH:
        return f"{local:%Y-%m-%d %H:%M} ({found['zone']})"
    on, at = format_date(local, "long", locale(language)), format_time(local, "short", locale=locale(language))
    both = str(get_datetime_format("long", locale=locale(language))).replace("'", "").format(at, on)
    return f"{both} ({found['zone']})"


def span(length: timedelta, language: str) -> str:
    """A time span in words.

    >>> span(timedelta(minutes=90), "en"), span(timedelta(days=14), "de")
    ('1 hour 30 minutes', '14 Tage')
    """
    seconds, parts = int(length.total_seconds()), []
    for unit, size in _UNITS if seconds % 86_400 else (("day", 86_400),):
        number, seconds = divmod(seconds, size)
        parts += [format_unit(number, unit, "long", locale=locale(language))] if number else []
    return " ".join(parts) or format_unit(0, "second", "long", locale=locale(language))


def weekday(day: DayOfWeek, language: str) -> str:
    """The name of a day."""
    return str(get_day_names("wide", locale=locale(language))[day.number])
