"""What the handlers of one worker share: how they reach the database, its keys and its breakers."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

from psycopg import Connection
from psycopg_pool import ConnectionPool

from mainspring.db.cipher import Keyring
from mainspring.db.steps import fail_late
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.translate import unavailable
from mainspring.errors import DatabaseUnavailable, MainspringError
from mainspring.job import Claim
from mainspring.outcome import Error
from mainspring.worker.announcer import Announcer
from mainspring.worker.breakers import BreakerService
from mainspring.worker.outbox import error_row
from mainspring.worker.reporter import Reports
from mainspring.worker.service import log
from mainspring.worker.transactions import Transactions

#: Pauses between tries to keep what is done: a connection that broke must not make it be done again.
KEEP_PAUSES = (0.1, 0.5, 2.0)


@dataclass(frozen=True, slots=True)
class Resources:
    """Every context of a handler has them."""

    sql: Sql
    worker: str  # its id
    transactions: Transactions  # for async handlers
    pool: ConnectionPool[Connection[Any]]  # for plain functions, in threads
    breakers: BreakerService
    ring: Keyring
    reports: Reports
    announcer: Announcer | None = None  # where somebody observes

    @property
    def encrypts(self) -> bool:
        """Whether what jobs carry, return, raise and keep is encrypted."""
        return self.ring.cipher is not None

    async def record_late(self, job: Claim, error: Error) -> None:
        """Record what a handler raised after it had completed its job: on the attempt, the trail, and as an alert."""
        for pause in (*KEEP_PAUSES, None):
            try:
                with unavailable():
                    conn = await self.transactions.take(job)
                    try:
                        await run_async(
                            async_psycopg_door(conn), fail_late(self.sql, self.worker, job, error_row(error))
                        )
                        await conn.command("commit")
                    finally:
                        await self.transactions.give(conn)
                return
            except MainspringError as problem:
                if pause is None or not isinstance(problem, DatabaseUnavailable):
                    log.error("that job %s failed after its completion cannot be recorded: %s", job.id, problem)
                    return
                await asyncio.sleep(pause)

    def close(self) -> None:
        """Forget the keys."""
        self.ring.close()
