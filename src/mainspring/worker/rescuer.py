"""Taking back jobs whose worker is gone, and the heartbeat that shows who is here."""

from __future__ import annotations

import asyncio
import os
import socket
from collections import Counter
from collections.abc import Callable
from typing import Any

import psycopg

from mainspring.config import WorkerConfig
from mainspring.db.schema import Sql
from mainspring.outcome import CRASH_BUDGET
from mainspring.worker.line import Line
from mainspring.worker.news import News
from mainspring.worker.service import Service, job_log

BEAT = 10.0


async def reachable(conn: psycopg.AsyncConnection[Any]) -> None:
    """Ask whether the database answers."""
    await conn.execute("select 1")


class Rescuer(Service):
    """Every worker rescues for all; no leader is needed, because a rescue takes only what is expired.

    An outage of the database expires the leases of workers that live: after one, they have the time of a renewal to
    keep or give back what they hold, before it counts as a crash.
    """

    def __init__(
        self,
        line: Line,
        sql: Sql,
        config: WorkerConfig,
        counts: Counter[str],
        woke: Callable[[], None],
        news: News | None = None,
    ) -> None:
        super().__init__(config.rescue_every.total_seconds())
        self._line, self._sql, self._counts, self._woke = line, sql, counts, woke
        self._news = news
        self._mercy = config.renew_every.total_seconds()
        self._not_before = 0.0

    async def tick(self) -> None:
        """Rescue expired leases, then free jobs held behind one that has ended."""
        spared = asyncio.get_running_loop().time() < self._not_before
        try:
            await (self._line.use(reachable) if spared else self._rescue())
        except Exception:  # still away, or away again
            self._not_before = asyncio.get_running_loop().time() + self._mercy
            raise

    async def _rescue(self) -> None:
        async def rescue(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
            rows = await (await conn.execute(self._sql["rescue"], [1000, CRASH_BUDGET])).fetchall()
            await conn.execute(self._sql["release_held"])
            return rows

        rows = await self._line.use(rescue)
        for job_id, worker, state, *_ in rows:
            job_log.warning("rescued job %s from worker %s: %s", job_id, worker, state)
        if rows and self._news is not None:
            self._news.rescued(rows)
        if rows:
            self._counts["rescued"] += len(rows)
            self._woke()


class Heartbeat(Service):
    """Says every few seconds that this worker is here."""

    def __init__(self, line: Line, sql: Sql, about: dict[str, Any], running: Callable[[], int]) -> None:
        super().__init__(BEAT)
        self._line, self._sql, self._running = line, sql, running
        self._about = about | {"host": socket.gethostname(), "pid": os.getpid()}
        self.stopping = False

    async def tick(self) -> None:
        """Beat."""
        about = self._about | {"running": self._running(), "stopping": self.stopping}

        async def beat(conn: psycopg.AsyncConnection[Any]) -> None:
            await conn.execute(self._sql["beat"], about)
            await conn.execute(self._sql["forget_workers"])

        await self._line.use(beat)

    async def farewell(self) -> None:
        """Take the row away: this worker stopped in good order."""

        async def leave(conn: psycopg.AsyncConnection[Any]) -> None:
            await conn.execute(self._sql["farewell"], self._about)

        await self._line.use(leave)
