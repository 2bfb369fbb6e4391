"""Listening for hints on a direct connection.

A hint is never the truth: whoever misses one finds the job by polling. So this service may fail, be switched off, or
sit behind a pooler that delivers nothing, and jobs still run within a poll interval.
"""

from __future__ import annotations

from collections.abc import Callable

import psycopg
from psycopg import sql

from mainspring.db.connect import options
from mainspring.worker.service import Service

SILENCE = 30.0  # after so long the connection is asked whether it lives


class Listener(Service):
    """Calls `woke` for every hint."""

    def __init__(self, dsn: str, channel: str, name: str, woke: Callable[[], None]) -> None:
        super().__init__(0.0)
        self._dsn, self._channel, self._name, self._woke = dsn, channel, name, woke

    async def tick(self) -> None:
        """Listen until the connection is lost."""
        arguments = options(self._dsn, self._name)
        async with await psycopg.AsyncConnection.connect(self._dsn, **arguments) as conn:
            await conn.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
            self._woke()  # what came while nobody listened
            while True:
                async for _ in conn.notifies(timeout=SILENCE):
                    self._woke()
                await conn.execute("select 1")
