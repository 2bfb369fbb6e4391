"""Hints: from the database, by a direct connection, and from elsewhere, such as a broker.

A hint is never the truth: whoever misses one finds the job by polling. So this service may fail, be switched off, or
find a pooler before it, which delivers nothing, and jobs still run within a poll interval.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from psycopg import sql

from mainspring.db.wire.connect import AsyncConnection, options, refuse_stale
from mainspring.declare.block import Trigger
from mainspring.worker.service import Service, log

LISTEN_SILENCE_S = 10.0  # after so long the connection is asked whether it lives
LISTEN_PATIENCE_S = 5.0  # a connection that is asked has so long to answer
LISTEN_AGAIN_S = 1.0  # seconds until a trigger that has ended listens again
_POOLED_LOOK_S = 60.0  # how often to look whether the pooler is gone


class HintListener(Service):
    """Passes every hint on."""

    listening = False  # whether hints arrive
    last_heard: float | None = None  # by the event loop's clock: when the connection last showed that it lives

    def __init__(
        self,
        dsn: str,
        channel: str,
        name: str,
        heard: Callable[[str], None],  # what it is about, where a hint says so
        changed: Callable[[bool], None],  # told when hints no longer arrive, and when they do again
    ) -> None:
        super().__init__(_POOLED_LOOK_S)
        self._dsn, self._channel, self._name = dsn, channel, name
        self._heard, self._changed = heard, changed
        self._told = self._lost = False

    async def tick(self) -> None:
        """Listen until the connection is lost."""
        try:
            given = options(self._dsn, self._name) | {"answered_within": LISTEN_PATIENCE_S}
            async with await AsyncConnection.connect(self._dsn, **given) as conn:
                if conn.pooled:
                    return self._do_without()
                await conn.execute(sql.SQL("listen {}").format(sql.Identifier(self._channel)))
                self.listening = True
                self._well()
                if self._lost:
                    self._changed(True)
                self._lost = False
                self._alive()
                self._heard("")  # what came while nobody listened
                while True:
                    refuse_stale(conn)
                    async for hint in conn.notifies(timeout=LISTEN_SILENCE_S):
                        self._alive()
                        self._heard(hint.payload)
                    await conn.execute("select 1")
                    self._alive()
        except Exception:
            if self.listening:
                self._lost = True
                self._changed(False)
            raise
        finally:
            self.listening = False

    def _alive(self) -> None:
        self.last_heard = asyncio.get_running_loop().time()

    def _do_without(self) -> None:
        if not self._told:
            log.warning("no hints through a pooler: jobs are found by polling; give listen_dsn for a direct connection")
        self._told = True


class TriggerListener(Service):
    """Listens to a trigger as long as the worker works; a trigger that fails is begun anew, and harms nobody."""

    def __init__(self, trigger: Trigger, hint: Callable[[], None]) -> None:
        super().__init__(LISTEN_AGAIN_S)
        self._trigger, self._hint = trigger, hint

    async def tick(self) -> None:
        """Listen until it ends."""
        await self._trigger.listen(self._hint)
