"""A process of its own for jobs that run alone: when one of them kills it, everybody else works on."""

from __future__ import annotations

import asyncio
import os
import sys
from asyncio.subprocess import Process
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any

import psycopg

from mainspring.db.wire.sql import Sql
from mainspring.worker.connection import SharedConnection
from mainspring.worker.service import Service, backoff, log

_LATEST_LOOK_S = 60.0
CELL_MARGIN_S = 5.0  # seconds beyond the grace period for the process to give its job back and end, before it is killed


class Cell(Service):
    """Starts `mainspring worker run --alone` when a job waits that must run alone; the process ends when none is left.

    Its death is known at once, so nobody waits for its lease to end. It ends by itself where something holds its
    interpreter's lock (`fuse` in cli/pulse.py), with us or without.
    """

    def __init__(
        self,
        command: Sequence[str],
        worker: str,
        connection: SharedConnection,
        sql: Sql,
        grace: float,
        died: Callable[[], None],
    ) -> None:
        super().__init__(_LATEST_LOOK_S)
        self._command, self._worker, self._connection, self._sql, self._died = command, worker, connection, sql, died
        self._grace = grace
        self._count = 0
        self._blameless = 0  # ends in a row without a job that could be blamed
        self._dead: str | None = None  # a process that is gone, as the database is still to hear
        self._crashed = False  # by its job, as far as its end tells
        self._wanted = self._stopping = False
        self._process: Process | None = None
        self._over = asyncio.Event()  # no process runs, and the last one is buried
        self._over.set()

    def want(self) -> None:
        """A job waits that must run alone."""
        if self._process is None:
            self._wanted = True
            self.wake()

    async def tick(self) -> None:
        """Run the process if it is wanted, to its end."""
        await self._bury()  # the last one, if the database was away when it died
        if not self._wanted or self._stopping:
            return
        self._over.clear()
        try:
            await self._run()
        finally:
            self._process, self._wanted = None, False  # who still waits says so with the next poll
            self._over.set()

    async def _run(self) -> None:
        self._count += 1
        name = f"{self._worker}:{self._count}"
        arguments = (*self._command, "--alone", name, "--parent", str(os.getpid()))
        self._process = process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "mainspring.cli", *arguments, start_new_session=True
        )
        if self._stopping:  # it was asked for while the process was made
            self._end(process, self._grace + CELL_MARGIN_S)
        code = await process.wait()
        if code != 0:
            log.warning("process %d for jobs that run alone ended with exit code %d", process.pid, code)
        self._dead, self._crashed = name, code != 0 and not self._stopping
        ended = await self._bury()
        self._blameless = self._blameless + 1 if code != 0 and not ended else 0
        if self._blameless and not self._stopping:
            await asyncio.sleep(backoff(self._blameless))

    async def _bury(self) -> int:
        """End the leases of a process that is gone; how many it had. A service that fails is tried again."""
        if (name := self._dead) is None:
            return 0

        async def end(conn: psycopg.AsyncConnection[Any]) -> int:
            async with conn.transaction():
                # One that ended in good order, or for us, may have a lease left because the database was away. It ends
                # at once and is nobody's crash; a job that ends its process with 0 is found out by its many rescues.
                if self._crashed:
                    await conn.execute(self._sql["farewell"], {"id": name})
                return (await conn.execute(self._sql["end_leases"], [name])).rowcount

        ended = await self._connection.use(end)
        self._dead = None
        if ended:
            self._died()
        return ended

    def terminate(self) -> None:
        """This worker stops: so does the process, in good order; asked again, it ends its grace period."""
        patience = CELL_MARGIN_S if self._stopping else self._grace + CELL_MARGIN_S
        self._stopping = True
        if self._process is not None:
            self._end(self._process, patience)

    def _end(self, process: Process, patience: float) -> None:
        """A process that does not hear, because something holds its interpreter's lock, is killed in the end."""
        with suppress(ProcessLookupError):
            process.terminate()
        asyncio.get_running_loop().call_later(patience, self._kill, process)

    def _kill(self, process: Process) -> None:
        if process is self._process:
            with suppress(ProcessLookupError):
                process.kill()

    async def stop(self) -> None:
        """End, once the process has."""
        if not self._stopping:
            self.terminate()
        await self._over.wait()
        await super().stop()
