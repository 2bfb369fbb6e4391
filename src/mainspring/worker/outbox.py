"""What has ended and is not written yet."""

from __future__ import annotations

from collections.abc import Callable, Container
from typing import Any

from mainspring.outcome import Move
from mainspring.worker.run import Run


class Outbox:
    """Outcomes on their way to the database, in the three forms in which they are written."""

    __slots__ = ("done", "moves", "results", "wake")

    def __init__(self) -> None:
        self.done: list[Run] = []
        self.results: list[tuple[Run, str]] = []
        self.moves: list[tuple[Run, Move]] = []
        self.wake: Callable[[], None] = lambda: None  # told when something should go out soon

    def __len__(self) -> int:
        return len(self.done) + len(self.results) + len(self.moves)

    def complete(self, run: Run, result: str | None = None) -> None:
        """The attempt succeeded; its result is JSON already."""
        if result is None:
            self.done.append(run)
        else:
            self.results.append((run, result))

    def move(self, run: Run, move: Move) -> None:
        """The attempt ended otherwise."""
        self.moves.append((run, move))
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

    def __init__(self, done: list[Run], results: list[tuple[Run, str]], moves: list[tuple[Run, Move]]) -> None:
        self.done = done
        self.results = results
        self.moves = moves

    def __len__(self) -> int:
        return len(self.done) + len(self.results) + len(self.moves)

    @property
    def succeeded(self) -> list[Run]:
        """The attempts that it says succeeded."""
        return [*self.done, *(run for run, _ in self.results)]

    @property
    def runs(self) -> list[Run]:
        """Every attempt in it."""
        return [*self.succeeded, *(run for run, _ in self.moves)]

    def without(self, epochs: Container[int]) -> Letter:
        """What it says of the other attempts."""
        return Letter(
            [run for run in self.done if run.claim.epoch not in epochs],
            [said for said in self.results if said[0].claim.epoch not in epochs],
            [said for said in self.moves if said[0].claim.epoch not in epochs],
        )

    def epochs(self) -> set[int]:
        """Their epochs."""
        return {run.claim.epoch for run in self.runs}


def row(run: Run, move: Move) -> dict[str, Any]:
    """A move as `settle` reads it."""
    error = move.error
    if error is None:
        said = {"epoch": run.claim.epoch, "verb": move.verb, "delay": move.delay, "started": move.started}
        return said if move.gate is None else {**said, "gate": move.gate}
    problem = {"code": error.code, "class": error.error_class, "message": error.message}
    if error.stack:
        problem["stack"] = error.stack
    if error.sealed:
        problem["sealed"] = error.sealed
    return {"epoch": run.claim.epoch, "verb": move.verb, "delay": move.delay, "error": problem}
