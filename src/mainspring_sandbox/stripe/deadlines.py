"""What ends by itself: pages on which nobody has paid, and vouchers that nobody has taken to the bank."""

from __future__ import annotations

import heapq
import threading


class Deadlines:
    """Instants, in seconds since 1970, and what ends then unless it has ended before."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._queue: list[tuple[int, str]] = []

    def set(self, at: int, id: str) -> None:
        """Something ends then."""
        with self._lock:
            heapq.heappush(self._queue, (at, id))

    def next(self) -> int | None:
        """When the next one ends; None: nothing does."""
        with self._lock:
            return self._queue[0][0] if self._queue else None

    def due(self, now: int) -> list[str]:
        """What has reached its end by now, each told once."""
        found = []
        with self._lock:
            while self._queue and self._queue[0][0] <= now:
                found.append(heapq.heappop(self._queue)[1])
        return found

    def reset(self) -> None:
        """Nothing ends any more."""
        with self._lock:
            self._queue.clear()
