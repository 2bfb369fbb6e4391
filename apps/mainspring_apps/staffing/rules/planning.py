"""Which shifts a booking has: each working day between two dates, as exact instants of the project's zone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta

from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.settings import OPEN_SHIFT


@dataclass(frozen=True, slots=True)
class Planned:
    """A shift to come; where nobody knows its end it is planned, and charged, as `OPEN_SHIFT`."""

    start: datetime
    end: datetime | None

    @property
    def minutes(self) -> int:
        """How long it is planned to be, by the clock that never changes."""
        return int(((self.end - self.start) if self.end else OPEN_SHIFT) / timedelta(minutes=1))

    @property
    def busy_until(self) -> datetime:
        """Until when the worker can do nothing else."""
        return self.end or self.start + OPEN_SHIFT


def shifts(
    first: date, last: date, start: time, end: time | None, weekdays: frozenset[int], zone: str
) -> Iterator[Planned]:
    """The shifts from one date to another, both included, on these weekdays (0 is Monday).

    One whose whole time a change of clocks leaves out does not take place.

    >>> [plan] = shifts(date(2026, 6, 3), date(2026, 6, 3), time(22), time(6), frozenset(range(7)), "America/New_York")
    >>> plan.end.isoformat(), plan.minutes
    ('2026-06-04T10:00:00+00:00', 480)
    """
    for number in range((last - first).days + 1):
        day = first + timedelta(days=number)
        if day.weekday() in weekdays and weeks.instant(day, f"{start:%H:%M}", zone) is not None:
            planned = Planned(*weeks.shift(day, start, end, zone))
            if planned.minutes > 0:
                yield planned
