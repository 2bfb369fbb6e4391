"""Firing schedules: every worker does it for all, and none is the leader."""

from __future__ import annotations

import asyncio
from typing import Any

from mainspring.config import WorkerConfig
from mainspring.db.wire.sql import Sql
from mainspring.worker.connection import SharedConnection
from mainspring.worker.schedules.fan_out import FanOut
from mainspring.worker.schedules.firing import Conn, Firing
from mainspring.worker.service import Service

#: How often to look, in seconds, whatever was said to be next: somebody may have added something.
SCHEDULE_LOOK_S = 1.0
#: How soon again when others hold everything that is due; twice as long each time.
HELD_LOOK_S = 0.025


class Scheduler(Service):
    """Looks when the next instant has come, and every second.

    It looks on the connection of the quiet services. To fire it has a connection of its own, opened by the first fire:
    a renewal must not wait for an application's query.
    """

    def __init__(
        self,
        connection: SharedConnection,
        own: SharedConnection,
        sql: Sql,
        config: WorkerConfig,
        firing: Firing,
        fan_out: FanOut,
    ) -> None:
        super().__init__(min(config.poll_interval.total_seconds(), SCHEDULE_LOOK_S))
        self._connection, self._own, self._sql, self._speed = connection, own, sql, config.speed
        self._firing, self._fan_out = firing, fan_out
        self._synced = False
        self._vain = 0  # turns in a row that found nothing
        self._timer: asyncio.TimerHandle | None = None
        self.looked = asyncio.Event()  # for the first time

    async def tick(self) -> None:
        """Fire what is due, then sleep until the next instant."""
        if self._timer is not None:
            self._timer.cancel()
        try:
            if not self._synced:
                await self._connection.use(self._firing.sync)
                self._synced = True
            wait = await self._connection.use(self._wait)
            while wait is not None and wait <= 0:
                self._vain = 0 if await self._own.use(self._turn) else self._vain + 1
                wait = (
                    min(HELD_LOOK_S * 2 ** min(self._vain, 10), self.interval)
                    if self._vain
                    else await self._connection.use(self._wait)
                )
        finally:
            self.looked.set()
        if wait is not None and wait < self.interval * 1.2:
            self._timer = asyncio.get_running_loop().call_later(wait, self.wake)

    async def stop(self) -> None:
        """End, and hang up."""
        if self._timer is not None:
            self._timer.cancel()
        await super().stop()
        await self._own.close()

    async def _wait(self, conn: Conn) -> float | None:
        """Seconds until something is due; None: nothing is to come."""
        row = await (await conn.execute(self._sql["next_fire"], self._firing.mine())).fetchone()
        return row[0] / self._speed if row and row[0] is not None else None

    async def _turn(self, conn: Conn) -> int:
        return await turn(conn, self._firing, self._fan_out)


async def turn(conn: Any, firing: Firing, fan_out: FanOut) -> int:
    """Do what is due, up to a portion of each kind; answers how much that was."""
    return await firing.fire(conn) + await fan_out.zones(conn) + await fan_out.page(conn)
