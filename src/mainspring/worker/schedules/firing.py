"""One turn of a scheduler: what is due is locked, decided, written and moved on, in one transaction.

No state of its own, and no clock but the database's: whoever takes the turn, in whatever process, does the same. A
schedule that cannot be fired is put off and says why; it does not stop the others.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import msgspec
import psycopg

from mainspring.db import jobs as job_dialogues
from mainspring.db import schedules
from mainspring.db.cipher import Keyring
from mainspring.db.jobs import Who
from mainspring.db.wire.bound import async_bound_door
from mainspring.db.wire.run import AsyncDoor, async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.translate import is_transient
from mainspring.declare.registry import ENGINE_REGISTRY, Registry
from mainspring.declare.schedule import Schedule
from mainspring.errors import DatabaseUnavailable
from mainspring.events import Bus, enqueued
from mainspring.job import DEFAULT_ORG, Enqueued, NewJob
from mainspring.text.sanitize import sanitize
from mainspring.when.zones import version
from mainspring.worker.schedules.planning import DueSchedule, FirePlan, plan
from mainspring.worker.service import log

#: So many schedules in one transaction: 10,000 that are due together take seconds, and no lock is held for long.
FIRING_PORTION = 1000

Conn = psycopg.AsyncConnection[Any]
_encode = msgspec.json.Encoder().encode


def is_away(error: Exception) -> bool:
    """Whether the database is the problem, and not what is written to it."""
    return isinstance(error, DatabaseUnavailable) or is_transient(error)


def problem_of(error: Exception) -> str:
    """What went wrong, as people are shown it."""
    return sanitize(f"{type(error).__name__}: {error}", 500)


class Firing:
    """Fires the schedules that this process declares, and those created at run time."""

    def __init__(
        self, sql: Sql, registry: Registry, ring: Keyring, bus: Bus | None = None, *, housekeeping: bool = True
    ) -> None:
        self._sql, self._registry, self._ring, self._bus = sql, registry, ring, bus
        self._housekeeping = housekeeping  # whether the engine's own schedules fire, too
        self._tzdata = version()
        schedules.checked(registry)

    def schedules(self) -> list[Schedule]:
        """The schedules that this process declares."""
        return [one for one in self._registry.schedules() if self._housekeeping or one.app != ENGINE_REGISTRY]

    def mine(self) -> dict[str, Any]:
        """The schedules of this process, as statements take them."""
        declared = self.schedules()
        return {
            "orgs": schedules.array([schedule.org for schedule in declared]),
            "names": schedules.array([schedule.name for schedule in declared]),
        }

    async def sync(self, conn: Conn) -> None:
        """Write what is declared, and have looked at anew what another version of the zone data has computed."""
        door = async_bound_door(conn, lambda: DEFAULT_ORG)
        origins = [name for name in self._registry.origins() if self._housekeeping or name != ENGINE_REGISTRY]
        done = await run_async(door, schedules.sync(self._sql, origins, self.schedules(), Who()))
        for name in done.undeclared:
            log.warning("schedule %s is no longer declared: it fires no more", name)
        await conn.execute(self._sql["look_anew"], {"tzdata": self._tzdata})

    async def fire(self, conn: Conn) -> int:
        """Fire what is due, up to a portion; answers how many schedules were looked at."""
        try:
            return await self._fire(conn, FIRING_PORTION)
        except Exception as error:
            if is_away(error):
                raise
            log.warning("schedules cannot be fired together, so each is alone: %s", problem_of(error))
        async with conn.transaction():
            found = await self._take(conn, FIRING_PORTION)
        for due in found:
            try:
                await self._fire(conn, 1, due)
            except Exception as error:
                if is_away(error):
                    raise
                await self._put_off(conn, due, error)
        return len(found)

    async def _fire(self, conn: Conn, limit: int, one: DueSchedule | None = None) -> int:
        async with conn.transaction():
            found = await self._take(conn, limit, one)
            plans = list[FirePlan]()
            for due in found:
                try:
                    plans.append(plan(due, self._tzdata))
                except Exception as error:
                    await self._put_off(conn, due, error)
            wanted, answers = await self._write(conn, plans) if plans else ([], [])
        if any(due.undeclared for due in found):
            await conn.execute(self._sql["declared_again"], self.mine())
        self.tell(wanted, answers)
        for written in plans:
            for fire in written.fires:
                if fire["how"] != "fired":
                    where = f" in {fire['zone']}" if fire["zone"] else ""
                    what = f"{fire['schedule']}{where}: {fire['local']} {fire['how']}"
                    log.warning("schedule %s (%d): %s", what, fire["instants"], fire["reason"])
        return len(found)

    async def _take(self, conn: Conn, limit: int, one: DueSchedule | None = None) -> list[DueSchedule]:
        which = {"one": one and one.name, "org": one and one.org, "zone": one and one.zone, "limit": limit}
        cursor = await conn.execute(self._sql["take_schedules"], self.mine() | which)
        return [DueSchedule(*row) for row in await cursor.fetchall()]

    async def _write(self, conn: Conn, plans: Sequence[FirePlan]) -> tuple[list[NewJob], list[Enqueued]]:
        wanted = [job for one in plans for job in one.jobs if job is not None]
        answers = await self.enqueue(conn, wanted)
        made = iter(answers)
        for one in plans:
            for fire, job in zip(one.fires, one.jobs, strict=True):
                if job is not None:  # where its key was taken, the job that stands there
                    fire["job_id"] = one.move["job_id"] = next(made).id
        fires = [fire for one in plans for fire in one.fires]
        if fires:
            await conn.execute(self._sql["write_fires"], {"fires": _json(fires)})
        over = [fire for one in plans if one.due.by_entity for fire in one.fires if fire["how"] == "fired"]
        if over:
            await conn.execute(self._sql["begin_fan_outs"], {"fires": _json(over)})
        await conn.execute(self._sql["move_schedules"], {"moves": _json([one.move for one in plans])})
        return wanted, answers

    async def enqueue(self, conn: Conn, jobs: Sequence[NewJob]) -> list[Enqueued]:
        """Enqueue jobs in the transaction at hand, bound to their organisations, encrypted where there is a cipher."""
        if self._ring.cipher is not None:
            jobs = (
                self._ring.sealed(jobs) if self._ring.ready(jobs) else await asyncio.to_thread(self._ring.sealed, jobs)
            )
        answers = dict[int, Enqueued]()
        by_org = dict[str, list[int]]()
        for number, job in enumerate(jobs):
            by_org.setdefault(job.org_id or DEFAULT_ORG, []).append(number)
        door = self.door(conn)
        for org, numbers in by_org.items():
            await self.bind(conn, org)
            dialogue = job_dialogues.enqueue_many(self._sql, [jobs[number] for number in numbers])
            answers.update(zip(numbers, await run_async(door, dialogue), strict=True))
        if jobs:
            await self.bind(conn, "")
        return [answers[number] for number in range(len(jobs))]

    def door(self, conn: Conn) -> AsyncDoor:
        """How dialogues reach the connection."""
        return async_psycopg_door(conn)

    async def bind(self, conn: Conn, org: str) -> None:
        """Bind what follows in the transaction to an organisation; none: the schedules of all are seen."""
        await conn.execute("select set_config('mainspring.org', %s, true)", [org])

    def tell(self, jobs: Sequence[NewJob], answers: Sequence[Enqueued]) -> None:
        """Tell observers what was created and is committed."""
        if self._bus:
            made = zip(jobs, answers, strict=True)
            self._bus.extend([enqueued(job, answer.state) for job, answer in made if answer.answer == "created"])

    async def _put_off(self, conn: Conn, due: DueSchedule, error: Exception) -> None:
        problem = problem_of(error)
        log.error("schedule %s cannot be fired, trying again in a minute: %s", due.name, problem)
        params = {"org": due.org, "name": due.name, "zone": due.zone, "problem": problem}
        await conn.execute(self._sql["put_off_schedule"], params)


def _json(rows: Sequence[dict[str, Any]]) -> str:
    return _encode(rows).decode()
