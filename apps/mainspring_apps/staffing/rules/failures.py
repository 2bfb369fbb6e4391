"""What follows when the query of a saved search fails, by the class of its failure (G-29). Pure: no clock."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final, Literal

from mainspring_apps.staffing.settings import Settings

SearchKind = Literal["instant", "digest"]
Failure = Literal["ordinary", "connection", "extension"]

#: The database is away, or is no longer the primary: lost, refused, shut down, starting, full, read only.
CONNECTION: Final = frozenset({"57P01", "57P02", "57P03", "57P05", "25006", "53300"})
#: A function, a type or a library that an extension brings is not there.
EXTENSION: Final = frozenset({"42883", "42704", "58P01"})


def failure_of(sqlstate: str | None) -> Failure:
    """The class of a failed query; without a state of its own, the connection broke.

    >>> failure_of("42883"), failure_of("08006"), failure_of(None), failure_of("57014")
    ('extension', 'connection', 'connection', 'ordinary')
    """
    if sqlstate is None or sqlstate.startswith("08") or sqlstate in CONNECTION:
        return "connection"
    return "extension" if sqlstate in EXTENSION else "ordinary"


@dataclass(frozen=True, slots=True)
class Halve:
    """Ask for half of them at a time, until those that fail stand alone (STAFF-6.07)."""


@dataclass(frozen=True, slots=True)
class Again:
    """Try again: as the policy of the task says, or after a pause that costs no attempt."""

    after: timedelta | None = None


@dataclass(frozen=True, slots=True)
class Skip:
    """Not this time: the next event, or the next day, runs as ever (STAFF-7.03)."""


def window(kind: SearchKind, failure: Failure, settings: Settings) -> timedelta | None:
    """How long after the first failure it is tried again; None: attempts are counted instead."""
    if failure == "connection":
        return settings.failover_window
    if failure == "extension":
        return settings.extension_window if kind == "digest" else timedelta(0)
    return None


def over(kind: SearchKind, failure: Failure, since: datetime, now: datetime, settings: Settings) -> bool:
    """Whether the time for trying again is over, also for an attempt that comes late."""
    limit = window(kind, failure, settings)
    return limit is not None and now > since + limit


def follow(
    kind: SearchKind,
    failure: Failure,
    *,
    searches: int,
    attempt: int,
    tries: int,
    since: datetime,
    now: datetime,
    settings: Settings,
) -> Halve | Again | Skip:
    """What follows a failed query: of so many searches, in this attempt, after so many tries since the first failure.

    A lost connection is nobody's fault: the batch waits as a whole. The last try comes at the very end of the window.
    """
    if failure != "connection" and searches > 1:
        return Halve()
    limit = window(kind, failure, settings)
    if limit is None:
        return Again() if attempt <= settings.query_retries else Skip()
    left = since + limit - now
    if left <= timedelta(0):
        return Skip()
    return Again(min(settings.query_first_pause * 2 ** min(tries, 10), settings.query_longest_pause, left))
