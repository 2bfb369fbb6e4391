"""Rules of time: when something recurs, in which zone, and what happens when clocks change.

A rule names local times (`cron`, `daily`, `weekly`, `monthly`) or elapsed time (`every`). It is a value: it knows no
clock, it only answers which instant comes after another.

When clocks change, a rule with fixed hours runs once per local day:

- a local time that is jumped over (*gap*) runs at the first instant after the jump (`shift`) or not at all (`skip`).
  Several that shift to one instant are one tick. A date that a zone leaves out has none;
- a local time that comes twice (*overlap*) runs the `first` time, the `last` time, or `both` times.

Where the hour is `*` or `*/n` the rule runs whenever clocks show a matching time: in both halves of an overlap, and
not at times that are jumped over; `gap` and `overlap` do not apply. `every` counts elapsed time and asks no clock.
"""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any, Final, Literal, NamedTuple, NoReturn, get_args

import msgspec
from msgspec.structs import force_setattr

from mainspring.checks import LAST_YEAR, LONGEST_DELAY, check_instant
from mainspring.errors import ValidationError
from mainspring.text.span import Span, span_of
from mainspring.text.texts import MAX_NAME, did_you_mean
from mainspring.when.expression import parse, tidy
from mainspring.when.occurrences import Gap, Overlap, occurrences
from mainspring.when.phrase import cron_in_words, interval_in_words, read_interval
from mainspring.when.zones import EPOCH, check_zone, zone_info

RuleKind = Literal["cron", "every"]

MON: Final = "MON"
TUE: Final = "TUE"
WED: Final = "WED"
THU: Final = "THU"
FRI: Final = "FRI"
SAT: Final = "SAT"
SUN: Final = "SUN"

#: Zone data says little about earlier times, and nothing recurs there.
FIRST_YEAR: Final = 1900
SHORTEST_INTERVAL: Final = timedelta(seconds=1)

_SECOND: Final = timedelta(seconds=1)
_WEEK: Final = {
    name: short
    for short, long in zip(
        (MON, TUE, WED, THU, FRI, SAT, SUN),
        ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday"),
        strict=True,
    )
    for name in (short.lower(), long)
}
_TIME_OF_DAY: Final = re.compile(r"([01]\d|2[0-3]):([0-5]\d)", re.ASCII)
_AT_REPEAT: Final = {"last": "the second time where clocks repeat it", "both": "both times where clocks repeat it"}


class Tick(NamedTuple):
    """One instant of a rule: `at` in UTC, and `local`, the same instant as people in the rule's zone read it."""

    at: datetime
    local: datetime


class Rule(msgspec.Struct, frozen=True, kw_only=True, eq=False, forbid_unknown_fields=True, repr_omit_defaults=True):
    """When something recurs. Made by `cron`, `every`, `daily`, `weekly` and `monthly`; equal to what means the same.

    >>> from datetime import UTC, datetime
    >>> rule = weekly(WED, "10:00", zone="Europe/London")
    >>> rule.describe()
    'every Wednesday at 10:00 (Europe/London)'
    >>> tick = rule.next(datetime(2026, 3, 27, tzinfo=UTC))
    >>> f"{tick.at:%F %T}, {tick.local:%F %T %Z}"
    '2026-04-01 09:00:00, 2026-04-01 10:00:00 BST'
    """

    kind: RuleKind
    expression: str | None = None
    interval: timedelta | None = None
    anchor: datetime | None = None
    zone: str = "UTC"
    gap: Gap = "shift"
    overlap: Overlap = "first"

    def __post_init__(self) -> None:
        check_zone(self.zone)
        for field, values in (("kind", RuleKind), ("gap", Gap), ("overlap", Overlap)):
            _check_choice(field, getattr(self, field), get_args(values))
        if self.kind == "cron":
            _check_absent("interval", self.interval)
            _check_absent("anchor", self.anchor)
            force_setattr(self, "expression", tidy(self.expression))
            parse(self._expression)
        else:
            _check_absent("expression", self.expression)
            if not isinstance(self.interval, timedelta) or not SHORTEST_INTERVAL <= self.interval <= LONGEST_DELAY:
                _refuse("interval", "is not a time span from 1 second to 10 years")
            force_setattr(self, "anchor", _instant("anchor", EPOCH if self.anchor is None else self.anchor))

    def next(self, after: datetime) -> Tick | None:
        """The first tick later than an instant; None when there is none up to the year 2200.

        >>> from datetime import UTC, datetime
        >>> every(minutes=15).next(datetime(2026, 6, 1, 12, 30, tzinfo=UTC)).at.isoformat()
        '2026-06-01T12:45:00+00:00'
        """
        return next(self._ticks(_instant("after", after)), None)

    def ticks(self, after: datetime, until: datetime) -> Iterator[Tick]:
        """The ticks later than `after` and not later than `until`, in order.

        >>> from datetime import UTC, datetime
        >>> june = datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 7, 1, tzinfo=UTC)
        >>> [tick.local.day for tick in weekly("wed", "10:00").ticks(*june)]
        [3, 10, 17, 24]
        """
        start, end = _instant("after", after), _instant("until", until)

        def within() -> Iterator[Tick]:
            for tick in self._ticks(start):
                if tick.at > end:
                    return
                yield tick

        return within()

    def last(self, after: datetime, until: datetime) -> Tick | None:
        """The last tick later than `after` and not later than `until`, found without walking those between.

        >>> from datetime import UTC, datetime
        >>> decade = datetime(2020, 1, 1, tzinfo=UTC), datetime(2030, 1, 1, tzinfo=UTC)
        >>> cron("*/5 * * * *").last(*decade).at.isoformat()
        '2030-01-01T00:00:00+00:00'
        """
        start, end = _instant("after", after), _instant("until", until)
        if self.kind == "every":
            found = self._anchor + (end - self._anchor) // self._interval * self._interval
            return self._tick(found) if found > start else None
        first, final = (start - EPOCH) // _SECOND, (end - EPOCH) // _SECOND
        # Before the last tick there is a next one within the span, from it on there is none: the border is the tick.
        past = bisect_left(
            range(first, final), True, key=lambda instant: next(self._instants(instant + 1), final + 1) > final
        )
        return self._tick(EPOCH + timedelta(seconds=first + past)) if past else None

    def in_zone(self, zone: str) -> Rule:
        """The same rule in another zone.

        >>> daily("05:00").in_zone("Asia/Kathmandu").describe()
        'every day at 05:00 (Asia/Kathmandu)'
        """
        return msgspec.structs.replace(self, zone=zone)

    def describe(self, where: str | None = None) -> str:
        """The rule in words; `where` stands in for the name of its zone.

        >>> cron("0 */6 * * MON-FRI").describe(), every(hours=36).describe()
        ('every 6 hours, every weekday (UTC)', 'every 1 day 12 hours')
        """
        if self.kind == "every":
            since = "" if self._anchor == EPOCH else f", counted from {self._anchor:%Y-%m-%d %H:%M:%S} UTC"
            return interval_in_words(self._interval) + since
        meaning = parse(self._expression)
        said = f"{cron_in_words(meaning)} ({where or self.zone})"
        if not meaning.steady and self.gap == "skip":
            said += ", not where clocks jump over it"
        if not meaning.steady and self.overlap != "first":
            said += f", {_AT_REPEAT[self.overlap]}"
        return said

    def to_json(self) -> dict[str, Any]:
        """The rule as it is stored.

        >>> cron("0 5 * * *", zone="Asia/Tokyo").to_json()
        {'kind': 'cron', 'expression': '0 5 * * *', 'zone': 'Asia/Tokyo', 'gap': 'shift', 'overlap': 'first'}
        """
        stored: dict[str, Any] = msgspec.to_builtins(self)
        unused = ("interval", "anchor") if self.kind == "cron" else ("expression", "gap", "overlap")
        return {field: value for field, value in stored.items() if field not in unused}

    @staticmethod
    def from_json(value: object) -> Rule:
        """A stored rule, checked anew: its zone may have gone since.

        >>> Rule.from_json({"kind": "every", "interval": "PT15M"}).describe()
        'every 15 minutes'
        """
        try:
            return msgspec.convert(value, Rule)
        except msgspec.ValidationError as error:
            raise ValidationError(f"rule: {str(error)[0].lower()}{str(error)[1:]}", field="rule") from None

    def __eq__(self, other: object) -> bool:
        return self._meaning() == other._meaning() if isinstance(other, Rule) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._meaning())

    def _meaning(self) -> tuple[object, ...]:
        if self.kind == "every":
            return self._interval, (self._anchor - EPOCH) % self._interval, self.zone
        cron = parse(self._expression)
        return cron.meaning, self.zone, cron.steady or (self.gap, self.overlap)

    @property
    def _expression(self) -> str:
        assert self.expression is not None
        return self.expression

    @property
    def _interval(self) -> timedelta:
        assert self.interval is not None
        return self.interval

    @property
    def _anchor(self) -> datetime:
        assert self.anchor is not None
        return self.anchor

    def _instants(self, since: int) -> Iterator[int]:
        return occurrences(parse(self._expression), self.zone, self.gap, self.overlap, since)

    def _ticks(self, after: datetime) -> Iterator[Tick]:
        zone = zone_info(self.zone)
        for at in self._multiples(after) if self.kind == "every" else self._local_times(after):
            if at.year > LAST_YEAR:
                return
            yield Tick(at, at.astimezone(zone))

    def _multiples(self, after: datetime) -> Iterator[datetime]:
        number = (after - self._anchor) // self._interval
        while True:
            number += 1
            yield self._anchor + number * self._interval

    def _local_times(self, after: datetime) -> Iterator[datetime]:
        return (EPOCH + timedelta(seconds=at) for at in self._instants((after - EPOCH) // _SECOND + 1))

    def _tick(self, at: datetime) -> Tick:
        return Tick(at, at.astimezone(zone_info(self.zone)))


def cron(expression: str, *, zone: str = "UTC", gap: Gap = "shift", overlap: Overlap = "first") -> Rule:
    """A rule by a cron expression of five fields, in the local time of a zone.

    >>> cron("30 2 * * MON-FRI", zone="America/New_York").describe()
    'every weekday at 02:30 (America/New_York)'
    """
    return Rule(kind="cron", expression=expression, zone=zone, gap=gap, overlap=overlap)


def every(
    interval: Span | None = None,
    *,
    days: float = 0,
    hours: float = 0,
    minutes: float = 0,
    seconds: float = 0,
    anchor: datetime | None = None,
    zone: str = "UTC",
) -> Rule:
    """A rule by elapsed time: the multiples of an interval of at least a second, before and after `anchor`.

    Without an anchor they are counted from the Unix epoch. The zone is only for showing ticks.

    >>> every("15m").describe(), every(hours=1, minutes=30).describe()
    ('every 15 minutes', 'every 1 hour 30 minutes')
    """
    try:
        spoken = timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except (TypeError, ValueError, OverflowError):
        _refuse("interval", "is not a time span from 1 second to 10 years")
    if interval is not None and spoken:
        _refuse("interval", "is given twice: as a time span and in units")
    length = spoken if interval is None else span_of("interval", interval)
    return Rule(kind="every", interval=length, anchor=anchor, zone=zone)


def daily(time: str, *, zone: str = "UTC", gap: Gap = "shift", overlap: Overlap = "first") -> Rule:
    """Every day at a local time.

    >>> daily("05:00", zone="Asia/Kolkata").expression
    '0 5 * * *'
    """
    return cron(f"{_time_of_day(time)} * * *", zone=zone, gap=gap, overlap=overlap)


def weekly(
    days: str | Iterable[str], time: str, *, zone: str = "UTC", gap: Gap = "shift", overlap: Overlap = "first"
) -> Rule:
    """Every week on one or several days, at a local time.

    >>> weekly((MON, "thursday"), "10:00").describe()
    'every Monday and Thursday at 10:00 (UTC)'
    """
    names = [_weekday(day) for day in _several("days", days)]
    return cron(f"{_time_of_day(time)} * * {','.join(names)}", zone=zone, gap=gap, overlap=overlap)


def monthly(
    days: int | str | Iterable[int | str],
    time: str,
    *,
    zone: str = "UTC",
    gap: Gap = "shift",
    overlap: Overlap = "first",
) -> Rule:
    """Every month on one or several days, `"last"` being the last, at a local time; months without the day have none.

    >>> monthly("last", "18:00").describe()
    'on the last day of every month at 18:00 (UTC)'
    """
    names = [_day_of_month(day) for day in _several("days", days)]
    return cron(f"{_time_of_day(time)} {','.join(names)} * *", zone=zone, gap=gap, overlap=overlap)


def rule_from_text(text: str, *, zone: str = "UTC", gap: Gap = "shift", overlap: Overlap = "first") -> Rule:
    """A rule as people write it: a cron expression, or `every` with an interval.

    >>> rule_from_text("0 10 * * WED").describe(), rule_from_text("every 15m").describe()
    ('every Wednesday at 10:00 (UTC)', 'every 15 minutes')
    """
    if isinstance(text, str) and len(text) <= MAX_NAME and text.strip().lower().startswith("every"):
        return every(read_interval(text.strip()[5:]), zone=zone)
    return cron(text, zone=zone, gap=gap, overlap=overlap)


def _several(field: str, value: Any) -> list[Any]:
    values = [value] if isinstance(value, str | int) or not isinstance(value, Iterable) else list(value)
    return values or _refuse(field, "is empty")


def _time_of_day(time: object) -> str:
    match = _TIME_OF_DAY.fullmatch(time) if isinstance(time, str) else None
    if match is None:
        _refuse("time", "is not a time of day from 00:00 to 23:59")
    return f"{int(match[2])} {int(match[1])}"


def _weekday(day: object) -> str:
    found = _WEEK.get(day.lower()) if isinstance(day, str) else None
    return found or _refuse("days", f"is not a day of the week{did_you_mean(day, _WEEK)}")


def _day_of_month(day: object) -> str:
    if day == "last":
        return "L"
    if not isinstance(day, int) or isinstance(day, bool) or not 1 <= day <= 31:
        _refuse("days", "is not a day of the month from 1 to 31, or 'last'")
    return str(day)


def _instant(field: str, value: object) -> datetime:
    check_instant(field, value)
    assert isinstance(value, datetime)
    if value.year < FIRST_YEAR:
        _refuse(field, f"lies before the year {FIRST_YEAR}")
    return value.astimezone(UTC)


def _check_choice(field: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        _refuse(field, f"is not one of {', '.join(known)}{did_you_mean(value, known)}")


def _check_absent(field: str, value: object) -> None:
    if value is not None:
        _refuse(field, "does not belong to this kind of rule")


def _refuse(field: str, problem: str) -> NoReturn:
    raise ValidationError(f"{field}: {problem}", field=field)
