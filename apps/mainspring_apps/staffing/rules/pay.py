"""What a shift is paid for, and what it costs: worked minutes, at an hourly rate (G-10, STAFF-20.01)."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from mainspring_apps.staffing.rules.penalty import half_up

_MINUTE: Final = timedelta(minutes=1)


@dataclass(frozen=True, slots=True)
class Hours:
    """What somebody worked, in whole minutes: what is paid as planned, and what came after the planned end."""

    paid: int
    extra: int


def hours(
    *, start: datetime, end: datetime | None, planned_minutes: int, clocked_in: datetime, stopped: datetime
) -> Hours:
    """The hours of a shift: from the later of clock-in and planned start, at most to the planned end.

    Where nobody knew the end, what was planned, and charged, is so many minutes, whenever they began (STAFF-8.19). An
    end that was moved while somebody worked takes nothing of the plan away from them.

    >>> nine, five = datetime(2026, 6, 6, 9, tzinfo=UTC), datetime(2026, 6, 6, 17, tzinfo=UTC)
    >>> shift = {"start": nine, "end": five, "planned_minutes": 480, "clocked_in": nine - timedelta(minutes=20)}
    >>> hours(**shift, stopped=nine + timedelta(hours=3, minutes=7, seconds=59))
    Hours(paid=187, extra=0)
    >>> hours(**shift, stopped=five + timedelta(hours=1))
    Hours(paid=480, extra=60)
    """
    begin, stopped = max(clocked_in, start).astimezone(UTC), stopped.astimezone(UTC)  # not minutes of the wall
    planned = planned_minutes * _MINUTE
    until = begin + planned if end is None else max(end.astimezone(UTC), start.astimezone(UTC) + planned)
    return Hours(_minutes(begin, min(stopped, until)), _minutes(max(begin, until), stopped))


def shortened(planned_minutes: int, start: datetime, end: datetime | None) -> int:
    """How many minutes stay planned of a shift that now ends then: fewer where that is before their end.

    >>> nine = datetime(2026, 6, 6, 9, tzinfo=UTC)
    >>> [shortened(480, nine, end and nine + end) for end in (_MINUTE, timedelta(hours=9), None)]
    [1, 480, 480]
    """
    if end is None:
        return planned_minutes
    return min(planned_minutes, max(1, _minutes(start.astimezone(UTC), end.astimezone(UTC))))


def shift_pay(minutes: int, rate_minor: int, fee_bps: int) -> int:
    """The price of minutes in minor units: at an hourly rate, half a unit up, and the platform's fee.

    >>> shift_pay(480, 3000, 0), shift_pay(50, 1001, 0)
    (24000, 834)
    """
    price = half_up(minutes * rate_minor, 60)
    return price + half_up(price * fee_bps, 10_000)


def covered(paid_minor: int, start: datetime, end: datetime, rate_minor: int, fee_bps: int) -> int:
    """How many whole minutes between two instants so much money pays for.

    >>> nine = datetime(2026, 6, 6, 9, tzinfo=UTC)
    >>> [covered(24000, nine, nine + timedelta(hours=hours), 3000, 0) for hours in (4, 8, 9)]
    [240, 480, 480]
    """
    until = _minutes(start.astimezone(UTC), end.astimezone(UTC))
    return bisect_right(range(until + 1), paid_minor, key=lambda minutes: shift_pay(minutes, rate_minor, fee_bps)) - 1


def added_pay(since: int, until: int, rate_minor: int, fee_bps: int, settled_minor: int | None = None) -> int:
    """What more minutes of a shift add to its price: that of the whole is rounded once, however it is charged.

    Nothing beyond what the end of a dispute has settled (STAFF-20.11).

    >>> shift_pay(25, 1001, 0) + added_pay(25, 50, 1001, 0) == shift_pay(50, 1001, 0)
    True
    """
    prices = [shift_pay(minutes, rate_minor, fee_bps) for minutes in (since, until)]
    before, after = (price if settled_minor is None else min(price, settled_minor) for price in prices)
    return after - before


def _minutes(since: datetime, until: datetime) -> int:
    return max(0, (until - since) // _MINUTE)
