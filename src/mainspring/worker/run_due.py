"""Running what is due once, for callers that have no worker: a cron job, a serverless function, an HTTP request.

It is a worker in every respect, lease, fence and outcomes included, except that it takes a bounded number of jobs
within a bounded time, and then ends. So calls may overlap with each other and with workers.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import psycopg

from mainspring.checks import check_instant, check_number, check_span
from mainspring.config import WorkerConfig
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.translate import unavailable
from mainspring.declare.registry import Registry
from mainspring.errors import ValidationError
from mainspring.states import SETTLES, WORDS
from mainspring.text.span import Span, span_of
from mainspring.worker.worker import Worker

RUN_DUE_JOBS: Final = 10
MOST_RUN_DUE: Final = 10_000  # jobs a call, and jobs that are counted as remaining
#: How far ahead of the database's clock a caller's time may be, where that clock is real.
CALLER_TOLERANCE: Final = timedelta(seconds=60)
RUN_DUE_GRACE: Final = timedelta(days=1)  # what runs may end: its own time limit bounds it
_POLL: Final = timedelta(milliseconds=50)

#: The verbs that end an attempt, each counted under its word; a release is skipped.
ENDS: Final = tuple(verb for verb in SETTLES if verb != "release")


class Summary(msgspec.Struct, frozen=True, kw_only=True):
    """What one call did.

    `processed` counts jobs that were run or deferred, whatever came of them; `skipped` those that were claimed and
    given back, or whose job was no longer ours when they ended. `remaining` is what else is ready or to be tried again
    in the same queues and tasks, counted up to 10,000, at `as_of`, by the database's clock.
    """

    claimed: int
    processed: int
    succeeded: int
    retried: int
    failed: int
    dead: int
    deferred: int
    cancelled: int
    skipped: int
    remaining: int
    as_of: datetime


class RunDue(Worker):
    """A worker that takes at most `limit` jobs, `concurrency` at once, and ends."""

    def __init__(
        self,
        dsn: str,
        registry: Registry,
        *,
        limit: int = RUN_DUE_JOBS,
        concurrency: int = 1,
        queues: Sequence[str] | None = None,
        now: datetime | None = None,
        config: WorkerConfig | None = None,
        **about: Any,
    ) -> None:
        check_number("limit", limit, 1, MOST_RUN_DUE)
        check_number("concurrency", concurrency, 1, 1000)
        if now is not None:
            check_instant("now", now)
        config = config or WorkerConfig()
        slots: dict[str, Any] = {"concurrency": concurrency, "threads": concurrency, "processes": concurrency}
        config = replace(config, **slots, exchanges=1, wakeups=False, poll_interval=_POLL)
        served = dict.fromkeys(queues, 1) if queues else config.queues
        super().__init__(dsn, registry, config=replace(config, queues=served), **about | {"triggers": ()})
        self._limit, self._now, self._sql = limit, now, Sql(self._schema)
        self._left: tuple[datetime, int] | None = None
        self._enough = asyncio.Event()

    async def once(self, budget: Span) -> Summary:
        """Run what is due; nothing is claimed once the budget is used, and what runs then may end."""
        length = span_of("budget", budget)
        check_span("budget", length)
        deadline = asyncio.get_running_loop().time() + length.total_seconds()
        with unavailable():
            await self.start()
            grace = self._config.grace  # when somebody cancels the call
            ends = [asyncio.create_task(end.wait()) for end in (self._parts.exchange.idle, self._enough)]
            try:
                left = max(deadline - asyncio.get_running_loop().time(), 0)
                await asyncio.wait(ends, timeout=left, return_when=asyncio.FIRST_COMPLETED)
                grace = RUN_DUE_GRACE
            finally:
                for end in ends:
                    end.cancel()
                await self.stop(grace)
        return self._summary()

    def request_stop(self) -> None:
        """Claim nothing more and answer when what runs has ended; asked again, give that back."""
        if self._enough.is_set():
            super().request_stop()
        self._enough.set()

    async def _check_schema(self) -> None:
        """Once: whoever calls wants an answer, not to wait for a database that is away."""
        await asyncio.to_thread(self._look)

    async def _opening(self) -> None:
        parts = self._parts
        parts.exchange.pace.take_at_most(self._limit)
        try:
            if (now := self._now) is not None:
                await parts.connection.use(lambda conn: self._move_clock(conn, now))
            await parts.rescuer.tick()
            if parts.scheduler is not None:
                await parts.scheduler.tick()  # what it fires is due now
        except BaseException:
            await self._close()
            raise

    async def _closing(self) -> None:
        self._left = await self._parts.connection.use(self.remaining)

    async def _move_clock(self, conn: psycopg.AsyncConnection[Any], now: datetime) -> None:
        """A caller's time moves the clock of a test database; elsewhere it decides nothing, and must not be far off."""
        row = await (await conn.execute(self._sql["virtual_clock"])).fetchone()
        assert row is not None
        shown, movable = row
        if movable and now < shown:
            raise ValidationError("now: lies before the time that the test database shows", field="now")
        if movable:
            await conn.execute(self._sql["move_clock"], [now])
        elif now > shown + CALLER_TOLERANCE:
            raise ValidationError("now: is more than 60 s ahead of the database's clock", field="now")

    async def remaining(self, conn: psycopg.AsyncConnection[Any]) -> tuple[datetime, int]:
        """What is ready or to be tried again in its queues and tasks, and when that was."""
        scope = {"queues": list(self._queues()), "tasks": self._registry.names(), "cap": MOST_RUN_DUE}
        row = await (await conn.execute(self._sql["remaining"], scope)).fetchone()
        assert row is not None
        return row[0], row[1]

    def _summary(self) -> Summary:
        assert self._left is not None
        accepted = self._parts.tracker.ends
        ends: Counter[str] = Counter(succeeded=self.counts["succeeded"])
        for verb in ENDS:
            ends[WORDS[verb]] += accepted[verb]
        claimed, processed = self.counts["claimed"], sum(ends.values())
        as_of, remaining = self._left
        return Summary(
            claimed=claimed, processed=processed, skipped=claimed - processed, remaining=remaining, as_of=as_of, **ends
        )
