"""One worker's share of a rate: how many handlers it may enter in any window, which it counts by its own clock."""

from __future__ import annotations

from collections import deque
from typing import Final

EXACT: Final = 64  # so many entries are remembered one by one, more as hundredths of a window
FAR: Final = 1000  # a share that is smaller is never far: at such rates nobody counts microseconds
NEVER: Final = float("inf")


class Share:
    """What one gate lets this worker enter: `n` in any window of `per` seconds, until `trusted`."""

    __slots__ = (
        "_log", "_size", "asked", "asked_at", "changed", "entered", "gate", "known_at", "late_since", "let_in", "more",
        "n", "next_at", "per", "renew_at", "returned", "shut", "taken", "told", "trusted", "unmet_since", "version",
    )  # fmt: skip

    def __init__(self, gate: str, now: float, entered: int = 0, returned: int = 0) -> None:
        self.gate = gate
        self.known_at = now  # when the database last spoke of it, by the clock of the worker
        self.n, self.version, self.per, self.trusted = 0, -1, 1.0, 0.0
        self.told = 0  # the n that the database knows of
        # Jobs, since the database began to count; those entered and given back are told, what is left is held here.
        self.let_in, self.entered, self.returned = entered + returned, entered, returned
        self.shut = False  # when it was last looked at
        self.taken = 0  # let through, on their way to their handlers' first line
        self._log: deque[list[float]] = deque()  # [entered at, how many, which part of a window]
        self._size = 0
        self.more = True  # the last ask was met in full: there may be more
        self.asked, self.asked_at = 0, 0.0  # jobs that are on their way
        self.unmet_since: float | None = None
        self.late_since: float | None = None  # what is let in comes back, and nothing is entered
        self.renew_at = self.next_at = NEVER
        self.changed = False  # since it was looked at whether to tell somebody

    @property
    def limit(self) -> str:
        """The name of the limit whose rate it shares."""
        return self.gate.partition("/")[0]

    @property
    def waiting(self) -> int:
        """Jobs that are here and have not been entered."""
        return self.let_in - self.entered - self.returned

    def opens_at(self, now: float) -> float:
        """When the next one may be let through."""
        if now >= self.trusted or not self.n:
            return NEVER
        if self.taken + self._size < self.n:  # with entries that no longer count, perhaps: there is room in any case
            return now
        if self.taken >= self.n:  # they will be entered, from now on
            return now + self.per
        excess = self.taken + self._entries(now) - self.n + 1
        if excess <= 0:
            return now
        for at, count, _ in self._log:
            excess -= int(count)
            if excess <= 0:
                return at + self.per
        return now + self.per

    def is_far(self, now: float) -> bool:
        """Whether hardly any of it is used, so that it matters little when exactly a job is entered."""
        return now < self.trusted and self.n >= FAR and (self.taken + self._size) * 4 < self.n

    def hold(self, now: float, ahead: float) -> int:
        """How many jobs should be here: what can be entered so soon, and what is on its way."""
        self._entries(now)
        windows, rest = divmod(ahead, self.per)
        since, recent = now + rest - self.per, 0
        for at, count, _ in reversed(self._log):
            if at <= since:
                break
            recent += int(count)
        return max(0, self.n * (int(windows) + 1) - self.taken - recent) + self.taken

    def grows_at(self, now: float, ahead: float) -> float:
        """When more should be here."""
        rest = ahead % self.per
        for at, _, _ in self._log:
            if at > now + rest - self.per:
                return at + self.per - rest
        return NEVER

    def enter(self, now: float, count: int = 1) -> None:
        """The first lines of so many handlers were reached, at the latest now."""
        self.taken -= count
        self.entered += count
        self._size += count
        far = self.n >= FAR and self._size * 4 < self.n
        part = now // (self.per / (10 if far else 100))
        if self._log and (far or len(self._log) > EXACT) and self._log[-1][2] == part:
            self._log[-1][0] = now  # the later instant, so that nothing is forgotten too early
            self._log[-1][1] += count
        else:
            self._log.append([now, count, part])
        self.late_since = None

    def kept(self, now: float) -> int:
        """What is told of `n`: nothing is let go of under which something is on its way to its handler."""
        return max(self.n, min(self.told, self.taken + self._entries(now))) if self.taken else self.n

    def ages(self, now: float, speed: float) -> tuple[list[float], list[int]]:
        """The entries of the last window, in seconds of the database's clock before now.

        What is on its way counts among them where the share may be somebody else's by now.
        """
        self._entries(now)
        ages = [max(0.0, (now - at) * speed) for at, _, _ in self._log]
        counts = [int(count) for _, count, _ in self._log]
        if self.taken and now >= self.trusted:
            ages.append(0.0)
            counts.append(self.taken)
        return ages, counts

    @property
    def last_entry(self) -> float:
        """The last one that counts still."""
        return self._log[-1][0] if self._log else -NEVER

    def _entries(self, now: float) -> int:
        log, until = self._log, now - self.per
        while log and log[0][0] <= until:
            self._size -= int(log.popleft()[1])
        return self._size
