"""The pulse of a worker process, felt from outside: code that holds the interpreter's lock stops all its threads."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import signal
import time
from asyncio.subprocess import Process
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

PULSE_LOOK_S = 1.0  # seconds
PULSE_MARGIN_S = 2.0  # seconds beyond its lease that a process may be silent
LAST_WORDS = 5.0  # seconds to write down where it stands
UNTOLD_GRACE_S = 30.0  # seconds, of a process that has not said yet how long its grace period is


class PulsePipe:
    """A pipe into which a process writes every second or so: for how long it may be silent, its grace, and its id."""

    def __init__(self) -> None:
        self._ear, self.mouth = os.pipe()
        os.set_blocking(self._ear, False)
        self.spoke = False  # it has begun to work
        self.worker = ""  # as the process calls itself
        self.grace = UNTOLD_GRACE_S
        self._heard, self._lease = time.monotonic(), float("inf")  # until it speaks for the first time
        asyncio.get_running_loop().add_reader(self._ear, self._listen)

    def given(self) -> None:
        """The process has its end."""
        os.close(self.mouth)

    def close(self) -> None:
        """Listen no more; what it said last is heard."""
        self._listen()
        asyncio.get_running_loop().remove_reader(self._ear)
        os.close(self._ear)

    async def end_if_silent(self, process: Process, told: Callable[[float], None]) -> None:
        """End a process in which nothing runs any more; one that somebody has stopped is let be."""
        looked = time.monotonic()
        while True:
            await asyncio.sleep(PULSE_LOOK_S)
            now = time.monotonic()
            if now - looked > PULSE_LOOK_S + PULSE_MARGIN_S or stopped(process.pid):  # we were stopped, or it is
                self._heard = now
            looked = now
            if now - self._heard > self._lease + PULSE_MARGIN_S:
                told(now - self._heard)
                return await abort(process)

    def _listen(self) -> None:
        with suppress(OSError, ValueError):
            said = os.read(self._ear, 65536).splitlines()
            if not said:  # it has closed its end
                asyncio.get_running_loop().remove_reader(self._ear)
                return
            lease, grace, worker = said[-1].split()
            self._lease, self.grace, self.worker = float(lease), float(grace), worker.decode()
            self._heard, self.spoke = time.monotonic(), True


async def abort(process: Process) -> None:
    """End it, however deaf it is; it says where it stands if it can."""
    with suppress(ProcessLookupError):
        process.send_signal(signal.SIGABRT)  # which `faulthandler` hears also while something holds the lock
        await asyncio.sleep(LAST_WORDS)
        process.kill()


def speaker(mouth: int, worker: str) -> Callable[[float, float], None]:
    """For the process itself: says that it lives, for how long it may be silent, and how long it may take to stop."""
    os.set_inheritable(mouth, False)
    os.set_blocking(mouth, False)

    def speak(lease: float, grace: float) -> None:
        with suppress(OSError):  # nobody listens any more, or not now
            os.write(mouth, f"{lease:g} {grace:g} {worker}\n".encode())

    return speak


def fuse(lease: float, _grace: float) -> None:
    """For a process that must end without help: it says where it stands and does, unless it says in time that it lives.

    By a thread in C, which runs also while something holds the interpreter's lock. Whoever was stopped for so long
    ends, too: it has lost its jobs.
    """
    faulthandler.dump_traceback_later(lease + PULSE_MARGIN_S, exit=True)


def stopped(pid: int) -> bool:
    """Whether somebody has stopped it, or traces it; where nobody can tell, yes."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] in "Tt"
    except OSError:
        return True
