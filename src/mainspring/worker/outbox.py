"""What has ended and is not written yet."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from mainspring.outcome import Move


class Outbox:
    """Outcomes on their way to the database, in the three forms in which they are written."""

    __slots__ = ("done", "moves", "results", "wake")

    def __init__(self) -> None:
        self.done: list[int] = []
        self.results: list[tuple[int, str]] = []
        self.moves: list[dict[str, Any]] = []
        self.wake: Callable[[], None] = lambda: None  # told when something should go out soon

    def __len__(self) -> int:
        return len(self.done) + len(self.results) + len(self.moves)

    def complete(self, epoch: int, result: str | None = None) -> None:
        """The attempt succeeded; its result is JSON already."""
        if result is None:
            self.done.append(epoch)
        else:
            self.results.append((epoch, result))

    def move(self, epoch: int, move: Move) -> None:
        """The attempt ended otherwise."""
        row: dict[str, Any] = {"epoch": epoch, "verb": move.verb, "delay": move.delay, "error": None}
        if move.error is not None:
            error = move.error
            row["error"] = {"code": error.code, "class": error.error_class, "message": error.message}
            if error.stack:
                row["error"]["stack"] = error.stack
        self.moves.append(row)
        self.wake()

    def epochs(self) -> set[int]:
        """Every attempt in it."""
        return Letter(self.done, self.results, self.moves).epochs()

    def take(self) -> Letter:
        """Everything, to be written now."""
        letter = Letter(self.done, self.results, self.moves)
        self.done, self.results, self.moves = [], [], []
        return letter

    def take_one(self) -> Letter:
        """One outcome, when one of them is at fault."""
        if self.done:
            return Letter([self.done.pop(0)], [], [])
        if self.results:
            return Letter([], [self.results.pop(0)], [])
        return Letter([], [], [self.moves.pop(0)] if self.moves else [])

    def put_back(self, letter: Letter) -> None:
        """What could not be written goes out again; whether it was written after all is unknown."""
        self.done = letter.done + self.done
        self.results = letter.results + self.results
        self.moves = letter.moves + self.moves


class Letter:
    """One taking of the outbox."""

    __slots__ = ("done", "moves", "results")

    def __init__(self, done: list[int], results: list[tuple[int, str]], moves: list[dict[str, Any]]) -> None:
        self.done = done
        self.results = results
        self.moves = moves

    def __len__(self) -> int:
        return len(self.done) + len(self.results) + len(self.moves)

    def epochs(self) -> set[int]:
        """Every attempt in it."""
        return {*self.done, *(epoch for epoch, _ in self.results), *(move["epoch"] for move in self.moves)}
