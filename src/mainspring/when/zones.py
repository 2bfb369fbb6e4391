"""Time zones: which names exist, and when a zone keeps which offset.

A zone's time is cut into stretches during which its clocks do not change. Where a stretch begins with a larger offset
than the one before, clocks jumped forward: the local times between are a *gap*, nobody's clock showed them. Where it
begins with a smaller one, clocks went back: the local times of the *overlap* are shown twice.

Instants are whole seconds since the Unix epoch; local times are counted the same way, as if they were UTC.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from importlib import import_module
from pathlib import Path
from typing import Final, NamedTuple
from zoneinfo import TZPATH, ZoneInfo, available_timezones

from mainspring.errors import ValidationError
from mainspring.extras import installed, needs
from mainspring.text.texts import MAX_NAME, did_you_mean, text_problem

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
DAY_SECONDS: Final = 86_400
#: No two zones of the world, past or present, are further apart.
FARTHEST_AWAY_S: Final = 2 * DAY_SECONDS
_SECOND: Final = timedelta(seconds=1)


class Stretch(NamedTuple):
    """A time in which a zone keeps one offset: from `start` until just before `end`, cut at years."""

    start: int
    end: int
    offset: int
    shown: int  # the local time up to which clocks had come before `start`
    again: int  # the earliest local time that they show after `end`


def check_zone(name: object, field: str = "zone") -> None:
    """Refuse what is not the exact name of a zone, or of a link to one.

    >>> check_zone("europe/london")
    Traceback (most recent call last):
    mainspring.errors.ValidationError: zone: is not a time zone (did you mean 'Europe/London'?)
    """
    problem = text_problem(name, MAX_NAME)
    if problem is None and not _exists(str(name)):
        folded = {known.casefold(): known for known in _packaged()}
        near = folded.get(str(name).casefold(), name)
        problem = f"is not a time zone{did_you_mean(near, _packaged())}"
    if problem:
        raise ValidationError(f"{field}: {problem}", field=field)


@lru_cache(maxsize=1024)  # the library itself keeps eight
def zone_info(name: str) -> ZoneInfo:
    """The zone of a checked name."""
    return ZoneInfo(name)


def stretch_at(zone: str, instant: int) -> Stretch:
    """The stretch of a zone that holds an instant.

    >>> new_york = stretch_at("America/New_York", 1_772_953_200)  # 2026-03-08T07:00Z
    >>> new_york.start + new_york.offset - new_york.shown  # seconds that were jumped over
    3600
    """
    starts, stretches = _year(zone, (EPOCH + timedelta(seconds=instant)).year)
    return stretches[bisect_right(starts, instant) - 1]


def version() -> str:
    """The version of the zone data in use, such as 2026b; `unknown` where the system does not say."""
    for folder in map(Path, TZPATH):
        for source in (folder / "tzdata.zi", folder / "+VERSION"):
            if source.is_file():
                with source.open() as lines:
                    return lines.readline().removeprefix("# version ").strip()
        if (folder / "UTC").is_file():
            return "unknown"
    return str(import_module("tzdata").IANA_VERSION) if installed("tzdata") else "unknown"


def forget() -> None:
    """Read zones anew when next asked: for a process that outlives an update of the zone data."""
    ZoneInfo.clear_cache()
    for memory in (zone_info, _exists, _packaged, _year):
        memory.cache_clear()


@lru_cache(maxsize=1024)
def _exists(name: str) -> bool:
    if name == "UTC":  # whatever is installed
        return True
    # The names that come with Python's package are known by one small file; to list the system's takes 50 ms.
    # `localtime` is whatever the machine is set to: two schedulers would disagree.
    if name not in _packaged() and (name == "localtime" or name not in available_timezones()):
        return False
    try:
        zone_info(name)
    except (OSError, ValueError, KeyError):  # known by name only: dropped, or not readable
        return False
    return True


@lru_cache(maxsize=1)
def _packaged() -> frozenset[str]:
    if not installed("tzdata"):
        if not available_timezones():
            needs("time zones need", "worker", "tzdata")
        return frozenset()
    from importlib.resources import files  # not before somebody names a zone

    return frozenset(files("tzdata").joinpath("zones").read_text().split())


@lru_cache(maxsize=16_384)
def _year(zone: str, year: int) -> tuple[list[int], list[Stretch]]:
    """The stretches of a year of UTC, and where each begins."""
    first, end = ((datetime(y, 1, 1, tzinfo=UTC) - EPOCH) // _SECOND for y in (year, year + 1))
    changes = _changes(zone_info(zone), first - FARTHEST_AWAY_S, end + FARTHEST_AWAY_S)
    # Cut at the ends of the year; those just outside say what was shown before and is shown again after.
    cuts = sorted({*changes, first, end})
    offsets = [changes[max(start for start in changes if start <= cut)] for cut in cuts]
    edges = list(zip(cuts, [*cuts[1:], end + FARTHEST_AWAY_S], offsets, strict=True))
    stretches = [
        Stretch(
            start=start,
            end=stop,
            offset=offset,
            shown=max((until + before for _, until, before in edges[:n]), default=start + offset),
            again=min((since + after for since, _, after in edges[n + 1 :]), default=stop + offset),
        )
        for n, (start, stop, offset) in enumerate(edges)
        if first <= start < end
    ]
    return [stretch.start for stretch in stretches], stretches


def _changes(info: ZoneInfo, first: int, end: int) -> dict[int, int]:
    """The offset at an instant, and at each later one at which it changes."""

    def offset(instant: int) -> int:
        found = (EPOCH + timedelta(seconds=instant)).astimezone(info).utcoffset()
        assert found is not None
        return found // _SECOND

    # Asked once a day, then closing in on each change.
    changes = {first: offset(first)}
    known, now = first, changes[first]
    for probe in range(first + DAY_SECONDS, end, DAY_SECONDS):
        then = offset(probe)
        while then != now:
            known += bisect_left(range(known, probe), True, key=lambda instant: offset(instant) != now)
            now = changes[known] = offset(known)
        known = probe
    return changes
