"""From local times to instants: what happens to a rule when clocks change."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal

from mainspring.when.expression import Cron
from mainspring.when.zones import DAY_SECONDS, FARTHEST_AWAY_S, Stretch, stretch_at

Gap = Literal["shift", "skip"]
Overlap = Literal["first", "last", "both"]


def occurrences(cron: Cron, zone: str, gap: Gap, overlap: Overlap, instant: int) -> Iterator[int]:
    """The instants from a given one on at which an expression is due in a zone, in order, each once.

    It goes from stretch to stretch of the zone. Within one, a local time is an instant plus the offset; the policies
    concern only the local times around its two ends.
    """
    if cron.steady:
        gap, overlap = "skip", "both"
    while True:
        stretch = stretch_at(zone, instant)
        offset = stretch.offset
        if gap == "shift" and instant == stretch.start and _in_gap(cron, stretch):
            yield instant
            instant += 1
        wall, end = instant + offset, stretch.end + offset
        if overlap == "first":  # not what clocks showed already
            wall = max(wall, stretch.shown)
        elif overlap == "last":  # not what they will show again
            end = min(end, stretch.again)
        for found in cron.walls(wall):
            if found >= end:
                break
            yield found - offset
        # The next local time may be years away: no need to ask the zone about the time between.
        ahead = next(cron.walls(stretch.end - FARTHEST_AWAY_S), None)
        if ahead is None:
            return
        instant = max(stretch.end, ahead - FARTHEST_AWAY_S)


def _in_gap(cron: Cron, stretch: Stretch) -> bool:
    """Whether a local time is jumped over at the start of a stretch, on a date that the zone has."""
    start, end = stretch.shown, stretch.start + stretch.offset
    missing = range(-(-start // DAY_SECONDS), end // DAY_SECONDS)  # dates that are jumped over as a whole
    for wall in cron.walls(start):
        if wall >= end:
            return False
        if wall // DAY_SECONDS not in missing:
            return True
    return False
