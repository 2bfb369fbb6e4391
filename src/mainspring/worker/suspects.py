"""Jobs that may have crashed a worker: how many of them a crew runs at once."""

from __future__ import annotations


class Suspects:
    """One at first, then 2, 4, 8 … as they end well or outlive the crash; one again after trouble and when none waits.

    >>> suspects = Suspects()
    >>> suspects.answered(suspects.ask(), 1)
    >>> suspects.ask()
    0
    >>> suspects.ended(well=True)
    >>> suspects.ask()
    2
    """

    def __init__(self) -> None:
        self.more = False  # the last claim got all that it asked for
        self._window = 1
        self._held = 0  # suspects that are here, or being asked for

    def ask(self) -> int:
        """How many more may come; they are counted until the answer is here."""
        room = max(0, self._window - self._held)
        self._held += room
        return room

    def answered(self, asked: int, came: int) -> None:
        """So many came."""
        self._held += came - asked
        if asked:
            self.more = came >= asked
        self._rest()

    def ended(self, *, well: bool) -> None:
        """One of them ended, and this process lives; not well: its lease was lost."""
        self._held -= 1
        self._window = self._window + 1 if well else 1
        self._rest()

    def _rest(self) -> None:
        if not self._held and not self.more:
            self._window = 1
