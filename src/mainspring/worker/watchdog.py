"""The watchdog: sees from outside of the event loop that it stands still or was left, says where, and ends the process.

The loop ticks, and a thread looks how long ago. A process whose loop stands still for longer than its lease has lost
its jobs anyway. Where the process is ours it ends, after it has given back the jobs that are not to blame; inside of
another program it only says so. Code that holds the interpreter's lock stops this thread as well: that is for who
started the process to see, by its pulse.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import time
import traceback
from collections.abc import Callable, Mapping
from typing import Any, Final, NoReturn

from mainspring.config import WorkerConfig
from mainspring.declare.caller import job_of, task_of
from mainspring.text.raised import name_of
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.ending import REPORTING_PATIENCE_S, Ending, quietly, within
from mainspring.worker.handover import Handover

LONGEST_BEAT: Final = 1.0  # seconds
_FRAMES: Final = 30


class Watchdog:
    """Watches the event loop that it is made in."""

    def __init__(
        self,
        config: WorkerConfig,
        attempts: Mapping[int, LiveAttempt],
        ending: Ending,
        pulse: Callable[[float, float], None] | None = None,
    ) -> None:
        self._attempts, self._ending, self._pulse = attempts, ending, pulse
        self._lease, self._grace = config.lease.total_seconds(), config.grace.total_seconds()
        self._beat = min(LONGEST_BEAT, self._lease / 10)
        self._loop, self._thread = asyncio.get_running_loop(), threading.get_ident()
        self._ticked = time.monotonic()
        self._timer: asyncio.TimerHandle | None = None
        self._over = threading.Event()
        self._keeper: threading.Thread | None = None
        self._asked = 0

    # -- in the loop

    def start(self) -> None:
        """Begin to watch."""
        self._tick()
        self._live()
        threading.Thread(target=self._watch, name="mainspring watchdog", daemon=True).start()

    def stop(self) -> None:
        """End."""
        self._over.set()
        if self._timer is not None:
            self._timer.cancel()

    def asked(self) -> None:
        """Somebody wants the process to stop: a loop that stands still has less time, and none if asked again."""
        self._asked += 1

    def escaped(self, error: BaseException) -> NoReturn:
        """The event loop was left: by what a task raised (`sys.exit`), by `stop`, or because its worker was cancelled.

        Whoever closed it now would wait for all its tasks and threads, while no lease is renewed any more.
        """
        self._live()
        culprit, suspects = self._blamed(task_of(error))
        whose = "no job is known to have done it" if culprit is None else _whose(culprit, "has done it")
        stack = within(REPORTING_PATIENCE_S, lambda: "".join(traceback.format_exception(error, limit=-_FRAMES)))
        words = f"{name_of(error)} has ended the event loop, and {whose}"
        self._ending.report("left", words, str(stack or ""), culprit)
        self._ending.end(suspects)

    def _tick(self) -> None:
        self._ticked = time.monotonic()
        self._timer = self._loop.call_later(self._beat, self._tick)

    # -- in its own thread

    @property
    def still(self) -> float:
        """For how many seconds the loop has stood still; from any thread."""
        return max(0.0, time.monotonic() - self._ticked - self._beat)

    @property
    def _patience(self) -> float:
        return min(self._lease, (self._lease, self._grace, 1.0)[min(self._asked, 2)])

    def _watch(self) -> None:
        told = False
        looked, busy = time.monotonic(), time.process_time()
        while not self._over.wait(self._beat) and not self._loop.is_closed():
            now, cpu = time.monotonic(), time.process_time()
            slept, worked, looked, busy = now - looked, cpu - busy, now, cpu
            # Whoever slept much longer than it wanted while nothing ran was stopped itself, and the loop with it.
            paused = slept > self._beat + max(self._lease / 4, 0.5) and worked < slept / 10
            if paused or not self._loop.is_running():
                self._ticked = now
                continue
            self._live()
            if self.still <= 2 * self._beat:
                told = False
            elif self.still > self._patience:
                if not told:
                    told = True
                    self._found(self.still)
                    looked, busy = time.monotonic(), time.process_time()  # what that took was no pause
            elif self._ending.handover is not None:
                self._keep(self._ending.handover)

    def _live(self) -> None:
        if self._pulse is not None:
            self._pulse(self._lease, self._grace)

    def _found(self, still: float) -> None:
        culprit, suspects = self._on_loop()
        whose = "no job is known to be on it" if culprit is None else _whose(culprit, "is on it")
        words = f"the event loop has stood still for {still:.1f} s, and {whose}"
        self._ending.report("still", words, self._stack(), culprit, still)
        if self._ending.handover is not None and self.still >= still:  # else it goes on
            self._ending.end(suspects)

    def _on_loop(self) -> tuple[LiveAttempt | None, list[LiveAttempt]]:
        """The job that runs on the loop just now, if that is known, and all that may be to blame."""
        return self._blamed(asyncio.current_task(self._loop))

    def _blamed(self, task: asyncio.Task[Any] | None) -> tuple[LiveAttempt | None, list[LiveAttempt]]:
        attempts = list(self._attempts.values())
        epoch = None if task is None else getattr(job_of(task), "epoch", None)
        for attempt in attempts:
            if task is not None and (attempt.handle is task or attempt.claim.epoch == epoch):
                return attempt, [attempt]
        return None, [attempt for attempt in attempts if attempt.handle is not None and attempt.task.runs == "async"]

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)  # the only way to another thread's
        return "".join(traceback.format_stack(frame, _FRAMES)) if frame is not None else ""

    def _keep(self, handover: Handover) -> None:
        """Renew the leases of those that are not to blame, before they end; in another thread, for it may take long."""
        _, suspects = self._on_loop()
        others = [
            attempt for attempt in list(self._attempts.values()) if attempt not in suspects and not attempt.settled
        ]
        soon = any(attempt.trusted_until - time.monotonic() < self._lease / 2 for attempt in others)
        if soon and (self._keeper is None or not self._keeper.is_alive()):
            self._keeper = threading.Thread(target=quietly, args=(lambda: handover.keep(others),), daemon=True)
            self._keeper.start()


def _whose(attempt: LiveAttempt, does: str) -> str:
    return f"job {attempt.claim.id} of {attempt.claim.task} {does}"
