"""When to ask for jobs, which crew asks, and how much: what earlier answers and hints say about where work is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta

from mainspring.config import WorkerConfig
from mainspring.worker.crew import Crew
from mainspring.worker.signal import Signal
from mainspring.worker.solitude import Solitude
from mainspring.worker.statements import Claimed, NextDue

SHORTEST_POLL = 0.05
SOONEST_TIMER = 0.002  # timers closer together than this are claimed together
NO_BOUND = 2**62
_FLOOD_JOBS = 20  # so many jobs in one poll are a flood: polls are enough


class Pace:
    """When this worker polls, and which of its crews should claim now."""

    def __init__(self, config: WorkerConfig, crews: Sequence[Crew], solitude: Solitude | None = None) -> None:
        self._batch, self._longest = config.batch, config.poll_interval.total_seconds()
        self._speed = config.speed
        self._crews = list(crews)
        self.poll = SHORTEST_POLL
        self.poll_at = 0.0
        self.flooded = False  # the last poll found so much that hints are not needed
        self.solitude = solitude or Solitude()
        self.room = NO_BOUND  # so many more jobs may be claimed; bounded for `run_due` only
        self.idle = asyncio.Event()  # nothing is due, nothing is held
        self._looked: set[Crew] = set()  # who has looked from the beginning since something was found, in vain

    def asks(self, now: float, *, enough: bool) -> list[tuple[Crew, int]]:
        """Which crews should claim now, and how much: those that know of work and have room, or all when it is time."""
        if self.solitude.silent(now):
            return []
        batch, room, polling = self._batch, self.room, now >= self.poll_at
        asks = []
        for crew in self._crews:
            want = min(crew.want(), batch, room) if polling or crew.wants_more else 0
            if want and (polling or not enough or want >= min(batch, crew.size) // 2):
                asks.append((crew, want))
                room -= want
        return asks

    def reporters(self) -> list[tuple[Crew, int]]:
        """Who claims when there is something to report about a rate: all that have room, as each may have jobs."""
        asks = [(crew, min(crew.want(), self._batch, self.room)) for crew in self._crews]
        return [(crew, want) for crew, want in asks if want] or [(self._crews[0], 0)]

    def take_at_most(self, jobs: int) -> None:
        """So many more jobs are claimed, and no more."""
        self.room = jobs

    def asked(self, *, polling: bool, alone: bool) -> None:
        """A turn goes out: nobody else asks for what it asks for, until its answer is here or a hint comes."""
        if polling or alone:
            self.poll_at = float("inf")  # two polls at once find no more
        if alone:
            self.solitude.asked()

    def unanswered(self, *, alone: bool) -> None:
        """The answer to a turn never came: it is asked again, as soon as that is possible."""
        self.poll_at = 0.0
        if alone:
            self.solitude.unanswered()

    def rotate(self) -> None:
        """Another crew asks first the next time: where a limit leaves little, the first would take it all."""
        self._crews.append(self._crews.pop(0))

    def heed(self, signal: Signal, now: float) -> None:
        """What has been noted for it since it last looked."""
        if signal.freed:
            signal.freed = False
            for crew in self._crews:
                crew.wants_more = True
        if signal.polls:
            signal.polls = False
            self.poll_at = 0.0
        if signal.hinted:
            signal.hinted = False
            self._hinted(now)

    def _hinted(self, now: float) -> None:
        """There is work. A bare claim is asked for: a poll would say more, and be slower."""
        for crew in self._crews:
            crew.wants_more = True
        self.poll = SHORTEST_POLL  # hints are coalesced: what committed a moment later sent none, a poll finds it
        self.poll_at = min(self.poll_at, now + SHORTEST_POLL)

    def learn(self, found: Claimed, due: NextDue, started: float, ended: float) -> bool:
        """What a claim says about where more is; True when there is more to claim at once."""
        jobs, crew = found.jobs, found.crew
        counts = Counter(job.queue for job in jobs)
        short = len(jobs) < found.want
        dry = crew.weights.got(found.queues, found.limits, counts, short=short)
        at = jobs[0].claimed_at if jobs else due[1] if due else None
        crew.bounds.learn(jobs, dry, bounded=found.bounded, now=at, started=started, ended=ended)
        more = bool(counts.keys() - dry)  # however little the others gave
        self.room -= len(jobs)
        if jobs:
            self.idle.clear()
        if more:
            crew.wants_more = True
        elif jobs:
            self.poll = SHORTEST_POLL
            self.poll_at = min(self.poll_at, ended + self.poll)
        if found.bounded and not more and crew.bounds.hiding:  # look below the bounds as soon as that is allowed
            self.poll_at = min(self.poll_at, max(crew.bounds.scan_at, ended))
        return more

    def took_alone(self, count: int, now: float) -> None:
        """A claim of a job that runs alone got so many: one, or none."""
        self.solitude.took(count > 0, now)
        self.room -= count
        if count:
            self.idle.clear()
            self.poll_at = 0.0  # as soon as it has ended
        else:
            self.rest((), None, now)

    def rest(self, found: Sequence[Claimed], due: NextDue, now: float) -> None:
        """When to poll again: soon after work, later and later without, exactly when the next timer is due."""
        self.flooded = sum(len(claim.jobs) for claim in found) >= _FLOOD_JOBS
        any_found = any(claim.jobs for claim in found)
        self.poll = min(SHORTEST_POLL if any_found else self.poll * 2, self._longest)
        pause = self.poll * random.uniform(0.8, 1.2)  # noqa: S311 (spreads polls, no secret)
        if due is not None and due[0] is not None:
            pause = min(pause, max(due[0].total_seconds() / self._speed, SOONEST_TIMER))
        self.poll_at = min(self.poll_at, now + pause)

    def look_idle(self, found: Sequence[Claimed], due: NextDue, *, still: bool) -> None:
        """Say so when each crew has looked from the beginning, and for suspects as well, in vain."""
        more = self.solitude.due or (due is not None and due[0] == timedelta(0))  # behind what limits put off
        if not still or more or any(claim.jobs for claim in found):
            self._looked = set()
            return
        self._looked.update(claim.crew for claim in found if not claim.bounded)
        if len(self._crews) == len(self._looked):
            self.idle.set()
