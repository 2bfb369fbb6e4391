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
from mainspring.db.schema import Sql
from mainspring.worker.line import Line
from mainspring.worker.run import Run
from mainspring.worker.service import Service


def trust(config: WorkerConfig, sent_at: float) -> float:
    """Until when a lease that was asked for at `sent_at` may be trusted."""
    lease = config.lease.total_seconds()
    return sent_at + lease - min(max(lease * 0.1, 0.2), lease / 2)


class Renewer(Service):
    """Renews every lease in time; learns which are lost and which jobs are to be cancelled."""

    def __init__(
        self,
        line: Line,
        sql: Sql,
        worker: str,
        config: WorkerConfig,
        runs: Mapping[int, Run],
        lose: Callable[[Run], None],
    ) -> None:
        super().__init__(config.renew_every.total_seconds())
        self._line, self._sql, self._worker, self._config = line, sql, worker, config
        self._runs, self._lose = runs, lose

    async def tick(self) -> None:
        """Renew."""
        epochs = [epoch for epoch, run in self._runs.items() if not run.settled]
        if not epochs:
            return
        sent_at = asyncio.get_running_loop().time()

        async def renew(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
            # Losing a renewal costs nothing but the renewal: it need not wait for the disk.
            async with conn.transaction():
                await conn.execute("set local synchronous_commit = off")
                cursor = await conn.execute(self._sql["renew"], [self._worker, self._config.lease_there, epochs])
                return await cursor.fetchall()

        alive = dict(await self._line.use(renew))
        for epoch in epochs:
            if (run := self._runs.get(epoch)) is None or run.settled:
                continue
            if epoch not in alive:
                if not run.committing:  # its row may be gone because it has just succeeded
                    self._lose(run)
                continue
            run.trusted_until = trust(self._config, sent_at)
            run.cancelled = run.cancelled or alive[epoch]


class Canceller(Service):
    """Learns within a second, or at once when woken, which running jobs are to be cancelled."""

    def __init__(self, line: Line, sql: Sql, worker: str, runs: Mapping[int, Run]) -> None:
        super().__init__(1.0)
        self._line, self._sql, self._worker, self._runs = line, sql, worker, runs

    async def tick(self) -> None:
        """Look."""
        if not self._runs:
            return

        async def look(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
            return await (await conn.execute(self._sql["cancelled"], [self._worker])).fetchall()

        for (epoch,) in await self._line.use(look):
            if run := self._runs.get(epoch):
                run.cancelled = True


class Watch(Service):
    """Interrupts attempts whose lease can no longer be trusted or whose time is up, without asking the database."""

    def __init__(
        self,
        config: WorkerConfig,
        runs: Mapping[int, Run],
        *,
        lose: Callable[[Run], None],
        time_out: Callable[[Run], None],
        give_back: Callable[[float], None],
    ) -> None:
        super().__init__(min(0.25, config.lease.total_seconds() / 20))
        self._runs, self._lose, self._time_out, self._give_back = runs, lose, time_out, give_back

    async def tick(self) -> None:
        """Look at every attempt."""
        now = asyncio.get_running_loop().time()
        for run in list(self._runs.values()):
            if run.settled:
                continue
            if now >= run.trusted_until and not run.committing:  # else the fence decides, and its answer will come
                self._lose(run)
            elif now >= run.deadline:
                self._time_out(run)
        self._give_back(now)
