"""One life cycle for every background part."""

from __future__ import annotations

import asyncio
import logging
import random
from contextlib import suppress

from mainspring.db.wire.translate import is_transient
from mainspring.health.trouble import Trouble

log = logging.getLogger("mainspring.worker")
job_log = logging.getLogger("mainspring.worker.job")  # what events tell as well; off where a command logs them

#: After an error a service waits so long, doubling, with jitter.
SHORTEST_BACKOFF_S, LONGEST_BACKOFF_S = 0.1, 5.0
#: What passes by itself is told when it lasts longer: a cut connection is back sooner, of a lost database others tell.
LASTING_TROUBLE_S = 10.0


def backoff(failures: int) -> float:
    """Seconds to wait after so many failures in a row: bounded, and spread so that workers do not return together."""
    return min(SHORTEST_BACKOFF_S * 2.0 ** min(failures - 1, 10), LONGEST_BACKOFF_S) * random.uniform(0.5, 1.0)  # noqa: S311 (no secret)


class Service:
    """A background part: `tick()` is called every interval, or when woken.

    start() returns once it is scheduled; stop() returns once it has stopped, and may be called twice or without start.
    """

    interval: float
    excused = False  # the database is away, as everybody knows

    def __init__(self, interval: float, wake: asyncio.Event | None = None) -> None:
        self.interval = interval
        self._wake = wake or asyncio.Event()  # given where somebody wakes it who was made before
        self._task: asyncio.Task[None] | None = None
        self._failures = 0
        name = type(self).__name__
        words = f"{name} fails, and is tried again", f"{name} works again"
        self._trouble = Trouble(log, *words, after=LASTING_TROUBLE_S, excused=lambda: self.excused)

    async def tick(self) -> None:
        """Do the work once."""
        raise NotImplementedError

    def wake(self) -> None:
        """Call tick() now rather than at the next interval."""
        self._wake.set()

    def start(self) -> None:
        """Begin."""
        self._task = self._task or asyncio.create_task(self._loop(), name=type(self).__name__)

    async def stop(self) -> None:
        """End, and wait for the end."""
        task, self._task = self._task, None
        while task is not None and not task.done():  # an interrupted driver may raise an error of its own
            task.cancel()
            await asyncio.wait([task], timeout=1.0)

    def _well(self) -> None:
        """It works: said after each tick, or by a tick that lasts."""
        self._failures = 0
        self._trouble.over()

    async def _loop(self) -> None:
        while True:
            try:
                await self.tick()
                self._well()
            except Exception as error:
                self._failures += 1
                self._trouble.failed(error, bug=None if is_transient(error) else error)
            pause = backoff(self._failures) if self._failures else self.interval * random.uniform(0.9, 1.1)  # noqa: S311 (no secret)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._wake.wait(), pause)
            self._wake.clear()
