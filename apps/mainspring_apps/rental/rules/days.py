"""Rental days and fiscal days: those of one zone, whatever the instants are (RENT-20.05)."""

from __future__ import annotations

from datetime import date, datetime, timedelta
from zoneinfo import ZoneInfo


def day_of(at: datetime, zone: str) -> date:
    """The day of an instant.

    >>> from datetime import UTC
    >>> day_of(datetime(2026, 7, 31, 23, 30, tzinfo=UTC), "Europe/Lisbon")
    datetime.date(2026, 8, 1)
    """
    return at.astimezone(ZoneInfo(zone)).date()


def starts(day: date, zone: str) -> datetime:
    """When a day begins."""
    return datetime(day.year, day.month, day.day, tzinfo=ZoneInfo(zone))


def length(start: date, end: date) -> int:
    """How many days a rental has: one of 23 or 25 hours is one."""
    return (end - start) // timedelta(days=1)
