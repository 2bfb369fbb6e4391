"""Where a claim starts to look: a lower bound on the due time, per queue and priority.

Dead tickets pile up at the head of the index while some transaction holds the xmin horizon, and jobs of tasks that this
worker does not know stay there for good. So a claim starts near the last due time that was seen. But commits do not
arrive in due order: a claim that comes back short is repeated from the beginning, and so is one every few seconds. A
scan from the beginning that turns out slow is repeated only so often that it costs a twentieth of the time.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

from mainspring.job import Claim

BEGINNING = datetime(1, 1, 2, tzinfo=UTC)
MARGIN = timedelta(milliseconds=50)
RESCAN = 3.0  # seconds
DUTY = 20  # a scan from the beginning may take one part in so many of the time


class Bounds:
    """The lower bounds that one worker keeps. Times are the loop's, except due times, which are the database's."""

    def __init__(self) -> None:
        self.margin = MARGIN  # of the database's time
        self._low: dict[tuple[str, int], datetime] = {}
        self._floor = BEGINNING  # for lanes that no claim has come from since the last scan
        self.scan_at = 0.0  # from then on a claim starts at the beginning
        self._affordable = 0.0  # from then on it may

    @property
    def hiding(self) -> bool:
        """Whether the bounds come from full claims, so that there may be more below them."""
        return bool(self._low)

    def of(self, queues: Sequence[str], now: float) -> tuple[list[list[datetime]], bool]:
        """The bounds of the next claim, one list per priority, and whether they hide anything."""
        if now >= self.scan_at:
            return [[BEGINNING] * len(queues)] * 4, False
        low, floor = self._low.get, self._floor
        return [[low((queue, priority), floor) for queue in queues] for priority in range(4)], True

    def learn(
        self, claims: Sequence[Claim], *, bounded: bool, full: bool, now: datetime | None, started: float, ended: float
    ) -> None:
        """Take in what a claim found; `now` is the database's time, where it is known."""
        rest = min((ended - started) * DUTY, RESCAN)
        if not bounded:
            self._low.clear()
            self._floor = BEGINNING if full or now is None else now - self.margin
            self.scan_at = ended + (RESCAN if full else rest)
            self._affordable = ended if full else ended + rest
        elif self._low and not full:
            self.scan_at = min(self.scan_at, max(ended, self._affordable))
        if full:
            for claim in claims:  # in due order within a lane, so the last one of each counts
                self._low[claim.queue, claim.priority] = claim.due_at - self.margin
