"""When a rule is due, found by walking minute by minute and looking at the clock of the zone.

This is the second opinion: it shares nothing with the package that it judges. Minutes are counted from the Unix epoch,
local ones as if they were UTC.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, lru_cache
from zoneinfo import ZoneInfo

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DAY = 1440
MARGIN = 2 * DAY

NAMES = {"SUNMONTUEWEDTHUFRISAT"[3 * n : 3 * n + 3]: n for n in range(7)}
NAMES |= {"JANFEBMARAPRMAYJUNJULAUGSEPOCTNOVDEC"[3 * n - 3 : 3 * n]: n for n in range(1, 13)}
LAST = 99


def minute(year: int, month: int = 1, day: int = 1, hour: int = 0, minutes: int = 0) -> int:
    return (datetime(year, month, day, hour, minutes, tzinfo=UTC) - EPOCH) // MINUTE


def values(text: str, low: int, high: int) -> set[int]:
    """The numbers that one field of an expression names."""
    found: set[int] = set()
    for term in text.split(","):
        span, _, step = term.partition("/")
        if span == "L":
            found.add(LAST)
            continue
        first, _, last = ("*", "", "") if span == "*" else span.partition("-")
        start = low if first == "*" else int(NAMES.get(first, first))
        end = high if first == "*" or (step and not last) else int(NAMES.get(last, last or start))
        found |= set(range(start, end + 1, int(step or 1)))
    return found


@dataclass(frozen=True)
class Expression:
    """The local minutes of an expression: on some days, at some minutes of the day."""

    days: frozenset[int]
    minutes: frozenset[int]
    steady: bool

    def names(self, wall: int) -> bool:
        return wall % DAY in self.minutes and wall // DAY in self.days


@lru_cache(maxsize=64)
def expression(text: str) -> Expression:
    """Every day from 1990 to 2050, and every minute of a day, is looked at one by one."""
    minutes, hours, monthdays, months, weekdays = text.split()
    in_hour, in_day = values(minutes, 0, 59), values(hours, 0, 23)
    of_month, of_year, of_week = values(monthdays, 1, 31), values(months, 1, 12), values(weekdays, 0, 7)
    days = set()
    for number in range((date(1990, 1, 1) - date(1970, 1, 1)).days, (date(2050, 1, 1) - date(1970, 1, 1)).days):
        day = date(1970, 1, 1) + timedelta(days=number)
        last = (day + timedelta(days=1)).day == 1
        by_month = day.day in of_month or (last and LAST in of_month)
        by_week = day.isoweekday() in of_week or day.isoweekday() % 7 in of_week
        either = "*" not in (monthdays[0], weekdays[0])
        if day.month in of_year and (by_month or by_week if either else by_month and by_week):
            days.add(number)
    times = {m for m in range(DAY) if m // 60 in in_day and m % 60 in in_hour}
    return Expression(frozenset(days), frozenset(times), hours.startswith("*"))


def local(zone: ZoneInfo, instant: int) -> int:
    """What the clock of a zone shows at an instant."""
    ahead = datetime.fromtimestamp(instant * 60, zone).utcoffset()
    assert ahead is not None
    minutes, rest = divmod(ahead, MINUTE)
    assert not rest, f"{zone} {instant}"
    return instant + minutes


@dataclass
class Walk:
    """What the clock of a zone showed from minute to minute."""

    first: int
    end: int
    seen: dict[int, list[int]] = field(default_factory=dict)  # local minute: the instants at which it was shown
    jumps: list[tuple[int, range]] = field(default_factory=list)  # instant after a jump, local minutes not shown

    @cached_property
    def dates(self) -> set[int]:
        return {wall // DAY for wall in self.seen}

    def due(self, text: str, gap: str, overlap: str) -> list[tuple[int, int]]:
        """The instants of the walk at which a rule is due, each with what the clock showed."""
        wanted = expression(text)
        if wanted.steady:
            gap, overlap = "skip", "both"
        found: dict[int, int] = {}
        for wall in (day * DAY + time for day in self.dates & wanted.days for time in wanted.minutes):
            instants = self.seen.get(wall, [])
            chosen = {"first": instants[:1], "last": instants[-1:], "both": instants}[overlap]
            found.update((instant, wall) for instant in chosen)
        for instant, missing in self.jumps if gap == "shift" else ():
            if any(wanted.names(wall) and wall // DAY in self.dates for wall in missing):
                found[instant] = missing.stop
        return sorted((instant, wall) for instant, wall in found.items() if self.first <= instant < self.end)


def walk(zone: str, span: range, first: int, end: int) -> Walk:
    """Walk every minute of a span, to judge what lies from `first` until just before `end`."""
    info = ZoneInfo(zone)
    walked = Walk(max(first, span.start), min(end, span.stop))
    before = local(info, span.start - 1)
    for instant in span:
        wall = local(info, instant)
        walked.seen.setdefault(wall, []).append(instant)
        if wall > before + 1:
            walked.jumps.append((instant, range(before + 1, wall)))
        before = wall
    return walked


def windows(zone: str, first: int, end: int, rng: random.Random, weeks: int) -> Iterator[range]:
    """What to walk: two days around each change of the clocks, found by looking every hour, and some ordinary weeks."""
    info = ZoneInfo(zone)
    spans = [(start, start + 7 * DAY) for start in (rng.randrange(first, end - 7 * DAY) for _ in range(weeks))]
    ahead = local(info, first - MARGIN) - (first - MARGIN)
    for instant in range(first - MARGIN, end + MARGIN, 60):
        now = local(info, instant) - instant
        if now != ahead:
            spans.append((instant - MARGIN, instant + MARGIN))
        ahead = now
    span = range(0)
    for begin, until in sorted(spans):
        if begin <= span.stop:
            span = range(span.start, max(span.stop, until))
            continue
        if span:
            yield span
        span = range(begin, until)
    if span:
        yield span


def quiet(zone: str, text: str, first: int, end: int) -> list[tuple[int, int]]:
    """The instants of a rule, and their local times, while the clocks of a zone do not change."""
    info = ZoneInfo(zone)
    ahead = local(info, first) - first
    assert ahead == local(info, end - 1) - end + 1
    wanted = expression(text)
    days = range((first + ahead) // DAY, (end + ahead) // DAY + 1)
    walls = (day * DAY + time for day in days if day in wanted.days for time in wanted.minutes)
    return sorted((wall - ahead, wall) for wall in walls if first <= wall - ahead < end)
