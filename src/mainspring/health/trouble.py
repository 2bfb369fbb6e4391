"""Something that fails again and again, told calmly: its begin, another reason, now and then that it lasts, its end."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable

TROUBLE_TOLD_AGAIN_S = 60.0  # seconds until it is told that it lasts
MOST_REASONS = 3  # of one trouble, so many are told: more would only alternate


class Trouble:
    """What is told of a failure that is tried again, however often.

    ::

        trouble = Trouble(log, "the database is away", "the database is back")
        trouble.failed("connection refused")  # a line; the same again is none
        trouble.over()  # a line, with how long it lasted

    What is over within `after` seconds is not told, nor is what something else explains: then it is `excused`.
    """

    def __init__(
        self,
        log: logging.Logger,
        begins: str,
        ends: str,
        *,
        edges: logging.Logger | None = None,  # where its begin and its end are told, if elsewhere
        after: float = 0.0,
        excused: Callable[[], bool] = lambda: False,
    ) -> None:
        self._log, self._edges = log, edges or log
        self._begins, self._ends, self._after = begins, ends, after
        self._excused = excused
        self._since: float | None = None
        self._told: set[str] = set()
        self._told_at = 0.0

    def failed(self, reason: object, *, bug: BaseException | None = None) -> None:
        """It failed. A bug is told at once, with its stack."""
        now, text = time.monotonic(), str(reason).strip()
        if bug is None and self._excused():
            self._since = self._since if self._told else now
            return
        self._since = now if self._since is None else self._since
        if bug is None and not self._told and now - self._since < self._after:
            return
        kind = re.sub(r'\d+|"[^"]*"', "", text)  # without ports, numbers of processes and names
        if (kind in self._told or len(self._told) >= MOST_REASONS) and now < self._told_at + TROUBLE_TOLD_AGAIN_S:
            return
        lasts = f", for {now - self._since:.0f} s now" if self._told else ""
        log = self._log if self._told else self._edges
        log.log(logging.ERROR if bug else logging.WARNING, "%s%s: %s", self._begins, lasts, text, exc_info=bug)
        self._told.add(kind)
        self._told_at = now

    def over(self) -> None:
        """It works again."""
        if self._told and self._since is not None:
            self._edges.warning("%s after %.1f s", self._ends, time.monotonic() - self._since)
            self._told.clear()
        self._since = None
