"""Taking back jobs whose worker is gone, and the heartbeat that shows who is here."""

from __future__ import annotations

import asyncio
import os
import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg

from mainspring.db.wire.sql import Sql
from mainspring.outcome import CRASH_BUDGET
from mainspring.worker.connection import SharedConnection
from mainspring.worker.exchange import Exchange
from mainspring.worker.service import Service, job_log, log
from mainspring.worker.state import WorkerState

_BEAT_S = 10.0
START = datetime(2000, 1, 1, tzinfo=UTC)


def _loop_time() -> float:
    return asyncio.get_running_loop().time()


@dataclass(frozen=True, slots=True)
class Predecessor:
    """A worker whose process has died, as its supervisor saw, and in whose place this one was started."""

    worker: str
    died_at: float  # by the monotonic clock, which all processes of a machine share
    outlived: Sequence[str] = ()  # tasks whose handlers may go on without it


class Rescuer(Service):
    """Every worker rescues for all; no leader is needed, because a rescue takes only what is expired.

    An outage of the database expires the leases of workers that live: after one, they have the time of a renewal to
    keep or give back what they hold, before it counts as a crash; and who comes back later takes it back. So does a
    database whose clock jumps ahead: whoever notices renews at once, and rescues once the others have had the time to
    notice as well. Nobody rescues while he has to clear up himself what he holds.
    """

    def __init__(
        self,
        connection: SharedConnection,
        sql: Sql,
        state: WorkerState,
        exchange: Exchange,
        probed: set[str],  # tasks of which a job has succeeded alone
        renew: asyncio.Event,  # makes this worker renew its leases
        wake: asyncio.Event | None = None,
        predecessor: Predecessor | None = None,  # in this place, which has died
    ) -> None:
        config = state.config
        self._predecessor = predecessor
        super().__init__(config.rescue_every.total_seconds(), wake)
        self._connection, self._sql, self._exchange = connection, sql, exchange
        self._worker, self._counts, self._announcer = state.worker, state.counts, state.announcer
        self._signal, self._probed, self._renew = state.signal, probed, renew
        self._mercy = config.renew_every.total_seconds()
        self._patience = 2 * config.lease_there  # before a job is dead of a crash that nobody saw
        self._speed = config.speed
        # A jump that no lease of a living worker ends by.
        self._harmless = (config.lease - config.renew_every) * self._speed / 2
        self._ahead: timedelta | None = None  # of the database's clock, seen from ours that counts from anywhere
        self._not_before = 0.0

    async def tick(self) -> None:
        """Rescue expired leases, then free jobs held behind one that has ended."""
        try:
            now = await self._connection.use(self._clock)
            if self._jumped(now):
                self._not_before = max(self._not_before, _loop_time() + 2 * self.interval)
                self._renew.set()
            if self._predecessor is not None:
                await self._bury(self._predecessor)
                self._predecessor = None
            if _loop_time() >= self._not_before and not self._exchange.unsure:
                await self._rescue()
            while self._probed:
                await self._let_go(self._probed.pop())
            await self._connection.use(self._exchange.look_alone)
        except Exception:  # still away, or away again
            self._not_before = _loop_time() + self._mercy
            raise

    async def _clock(self, conn: psycopg.AsyncConnection[Any]) -> datetime:
        row = await (await conn.execute(self._sql["now"])).fetchone()
        assert row is not None
        now: datetime = row[0]
        return now

    def _jumped(self, now: datetime) -> bool:
        """Whether the database's clock has gone ahead since the last look by more than time has passed here."""
        before, self._ahead = self._ahead, now - START - timedelta(seconds=_loop_time()) * self._speed
        jumped = before is not None and self._ahead - before > self._harmless
        if jumped:
            log.warning("the database's clock jumped ahead to %s: leases are renewed before any is taken back", now)
        return jumped

    async def _bury(self, dead: Predecessor) -> None:
        async def end(conn: psycopg.AsyncConnection[Any]) -> None:
            ago = max(0.0, time.monotonic() - dead.died_at) * self._speed
            await conn.execute(self._sql["bury"], [ago, dead.worker, list(dead.outlived)])

        await self._connection.use(end)

    async def _rescue(self) -> None:
        async def rescue(conn: psycopg.AsyncConnection[Any]) -> list[Any]:
            rows = await (await conn.execute(self._sql["rescue"], [1000, CRASH_BUDGET, self._patience])).fetchall()
            await conn.execute(self._sql["release_held"])
            return rows

        rows = await self._connection.use(rescue)
        for job_id, worker, state, task, *_, quarantined in rows:
            job_log.warning("rescued job %s from worker %s: %s", job_id, worker, state)
            if quarantined:
                job_log.error("task %s is in quarantine: its jobs have killed several workers", task)
        if rows and self._announcer is not None:
            self._announcer.rescued(rows)
        if rows:
            self._counts["rescued"] += len(rows)
            self._signal.hint()

    async def _let_go(self, task: str) -> None:
        """A job of it has succeeded alone: if it was in quarantine, it no longer is."""

        async def end(conn: psycopg.AsyncConnection[Any]) -> bool:
            row = await (await conn.execute(self._sql["end_quarantine"], [task, self._worker])).fetchone()
            return bool(row and row[0])

        try:
            ended = await self._connection.use(end)
        except BaseException:
            self._probed.add(task)
            raise
        if ended:
            job_log.warning("task %s is no longer in quarantine: a probe succeeded", task)
            if self._announcer is not None:
                self._announcer.let_go(task)
            self._signal.hint()


class Heartbeat(Service):
    """Says every few seconds that this worker is here."""

    def __init__(
        self, connection: SharedConnection, sql: Sql, about: dict[str, Any], running: Callable[[], int]
    ) -> None:
        super().__init__(_BEAT_S)
        self._connection, self._sql, self._running = connection, sql, running
        self._about = about | {"host": socket.gethostname(), "pid": os.getpid()}
        self.stopping = False

    async def tick(self) -> None:
        """Beat."""
        about = self._about | {"running": self._running(), "stopping": self.stopping}

        async def beat(conn: psycopg.AsyncConnection[Any]) -> None:
            await conn.execute(self._sql["beat"], about)

        await self._connection.use(beat)

    async def farewell(self) -> None:
        """Take the row away: this worker stopped in good order."""

        async def leave(conn: psycopg.AsyncConnection[Any]) -> None:
            await conn.execute(self._sql["farewell"], self._about)

        await self._connection.use(leave)
