"""Keeping what is ours: renewal, the local deadline, cancellation tokens and time limits.

One statement renews all leases of the worker. By its own monotonic clock the worker stops trusting a lease before it
can expire: renewal start + lease - margin. Wall clocks decide nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import psycopg

from mainspring.config import WorkerConfig
from mainspring.db.wire.sql import Sql
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.connection import SharedConnection
from mainspring.worker.service import Service
from mainspring.worker.tracker import Tracker, trust


class Renewer(Service):
    """Renews every lease in time; learns which are lost and which jobs are to be cancelled."""

    def __init__(
        self,
        connection: SharedConnection,
        sql: Sql,
        worker: str,
        config: WorkerConfig,
        attempts: Mapping[int, LiveAttempt],
        lose: Callable[[LiveAttempt], None],
        wake: asyncio.Event | None = None,
    ) -> None:
        super().__init__(config.renew_every.total_seconds(), wake)
        self._connection, self._sql, self._worker, self._config = connection, sql, worker, config
        self._attempts, self._lose = attempts, lose

    async def tick(self) -> None:
        """Renew."""
        epochs = [epoch for epoch, attempt in self._attempts.items() if not attempt.settled]
        if not epochs:
            return
        sent_at = asyncio.get_running_loop().time()

        async def renew(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
            # Losing a renewal costs nothing but the renewal: it need not wait for the disk.
            async with conn.transaction():
                await conn.execute("set local synchronous_commit = off")
                cursor = await conn.execute(self._sql["renew"], [self._worker, self._config.lease_there, epochs])
                return await cursor.fetchall()

        alive = {epoch: (cancel, renewed) for epoch, cancel, renewed in await self._connection.use(renew)}
        for epoch in epochs:
            if (attempt := self._attempts.get(epoch)) is None or attempt.settled:
                continue
            if epoch not in alive:
                if not attempt.committing:  # its row may be gone because it has just succeeded
                    self._lose(attempt)
                continue
            cancel, renewed = alive[epoch]
            attempt.cancelled = attempt.cancelled or cancel
            if renewed:
                attempt.trusted_until = trust(self._config, sent_at)


class Canceller(Service):
    """Learns within a second, or at once when woken, which running jobs are to be cancelled."""

    def __init__(
        self, connection: SharedConnection, sql: Sql, worker: str, attempts: Mapping[int, LiveAttempt]
    ) -> None:
        super().__init__(1.0)
        self._connection, self._sql, self._worker, self._attempts = connection, sql, worker, attempts

    async def tick(self) -> None:
        """Look."""
        if not self._attempts:
            return

        async def look(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
            return await (await conn.execute(self._sql["cancelled"], [self._worker])).fetchall()

        for (epoch,) in await self._connection.use(look):
            if attempt := self._attempts.get(epoch):
                attempt.cancelled = True


class LeaseWatch(Service):
    """Interrupts attempts whose lease can no longer be trusted or whose time is up, without asking the database."""

    def __init__(self, config: WorkerConfig, attempts: Mapping[int, LiveAttempt], tracker: Tracker) -> None:
        super().__init__(min(0.25, config.lease.total_seconds() / 20))
        self._attempts, self._tracker = attempts, tracker
        self._long = trust(config, 0.0) / 4
        self._looked = asyncio.get_running_loop().time()

    async def tick(self) -> None:
        """Look at every attempt."""
        now = asyncio.get_running_loop().time()
        self._looked, before = now, self._looked
        if now - before > self._long:
            self._tracker.stood_still(now)
        for attempt in list(self._attempts.values()):
            if attempt.settled:
                if now >= attempt.deadline and attempt.why is None:  # its handler goes on after its completion
                    attempt.interrupt("timeout")
                continue
            if now >= attempt.trusted_until and not attempt.committing:  # else the fence decides; its answer will come
                self._tracker.expire(attempt)
            elif now >= attempt.deadline:
                attempt.interrupt("timeout")
        self._tracker.give_back_late(now)
