"""What a process of the run says for itself: lines in a file of its own, which outlive a SIGKILL."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from mainspring.declare.context import Context, SyncContext
from mainspring.errors import LeaseLost


def say(line: str) -> None:
    """Tell the person who watches, at once."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


class Journal:
    """An append-only file; one write a line, so that a kill never leaves half a line behind others."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, *words: object) -> None:
        os.write(self._file, (" ".join(map(str, words)) + "\n").encode())


class Attempts(Journal):
    """The journal of a worker: what its handlers began, and how each ended in their own eyes."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder / f"worker-{os.getpid()}-{time.time_ns()}.txt")

    @contextmanager
    def attempt(self, ctx: Context | SyncContext) -> Iterator[None]:
        said = "left"  # interrupted from outside
        self.write("start", ctx.job.id, ctx.epoch, repr(time.time()))
        try:
            yield
            said = "committed"
        except LeaseLost:
            said = "refused"
            raise
        except Exception:
            said = "failed"
            raise
        finally:
            self.write(said, ctx.job.id, ctx.epoch, repr(time.time()))


def lines(folder: Path, kind: str) -> Iterator[list[str]]:
    """Every line of the files of one kind, split into words."""
    for path in sorted(folder.glob(f"{kind}-*.txt")):
        for line in path.read_text().splitlines():
            yield line.split(" ")
