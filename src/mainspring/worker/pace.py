"""When to ask for jobs, which crew asks, and how much: what earlier answers and hints say about where work is."""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import TypeAlias

from mainspring.config import WorkerConfig
from mainspring.worker.crew import Crew
from mainspring.worker.talk import Found

SHORTEST_POLL = 0.05
SOONEST_TIMER = 0.002  # timers closer together than this are claimed together
ENDLESS = 2**62
FLOOD = 20  # so many jobs in one poll are a flood: polls are enough

Due: TypeAlias = "tuple[timedelta | None, datetime] | None"


class Pace:
    """When this worker polls, and which of its crews should claim now."""

    def __init__(self, config: WorkerConfig, crews: Sequence[Crew]) -> None:
        self._batch, self._longest = config.batch, config.poll_interval.total_seconds()
        self._speed = config.speed
        self._crews = list(crews)
        self.poll = SHORTEST_POLL
        self.poll_at = 0.0
        self.flooded = False  # the last poll found so much that hints are not needed
        self.rescued_in_flight = 0  # held, or being asked for
        self._rescuers = list(crews)  # whose turn it is to ask for a rescued job
        self.room = ENDLESS  # so many more jobs may be claimed; bounded for `run_due` only
        self.idle = asyncio.Event()  # nothing is due, nothing is held
        self._empty = 0  # so many polls in a row found nothing
        self._looked: set[Crew] = set()  # who looked from the beginning in them

    def asks(self, now: float, *, enough: bool) -> list[tuple[Crew, int]]:
        """Which crews should claim now, and how much: those that know of work and have room, or all when it is time."""
        batch, room, polling = self._batch, self.room, now >= self.poll_at
        asks = []
        for crew in self._crews:
            want = min(crew.want(), batch, room) if polling or crew.hungry else 0
            if want and (polling or not enough or want >= min(batch, crew.size) // 2):
                asks.append((crew, want))
                room -= want
        return asks

    def rescuer(self, asking: Sequence[Crew]) -> Crew | None:
        """The crew that asks for a rescued job as well: in turn, and none while the worker holds one."""
        for crew in self._rescuers if not self.rescued_in_flight else ():
            if crew in asking:
                self._rescuers.remove(crew)
                self._rescuers.append(crew)
                return crew
        return None

    def hinted(self, now: float) -> None:
        """There is work. A bare claim is asked for: a poll would say more, and be slower."""
        for crew in self._crews:
            crew.hungry = True
        self.poll = SHORTEST_POLL  # hints are coalesced: what committed a moment later sent none, a poll finds it
        self.poll_at = min(self.poll_at, now + SHORTEST_POLL)

    def learn(self, found: Found, due: Due, started: float, ended: float) -> bool:
        """What a claim says about where more is; True when there is more to claim at once."""
        jobs, crew = found.jobs, found.crew
        full = len(jobs) >= found.want
        at = jobs[0].claimed_at if jobs else due[1] if due else None
        crew.bounds.learn(jobs, bounded=found.bounded, full=full, now=at, started=started, ended=ended)
        hurried = {job.queue for job in jobs if job.hurried}
        counts = Counter(job.queue for job in jobs)
        more = crew.shares.got(found.queues, found.limits, counts, short=not full, hurried=hurried) or full
        self.rescued_in_flight += sum(1 for job in jobs if job.crashes)
        self.room -= len(jobs)
        if jobs:
            self.idle.clear()
        if more:
            crew.hungry = True
        elif jobs:
            self.poll = SHORTEST_POLL
            self.poll_at = min(self.poll_at, ended + self.poll)
        if found.bounded and not full and crew.bounds.hiding:  # look below the bounds as soon as that is allowed
            self.poll_at = min(self.poll_at, max(crew.bounds.scan_at, ended))
        return more

    def rest(self, found: Sequence[Found], due: Due, now: float) -> None:
        """When to poll again: soon after work, later and later without, exactly when the next timer is due."""
        self.flooded = sum(len(claim.jobs) for claim in found) >= FLOOD
        any_found = any(claim.jobs for claim in found)
        self.poll = min(SHORTEST_POLL if any_found else self.poll * 2, self._longest)
        pause = self.poll * random.uniform(0.8, 1.2)  # noqa: S311 (spreads polls, no secret)
        if due is not None and due[0] is not None:
            pause = min(pause, max(due[0].total_seconds() / self._speed, SOONEST_TIMER))
        self.poll_at = min(self.poll_at, now + pause)

    def look_idle(self, found: Sequence[Found], due: Due, *, still: bool) -> None:
        """Say so when each crew has looked from the beginning, and had its turn to ask for a rescued job, in vain."""
        more = due is not None and due[0] == timedelta(0)  # behind what limits put off
        if not still or more or any(claim.jobs for claim in found):
            self._empty, self._looked = 0, set()
            return
        self._empty += 1
        self._looked.update(claim.crew for claim in found if not claim.bounded)
        if self._empty >= len(self._crews) == len(self._looked):
            self.idle.set()
