"""One setting: how it is declared, read from a text, checked and shown."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import time, timedelta
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, get_args, get_origin

from mainspring.config import switch
from mainspring.errors import ConfigurationError, ValidationError
from mainspring.text.span import length
from mainspring.when import check_zone

T = TypeVar("T")

Weekday: TypeAlias = Literal["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
#: A time of day by the clocks of wherever it is read, as `ms.weekly` takes it.
TimeOfDay: TypeAlias = Annotated[str, "hh:mm"]
Address: TypeAlias = Annotated[str, "http(s)"]
Zone: TypeAlias = Annotated[str, "zone"]
#: A switch that is on only where its text is exactly `true`.
ExactlyTrue: TypeAlias = Annotated[bool, "exactly true"]

_UNITS: Final = (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000), ("ms", 1))
_TIME: Final = re.compile(r"([01]\d|2[0-3]):[0-5]\d")
_ADDRESS: Final = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*[^\s?#/])?")


def setting(
    default: T, about: str, *, least: object = None, most: object = None, variable: str | None = None
) -> T:  # fmt: skip
    """A field of the settings, with one line that says what it is; numbers and spans are not negative, unless said.

    `variable` is another name in the environment than that of all settings.
    """
    return field(default=default, metadata={"about": about, "least": least, "most": most, "variable": variable})


@dataclass(frozen=True, slots=True)
class Kind:
    """Values of a kind: how a text is read, which values are of it, and what to say of others."""

    read: Callable[[str], Any]
    holds: Callable[[Any], bool]
    like: str
    show: Callable[[Any], str] = str
    strip: bool = True  # whether blanks around a text mean nothing


def short(span: timedelta) -> str:
    """A time span as it is read.

    >>> short(timedelta(hours=36, minutes=5)), short(timedelta(0))
    ('1d12h5m', '0s')
    """
    left, parts = span // timedelta(milliseconds=1), []
    for unit, size in _UNITS:
        number, left = divmod(left, size)
        parts += [f"{number}{unit}"] if number else []
    return "".join(parts) or "0s"


def weekday(day: Weekday) -> int:
    """The number of a day in the week; Monday is 0."""
    return get_args(Weekday).index(day)


def rest_of_day(at: TimeOfDay) -> timedelta:
    """How long a day still lasts from a time on, where clocks do not change.

    >>> str(rest_of_day("02:00"))
    '22:00:00'
    """
    hours, minutes = map(int, at.split(":"))
    return timedelta(days=1, hours=-hours, minutes=-minutes)


_KINDS: Final[Mapping[Any, Kind]] = {
    bool: Kind(switch, lambda value: type(value) is bool, "on or off", lambda value: "on" if value else "off"),
    ExactlyTrue: Kind(
        lambda text: text == "true", lambda value: type(value) is bool, "true", lambda value: str(value).lower(), False
    ),
    str: Kind(str, lambda value: isinstance(value, str), "a text"),
    int: Kind(int, lambda value: type(value) is int, "a whole number"),
    float: Kind(float, lambda value: type(value) in (int, float), "a number"),
    timedelta: Kind(
        length, lambda value: isinstance(value, timedelta), "a time span, such as 90s, 5m, 4h or 1d", short
    ),
    time: Kind(
        time.fromisoformat,
        lambda value: isinstance(value, time) and value.tzinfo is None,
        "a time of day, such as 22:00",
        lambda value: f"{value:%H:%M}",
    ),
    TimeOfDay: Kind(str, lambda value: _matches(_TIME, value), "a time of day, such as 10:00"),
    Address: Kind(str, lambda value: _matches(_ADDRESS, value), "an http(s) address that does not end with /"),
    Zone: Kind(str, lambda value: _is_zone(value), "a time zone, such as Europe/Lisbon"),
}


def kind_of(type_: Any) -> Kind:
    """How values of a type are read, checked and shown.

    >>> kind_of(tuple[int, ...]).read("14, 7")
    (14, 7)
    """
    if get_origin(type_) is Literal:
        words = get_args(type_)
        return Kind(type(words[0]), lambda value: value in words, f"one of {', '.join(map(str, words))}")
    if get_origin(type_) is tuple:
        one = kind_of(get_args(type_)[0])
        return Kind(
            lambda text: tuple(one.read(part.strip()) for part in text.split(",") if part.strip()),
            lambda value: isinstance(value, tuple) and all(map(one.holds, value)),
            f"a list, with a comma between, of which each is {one.like}",
            lambda value: ",".join(map(one.show, value)),
        )
    return _KINDS[type_]


def read(type_: Any, text: str) -> Any:
    """A value from a text, or an error that says what it should be."""
    kind = kind_of(type_)
    try:
        return kind.read(text.strip() if kind.strip else text)
    except (ValueError, KeyError, OverflowError):
        raise ConfigurationError(f"is not {kind.like}") from None


def problem(type_: Any, value: object, *, least: Any, most: Any) -> str | None:
    """What is wrong with a value; None: nothing.

    >>> problem(timedelta, timedelta(hours=-1), least=None, most=None)
    'is less than 0s'
    """
    kind = kind_of(type_)
    if not kind.holds(value):
        return f"is not {kind.like}"
    for one in value if isinstance(value, tuple) else (value,):
        if type(one) not in (int, float, timedelta):
            continue
        lowest = type(one)() if least is None else least
        if one < lowest:
            return f"is less than {_KINDS[type(one)].show(lowest)}"
        if most is not None and one > most:
            return f"is more than {_KINDS[type(one)].show(most)}"
    return None


def _is_zone(value: object) -> bool:
    try:
        check_zone(str(value))
    except ValidationError:
        return False
    return isinstance(value, str)


def _matches(pattern: re.Pattern[str], value: object) -> bool:
    return isinstance(value, str) and pattern.fullmatch(value) is not None
