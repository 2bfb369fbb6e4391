"""Listening for hints on a direct connection.

A hint is never the truth: whoever misses one finds the job by polling. So this service may fail, be switched off, or
find a pooler before it, which delivers nothing, and jobs still run within a poll interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from psycopg import sql

from mainspring.db.connect import AsyncConnection, answered_within, options, refuse_stale
from mainspring.worker.service import Service, log

SILENCE = 10.0  # after so long the connection is asked whether it lives
PATIENCE = 5.0  # and has so long to answer
POOLED = 60.0  # how often to look whether the pooler is gone


class Listener(Service):
    """Calls `woke` for every hint."""

    listening = False  # whether hints arrive
    last_heard: float | None = None  # by the event loop's clock: when the connection last showed that it lives

    def __init__(
        self,
        dsn: str,
        channel: str,
        name: str,
        woke: Callable[[], None],
        changed: Callable[[bool], None] = lambda _: None,
        told: Callable[[str], None] = lambda _: None,
    ) -> None:
        super().__init__(POOLED)
        self._changed = changed  # told when hints no longer arrive, and when they do again
        self._dsn, self._channel, self._name, self._woke = dsn, channel, name, woke
        self._say = told  # what a hint is about, where it says so
        self._told = self._lost = False

    async def tick(self) -> None:
        """Listen until the connection is lost."""
        try:
            async with await AsyncConnection.connect(self._dsn, **options(self._dsn, self._name)) as conn:
                if conn.pooled:
                    return self._do_without()
                with answered_within(PATIENCE, conn):
                    await conn.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
                self.listening = True
                if self._lost:
                    self._changed(True)
                self._lost = False
                self._heard()
                self._woke()  # what came while nobody listened
                while True:
                    refuse_stale(conn)
                    async for hint in conn.notifies(timeout=SILENCE):
                        self._heard()
                        self._woke()
                        self._say(hint.payload)
                    with answered_within(PATIENCE, conn):
                        await conn.execute("select 1")
                    self._heard()
        except Exception:
            if self.listening:
                self._lost = True
                self._changed(False)
            raise
        finally:
            self.listening = False

    def _heard(self) -> None:
        self.last_heard = asyncio.get_running_loop().time()

    def _do_without(self) -> None:
        if not self._told:
            log.warning("no hints through a pooler: jobs are found by polling; give listen_dsn for a direct connection")
        self._told = True
