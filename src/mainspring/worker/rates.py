"""Shares of rates: how many handlers this worker may enter in any window, which it counts by its own clock.

The database hands out shares of each rate, never more than the rate in all, each for some seconds. Within its share a
worker needs nobody's leave, so a slow database costs no rate; it asks for jobs as far ahead as they take to come.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Container, Iterable, Mapping, Sequence
from functools import lru_cache
from heapq import heappop, heappush
from typing import Any, Final

import msgspec

from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.share import NEVER_OPENS, Share

SHARE_IDLE_S: Final = 0.5  # a share that finds nothing to do for so long is let go
_SLACK_S: Final = 0.05  # seconds by which jobs are asked for before they are needed, beside two turns
_OFTEN_S: Final = 0.005  # between two asks for jobs of one rate
_SELDOM_S: Final = 0.1  # the same where the rate is far away: its jobs come with all others
MOST_SHARES_TOLD: Final = 100  # shares that one claim speaks of
_TRUSTED_PART: Final = 0.98  # of the time that a share lasts: clocks do not run alike
NO_SHARES: Final[list[Share]] = []
OVERTAKEN_FOR_S: Final = 120.0  # no answer is under way for longer

_json = msgspec.json.Encoder().encode


@lru_cache(1024)
def gates_of(text: str) -> tuple[str, ...]:
    """The gates of a claimed job, as the claim says them."""
    return msgspec.json.decode(text, type=tuple[str, ...])


class Rates:
    """The shares of one worker: which jobs may be entered now, and what to tell the database."""

    def __init__(
        self,
        speed: float = 1.0,
        *,
        known: bool = False,
        wake: Callable[[], None] = lambda: None,
        loop: asyncio.AbstractEventLoop | None = None,
    ) -> None:
        self.speed = speed  # of the database's clock
        self.known = known  # a rate has concerned this worker
        self.leaving = False  # it stops, and has not said so
        self._wake = wake  # told when there is something to report
        self._shares: dict[str, Share] = {}
        self._changed: dict[str, Share] = {}
        self._forgotten: dict[str, tuple[int, float]] = {}  # shares that are gone: their last version, and since when
        self._together: dict[tuple[str, ...], list[Share]] = {}  # by the gates that jobs pass together
        self._entering: list[list[Share]] = []  # that count those entered in this turn of the loop
        self._heap: list[tuple[float, str]] = []
        self._turn = 0.0  # how long a turn with the database takes, smoothed
        self._loop = loop or asyncio.get_running_loop()

    # -- jobs -----------------------------------------------------------------------------------------------------

    def receive(self, attempt: LiveAttempt, gates: Iterable[str]) -> None:
        """A job came that passes these gates."""
        gates = tuple(gates)
        shares = self._together.get(gates)
        if shares is None:
            shares = self._together[gates] = [self._of(gate) for gate in gates]
        for share in shares:
            share.let_in += 1
        attempt.shares = shares

    def _of(self, gate: str) -> Share:
        self.known = True
        share = self._shares.get(gate)
        if share is None:
            share = self._make(gate, self._loop.time())
            self._review(share, share.known_at)
        return share

    def _make(self, gate: str, now: float, entered: int = 0, returned: int = 0) -> Share:
        """A share that is heard of for the first time, or again: an answer from before it was gone gives it nothing."""
        share = self._shares[gate] = Share(gate, now, entered, returned)
        share.version, _ = self._forgotten.pop(gate, (share.version, 0.0))
        return share

    def _forget(self, gate: str, now: float) -> Share:
        share = self._shares.pop(gate)
        self._changed.pop(gate, None)
        self._together.clear()
        while self._forgotten and next(iter(self._forgotten.values()))[1] < now - OVERTAKEN_FOR_S:
            del self._forgotten[next(iter(self._forgotten))]
        self._forgotten[gate] = share.version, now
        return share

    def waves_through(self, attempt: LiveAttempt) -> bool:
        """Let a job through at once, where its rates are so far away that it may wait for its slot like any other."""
        now, start_by = self._loop.time(), NEVER_OPENS
        for share in attempt.shares:
            if not share.is_far(now):
                return False
            if share.trusted < start_by:
                start_by = share.trusted
        for share in attempt.shares:
            share.taken += 1
        attempt.passing, attempt.start_by = True, start_by
        return True

    def take(self, attempt: LiveAttempt) -> float | None:
        """Let a job through all its gates, or none: then the answer is when that may be."""
        now = opens = self._loop.time()
        start_by = NEVER_OPENS
        for share in attempt.shares:
            at = share.opens_at(now)
            share.shut = at > now
            if at > opens:
                opens = at
            if share.trusted < start_by:
                start_by = share.trusted
        if opens > now:
            return opens
        for share in attempt.shares:
            share.taken += 1
        attempt.passing, attempt.start_by = True, start_by
        return None

    def enters(self, attempt: LiveAttempt) -> None:
        """Its handler's first lines run now: it is counted when they are done, never too early."""
        if not self._entering:
            self._loop.call_soon(self._all_entered)
        self._entering.append(attempt.shares)
        attempt.passing, attempt.shares = False, NO_SHARES

    def _all_entered(self) -> None:
        """Those that pass the same gates one after another are counted together."""
        entering, self._entering = self._entering, []
        now, count, last = self._loop.time(), 0, entering[0]
        for shares in entering:
            if shares is not last:
                self._count(last, count, now)
                count, last = 0, shares
            count += 1
        self._count(last, count, now)

    def _count(self, shares: Iterable[Share], count: int, now: float) -> None:
        for share in shares:
            share.enter(now, count)
            if not share.changed:
                self._touch(share, now)

    def entered(self, attempt: LiveAttempt) -> None:
        """Its handler's first line was reached, at the latest now."""
        if attempt.passing:
            self._count(attempt.shares, 1, self._loop.time())
            attempt.passing, attempt.shares = False, NO_SHARES

    def give_back(self, attempt: LiveAttempt, *, late: bool = False) -> list[Share]:
        """It ends without having been entered; `late`: because it waited in vain. Answers the shares that now are."""
        now, found = self._loop.time(), list[Share]()
        for share in attempt.shares:
            share.taken -= attempt.passing
            share.returned += 1
            if late and share.late_since is None and share.last_entry < attempt.received_at:
                share.late_since = attempt.received_at
                found.append(share)
            self._touch(share, now)
        attempt.shares, attempt.passing = NO_SHARES, False
        return found

    def now(self) -> float:
        """By the clock that counts the windows."""
        return self._loop.time()

    def call_at(self, instant: float, call: Callable[[], None]) -> asyncio.Handle:
        """Call it then, by the same clock."""
        return self._loop.call_at(instant, call)

    # -- the database ---------------------------------------------------------------------------------------------

    @property
    def ahead(self) -> float:
        """How many seconds before they may start jobs are asked for."""
        return _SLACK_S + 2 * self._turn

    def due(self, now: float) -> float:
        """When there is something to tell for its own sake."""
        heap = self._heap
        while heap:
            at, gate = heap[0]
            share = self._shares.get(gate)
            if share is not None and share.next_at == at:
                if at > now or not share.changed:
                    return at
                self._review(share, now)
            else:
                heappop(heap)
        return NEVER_OPENS

    def calm(self, now: float) -> bool:
        """Whether all rates are far away, so that a claim that reports nothing need not ask about them either."""
        return bool(self._shares) and all(share.is_far(now) for share in self._shares.values())

    def report(self, now: float, *, alone: bool) -> tuple[str, dict[str, int]]:
        """What a claim reports about shares, and how many jobs it asks for of each.

        `alone`: no other claim is under way, so that what the database let in and is not here never came.
        """
        while self.due(now) <= now:
            share = self._shares[heappop(self._heap)[1]]
            share.next_at = NEVER_OPENS
            self._changed[share.gate] = share
        self.leaving = False
        said, asks = [], {}
        for share in list(self._changed.values())[:MOST_SHARES_TOLD]:
            del self._changed[share.gate]
            if share.version < 0:
                continue  # the answer says what it is
            if share.unmet_since is not None and now > share.unmet_since + SHARE_IDLE_S and not share.waiting:
                share.n = 0
            hold = share.hold(now, self.ahead) if share.trusted > now else share.taken
            ages, counts = share.ages(now, self.speed)
            asks[share.gate] = max(0, hold - share.waiting - share.asked)
            share.asked += asks[share.gate]
            share.told = share.kept(now)
            share.asked_at = now
            said.append({
                "gate": share.gate, "n": share.told, "version": share.version, "hold": hold,
                "let_in": share.let_in if alone else None, "entered": share.entered, "returned": share.returned,
                "ages": ages, "counts": counts,
                "late": None if share.late_since is None else (now - share.late_since) * self.speed,
            })  # fmt: skip
            self._review(share, now)
        return _json(said).decode(), asks

    def answered(
        self, rows: Sequence[tuple[Any, ...]], asks: Mapping[str, int], got: Container[str], sent_at: float
    ) -> list[Share]:
        """Take in what the database says about every share of this worker, in a turn that began then.

        Answers those whose rate is no more.
        """
        now = self._loop.time()
        self._turn += (now - sent_at - self._turn) * (0.5 if now - sent_at > self._turn else 0.1)
        self.unasked(asks)
        for gate, asked in asks.items():
            if (share := self._shares.get(gate)) is not None:
                met = gate in got or share.waiting >= asked  # another turn may have brought them
                share.more = met if asked else share.more or met
                share.unmet_since = None if met or not asked else share.unmet_since or now
        present = set()
        for gate, n, version, aim, per, lasts, entered, returned in rows:
            present.add(gate)
            share = self._shares.get(gate)
            if share is None:
                if not n:
                    continue
                share = self._make(gate, now, entered, returned)
            share.known_at = now
            if version < share.version:
                continue  # an older answer that came late
            if version > share.version:
                share.version, share.n, share.told = version, n, n
            share.per = per / self.speed
            lasts /= self.speed
            share.trusted = max(share.trusted, sent_at + lasts * _TRUSTED_PART) if share.n else share.trusted
            share.renew_at = sent_at + lasts / 3 if share.n else NEVER_OPENS
            if aim < share.n:
                share.n = max(aim, share.taken)
                self._changed[gate] = share
            self._review(share, now)
        gone: list[Share] = []
        for gate, share in list(self._shares.items()):
            # Of two turns under way the later may be heard of first. An answer that was asked for before a share was
            # last heard of says nothing about it: forgotten, what it has entered would no longer count.
            if gate not in present and share.known_at < sent_at:
                gone.append(self._forget(gate, now))
        return gone

    def unasked(self, asks: Mapping[str, int]) -> None:
        """Nothing more comes of these asks."""
        for gate, asked in asks.items():
            if (share := self._shares.get(gate)) is not None:
                share.asked = max(0, share.asked - asked)

    def distrust(self) -> None:
        """The database is away: what it granted may be somebody else's when it is back."""
        for share in self._shares.values():
            share.trusted = 0.0

    def let_go(self) -> None:
        """No job will be entered any more, and the database should hear of it."""
        for share in self._shares.values():
            if share.n:
                share.n = share.taken
                self._changed[share.gate] = share
                self.leaving = True

    def _touch(self, share: Share, now: float) -> None:
        """Something about a share has changed, and more may: a moment later it is looked at whether to tell it."""
        share.changed = True
        soon = _OFTEN_S
        if share.is_far(now):
            soon = _SELDOM_S
        else:
            self._changed[share.gate] = share
        if share.next_at > now + soon:
            self._at(share, now + soon, now)

    def _review(self, share: Share, now: float) -> None:
        """When should somebody be told about a share?"""
        share.changed = False
        if share.version < 0:
            self._at(share, 0.0, now)
            return
        lowered = share.n < share.told and not share.taken  # what is on its way comes to its handler soon
        at = now if lowered else share.renew_at if share.n else NEVER_OPENS
        if share.n and now < share.trusted:
            missing = share.hold(now, self.ahead) - share.waiting - share.asked
            if missing > 0 and share.more:
                often = _SELDOM_S if share.is_far(now) else max(_OFTEN_S, self.ahead / 8)
                at = min(at, max(now, share.asked_at + often))
            elif missing <= 0:
                at = min(at, max(now + _OFTEN_S, share.grows_at(now, self.ahead)))
            elif share.unmet_since is not None and not share.waiting:
                at = min(at, share.unmet_since + SHARE_IDLE_S + _OFTEN_S)
        elif not share.n and not share.waiting:
            at = max(now, share.last_entry + share.per) + _SLACK_S + self.ahead
        self._at(share, at, now)

    def _at(self, share: Share, at: float, now: float) -> None:
        if at != share.next_at:
            share.next_at = at
            if at < NEVER_OPENS:
                heappush(self._heap, (at, share.gate))
                if self._heap[0][0] == at:
                    self._wake()
