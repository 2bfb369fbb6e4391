"""Sealing the audit trail after the fact, so that nobody who writes to it pays for it."""

from __future__ import annotations

from typing import Any

import psycopg

from mainspring.config import WorkerConfig
from mainspring.db import audit
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.worker.connection import SharedConnection
from mainspring.worker.service import Service

#: Every so many looks at what is new comes one at everything: a row whose transaction lasted long has an old id.
LOOKS_OF_A_ROUND = 10


class Sealer(Service):
    """Every worker seals for all: a chain cannot fork, and who meets another at it goes on to the next organisation.

    It begins after an interval, so that a worker that only drains a queue does not seal.
    """

    def __init__(self, connection: SharedConnection, sql: Sql, config: WorkerConfig) -> None:
        super().__init__(config.seal_every.total_seconds())
        self._connection, self._sql = connection, sql
        self._looks = -1
        self._seen = 0  # the highest id at the last look

    async def tick(self) -> None:
        """Seal what is new."""
        self._looks += 1
        if self._looks == 0:
            return
        top = await self._do(audit.top(self._sql))
        if self._looks % LOOKS_OF_A_ROUND == 1:
            orgs = await self._do(audit.unsealed(self._sql))
        elif top > self._seen:
            orgs = await self._do(audit.unsealed(self._sql, since=self._seen))
        else:
            return
        for org in orgs:  # one by one: a renewal may want the connection between them
            while await self._do(audit.seal_some(self._sql, org)) == audit.SEAL_ROWS:
                pass
        self._seen = top

    async def _do(self, dialogue: Dialogue[Any]) -> Any:
        async def do(conn: psycopg.AsyncConnection[Any]) -> Any:
            return await run_async(async_psycopg_door(conn), dialogue)

        return await self._connection.use(do)
