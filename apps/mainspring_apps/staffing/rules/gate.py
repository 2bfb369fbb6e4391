"""The clock-in gate: may this shift be begun now, and if not, why not."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from typing import Final

from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.states import WORKABLE

#: Where the money of a shift is that was paid for: `Released` before it is worked, with `on_webhook` (G-13),
#: `Paid_Outside` where it was imported so (STAFF-20.28).
PAID: Final = frozenset({"Held", "Released", "Paid_Outside"})


def closed(
    *,
    booking: str,
    shift: str,
    starts_on: date,
    end_date: date,
    funded: bool,
    taken: bool,
    awaits_resolution: bool,
    uncovered: str | None,
) -> str | None:
    """Why a shift cannot be begun, or None: the gate is open.

    Of a booking only its insurance and its end close the gate. A dispute does not (G-07), nor does a week that nobody
    has paid for (G-63); but a dispute that was open when the insurance was renewed does, until it is resolved (G-23).
    A released booking has shifts that are paid for, up to its end (G-16), and only those: who is not paid is not asked
    to work on (STAFF-20.14). Nor is who was to be paid, and whose money the borrower has back: `taken` (STAFF-20.25).

    >>> day = date(2026, 6, 6)
    >>> shift = {"shift": "Scheduled", "starts_on": day, "end_date": day, "awaits_resolution": False, "uncovered": None}
    >>> shift |= {"taken": False}
    >>> closed(booking="Active", funded=False, **shift)
    >>> closed(booking="Suspended_Insurance", funded=True, **shift)
    'status: the booking is Suspended_Insurance'
    >>> closed(booking="Completed", funded=False, **shift)
    'status: the booking is Completed, and nobody has paid for the shift'
    """
    if shift != "Scheduled":
        return f"status: the shift is {shift}"
    released = booking == "Completed" and starts_on <= end_date
    if booking not in WORKABLE and not released:
        return f"status: the booking is {booking}"
    if released and not funded:
        return f"status: the booking is {booking}, and nobody has paid for the shift"
    if taken:
        return "payment: the money of the shift was taken back, and nobody has paid for it since"
    if awaits_resolution:
        return "status: a dispute was open when the insurance was renewed, and is not resolved"
    if uncovered is not None:
        return f"insurance: {uncovered}"
    return None


def outside(
    now: datetime, *, start: datetime, end: datetime | None, early: timedelta, open_for: timedelta, zone: str
) -> str | None:
    """Why it is not the time to begin a shift, or None: from a little before its start to its planned end.

    Where nobody knows the end, a while after the start is the last instant (STAFF-20.05).

    >>> from datetime import UTC
    >>> nine = datetime(2026, 6, 6, 13, tzinfo=UTC)
    >>> window = {"start": nine, "end": None, "early": timedelta(hours=1), "open_for": timedelta(hours=24)}
    >>> window |= {"zone": "America/New_York"}
    >>> outside(nine - timedelta(hours=1), **window), outside(nine + timedelta(hours=24), **window)
    (None, None)
    >>> outside(nine - timedelta(minutes=61), **window)
    'now: the shift can be begun from 2026-06-06 08:00 (America/New_York) on'
    """
    first, last = start - early, end if end is not None else start + open_for
    if now < first:
        return f"now: the shift can be begun from {weeks.written(first, zone)} on"
    if now > last:
        return f"now: the shift could be begun until {weeks.written(last, zone)}"
    return None


def elsewhere(time_log_id: int) -> str:
    """Why nobody begins a shift who still works on another, and how that one ends."""
    return f"status: the worker still works on shift {time_log_id}: its timesheet is to be submitted first"
