"""What handlers say for themselves: stamps of the monotonic clock, which all processes of a machine share."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import NamedTuple

from tests.proofs.chaos.journal import Journal, lines
from tests.proofs.nemesis.plan import Orders

from mainspring.declare.context import Context, SyncContext


@cache
def stamps() -> Journal:
    """The file of this process; CPU children have their own."""
    return Journal(Orders.found().place / f"stamp-{os.getpid()}-{time.time_ns()}.txt")


def say(what: str, *words: object) -> None:
    """One line: what, when, and the rest."""
    stamps().write(what, repr(time.monotonic()), *words)


@contextmanager
def attempt(ctx: Context | SyncContext, label: object = "-") -> Iterator[None]:
    """Stamp the first line of a handler, and its end in its own eyes."""
    me = (ctx.job.id, ctx.epoch, ctx.job.task, os.getpid())
    say("began", *me, label)
    how = "left"  # interrupted from outside
    try:
        yield
        how = "done"
    except Exception:
        how = "raised"
        raise
    finally:
        say("ended", *me, how)


class Attempt(NamedTuple):
    """One entry into a handler, as its stamps tell it."""

    job: str
    epoch: int
    task: str
    pid: int
    label: str
    began: float
    ended: float | None = None  # None: the process died in it, or it still runs
    how: str = "died"


def attempts(folder: Path) -> list[Attempt]:
    """All of them, by the time of their beginning."""
    found: dict[tuple[str, int], Attempt] = {}
    for what, at, *words in lines(folder, "stamp"):
        if what == "began":
            job, epoch, task, pid, label = words
            found[job, int(epoch)] = Attempt(job, int(epoch), task, int(pid), label, float(at))
        elif what == "ended" and (begun := found.get((words[0], int(words[1])))):
            found[words[0], int(words[1])] = begun._replace(ended=float(at), how=words[4])
    return sorted(found.values(), key=lambda one: one.began)


class Tail:
    """Reads what was added to the files of one kind since the last look."""

    def __init__(self, folder: Path, kind: str) -> None:
        self._folder, self._kind = folder, kind
        self._seen: dict[Path, int] = {}

    def more(self) -> list[list[str]]:
        found: list[list[str]] = []
        for path in sorted(self._folder.glob(f"{self._kind}-*.txt")):
            with path.open("rb") as file:
                file.seek(self._seen.get(path, 0))
                text = file.read()
            whole = text[: text.rfind(b"\n") + 1]
            self._seen[path] = self._seen.get(path, 0) + len(whole)
            found += [line.split(" ") for line in whole.decode().splitlines()]
        return found
