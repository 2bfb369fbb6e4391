"""Jobs that run alone: when a worker falls silent for one, so that its crash takes nobody along and is its own."""

from __future__ import annotations

from collections.abc import Callable

SOLITUDE_SILENCE_S = 10.0  # seconds that a worker stops claiming at most, for what it runs to end
WORK_BETWEEN_SILENCES_S = 30.0  # for so long it works on at least, where that was not enough
SOLITUDE_AGAIN_S = 1.0  # until it asks again, where none came


class Solitude:
    """What a worker knows of jobs that must run alone.

    `elsewhere`, where it is set, has a process of its own run them. Without, the worker claims nothing until it holds
    nothing, then runs one. What runs long must not stop it for long: after a while it works on, and tries again later.
    `only`: this worker is such a process, and takes nothing else.
    """

    def __init__(
        self,
        *,
        only: bool = False,
        elsewhere: Callable[[], None] | None = None,
        poll: Callable[[], None] = lambda: None,  # there may be another
        rescue: Callable[[], None] = lambda: None,  # one that succeeded ends the quarantine of its task
    ) -> None:
        self.only = only
        self.due = False  # one waits, by the last poll
        self.running = False  # one is here, or is being asked for
        self.probed: set[str] = set()  # tasks of which a job has succeeded alone
        self._elsewhere, self._poll, self._rescue = elsewhere, poll, rescue
        self._since = 0.0
        self._not_before = 0.0

    def look(self, due: bool, now: float) -> None:
        """What a poll has found."""
        if self._elsewhere is not None:
            return self._elsewhere() if due else None
        due = due and now >= self._not_before
        if due and not self.due:
            self._since = now
        self.due = due
        return None

    def silent(self, now: float) -> bool:
        """Whether nothing else may be claimed now."""
        if self.due and now >= self._since + SOLITUDE_SILENCE_S:
            self.due, self._not_before = False, now + WORK_BETWEEN_SILENCES_S
        return self.only or self.running or self.due

    def asks(self, *, polling: bool) -> bool:
        """Whether to ask for one; the worker holds nothing."""
        return not self.running and (self.due or (self.only and polling))

    def asked(self) -> None:
        """One is asked for: until the answer is here, that counts as one that runs."""
        self.running = True

    def unanswered(self) -> None:
        """What came of that is not known: others clear it up."""
        self.running = False

    def took(self, got: bool, now: float) -> None:
        """One was asked for. None came: somebody else has it, or a limit does not let it in."""
        self.running, self.due = got, False
        if not got:
            self._not_before = now + SOLITUDE_AGAIN_S

    def ended(self, succeeded: str | None = None) -> None:
        """The one that ran has ended, a task's that is named where it succeeded."""
        self.running = False
        self._poll()
        if succeeded is not None:
            self.probed.add(succeeded)
            self._rescue()

    def wakes_at(self) -> float:
        """When it works on, if it cannot fall silent until then."""
        return self._since + SOLITUDE_SILENCE_S if self.due else float("inf")
