"""Slots: how many jobs of one kind run at once, and how many more are worth holding.

There is a crew for async handlers, one for plain functions in threads and one for CPU-bound ones in processes.
A worker claims its free slots plus what it expects to start within 50 ms, no more: what is claimed and not started must
not wait behind slow jobs.
"""

from __future__ import annotations

import asyncio
from bisect import insort
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from mainspring.worker.attempt import NO_DEADLINE, LiveAttempt
from mainspring.worker.bounds import Bounds
from mainspring.worker.rates import Rates
from mainspring.worker.share import Share
from mainspring.worker.solitude import Solitude
from mainspring.worker.suspects import Suspects
from mainspring.worker.weights import Weights

_AHEAD_S = 0.05
_SMOOTHING = 0.05
SUSPECT_MARGIN_S = 0.1  # seconds that a suspect must run for longer than before
START_PATIENCE_S = 1.0  # a job that was held so long without starting is given back


class Crew:
    """The slots of one kind of handler, and what it knows about where its jobs are."""

    def __init__(
        self,
        tasks: Sequence[str],
        size: int,
        queues: Mapping[str, int],
        most: int,
        rates: Rates,
        begin: Callable[[LiveAttempt], None],
        freed: Callable[[], None] = lambda: None,  # told when a slot is free
        solitude: Solitude | None = None,
    ) -> None:
        self.tasks = list(tasks)
        self.size = size
        self.weights = Weights(queues)
        self.bounds = Bounds(rates.speed)
        self.suspects = Suspects()
        self.wants_more = True  # there may be more where its last claim came from
        self.running = 0
        self.left: set[LiveAttempt] = set()  # attempts that are over, while their handlers go on and keep their slots
        self.claims = 0
        self.open = True
        self._ready: deque[LiveAttempt] = deque()
        self._gated: list[
            LiveAttempt
        ] = []  # those that a rate counts, in their order: they go first, and need no slot to wait
        self._shut = 0  # so many of them wait for their rate
        self._opens = 0.0  # when one of them may be let through
        self._timer: asyncio.Handle | None = None  # which rings then
        self._rings = NO_DEADLINE  # when it does: uvloop calls what is due within half a millisecond without a timer
        self._rates, self._solitude = rates, solitude or Solitude()
        self._begin, self._freed = begin, freed
        self._most = most
        self._duration = 1.0  # of a handler, smoothed; pessimistic until measured

    @property
    def load(self) -> int:
        """Jobs that are claimed, running or not."""
        return self.running + len(self._ready) + len(self._gated)

    def want(self) -> int:
        """How many more jobs are worth claiming."""
        ahead = min(self.size * _AHEAD_S / max(self._duration, 1e-6), self._most)
        return max(0, int(self.size + ahead) - self.load + min(self._shut, len(self._gated)))

    def add(self, attempt: LiveAttempt) -> None:
        """Take a claimed job; it starts at once if there is a slot, and its rates let it through."""
        if attempt.shares and (self._gated or not self._rates.waves_through(attempt)):
            if self._may_pass(attempt):
                return
            if self._gated and _order(attempt) < _order(self._gated[-1]):
                insort(self._gated, attempt, key=_order)
            else:  # as they come from a claim: no look at the others is needed
                self._gated.append(attempt)
            self._opens = 0.0
            if self._shut == len(self._gated) - 1:  # or a look at all of them is due already
                self._let_through()
        elif self.running < self.size and self.open:
            self.running += 1
            self._begin(attempt)
        else:
            self._ready.append(attempt)

    def close(self) -> None:
        """The database is away: nothing starts that could not be recorded, or by a share that may be another's then."""
        self.open = False
        for attempt in self._ready:
            if attempt.passing:
                attempt.start_by = 0.0

    def ended(self, duration: float) -> None:
        """A handler ended: its slot is free at once, before its outcome is written."""
        self._duration += (duration - self._duration) * _SMOOTHING
        self.running -= 1
        if self._ready or self._gated:
            self.fill()
        self._freed()

    def fill(self) -> None:
        """Start what is held, as far as there are slots."""
        if self._gated:
            self._let_through()
        while self._ready and self.running < self.size and self.open:
            attempt = self._ready.popleft()
            if not attempt.settled:
                self.running += 1
                self._begin(attempt)

    def give_back(self, held_before: float) -> list[LiveAttempt]:
        """Let go of jobs that have been held unstarted since before then."""
        stale = [attempt for attempt in self._ready if attempt.received_at <= held_before]
        if stale:
            self._ready = deque(attempt for attempt in self._ready if attempt.received_at > held_before)
            self.late()
        return stale + self.give_back_gated(held_before - self._rates.ahead)

    def give_back_gated(self, held_before: float = NO_DEADLINE, share: Share | None = None) -> list[LiveAttempt]:
        """Let go of jobs that have waited for their rates since before then, or for this one."""
        stale = [
            attempt
            for attempt in self._gated
            if attempt.received_at <= held_before and (not share or share in attempt.shares)
        ]
        self._gated = [attempt for attempt in self._gated if attempt not in stale]
        self._shut = min(self._shut, len(self._gated))
        return stale

    def _may_pass(self, attempt: LiveAttempt) -> bool:
        """Start it at once, where nobody is before it."""
        if self._gated or self.running >= self.size or not self.open:
            return False
        if self._rates.take(attempt) is not None:
            return False
        self.running += 1
        self._begin(attempt)
        return True

    def opened(self) -> None:
        """A rate may let somebody through."""
        self._opens = 0.0
        self.fill()

    def _open_at(self, instant: float) -> None:
        """Look again then."""
        if self._timer is not None and self._rings > instant:
            self._timer.cancel()
            self._timer = None
        if self._timer is None and instant < NO_DEADLINE:
            self._timer, self._rings = self._rates.call_at(instant, self._ring), instant

    def _ring(self) -> None:
        self._timer = None
        self.opened()

    def _let_through(self) -> None:
        """Start those that their rates let through, before all others."""
        rates = self._rates
        if not self.open or self.running >= self.size or self._opens > rates.now():
            return
        first = self._gated[0]
        if self.running == self.size - 1 and not first.settled and not first.cancelled and rates.take(first) is None:
            del self._gated[0]  # as it is under load: one slot has become free, and the first may have it
            self.running += 1
            self._opens, self._shut = 0.0, 0
            self._begin(first)
            return
        opens, kept, shut = NO_DEADLINE, list[LiveAttempt](), set[Share]()
        for nth, attempt in enumerate(self._gated):
            if self.running >= self.size:
                self._gated[:nth] = kept
                self._opens, self._shut = 0.0, len(kept)
                return
            if attempt.settled:
                continue
            if not attempt.cancelled:  # else it ends without being counted
                if not shut.isdisjoint(attempt.shares):
                    kept.append(attempt)
                    continue
                if (at := rates.take(attempt)) is not None:
                    kept.append(attempt)
                    shut.update(share for share in attempt.shares if share.shut)
                    opens = min(opens, at)
                    continue
            self.running += 1
            self._begin(attempt)
        self._gated, self._opens, self._shut = kept, opens, len(kept)
        self._open_at(opens)

    def suspect_ended(self, attempt: LiveAttempt, *, succeeded: bool = False) -> None:
        """A job has ended that may have crashed a worker before, or that ran alone."""
        if attempt.alone:
            self._solitude.ended(attempt.claim.task if succeeded else None)
        elif attempt.claim.crashes and not attempt.cleared:
            attempt.cleared = True
            self.suspects.ended(well=attempt.why != "lost")
            self.wants_more = self.wants_more or self.suspects.more

    def clear_after(self, attempt: LiveAttempt, seconds: float) -> None:
        """A suspect that has run for so long, longer than before its worker died, is none any more: others may come."""
        if attempt.cleared or attempt.settled:  # it has ended, or its end will tell
            return
        now = self._rates.now()
        left = seconds if attempt.handle is None else attempt.began + seconds - now  # None: it waits for its slot
        if left > 0:
            self._rates.call_at(now + left, lambda: self.clear_after(attempt, seconds))
        else:
            self.suspect_ended(attempt)
            self._freed()

    def late(self) -> None:
        """A job was held too long: handlers are slow now, so claim no more than there are slots."""
        self._duration = max(self._duration, START_PATIENCE_S)


def _order(attempt: LiveAttempt) -> tuple[int, datetime, int]:
    return attempt.claim.priority, attempt.claim.due_at, attempt.claim.epoch
