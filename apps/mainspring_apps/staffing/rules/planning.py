"""Which shifts a booking has: each working day between two dates, as exact instants of the project's zone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from mainspring_apps.staffing.rules import weeks


@dataclass(frozen=True, slots=True)
class Planned:
    """A shift to come; where nobody knows its end, somebody has said how long it is planned, and charged."""

    start: datetime
    end: datetime | None
    busy_until: datetime  # until when the worker can do nothing else

    @property
    def minutes(self) -> int:
        """How long it is planned to be, by the clock that never changes."""
        return int((self.busy_until - self.start) / timedelta(minutes=1))


def shifts(
    first: date, last: date, start: time, end: time | None, weekdays: frozenset[int], zone: str, open_shift: timedelta
) -> Iterator[Planned]:
    """The shifts from one date to another, both included, on these weekdays (0 is Monday).

    One whose whole time a change of clocks leaves out does not take place.

    >>> day, night = date(2026, 6, 3), (time(22), time(6))
    >>> [plan] = shifts(day, day, *night, frozenset(range(7)), "America/New_York", timedelta(hours=8))
    >>> plan.end.isoformat(), plan.minutes
    ('2026-06-04T10:00:00+00:00', 480)
    """
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        if day.weekday() in weekdays and weeks.instant(day, f"{start:%H:%M}", zone) is not None:
            begins, ends = weeks.shift(day, start, end, zone)
            planned = Planned(begins, ends, ends or begins + open_shift)
            if planned.minutes > 0:
                yield planned
