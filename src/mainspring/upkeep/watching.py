"""Watching: an ordinary task, of the organisation SYSTEM, that asks the application's watches and keeps their alerts.

Its name is the application's, so that applications in one database do not ask each other's. There is a schedule for
each interval that watches have: whatever is due is asked in one run, and what it finds commits with its success.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Iterable, Sequence
from datetime import timedelta
from typing import Any

from psycopg import AsyncConnection, AsyncCursor, Error
from psycopg.rows import tuple_row
from psycopg.sql import Literal

from mainspring.category import CATEGORIES
from mainspring.db import alerts
from mainspring.db.alerts import Found
from mainspring.db.maintenance import begin, end
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql, bounded
from mainspring.declare.context import Context
from mainspring.declare.registry import ENGINE_REGISTRY, Registry
from mainspring.declare.task import TASK_TIMEOUT, Task
from mainspring.events import Event, Observer, tell
from mainspring.health.alert import MAX_ALERT_TEXT, AlertRow, alert_subject
from mainspring.health.watch import BROKEN_WATCH_ALERT, MOST_WATCH_ROWS, Watch, WatchRow
from mainspring.job import SYSTEM
from mainspring.retry import Retry
from mainspring.text.params import params_now
from mainspring.text.sanitize import sanitize
from mainspring.text.span import span
from mainspring.when.rule import every as rule_every

#: A condition only reads.
WATCH_GUARD = "set local transaction_read_only = on"
#: And it must answer soon: its alerts and those of the others wait for it.
WATCH_TIMEOUT = "select set_config('statement_timeout', %s, true)"
#: What a run needs beside its conditions: to write what they found.
WATCH_MARGIN = timedelta(minutes=1)


class Watching(Registry):
    """The task that watches, and its schedules. `told` are the observers that hear of alerts, once they are committed.

    Rows that name no organisation are of `org`. `retry` is for a run that fails: a watch that fails is an alert.
    """

    def __init__(
        self,
        name: str,
        watches: Sequence[Watch],
        *,
        sql: Sql,
        org: str,
        told: Iterable[Observer],
        retry: Retry | None = None,
    ) -> None:
        super().__init__(name)
        self._watches, self._sql, self._org, self._told = tuple(watches), sql, org, told
        # The engine's own in that nobody authorizes it, but the application's schedule: it fires in tests as well.
        lengths = defaultdict[float, timedelta](lambda: WATCH_MARGIN)  # of a run whose conditions take all their time
        for one in watches:
            lengths[one.every.total_seconds()] += one.timeout
        watch: Task[..., Any] = Task(
            self._watch,
            app=ENGINE_REGISTRY,
            name=f"{name}.watch",
            category="maintenance",
            retry=retry or CATEGORIES["maintenance"].retry,
            timeout=max(TASK_TIMEOUT, *lengths.values()),
            encrypt=False,
        )
        self._add([watch])
        for seconds in sorted(lengths):
            rule, place = rule_every(seconds=seconds), f"{watch.name}.{seconds:.0f}s"
            about: dict[str, Any] = {"payload": {"every": int(seconds)}, "org": SYSTEM}
            self.schedule(place, rule, watch, running="skip", catch_up="skip", **about)

    async def _watch(self, ctx: Context, *, every: int) -> None:
        """Ask the watches of an interval: what is wrong opens an alert, what is over closes its own."""
        due = [one for one in self._watches if one.every.total_seconds() == every]
        events: list[Event] = []
        async with ctx.complete() as conn:
            door = async_psycopg_door(conn)
            if await run_async(door, begin(self._sql, f"{ctx.job.task} {every}")):
                events = [alerts.event_of(row) for row in await self._keep(ctx, conn, due)]
                events += await run_async(door, alerts.untold(self._sql))
            await run_async(door, end(self._sql, ctx.job.org_id))
            ctx.result = {"told": len(events)}
        if events:
            tell(self._told, events)

    async def _keep(self, ctx: Context, conn: AsyncConnection[Any], due: Sequence[Watch]) -> list[AlertRow]:
        """Say what each watch found; answers what opened and what closed."""
        door, changed = async_psycopg_door(conn), list[AlertRow]()
        names = [one.name for one in due]
        broken, asked = await self._ask(ctx, conn, due)
        open_now = await run_async(door, alerts.names_open(self._sql, [*names, BROKEN_WATCH_ALERT]))
        for one, found, whole in asked:
            if found or one.name in open_now:
                flow = alerts.keep_watch(self._sql, one.name, found, close=one.close and whole)
                changed += await run_async(door, flow)
        if broken or BROKEN_WATCH_ALERT in open_now:
            flow = alerts.keep_watch(self._sql, BROKEN_WATCH_ALERT, broken, close=True, among=names)
            changed += await run_async(door, flow)
        return changed

    async def _ask(
        self, ctx: Context, conn: AsyncConnection[Any], due: Sequence[Watch]
    ) -> tuple[list[Found], list[tuple[Watch, list[Found], bool]]]:
        """Which cannot be asked, and what the others find, each with whether that is all. What they do is undone."""
        broken, asked = list[Found](), list[tuple[Watch, list[Found], bool]]()
        async with conn.transaction(force_rollback=True):
            await conn.execute(WATCH_GUARD)
            for one in due:
                try:
                    async with conn.transaction():
                        rows = await _rows(conn, one, self._sql.schema)
                    asked.append((one, _found(one, rows[:MOST_WATCH_ROWS], self._org), len(rows) <= MOST_WATCH_ROWS))
                except Exception as error:  # whatever the application asked: the other watches go on
                    if conn.closed:
                        raise
                    problem = sanitize(f"{type(error).__name__}: {error}", MAX_ALERT_TEXT)
                    ctx.log.warning("watch %s cannot be asked: %s", one.name, problem)
                    broken.append(Found(self._org, one.name, problem, one.severity))
        return broken, asked


async def _rows(conn: AsyncConnection[Any], one: Watch, schema: str) -> list[WatchRow]:
    await conn.execute(WATCH_TIMEOUT, [f"{one.timeout / timedelta(milliseconds=1):.0f}"])
    if isinstance(one.condition, str):
        params = None if one.params is None else params_now(one.condition, one.params)
        for name, value in (params or {}).items():
            try:
                Literal(value).as_bytes(conn)
            except Error as error:  # the driver would not say which
                raise ValueError(f"params: {name}: {error}") from None
        query = bounded(one.condition, schema, MOST_WATCH_ROWS)
        cursor = await AsyncCursor(conn, row_factory=tuple_row).execute(query, params)
        return list(await cursor.fetchall())
    try:
        async with asyncio.timeout(one.timeout.total_seconds()) as limit:
            return list(await one.condition(conn))
    except TimeoutError:
        if limit.expired():
            raise TimeoutError(f"it has not answered within {span(one.timeout)}") from None
        raise


def _found(one: Watch, rows: Iterable[WatchRow], org: str) -> list[Found]:
    """What is wrong, each thing once."""
    found: dict[tuple[str, str], Found] = {}
    for row in rows:
        if isinstance(row, str | bytes) or not 1 <= len(row) <= 3:
            raise ValueError("a row is not (subject, text) or (subject, text, organisation)")
        subject, text, place = (*row, None, None)[:3]
        where = org if place is None else str(place)
        about = alert_subject("" if subject is None else str(subject))
        said = sanitize(one.text if text is None else str(text), MAX_ALERT_TEXT)
        found.setdefault((where, about), Found(where, about, said, one.severity))
    return list(found.values())
