"""What fires: of the instants that are due, which make a job, and which are missed or skipped. Pure, no clock."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from datetime import datetime, timedelta
from itertools import islice
from typing import Final, Literal, NamedTuple

import msgspec

from mainspring.text.span import span
from mainspring.when.rule import Rule, Tick

CatchUp = Literal["skip", "latest", "all"]
WhileRunning = Literal["allow", "skip"]
FireKind = Literal["fired", "skipped", "missed", "run_now"]

#: A fire up to so much after its instant is on time (ENG-13.03); whoever comes later was away, and catches up.
FIRE_ON_TIME: Final = timedelta(seconds=60)
#: So many missed instants are counted.
MOST_MISSED_COUNTED: Final = 1000
#: So many may be caught up.
MOST_CAUGHT_UP: Final = 1000

_INSTANT: Final = timedelta(microseconds=1)
_GOLDEN: Final = (5**0.5 - 1) / 2


class FirePolicy(msgspec.Struct, frozen=True, kw_only=True):
    """What a schedule does about instants that passed while nobody looked, and while its last job is not finished."""

    catch_up: CatchUp = "latest"
    within: timedelta | None = None
    most: int | None = None
    running: WhileRunning = "allow"
    on_time: timedelta = FIRE_ON_TIME


class Occurrence(NamedTuple):
    """An instant of a schedule and what becomes of it; several missed ones stand at the last of them."""

    tick: Tick
    how: FireKind
    reason: str | None = None
    instants: int = 1


def decide(rule: Rule, after: datetime, now: datetime, policy: FirePolicy, *, busy: bool = False) -> list[Occurrence]:
    """What becomes of the instants later than `after` and not later than `now`, in order.

    >>> from datetime import UTC
    >>> from mainspring.when.rule import daily
    >>> monday, thursday = datetime(2026, 6, 1, tzinfo=UTC), datetime(2026, 6, 4, 12, tzinfo=UTC)
    >>> for one in decide(daily("10:00"), monday, thursday, FirePolicy(catch_up="latest")):
    ...     print(f"{one.tick.at:%a} {one.how} {one.instants}")
    Wed missed 3
    Thu fired 1
    """
    first = rule.next(after)
    if first is None or first.at > now:
        return []
    if now - first.at < policy.on_time:
        return list(_one_at_a_time(list(rule.ticks(after, now)), policy, busy))
    found = _caught_up(rule, after, now, policy)
    begin = found[0].at - _INSTANT if found else now
    missed = rule.last(after, begin)
    passed: list[Occurrence] = []
    if missed is not None:
        count = sum(1 for _ in islice(rule.ticks(after, begin), MOST_MISSED_COUNTED))
        passed.append(Occurrence(missed, "missed", _why_missed(missed, now, policy, found), count))
    return [*passed, *_one_at_a_time(found, policy, busy)]


def _caught_up(rule: Rule, after: datetime, now: datetime, policy: FirePolicy) -> list[Tick]:
    last = rule.last(after, now)
    if last is None:
        return []
    if policy.catch_up == "skip":
        return [last] if now - last.at < policy.on_time else []
    if policy.within is not None:
        after = max(after, now - policy.within - _INSTANT)
    if policy.catch_up == "latest":
        return [last] if last.at > after else []
    return _latest(rule, after, now, policy.most or MOST_CAUGHT_UP)


def _latest(rule: Rule, after: datetime, now: datetime, most: int) -> list[Tick]:
    """The last ticks of a span, without walking the many before them."""
    reach = timedelta(minutes=1)
    while True:
        start = max(after, now - reach)
        found = list(rule.ticks(start, now))
        if len(found) >= most or start == after:
            return found[-most:]
        reach *= 2


def _one_at_a_time(ticks: list[Tick], policy: FirePolicy, busy: bool) -> Iterator[Occurrence]:
    for tick in ticks:
        if busy and policy.running == "skip":
            yield Occurrence(tick, "skipped", "the job of the last fire is not finished")
        else:
            yield Occurrence(tick, "fired")
            busy = True


def _why_missed(missed: Tick, now: datetime, policy: FirePolicy, found: list[Tick]) -> str:
    late = f"nobody looked for {span(now - missed.at)}"
    if policy.catch_up == "skip":
        return f"{late}; catch_up is skip"
    if policy.within is not None and now - missed.at > policy.within:
        return f"{late}; it is caught up within {span(policy.within)}"
    return (
        f"{late}; only the last {len(found)} are caught up" if len(found) > 1 else f"{late}; a later one is caught up"
    )


def label(local: datetime) -> str:
    """A local time as a fire keeps it.

    >>> from zoneinfo import ZoneInfo
    >>> label(datetime(2026, 6, 3, 10, tzinfo=ZoneInfo("Europe/London")))
    '2026-06-03 10:00:00+01:00'
    """
    return local.isoformat(" ", "seconds")


def jitter(org: str, schedule: str, zone: str, instant: datetime, most: timedelta) -> timedelta:
    """How much later than its instant a job is due: below `most`, and the same whoever asks.

    >>> from datetime import UTC
    >>> str(jitter("acme", "digest", "", datetime(2026, 6, 1, tzinfo=UTC), timedelta(minutes=10)))
    '0:02:54.046540'
    """
    if not most:
        return timedelta(0)
    seed = hashlib.sha256(f"{org}\n{schedule}\n{zone}\n{instant.timestamp()}".encode()).digest()
    return most * (int.from_bytes(seed[:6], "big") / 2**48)


def spread(number: int, window: timedelta) -> timedelta:
    """Where the n-th of many jobs stands in a window: multiples of the golden ratio are even, however many there are.

    >>> sorted(round(spread(n, timedelta(seconds=80)).total_seconds()) for n in range(8))
    [0, 7, 19, 26, 38, 49, 57, 68]
    """
    return window * (number * _GOLDEN % 1)
