"""Quiet hours: when somebody who sleeps may be told. Pure: no clock, no database."""

from __future__ import annotations

from datetime import datetime, time, timedelta

from mainspring.when.zones import DAY_SECONDS, EPOCH, stretch_at


def quiet_until(at: datetime, zone: str, start: time, end: time) -> datetime:
    """The first instant from `at` on at which the clocks of a zone show no quiet hour.

    >>> from datetime import UTC
    >>> quiet_until(datetime(2026, 7, 1, 23, 30, tzinfo=UTC), "Europe/Lisbon", time(22), time(7)).isoformat()
    '2026-07-02T06:00:00+00:00'

    It goes from one change of the zone's clocks to the next, so that a night of 23 or 25 hours ends when clocks show
    its end: where that hour is jumped over, at the jump.
    """
    first, last = _seconds(start), _seconds(end)
    if first == last:
        return at
    instant = int((at - EPOCH).total_seconds() // 1)
    began = instant
    while True:
        stretch = stretch_at(zone, instant)
        shown = (instant + stretch.offset) % DAY_SECONDS
        if (shown - first) % DAY_SECONDS >= (last - first) % DAY_SECONDS:
            return at if instant == began else EPOCH + timedelta(seconds=instant)
        over = instant + (last - shown) % DAY_SECONDS
        instant = min(over, stretch.end)


def _seconds(at: time) -> int:
    return at.hour * 3600 + at.minute * 60 + at.second
