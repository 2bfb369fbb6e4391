"""Tasks for processes of their own; another process finds them by this module's name."""

from __future__ import annotations

import multiprocessing
import os
import signal
import sys
import time
from datetime import timedelta
from typing import Any

from mainspring import Permanent, Registry, Snooze

tasks = Registry("cpu")


@tasks.task(cpu=True)
def double(*, n: int) -> int:
    return 2 * n


@tasks.task(cpu=True)
def where() -> dict[str, int]:
    return {"pid": os.getpid(), "parent": os.getppid()}


@tasks.task(cpu=True)
def fail(*, how: str) -> None:
    if how == "permanent":
        raise Permanent("not in this world", code="RULE_TYPE_ERROR", counts=True)
    if how == "snooze":
        raise Snooze(30)
    if how == "odd":

        class Local(Exception): ...

        raise Local("cannot be pickled")
    if how == "foreign":
        raise Foreign("the words")
    if how == "endless":
        raise Endless
    raise ValueError(how)


class Foreign(Exception):
    """Made anew in another process, it runs code there."""

    def __reduce__(self) -> tuple[Any, ...]:
        return made_anew, ()


class Endless(Exception):
    def __str__(self) -> str:
        while True:
            pass


def made_anew() -> Foreign:
    if multiprocessing.parent_process() is None:
        raise AssertionError("it ran in the worker")
    return Foreign()


@tasks.task(cpu=True)
def die(*, how: str) -> None:
    if how == "exit":
        sys.exit(3)
    os.kill(os.getpid(), signal.SIGKILL)


@tasks.task(cpu=True)
def unwritable() -> object:
    return object()


@tasks.task(cpu=True)
def spin(*, path: str) -> None:
    """Write who runs, then never end."""
    with open(path, "w") as file:
        file.write(str(os.getpid()))
    while True:
        time.sleep(0.01)


@tasks.task(cpu=True, timeout=timedelta(seconds=2))
def overrun(*, path: str) -> None:
    spin(path=path)
