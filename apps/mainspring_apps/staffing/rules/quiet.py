"""Instant alerts and the peace of who gets them: quiet hours. Pure: no clock."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Final

from mainspring.contrib.notify import quiet_until
from mainspring_apps.staffing.rules.digests import zone_of

HOUR: Final = timedelta(hours=1)


def waits_until(now: datetime, zone: str, start: time, end: time) -> datetime | None:
    """When the quiet hours of a user end, if they are on; None: an alert may go at once (STAFF-5.05)."""
    until = quiet_until(now, zone_of(zone), start, end)
    return until if until > now else None
