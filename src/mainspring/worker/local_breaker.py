"""What one process knows of one breaker, or of one key of it: enough to decide at the entry of a handler at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import NamedTuple

from mainspring.circuit import Breaker, Window, gate
from mainspring.db.breakers import BreakerView, CallTally
from mainspring.job import SYSTEM
from mainspring.outcome import BreakerOpen

SHORTEST_WAIT_S = 0.05  # seconds that a job waits at least, as we say
ASK_AGAIN = 0.25  # seconds after a refusal
FIRST_CALLS_S = 1.0  # seconds that a job waits to see how the first ones fare


class BreakerId(NamedTuple):
    """Whose breaker: an organisation's, where it has a key."""

    org: str
    name: str
    key: str

    @property
    def need(self) -> str:
        """As a task says it."""
        return f"{self.name}:{self.key}" if self.key else self.name

    @property
    def gate(self) -> str:
        """What its jobs wait at."""
        return gate(self.name, self.key, self.org)


def whole(name: str) -> BreakerId:
    """The breaker of a dependency."""
    return BreakerId(SYSTEM, name, "")


class Pass(NamedTuple):
    """A call that was let through."""

    local: LocalBreaker
    began: float
    probe: int | None = None


class LocalBreaker:
    """A breaker as this process sees it. The database decides; own failures stop calls at once, until it has spoken."""

    __slots__ = (
        "_at", "_failed", "_probes", "_proven_until", "_row", "_succeeded", "_until", "_verdict", "_wait",
        "_window", "asking", "closed", "held", "id", "rule", "running", "since", "troubled",
    )  # fmt: skip

    def __init__(self, id: BreakerId, rule: Breaker) -> None:
        self.id, self.rule = id, rule
        self.closed = True
        self.held = False  # closed, by a person: whatever calls say
        self.troubled = False  # somewhere calls have failed of late
        self.since = float("-inf")  # when it was seen to close, by the clock of the event loop
        self._wait = 0.0  # while open: in how many seconds there is a probe, as the database said last
        self._at: datetime | None = None  # when it said so, by its clock
        self._until = 0.0  # when that is by ours
        self.asking = 0  # questions for a probe that are under way
        self.running = 0  # calls under way
        self._proven_until = float("-inf")  # a call has succeeded of late
        self._verdict: asyncio.Event | None = None  # set when a call ends
        self._window = Window(rule.within)
        self._row: float | None = None  # when the first call failed of those that have failed since the last success
        self._failed: list[float] = []  # when calls began that failed and are not reported
        self._succeeded = 0
        self._probes: list[tuple[int, bool]] = []  # epoch, whether it failed

    # -- at the entry

    def crowded(self, now: float) -> bool:
        """Whether as many calls are under way as could open it, and none has succeeded of late."""
        most = self.rule.failures or self.rule.calls or 1
        return self.closed and not self.held and now >= self._proven_until and self.running >= most

    async def see(self, clock: Callable[[], float]) -> None:
        """Let the first calls after a silence go ahead: the others wait a moment, to be spared if they fail."""
        end = clock() + FIRST_CALLS_S
        while self.crowded(now := clock()) and now < end:
            self._verdict = self._verdict or asyncio.Event()
            waiting = asyncio.ensure_future(self._verdict.wait())
            try:
                await asyncio.wait([waiting], timeout=end - now)
            finally:
                waiting.cancel()

    def enter(self, now: float, probe: int | None = None) -> Pass:
        """Let a call through."""
        self.running += 1
        return Pass(self, now, probe)

    def may_ask(self, now: float, at: datetime) -> bool:
        """Whether the database may let a job through that was claimed at this instant of its clock."""
        return self.asking < self.rule.probes and (now >= self._until or (self._at is not None and not self._left(at)))

    def _left(self, at: datetime) -> float:
        """Seconds until the next probe: too many by the age of what we know, and so never too few."""
        return self._wait if self._at is None else max(self._wait - max((at - self._at).total_seconds(), 0.0), 0.0)

    def put_off(self, now: float, at: datetime) -> BreakerOpen:
        """A job waits: until the next probe at least."""
        wait = self._left(at) if now < self._until else 0.0
        return BreakerOpen(self.id.need, timedelta(seconds=max(wait, SHORTEST_WAIT_S)))

    def half_open(self, now: float) -> bool:
        """Whether somebody may be let through to see."""
        return not self.closed and now >= self._until

    def refused(self, now: float, wait: float, at: datetime | None) -> None:
        """The database lets nobody more through, for so long (0: until a probe has ended)."""
        self.closed, self._wait, self._at = False, wait, at if wait else None
        self._until = now + (wait or ASK_AGAIN)

    # -- at the end

    def leave(self, call: Pass, failed: bool | None, now: float) -> bool:
        """A call ended; None: that says nothing about what was called. Whether the database should hear of it soon."""
        self.running -= 1
        if self._verdict is not None:
            self._verdict.set()
            self._verdict = None
        if failed is None:
            return False
        self._proven_until = float("-inf") if failed else now + self.rule.within.total_seconds()
        if call.probe is not None:
            self._probes.append((call.probe, failed))
            return True
        if not self.closed or call.began < self.since:  # it says nothing new, or nothing about now
            return False
        if not failed:
            breaks = self.rule.failing_for is not None and (self.troubled or self._row is not None)
            self._row = None
            if self.rule.rate is not None or breaks:
                self._window.add(now, succeeded=1)
                self._succeeded += 1
            return False
        self._row = now if self._row is None else self._row
        self._failed.append(call.began)
        self._window.add(now, failed=1)
        if not self.held and self.rule.trips(*self._window.counts(now), row=timedelta(seconds=now - self._row)):
            self.closed = False
            self._wait, self._at = self.rule.pause.total_seconds(), None  # until the database says better
            self._until = now + self._wait
        return True

    # -- the database

    def unreported(self, thorough: bool = False) -> bool:
        """Whether the database should hear something. Successes matter beside failures only, or before we go."""
        return bool(self._failed or self._probes or ((self.troubled or thorough) and self._succeeded))

    def take(self, now: float) -> list[CallTally]:
        """What the database has not heard."""
        calls = [
            CallTally(*self.id, succeeded=int(not bad), ages=[0.0] if bad else [], probe=epoch)
            for epoch, bad in self._probes
        ]
        if self._failed or self._succeeded:
            within = self._window.counts(now)[1]
            ages = [max(now - began, 0.0) for began in self._failed]
            calls.append(CallTally(*self.id, succeeded=min(self._succeeded, within), ages=ages))
        self._failed, self._succeeded, self._probes = [], 0, []
        return calls

    def put_back(self, call: CallTally, now: float) -> None:
        """It was not heard."""
        if call.probe is not None:
            self._probes.append((call.probe, bool(call.ages)))
        else:
            self._failed += [now - age for age in call.ages]
            self._succeeded += call.succeeded

    def learn(self, seen: BreakerView | None, now: float) -> bool:
        """What the database says; None: it knows of no trouble. Whether it closes by that."""
        self.troubled = seen is not None and seen.troubled
        self.held = seen is not None and seen.held
        if self._failed and not self.held:  # it has not heard all yet
            return False
        if seen is not None and seen.state != "closed":
            self.closed, self._wait, self._at, self._until = False, seen.wait, seen.at, now + seen.wait
            return False
        closes = not self.closed
        if closes or not self.troubled:  # elsewhere a call has succeeded
            self._row = None
        if closes:
            self.closed, self.since, self._window = True, now, Window(self.rule.within)
        return closes

    def idle(self, now: float) -> bool:
        """Whether nothing would be lost with it."""
        calm = self.closed and not self.troubled and not self.held and not self.running and not self.unreported()
        return calm and now >= self._proven_until and self._window.counts(now) == (0, 0)
