"""The processes of a server, found by the `cluster_name` that each shows in its title.

A process number alone may belong to somebody else after a crash.
"""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path

from mainspring.errors import DatabaseUnavailable


def command(pid: int) -> bytes:
    """The command line or title of a process; empty when it is gone or only waits to be reaped."""
    if not Path("/proc/self").exists():  # not Linux
        ps = ["/bin/ps", "-ww", "-o", "command=", "-p", str(pid)]
        return subprocess.run(ps, capture_output=True, check=False).stdout  # noqa: S603 - a number, no shell
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def belongs(pid: int, name: str) -> bool:
    """Whether a process is one of the server with this `cluster_name`."""
    said = command(pid)
    return f"cluster_name={name}".encode() in said or said.startswith(f"postgres: {name}:".encode())


def processes(name: str) -> list[int]:
    """All processes of a server."""
    return [pid for entry in Path("/proc").glob("[0-9]*") if belongs(pid := int(entry.name), name)]


def send(number: signal.Signals, pids: Sequence[int | None]) -> None:
    """Signal processes, as far as they are there."""
    for pid in pids:
        with suppress(ProcessLookupError):
            if pid is not None:
                os.kill(pid, number)


def wait(until: Callable[[], bool], timeout: float, complaint: str) -> None:
    """Wait for a fact."""
    deadline = time.monotonic() + timeout
    while not until():
        if time.monotonic() > deadline:
            raise DatabaseUnavailable(f"{complaint}, after {timeout:g} s")
        time.sleep(0.01)
