"""Slots: how many jobs of one kind run at once, and how many more are worth holding.

There is a crew for async handlers, one for plain functions in threads and one for CPU-bound ones in processes.
A worker claims its free slots plus what it expects to start within 50 ms, no more: what is claimed and not started must
not wait behind slow jobs.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping, Sequence

from mainspring.worker.bounds import Bounds
from mainspring.worker.run import Run
from mainspring.worker.shares import Shares

AHEAD = 0.05  # seconds
SMOOTHING = 0.05
PATIENCE = 1.0  # a job that was held so long without starting is given back


class Crew:
    """The slots of one kind of handler, and what it knows about where its jobs are."""

    def __init__(
        self, tasks: Sequence[str], size: int, queues: Mapping[str, int], begin: Callable[[Run], None], most: int
    ) -> None:
        self.tasks = list(tasks)
        self.size = size
        self.shares = Shares(queues)
        self.bounds = Bounds()
        self.hungry = True  # there may be more where its last claim came from
        self.running = 0
        self.claims = 0
        self.open = True  # closed while the database is away: nothing starts that could not be recorded
        self._ready: deque[Run] = deque()
        self._begin = begin
        self.freed: Callable[[], None] = lambda: None  # told when a slot is free
        self._most = most
        self._duration = 1.0  # of a handler, smoothed; pessimistic until measured

    @property
    def held(self) -> int:
        """Jobs that are claimed, running or not."""
        return self.running + len(self._ready)

    @property
    def free(self) -> int:
        """Slots that nobody will need for what is held already."""
        return max(0, self.size - self.held)

    def want(self) -> int:
        """How many more jobs are worth claiming."""
        ahead = min(self.size * AHEAD / max(self._duration, 1e-6), self._most)
        return max(0, int(self.size + ahead) - self.held)

    def add(self, run: Run) -> None:
        """Take a claimed job; it starts at once if there is a slot."""
        if self.running < self.size and self.open:
            self.running += 1
            self._begin(run)
        else:
            self._ready.append(run)

    def ended(self, duration: float) -> None:
        """A handler ended: its slot is free at once, before its outcome is written."""
        self._duration += (duration - self._duration) * SMOOTHING
        self.running -= 1
        if self._ready:
            self.fill()
        self.freed()

    def fill(self) -> None:
        """Start what is held, as far as there are slots."""
        while self._ready and self.running < self.size and self.open:
            run = self._ready.popleft()
            if not run.settled:
                self.running += 1
                self._begin(run)

    def give_back(self, held_before: float) -> list[Run]:
        """Let go of jobs that have been held unstarted since before then."""
        stale = [run for run in self._ready if run.held_since <= held_before]
        if stale:
            self._ready = deque(run for run in self._ready if run.held_since > held_before)
            self.late()
        return stale

    def late(self) -> None:
        """A job was held too long: handlers are slow now, so claim no more than there are slots."""
        self._duration = max(self._duration, PATIENCE)
