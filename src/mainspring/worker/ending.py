"""The end of a worker that cannot go on: it says why, gives back the jobs that are not to blame, and ends its process.

Whoever started the process starts another. Inside of another program, which is not ours to end, it only says why.
"""

from __future__ import annotations

import multiprocessing
import os
import sys
import threading
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Final, NoReturn

from mainspring.events import Bus, WorkerStuck
from mainspring.text.sanitize import sanitize
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.handover import Handover
from mainspring.worker.service import log

_STUCK_EXIT: Final = 70  # what the process ends with
REPORTING_PATIENCE_S: Final = 3.0  # seconds that the log and the observers may take: perhaps it is they who stand still
HANDING_OVER_S: Final = 10.0  # seconds that the database may take
_STACK_BYTES: Final = 6000


class Ending:
    """Ends the process of a worker, where it is the worker's own: then there is a handover."""

    def __init__(self, worker: str, counts: Counter[str], bus: Bus, handover: Handover | None = None) -> None:
        self._worker, self._counts, self._bus, self._handover = worker, counts, bus, handover

    @property
    def handover(self) -> Handover | None:
        """What writes in place of the event loop; None where the process is not ours."""
        return self._handover

    def report(
        self, reason: str, words: str, stack: str, culprit: LiveAttempt | None = None, seconds: float = 0.0
    ) -> None:
        """Say why: in the log, to the observers, and as a count."""
        self._counts["stuck"] += 1
        within(REPORTING_PATIENCE_S, lambda: self._tell(reason, words, sanitize(stack, _STACK_BYTES), culprit, seconds))

    def _tell(self, reason: str, words: str, stack: str, culprit: LiveAttempt | None, seconds: float) -> None:
        log.critical("worker %s: %s:\n%s", self._worker, words, stack)
        job_id, task = (None, None) if culprit is None else (culprit.claim.id, culprit.claim.task)
        event = WorkerStuck(self._worker, seconds, job_id, task, stack, self._handover is not None, reason)
        self._bus.tell_now([event])

    def end(self, left: Sequence[LiveAttempt]) -> NoReturn:
        """Give back all jobs but these, which are left to their leases, and end. The event loop stands still by now."""
        given = within(HANDING_OVER_S, lambda: self._give_back(left)) or "its jobs wait for their leases to end"
        within(REPORTING_PATIENCE_S, lambda: log.critical("worker %s ends: %s", self._worker, given))
        for child in multiprocessing.active_children():
            child.kill()
        with suppress(Exception):
            within(REPORTING_PATIENCE_S, sys.stderr.flush)
        os._exit(_STUCK_EXIT)

    def _give_back(self, left: Sequence[LiveAttempt]) -> str:
        assert self._handover is not None, "the process is not ours"
        return f"{self._handover.give_back(left)} other jobs are given back"


def within(seconds: float, act: Callable[[], object]) -> object:
    """What it answers, if it does so in time; who stands still must not make us stand still."""
    found: list[object] = []
    thread = threading.Thread(target=quietly, args=(lambda: found.append(act()),), daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


def quietly(act: Callable[[], object]) -> None:
    """Do it; who ends anyway only says what went wrong."""
    try:
        act()
    except Exception as error:
        log.error("a worker that ends could not do all: %s", sanitize(str(error), 1000))
