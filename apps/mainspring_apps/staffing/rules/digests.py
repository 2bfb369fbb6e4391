"""The daily digest: when it comes, what time it covers, and when it comes too late. Pure: no clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

import mainspring as ms
from mainspring_apps.staffing.rules import weeks, zones

#: Where the zone of a user is missing or unknown (STAFF-6.08).
FALLBACK: Final = "UTC"


def zone_of(name: str) -> str:
    """The zone that a user's is read as.

    >>> zone_of("Asia/Kathmandu"), zone_of("Mars/Base"), zone_of("")
    ('Asia/Kathmandu', 'UTC', 'UTC')
    """
    return FALLBACK if zones.problem(name) else name


def window(slot: datetime, zone: str, at: str) -> weeks.Period:
    """From the previous slot up to this one: 23 or 25 hours where clocks change, and over a date left out (G-27).

    >>> from datetime import UTC
    >>> window(datetime(2026, 11, 1, 10, tzinfo=UTC), "America/New_York", "05:00").start.isoformat()
    '2026-10-31T09:00:00+00:00'
    """
    before = ms.daily(at, zone=zone).last(slot - timedelta(days=4), slot - timedelta(seconds=1))
    assert before is not None
    return weeks.Period(before.at, slot)


def in_time(slot: datetime, now: datetime, zone: str) -> bool:
    """Whether a digest that was missed still makes sense: on the same local day (STAFF-0.08)."""
    return weeks.local_date(slot, zone) == weeks.local_date(now, zone)


def streak(before: int, found: int) -> int:
    """How many digests in a row were empty; one hit begins anew.

    >>> streak(19, 0), streak(19, 2)
    (20, 0)
    """
    return 0 if found else before + 1
