"""Schedules over zones and over entities: which zones are in use, and a job for each entity, page by page.

A page is one transaction: the jobs, and the key after which the next page begins. Whoever dies in the middle leaves
what is committed; whoever comes next goes on from there, in this process or another.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from datetime import datetime, timedelta
from functools import partial
from inspect import iscoroutinefunction, signature
from typing import Any, NamedTuple, cast
from uuid import UUID

import msgspec
import psycopg

from mainspring.db.wire.sql import Sql
from mainspring.declare.schedule import Schedule, make
from mainspring.errors import ValidationError
from mainspring.job import Enqueued, NewJob
from mainspring.when.fire import jitter, spread
from mainspring.when.zones import check_zone
from mainspring.worker.schedules.firing import Conn, Firing, is_away, problem_of
from mainspring.worker.service import log

#: How often the zones in use are asked for.
ZONES_EVERY = timedelta(minutes=1)
#: After a source failed, it is asked again so many seconds later.
_REST_S = 10.0
#: A source that has not answered after so many seconds has failed: the others wait for it.
SOURCE_PATIENCE_S = 30.0


class OpenFanOut(NamedTuple):
    """A fan-out that is not finished, as the statement `take_fan_out` answers it."""

    org: str
    fire: UUID
    schedule: str
    zone: str
    instant: datetime
    begun_at: datetime
    after: str | None
    mark: str | None
    jobs: int


class FanOut:
    """Asks applications for their zones and entities. Plain functions run in a thread, with a connection of `pool`."""

    def __init__(self, sql: Sql, firing: Firing, pool: Any, threads: Executor | None) -> None:
        self._sql, self._firing = sql, firing
        self._pool, self._threads = pool, threads
        self._resting: dict[tuple[str, str], float] = {}

    async def zones(self, conn: Conn, every: timedelta = ZONES_EVERY) -> int:
        """Refresh the zones of each schedule that has not been for a while; answers how many were."""
        count = 0
        for schedule in self._firing.schedules():
            if schedule.zones is None or self._resting.get(schedule.place, 0.0) > asyncio.get_running_loop().time():
                continue
            try:
                count += await self._refresh(conn, schedule, every)
            except Exception as error:
                if conn.closed:  # ours: that of a source may be away for as long as it likes
                    raise
                self._resting[schedule.place] = asyncio.get_running_loop().time() + _REST_S
                log.error("schedule %s: its zones cannot be had: %s", schedule.name, problem_of(error))
        return count

    async def _refresh(self, conn: Conn, schedule: Schedule, every: timedelta) -> int:
        about = {"org": schedule.org, "name": schedule.name}
        async with conn.transaction():
            params = about | {"every": f"{every.total_seconds()} s"}
            if not await (await conn.execute(self._sql["take_zones"], params)).fetchall():
                return 0
            await self._firing.bind(conn, schedule.org)
            rows = await self._ask(conn, schedule.zones, {})
            await self._firing.bind(conn, "")
            await conn.execute(self._sql["save_zones"], about | {"zones": _known(rows, schedule)})
        return 1

    async def page(self, conn: Conn) -> int:
        """Make the jobs of one page of one fire; answers whether there was one."""
        found: OpenFanOut | None = None
        try:
            async with conn.transaction():
                cursor = await conn.execute(self._sql["take_fan_out"], self._firing.mine())
                row = await cursor.fetchone()
                if row is None:
                    return 0
                found = OpenFanOut(*row)
                wanted, answers = await self._page(conn, found)
            self._firing.tell(wanted, answers)
        except Exception as error:
            if conn.closed or found is None:
                raise
            problem = problem_of(error)
            log.error("schedule %s: the jobs of its entities cannot be made: %s", found.schedule, problem)
            params = {"org": found.org, "fire": str(found.fire), "problem": problem}
            await conn.execute(self._sql["put_off_fan_out"], params)
        return 1

    async def _page(self, conn: Conn, found: OpenFanOut) -> tuple[list[NewJob], list[Enqueued]]:
        schedule = next(one for one in self._firing.schedules() if one.place == (found.org, found.schedule))
        after = None if found.after is None else msgspec.json.decode(found.after)
        zone = found.zone or schedule.rule.zone
        await self._firing.bind(conn, found.org)
        params = {"zone": zone, "after": after, "limit": schedule.page, "instant": found.instant}
        rows = await self._ask(conn, schedule.entities, params)
        await self._firing.bind(conn, "")
        if len(rows) > schedule.page:
            text = f"entities: answered {len(rows)} rows for a limit of {schedule.page}"
            raise ValidationError(text, field="entities")
        keys = [msgspec.json.encode(row[0]) for row in rows]
        _check([msgspec.json.decode(key) for key in keys], after, found.mark and msgspec.json.decode(found.mark))
        seen = set[bytes]() if after is None else {msgspec.json.encode(after)}
        wanted, problems = _jobs(schedule, found, zone, rows, keys, seen)
        answers, refused = await self._enqueue(conn, wanted)
        problems += refused
        done = {
            "org": found.org, "fire": str(found.fire), "after": keys[-1].decode() if keys else None,
            "jobs": len(rows) - len(problems), "refused": len(problems), "problem": problems[-1] if problems else None,
            "done": int(len(rows) < schedule.page),
        }  # fmt: skip
        await conn.execute(self._sql["move_fan_out"], done)
        for problem in problems:
            log.error("schedule %s: no job for an entity: %s", found.schedule, problem)
        return wanted, answers

    async def _enqueue(self, conn: Conn, wanted: list[NewJob]) -> tuple[list[Enqueued], list[str]]:
        """All at once; where the database refuses one, such as a key that is taken, each alone."""
        try:
            async with conn.transaction():
                return await self._firing.enqueue(conn, wanted), []
        except Exception as error:
            if is_away(error):
                raise
        made, answers, problems = list[NewJob](), list[Enqueued](), list[str]()
        for job in wanted:
            try:
                async with conn.transaction():
                    answers += await self._firing.enqueue(conn, [job])
                    made.append(job)
            except Exception as error:
                if is_away(error):
                    raise
                problems.append(problem_of(error))
        wanted[:] = made
        return answers, problems

    async def _ask(self, conn: Conn, source: Any, params: dict[str, Any]) -> list[Sequence[Any]]:
        """The rows that a source answers: SQL, or a function of the application."""
        arguments = [params[name] for name in ("zone", "after", "limit") if name in params]
        named = {name: params[name] for name in ("instant",) if name in params and takes(source, name)}
        try:
            async with asyncio.timeout(SOURCE_PATIENCE_S) as limit:
                if isinstance(source, str):
                    cursor = await psycopg.AsyncCursor(conn).execute(cast(Any, source), params or None)
                    return await cursor.fetchall()
                if iscoroutinefunction(source) or iscoroutinefunction(getattr(source, "__call__", None)):  # noqa: B004 (which?)
                    return list(await source(conn, *arguments, **named))
                call = partial(self._call, source, arguments, named)
                return await asyncio.get_running_loop().run_in_executor(self._threads, call)
        except TimeoutError:
            if limit.expired():
                raise TimeoutError(f"no answer within {SOURCE_PATIENCE_S:g} s") from None
            raise

    def _call(self, source: Callable[..., Any], arguments: list[Any], named: dict[str, Any]) -> list[Any]:
        self._pool.open()
        with self._pool.connection() as conn:
            return list(source(conn, *arguments, **named))


def takes(source: Any, name: str) -> bool:
    """Whether a source asks for something by its name.

    >>> takes(lambda conn, zone, after, limit, *, instant: [], "instant"), takes("select 1", "instant")
    (True, False)
    """
    return callable(source) and name in signature(source).parameters


def _jobs(
    schedule: Schedule,
    found: OpenFanOut,
    zone: str,
    rows: Sequence[Sequence[Any]],
    keys: Sequence[bytes],
    seen: set[bytes],
) -> tuple[list[NewJob], list[str]]:
    """A job for each entity, once; what one of them is refused for harms no other.

    All by the code at hand, which has answered the entities: another version may have stored another definition.
    """
    start = max(found.instant, found.begun_at) if schedule.spread else found.instant
    filled = {"zone": zone, "instant": found.instant}
    fields: dict[str, Any] = {field: filled[field] for field in schedule.fill}
    made, problems = list[NewJob](), list[str]()
    for number, (row, text) in enumerate(zip(rows, keys, strict=True), found.jobs):
        key, payload, *rest = row
        if text in seen:
            problems.append("entities: answered a key twice: its job is made")
            continue
        seen.add(text)
        at = start + spread(number, schedule.spread)
        at += jitter(found.org, found.schedule, f"{found.zone}\n{key}", found.instant, schedule.jitter)
        try:
            org = str(rest[0]) if rest and rest[0] is not None else None
            made.append(make(schedule.job, found.fire, found.schedule, at, fields | dict(payload), org))
        except Exception as error:  # whatever the application made of it
            problems.append(problem_of(error))
    return made, problems


def _check(keys: list[Any], after: Any, mark: Any) -> None:
    """Refuse a source that would never come to an end, or leave entities out: text has too many orders to tell."""
    numbers = [key for key in (after, *keys) if isinstance(key, int | float)]
    if numbers != sorted(numbers):
        raise ValidationError("entities: are not ordered by key, or not later than `after`", field="entities")
    if keys and keys[-1] == after:
        raise ValidationError("entities: answered the key `after` again: ask for later keys", field="entities")
    if keys and keys[-1] == mark:
        raise ValidationError("entities: goes in circles: ask for later keys, ordered by key", field="entities")


def _known(rows: Sequence[Any], schedule: Schedule) -> list[str]:
    """The zones among what was answered: names, or rows of one name."""
    found: list[str] = []
    for row in rows:
        zone = row if isinstance(row, str) else row[0]
        try:
            check_zone(zone)
            found.append(zone)
        except ValidationError as error:
            log.error("schedule %s: one of its zones is none: %s", schedule.name, error)
    return list(dict.fromkeys(found))
