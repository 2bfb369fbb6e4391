"""Keeps worker processes running: forwards signals, and starts one anew that died."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import time
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import nullcontext, suppress
from functools import partial
from pathlib import Path

from mainspring.cli.exits import HOPELESS
from mainspring.cli.pulse import PulsePipe, abort

log = logging.getLogger("mainspring.supervisor")

SHORTEST_RESTART_S, LONGEST_RESTART_S = 0.2, 30.0  # seconds between an unexpected end and the next start, doubling
STOP_MARGIN_S = 8.0  # seconds beyond its grace for a process to stop; its own, for jobs that run alone, has 5
_STEADY_S = 10.0  # a process that lived so long did not fail at its start


def _started(pid: int) -> None:
    log.info("worker process %d started", pid)


def _silent(pid: int, seconds: float) -> None:
    log.error(
        "worker process %d: nothing in it has run for %.0f s, so something holds its interpreter's lock", pid, seconds
    )


def _deaf(pid: int) -> None:
    log.error("worker process %d has not stopped in time, and is killed", pid)


def _ended(pid: int, how: str, pause: float) -> None:
    log.warning("worker process %d %s, starting another in %.1f s", pid, how, pause)


class Supervisor:
    """Runs `mainspring worker run` in one or several processes until it is stopped.

    They run in sessions of their own: Ctrl-C in the terminal reaches them once, through us. One that loses us stops.
    """

    def __init__(
        self,
        arguments: Sequence[str],
        count: int,
        *,
        log_file: Path | None = None,
        each: Callable[[int], Sequence[str]] | None = None,
        started: Callable[[int], None] = _started,
        silent: Callable[[int, float], None] = _silent,
        ended: Callable[[int, str, float], None] = _ended,
    ) -> None:
        self._command = (sys.executable, "-m", "mainspring.cli", *arguments, "--parent", str(os.getpid()))
        self._count = count
        self._log_file = log_file
        self._each = each  # what else the n-th process is told
        self._started, self._silent, self._ended = started, silent, ended
        self._processes: dict[int, Process] = {}
        self._stopping, self._hurrying = asyncio.Event(), asyncio.Event()

    async def run(self) -> int:
        """Keep the processes running until all have stopped; the exit code is the first that is not 0."""
        codes = await asyncio.gather(*(self._keep(number) for number in range(self._count)))
        return next((code for code in codes if code), 0)

    def stop(self) -> None:
        """Ask the processes to stop; asked again, they end their grace period. One that does not hear it is killed."""
        (self._hurrying if self._stopping.is_set() else self._stopping).set()
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(signal.SIGTERM)

    async def _start(self, number: int, pulse: PulsePipe, after: Sequence[str]) -> Process:
        mouth = pulse.mouth
        command = (*self._command, *(self._each(number) if self._each else ()), "--pulse", str(mouth), *after)
        with self._log_file.open("ab") if self._log_file else nullcontext() as file:
            try:
                return await asyncio.create_subprocess_exec(
                    *command, stderr=file, start_new_session=True, pass_fds=(mouth,)
                )
            finally:
                pulse.given()

    async def _keep(self, number: int) -> int:
        failures, after = 0, tuple[str, ...]()
        while not self._stopping.is_set():
            began = time.monotonic()
            pulse = PulsePipe()
            process = await self._start(number, pulse, after)
            self._processes[process.pid] = process
            self._started(process.pid)
            if self._stopping.is_set():  # it was asked for while the process was made
                process.terminate()
            watches = (
                pulse.end_if_silent(process, partial(self._silent, process.pid)),
                self._end_if_deaf(process, pulse),
            )
            watching = [asyncio.create_task(watch) for watch in watches]
            code = await process.wait()
            died_at = time.monotonic()
            for watch in watching:
                watch.cancel()
            pulse.close()
            if pulse.worker:  # else it never took a job, and who died before it is still to be buried
                after = ("--after", pulse.worker, "--died-at", str(died_at))
            del self._processes[process.pid]
            if self._stopping.is_set():
                return 0 if code == -signal.SIGTERM else code  # it had not yet begun to listen
            if code in HOPELESS and not pulse.spoke:  # else it did work, and a job has ended it with such a code
                self.stop()
                return code
            failures = 1 if time.monotonic() - began > _STEADY_S else failures + 1
            pause = min(SHORTEST_RESTART_S * 2.0 ** (failures - 1), LONGEST_RESTART_S)
            self._ended(process.pid, _how(code), pause)
            with suppress(TimeoutError):
                await asyncio.wait_for(self._stopping.wait(), pause)
        return 0

    async def _end_if_deaf(self, process: Process, pulse: PulsePipe) -> None:
        """End one that was asked to stop, and ignores signals or cannot hear them."""
        await self._stopping.wait()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._hurrying.wait(), pulse.grace)
        await asyncio.sleep(STOP_MARGIN_S)
        _deaf(process.pid)
        await abort(process)


def _how(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with exit code {code}"
