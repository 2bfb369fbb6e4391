"""Where a claim starts to look: a lower bound on the due time, per queue and priority.

Dead tickets pile up at the head of the index while some transaction holds the xmin horizon, and jobs of tasks that this
worker does not know stay there for good. So a claim starts near the last due time that was seen. But commits do not
arrive in due order: where a queue runs dry above its bounds, it is looked at again from the beginning, and so are all
every few seconds. A scan from the beginning that turns out slow is repeated only so often that it costs a twentieth of
the time.

Each queue is judged by itself: one that gave its whole share may have more, however little the others gave.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta

from mainspring.job import Claim

BEGINNING = datetime(1, 1, 2, tzinfo=UTC)
BOUND_MARGIN = timedelta(milliseconds=50)
RESCAN_AFTER_S = 3.0
SCAN_DUTY = 20  # a scan from the beginning may take one part in so many of the time


class Bounds:
    """The lower bounds that one worker keeps. Times are the loop's, except due times, which are the database's."""

    def __init__(self, speed: float = 1.0) -> None:
        self.margin = BOUND_MARGIN * speed  # of the database's time
        self._low: dict[
            tuple[str, int], datetime
        ] = {}  # of lanes that gave all they were asked for since the last scan
        self._floor: dict[str, datetime] = {}  # of queues that the last scan emptied
        self.scan_at = 0.0  # from then on a claim starts at the beginning
        self._affordable = 0.0  # from then on it may

    @property
    def hiding(self) -> bool:
        """Whether some bounds come from queues that had more, so that there may be something below them."""
        return bool(self._low)

    def of(self, queues: Sequence[str], now: float) -> tuple[list[list[datetime]], bool]:
        """The bounds of the next claim, one list per priority, and whether they hide anything."""
        if now >= self.scan_at:
            return [[BEGINNING] * len(queues)] * 4, False
        low, floors = self._low.get, [self._floor.get(queue, BEGINNING) for queue in queues]
        lanes = list(zip(queues, floors, strict=True))
        return [[low((queue, priority), floor) for queue, floor in lanes] for priority in range(4)], True

    def learn(
        self,
        claims: Sequence[Claim],
        dry: Collection[str],
        *,
        bounded: bool,
        now: datetime | None,
        started: float,
        ended: float,
    ) -> None:
        """Take in what a claim found, and which queues had no more; `now` is the database's time, where it is known."""
        rest = min((ended - started) * SCAN_DUTY, RESCAN_AFTER_S) if dry else 0.0
        if not bounded:
            self._low.clear()
            self._floor = {} if now is None else dict.fromkeys(dry, now - self.margin)
            self.scan_at = ended + (rest if dry else RESCAN_AFTER_S)
            self._affordable = ended + rest
        elif any(queue in dry for queue, _ in self._low):
            self.scan_at = min(self.scan_at, max(ended, self._affordable))
        for claim in claims:  # in due order within a lane, so the last one of each counts
            if claim.queue not in dry and not claim.crashes:  # a rescued one comes out of turn
                self._low[claim.queue, claim.priority] = claim.due_at - self.margin
