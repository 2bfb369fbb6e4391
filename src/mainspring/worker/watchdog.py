"""The watchdog: sees from outside of the event loop that it stands still, says where, and ends the process.

The loop ticks, and a thread looks how long ago. A process whose loop stands still for longer than its lease has lost
its jobs anyway. Where the process is ours it ends, after it has given back the jobs that are not to blame; inside of
another program it only says so. Code that holds the interpreter's lock stops this thread as well: that is for who
started the process to see, by its pulse.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from mainspring.config import WorkerConfig
from mainspring.declare.caller import job_of
from mainspring.events import Bus, WorkerStuck
from mainspring.text.sanitize import sanitize
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.handover import Handover
from mainspring.worker.service import log

EXIT: Final = 70  # what the process ends with
LONGEST_BEAT: Final = 1.0  # seconds
REPORTING: Final = 3.0  # seconds that the log and the observers may take: perhaps it is they who stand still
HANDING_OVER: Final = 10.0  # and the database
FRAMES: Final = 30
WATCHDOG_STACK: Final = 6000  # bytes


class Watchdog:
    """Watches the event loop that it is made in. With a handover it ends the process, else it only reports."""

    def __init__(
        self,
        worker: str,
        config: WorkerConfig,
        attempts: Mapping[int, LiveAttempt],
        counts: Counter[str],
        bus: Bus,
        handover: Handover | None = None,
        pulse: Callable[[float], None] | None = None,
    ) -> None:
        self._worker, self._attempts, self._counts, self._bus = worker, attempts, counts, bus
        self._handover, self._pulse = handover, pulse
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
            elif self._handover is not None:
                self._keep(self._handover)

    def _live(self) -> None:
        if self._pulse is not None:
            self._pulse(self._lease)

    def _found(self, still: float) -> None:
        self._counts["stuck"] += 1
        culprit, suspects = self._on_loop()
        stack = self._stack()
        within(REPORTING, lambda: self._report(still, culprit, stack))
        if self._handover is None or self.still < still:  # it goes on
            return
        given = within(HANDING_OVER, lambda: self._give_back(suspects)) or "its jobs wait for their leases to end"
        within(REPORTING, lambda: log.critical("worker %s ends: %s", self._worker, given))
        for child in multiprocessing.active_children():
            child.kill()
        with suppress(Exception):
            within(REPORTING, sys.stderr.flush)
        os._exit(EXIT)

    def _on_loop(self) -> tuple[LiveAttempt | None, list[LiveAttempt]]:
        """The job that runs on the loop just now, if that is known, and all that may be to blame."""
        task, attempts = asyncio.current_task(self._loop), list(self._attempts.values())
        epoch = None if task is None else getattr(job_of(task), "epoch", None)
        for attempt in attempts:
            if task is not None and (attempt.handle is task or attempt.claim.epoch == epoch):
                return attempt, [attempt]
        return None, [attempt for attempt in attempts if attempt.handle is not None and attempt.task.runs == "async"]

    def _stack(self) -> str:
        frame = sys._current_frames().get(self._thread)  # the only way to another thread's
        return sanitize("".join(traceback.format_stack(frame, FRAMES)), WATCHDOG_STACK) if frame is not None else ""

    def _report(self, still: float, culprit: LiveAttempt | None, stack: str) -> None:
        job = None if culprit is None else culprit.claim
        what = "no job is known to be on it" if job is None else f"job {job.id} of {job.task} is on it"
        log.critical(
            "worker %s: the event loop has stood still for %.1f s, and %s:\n%s", self._worker, still, what, stack
        )
        job_id, task = (None, None) if job is None else (job.id, job.task)
        self._bus.tell_now([WorkerStuck(self._worker, still, job_id, task, stack, self._handover is not None)])

    def _give_back(self, suspects: list[LiveAttempt]) -> str:
        assert self._handover is not None
        count = self._handover.give_back(suspects)
        return f"{count} other jobs are given back"

    def _keep(self, handover: Handover) -> None:
        """Renew the leases of those that are not to blame, before they end; in another thread, for it may take long."""
        _, suspects = self._on_loop()
        others = [
            attempt for attempt in list(self._attempts.values()) if attempt not in suspects and not attempt.settled
        ]
        soon = any(attempt.trusted_until - time.monotonic() < self._lease / 2 for attempt in others)
        if soon and (self._keeper is None or not self._keeper.is_alive()):
            self._keeper = threading.Thread(target=_quietly, args=(lambda: handover.keep(others),), daemon=True)
            self._keeper.start()


def within(seconds: float, act: Callable[[], object]) -> object:
    """What it answers, if it does so in time; who stands still must not make us stand still."""
    found: list[object] = []
    thread = threading.Thread(target=_quietly, args=(lambda: found.append(act()),), daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


def _quietly(act: Callable[[], object]) -> None:
    try:
        act()
    except Exception as error:
        log.error("the watchdog could not do all: %s", sanitize(str(error), 1000))
