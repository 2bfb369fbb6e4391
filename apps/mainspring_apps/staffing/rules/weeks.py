"""Local weeks as exact instants: which week a Wednesday pays for, when it begins, and which Sunday ends it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo

import mainspring as ms
from mainspring_apps.frame.setting import weekday
from mainspring_apps.staffing.settings import Settings

DAY: Final = timedelta(days=1)


@dataclass(frozen=True, slots=True)
class Period:
    """From an instant up to, not including, another: what a payment pays for (G-06)."""

    start: datetime
    end: datetime

    def __contains__(self, at: datetime) -> bool:
        return self.start <= at < self.end


@lru_cache(maxsize=4096)
def instant(day: date, at: str, zone: str) -> datetime | None:
    """The one instant of a local time (STAFF-0.07): in a gap the first after it, of two the first; None: no such date.

    >>> instant(date(2026, 6, 3), "10:00", "Asia/Kathmandu")
    datetime.datetime(2026, 6, 3, 4, 15, tzinfo=datetime.timezone.utc)
    >>> instant(date(2011, 12, 30), "05:00", "Pacific/Apia") is None
    True
    """
    around = datetime.combine(day, time(), UTC)
    for tick in ms.daily(at, zone=zone).ticks(around - 2 * DAY, around + 3 * DAY):
        if tick.local.date() == day:
            return tick.at
    return None


def local_date(at: datetime, zone: str) -> date:
    """The date that people in a zone write at an instant."""
    return at.astimezone(ZoneInfo(zone)).date()


def written(at: datetime, zone: str) -> str:
    """An instant as people in a zone write it, with the zone.

    >>> written(datetime(2026, 6, 6, 12, tzinfo=UTC), "America/New_York")
    '2026-06-06 08:00 (America/New_York)'
    """
    return f"{at.astimezone(ZoneInfo(zone)):%Y-%m-%d %H:%M} ({zone})"


def midnight(day: date, zone: str) -> datetime:
    """The first instant of a local date; of a date that does not exist, that of the next one."""
    return moment(day, "00:00", zone)


def moment(day: date, at: str, zone: str) -> datetime:
    """The instant of a local time; of a date that does not exist, the first of the next one."""
    found = instant(day, at, zone)
    return found if found is not None else midnight(day + DAY, zone)


def monday(at: datetime, zone: str) -> date:
    """The Monday of the local week in which an instant lies."""
    today = local_date(at, zone)
    return today - timedelta(days=today.weekday())


def days(first: date, last: date, zone: str) -> Period:
    """From one local date to another, both included."""
    return Period(midnight(first, zone), midnight(last + DAY, zone))


def week(first: date, zone: str) -> Period:
    """The local week that begins on this Monday; a change of clocks makes it 167 or 169 hours long."""
    return Period(midnight(first, zone), midnight(first + timedelta(days=7), zone))


def next_week(at: datetime, zone: str) -> Period:
    """The week after the one of this instant: what Wednesday's run pays for."""
    return week(monday(at, zone) + timedelta(days=7), zone)


def due_week(at: datetime, zone: str, settings: Settings) -> Period:
    """The week that the latest Wednesday 10:00, or whenever weeks are charged, should have funded (G-49)."""
    first = monday(at, zone)
    charge = instant(first + weekday(settings.charge_day) * DAY, settings.charge_at, zone)
    return week(first + timedelta(days=7 if charge is not None and charge <= at else 0), zone)


def cutoff(at: datetime, zone: str, settings: Settings) -> datetime:
    """The next cutoff after an instant: until then what failed may be paid (STAFF-1.36).

    >>> cutoff(datetime(2026, 6, 3, 14, tzinfo=UTC), "America/New_York", Settings())
    datetime.datetime(2026, 6, 4, 4, 0, tzinfo=datetime.timezone.utc)
    """
    day = monday(at, zone) + weekday(settings.cutoff_day) * DAY
    first = moment(day, settings.cutoff_at, zone)
    return first if first > at else moment(day + 7 * DAY, settings.cutoff_at, zone)


def begins_unpaid(first: datetime, now: datetime, zone: str, settings: Settings) -> bool:
    """Whether a booking that is made now begins in its due week, and no cutoff of that week is still to come.

    >>> monday = datetime(2026, 6, 8, 9, tzinfo=UTC)
    >>> days = [datetime(2026, 6, day, 12, tzinfo=UTC) for day in (2, 3, 4, 8)]  # Tuesday, Wednesday, Thursday, Monday
    >>> [begins_unpaid(monday, day, "UTC", Settings()) for day in days]
    [False, False, True, True]
    """
    due = due_week(now, zone, settings)
    return first < due.end and cutoff(now, zone, settings) > due.start


def sunday(at: datetime, zone: str) -> date:
    """The Sunday that ends the local week of an instant."""
    return monday(at, zone) + timedelta(days=6)


def shift(day: date, start: time, end: time | None, zone: str) -> tuple[datetime, datetime | None]:
    """The instants of a planned shift; an end that is not after the start lies on the next day (G-32).

    >>> [str(at) for at in shift(date(2026, 6, 3), time(22), time(6), "America/New_York")]
    ['2026-06-04 02:00:00+00:00', '2026-06-04 10:00:00+00:00']
    """
    first = instant(day, f"{start:%H:%M}", zone) or midnight(day, zone)
    if end is None:
        return first, None
    last = day if end > start else day + DAY
    return first, instant(last, f"{end:%H:%M}", zone) or midnight(last, zone)
