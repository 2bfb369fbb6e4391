"""Tasks for processes of their own; another process finds them by this module's name."""

from __future__ import annotations

import os
import signal
import sys
import time
from datetime import timedelta

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
        raise Permanent("not in this world", code="RULE_TYPE_ERROR")
    if how == "snooze":
        raise Snooze(30)
    if how == "odd":

        class Local(Exception): ...

        raise Local("cannot be pickled")
    raise ValueError(how)


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
