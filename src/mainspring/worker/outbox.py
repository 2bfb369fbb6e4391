"""What has ended and is not written yet."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from mainspring.outcome import Error, Move
from mainspring.worker.attempt import LiveAttempt


class Outcomes:
    """How attempts ended, in the three forms in which that is written."""

    __slots__ = ("done", "moves", "results")

    def __init__(
        self,
        done: list[LiveAttempt] | None = None,
        results: list[tuple[LiveAttempt, str]] | None = None,
        moves: list[tuple[LiveAttempt, Move]] | None = None,
    ) -> None:
        self.done = done or []
        self.results = results or []  # JSON already
        self.moves = moves or []

    def __len__(self) -> int:
        return len(self.done) + len(self.results) + len(self.moves)

    @property
    def succeeded(self) -> list[LiveAttempt]:
        """The attempts that succeeded."""
        return [*self.done, *(attempt for attempt, _ in self.results)]

    @property
    def attempts(self) -> list[LiveAttempt]:
        """Every attempt in it."""
        return [*self.succeeded, *(attempt for attempt, _ in self.moves)]

    def epochs(self) -> set[int]:
        """Their epochs."""
        return {attempt.claim.epoch for attempt in self.attempts}

    def without(self, epochs: Container[int]) -> Outcomes:
        """Those of the other attempts."""
        return Outcomes(
            [attempt for attempt in self.done if attempt.claim.epoch not in epochs],
            [one for one in self.results if one[0].claim.epoch not in epochs],
            [one for one in self.moves if one[0].claim.epoch not in epochs],
        )


class Outbox(Outcomes):
    """Outcomes on their way to the database."""

    __slots__ = ("_wake",)

    def __init__(self, wake: Callable[[], None] = lambda: None) -> None:
        super().__init__()
        self._wake = wake  # told when something should go out soon

    def complete(self, attempt: LiveAttempt, result: str | None = None) -> None:
        """The attempt succeeded; its result is JSON already."""
        if result is None:
            self.done.append(attempt)
        else:
            self.results.append((attempt, result))

    def move(self, attempt: LiveAttempt, move: Move) -> None:
        """The attempt ended otherwise."""
        self.moves.append((attempt, move))
        self._wake()

    def take(self) -> Outcomes:
        """Everything, to be written now."""
        outcomes = Outcomes(self.done, self.results, self.moves)
        self.done, self.results, self.moves = [], [], []
        return outcomes

    def take_one(self) -> Outcomes:
        """One outcome, when one of them is at fault."""
        if self.done:
            return Outcomes([self.done.pop(0)])
        if self.results:
            return Outcomes(results=[self.results.pop(0)])
        return Outcomes(moves=[self.moves.pop(0)] if self.moves else [])

    def put_back(self, outcomes: Outcomes) -> None:
        """What could not be written goes out again; whether it was written after all is unknown."""
        self.done = outcomes.done + self.done
        self.results = outcomes.results + self.results
        self.moves = outcomes.moves + self.moves


def settle_row(attempt: LiveAttempt, move: Move) -> dict[str, Any]:
    """A move as `settle` reads it."""
    error = move.error
    if error is None:
        said = {"epoch": attempt.claim.epoch, "verb": move.verb, "delay": move.delay, "started": move.started}
        return said if move.gate is None else {**said, "gate": move.gate}
    return {"epoch": attempt.claim.epoch, "verb": move.verb, "delay": move.delay, "error": error_row(error)}


def error_row(error: Error) -> dict[str, Any]:
    """An error as it is stored."""
    row = {"code": error.code, "class": error.error_class, "message": error.message}
    if error.stack:
        row["stack"] = error.stack
    if error.sealed:
        row["sealed"] = error.sealed
    return row
