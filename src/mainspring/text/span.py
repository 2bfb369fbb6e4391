"""How long, and when, as people say it."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Final, TypeAlias

from mainspring.errors import ConfigurationError, DeclarationError, ValidationError

#: A time span as everybody may give it: a timedelta, seconds, or a text such as 500ms, 90s, 5m, 1h30m, 1d.
Span: TypeAlias = timedelta | float | str

_UNITS: Final = (("d", 86_400), ("h", 3600), ("min", 60), ("s", 1))
_PART: Final = r"([0-9]{1,9}) ?(ms|s|min|m|h|d)"
_WRITTEN: Final = re.compile(f"{_PART}(?: ?{_PART})*")
NO_SPAN: Final = "not a time span, such as 90s, 5m, 2h or 1d, or a number of seconds"
_MILLIS: Final = {"ms": 1, "s": 1000, "min": 60_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def length(text: str) -> timedelta:
    """A time span as people write it: whole numbers, each with its unit.

    >>> [str(length(text)) for text in ("500ms", "1s", "5 min", "1h30m")]
    ['0:00:00.500000', '0:00:01', '0:05:00', '1:30:00']
    """
    if _WRITTEN.fullmatch(text) is None:
        raise ValueError("is not a number with a unit, such as 500ms, 1s, 5m, 2h or 1d")
    return timedelta(milliseconds=sum(int(number) * _MILLIS[unit] for number, unit in re.findall(_PART, text)))


def read_span(given: object) -> timedelta | None:
    """A time span that somebody gave; None: it is none.

    >>> [str(read_span(given)) for given in (timedelta(minutes=5), 90, "2h", "soon", None)]
    ['0:05:00', '0:01:30', '2:00:00', 'None', 'None']
    """
    if isinstance(given, timedelta):
        return given
    try:
        if isinstance(given, str):
            return length(given)
        if isinstance(given, int | float) and not isinstance(given, bool):
            return timedelta(seconds=given)
    except (ValueError, OverflowError):  # another text; NaN, and what is longer than any time
        pass
    return None


def span_of(field: str, given: object) -> timedelta:
    """The time span that is given for a field.

    >>> span_of("delay", "soon")  # doctest: +IGNORE_EXCEPTION_DETAIL
    Traceback (most recent call last):
    ValidationError: delay: is not a time span, such as 90s, 5m, 2h or 1d, or a number of seconds
    """
    found = read_span(given)
    if found is None:
        raise ValidationError(f"{field}: is {NO_SPAN}", field=field)
    return found


def declared_span(field: str, given: object) -> timedelta:
    """The same, in a declaration."""
    found = read_span(given)
    if found is None:
        raise DeclarationError(f"{field}: is {NO_SPAN}")
    return found


def configured_span(field: str, given: object) -> timedelta:
    """The same, in a setting."""
    found = read_span(given)
    if found is None:
        raise ConfigurationError(f"{field}: is {NO_SPAN}")
    return found


def span(length: timedelta | float) -> str:
    """How long, in the two largest units that matter.

    >>> [span(seconds) for seconds in (0.0123, 7.25, 200, 11_520, 200_000)]
    ['12 ms', '7.2 s', '3 min 20 s', '3 h 12 min', '2 d 7 h']
    """
    seconds = abs(length.total_seconds() if isinstance(length, timedelta) else length)
    if seconds < 0.9995:
        return f"{seconds * 1000:.0f} ms"
    if seconds < 9.95:
        return f"{seconds:.1f}".removesuffix(".0") + " s"
    seconds = round(seconds)
    for number, (unit, size) in enumerate(_UNITS):
        if seconds >= size:
            more, smaller = (seconds % size, _UNITS[number + 1]) if size > 1 else (0, ("", 1))
            rest = more // smaller[1]
            return f"{seconds // size} {unit}" + (f" {rest} {smaller[0]}" if rest else "")
    raise AssertionError


def ago(then: datetime, now: datetime) -> str:
    """An instant by its distance from now.

    >>> noon = datetime(2030, 1, 31, 12, tzinfo=UTC)
    >>> ago(noon - timedelta(minutes=3), noon), ago(noon + timedelta(hours=2), noon), ago(noon, noon)
    ('3 min ago', 'in 2 h', 'now')
    """
    distance = now - then
    if abs(distance) < timedelta(seconds=1):
        return "now"
    distance = timedelta(seconds=round(distance.total_seconds()))
    return f"{span(distance)} ago" if distance > timedelta(0) else f"in {span(distance)}"


def instant(at: datetime) -> str:
    """An instant in UTC, and in the reader's own zone where that differs.

    >>> instant(datetime(2030, 1, 31, 8, tzinfo=UTC))[:20]
    '2030-01-31 08:00:00Z'
    """
    utc, here = at.astimezone(UTC), at.astimezone()
    own = "" if not here.utcoffset() else f" ({here:%Y-%m-%d %H:%M:%S} here)"
    return f"{utc:%Y-%m-%d %H:%M:%S}Z{own}"
