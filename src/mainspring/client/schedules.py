"""Schedules in both colours: `client.schedules`. Each method is one line over a flow of `mainspring.db`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias, Unpack
from uuid import UUID

from mainspring.db import schedules
from mainspring.db.schedules import Fire, Saved, ScheduleRow, Shot, Synced, Upcoming, shots
from mainspring.job import NewJob
from mainspring.registry import Registry
from mainspring.rule import Rule
from mainspring.schedule import Options, Schedule
from mainspring.task import Task

if TYPE_CHECKING:
    from mainspring.client.aio import AsyncClient
    from mainspring.client.sync import Client

# Named here, because inside the classes `list` is a method.
Rows: TypeAlias = list[ScheduleRow]
Fires: TypeAlias = list[Fire]
Instants: TypeAlias = list[Upcoming]
Ids: TypeAlias = list[UUID]
Shots: TypeAlias = list[Shot]


class Schedules:
    """Named rules of time, each with the task that it enqueues: created, seen, paused, fired by hand.

    ::

        client.schedules.create("digest", ms.daily("08:00", zone="Europe/Oslo"), send_digest)
        client.schedules.next("digest", 3)
        client.schedules.pause("digest", reason="the mail server moves")
    """

    def __init__(self, client: Client) -> None:
        self._client = client

    def create(
        self,
        name: str,
        rule: Rule,
        task: Task[..., Any] | str,
        *,
        replace: bool = False,
        reason: str | None = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Saved:
        """Create a schedule, or change the one of this name; see `mainspring.schedule.Options`."""
        c, schedule = self._client, _schedule(self._client, name, rule, task, options)
        return c._run(schedules.create(c._sql, schedule, c._who(), reason, replace=replace), conn)

    def list(self, *, after: str | None = None, limit: int = 100, org: str | None = None, conn: Any = None) -> Rows:
        """Schedules by name, each with where it stands; `after` continues after the last one seen."""
        return self._client._run(
            schedules.listing(self._client._sql, self._client._who(org), after=after, limit=limit), conn
        )

    def get(self, name: str, *, org: str | None = None, conn: Any = None) -> ScheduleRow:
        """One schedule, or ScheduleNotFound."""
        return self._client._run(schedules.get(self._client._sql, name, self._client._who(org)), conn)

    def fires(self, name: str, *, limit: int = 20, org: str | None = None, conn: Any = None) -> Fires:
        """What a schedule did, newest first."""
        return self._client._run(schedules.fires(self._client._sql, name, self._client._who(org), limit), conn)

    def next(self, name: str, count: int = 5, *, org: str | None = None, conn: Any = None) -> Instants:
        """The next instants, in UTC and in local time."""
        return self._client._run(schedules.upcoming(self._client._sql, name, self._client._who(org), count), conn)

    def run(
        self, name: str, *, zone: str | None = None, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> Ids:
        """Fire once now, beside the rule, also while it is paused: the jobs, none where they are one an entity."""
        c = self._client
        row = c._run(schedules.get(c._sql, name, c._who(org)), conn)
        wanted = shots(row, zone)
        if c._ring.cipher is not None:
            wanted = _sealed(wanted, c._ring.sealed(_jobs(wanted)))
        return c._run(schedules.run(c._sql, row, wanted, c._who(org), reason), conn, atomic=True)

    def pause(self, name: str, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> bool:
        """Stop firing; False when it was paused already."""
        return self._client._run(schedules.pause(self._client._sql, name, self._client._who(org), reason), conn)

    def resume(
        self, name: str, *, catch_up: bool = False, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Fire again, from now on; `catch_up` deals with what fell into the pause, too. False: it was not paused."""
        c = self._client
        return c._run(schedules.resume(c._sql, name, c._who(org), reason, catch_up=catch_up), conn)

    def delete(self, name: str, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> None:
        """Remove a schedule; its fires and jobs stay."""
        self._client._run(schedules.delete(self._client._sql, name, self._client._who(org), reason), conn)

    def sync(self, registry: Registry, *, reason: str | None = None, conn: Any = None) -> Synced:
        """Write what a registry declares to the database, as a worker does when it starts."""
        c = self._client
        flow = schedules.sync(c._sql, registry.origins(), schedules.checked(registry), c._who(), reason)
        return c._run(flow, conn)


class AsyncSchedules:
    """The same for asyncio."""

    def __init__(self, client: AsyncClient) -> None:
        self._client = client

    async def create(
        self,
        name: str,
        rule: Rule,
        task: Task[..., Any] | str,
        *,
        replace: bool = False,
        reason: str | None = None,
        conn: Any = None,
        **options: Unpack[Options],
    ) -> Saved:
        """Create a schedule, or change the one of this name; see `mainspring.schedule.Options`."""
        c, schedule = self._client, _schedule(self._client, name, rule, task, options)
        return await c._run(schedules.create(c._sql, schedule, c._who(), reason, replace=replace), conn)

    async def list(
        self, *, after: str | None = None, limit: int = 100, org: str | None = None, conn: Any = None
    ) -> Rows:
        """Schedules by name, each with where it stands; `after` continues after the last one seen."""
        c = self._client
        return await c._run(schedules.listing(c._sql, c._who(org), after=after, limit=limit), conn)

    async def get(self, name: str, *, org: str | None = None, conn: Any = None) -> ScheduleRow:
        """One schedule, or ScheduleNotFound."""
        return await self._client._run(schedules.get(self._client._sql, name, self._client._who(org)), conn)

    async def fires(self, name: str, *, limit: int = 20, org: str | None = None, conn: Any = None) -> Fires:
        """What a schedule did, newest first."""
        return await self._client._run(schedules.fires(self._client._sql, name, self._client._who(org), limit), conn)

    async def next(self, name: str, count: int = 5, *, org: str | None = None, conn: Any = None) -> Instants:
        """The next instants, in UTC and in local time."""
        c = self._client
        return await c._run(schedules.upcoming(c._sql, name, c._who(org), count), conn)

    async def run(
        self, name: str, *, zone: str | None = None, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> Ids:
        """Fire once now, beside the rule, also while it is paused: the jobs, none where they are one an entity."""
        c = self._client
        row = await c._run(schedules.get(c._sql, name, c._who(org)), conn)
        wanted = shots(row, zone)
        if c._ring.cipher is not None:
            wanted = _sealed(wanted, await c._sealed(_jobs(wanted)))
        return await c._run(schedules.run(c._sql, row, wanted, c._who(org), reason), conn, atomic=True)

    async def pause(self, name: str, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> bool:
        """Stop firing; False when it was paused already."""
        return await self._client._run(schedules.pause(self._client._sql, name, self._client._who(org), reason), conn)

    async def resume(
        self, name: str, *, catch_up: bool = False, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> bool:
        """Fire again, from now on; `catch_up` deals with what fell into the pause, too. False: it was not paused."""
        c = self._client
        return await c._run(schedules.resume(c._sql, name, c._who(org), reason, catch_up=catch_up), conn)

    async def delete(self, name: str, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> None:
        """Remove a schedule; its fires and jobs stay."""
        await self._client._run(schedules.delete(self._client._sql, name, self._client._who(org), reason), conn)

    async def sync(self, registry: Registry, *, reason: str | None = None, conn: Any = None) -> Synced:
        """Write what a registry declares to the database, as a worker does when it starts."""
        c = self._client
        flow = schedules.sync(c._sql, registry.origins(), schedules.checked(registry), c._who(), reason)
        return await c._run(flow, conn)


def _schedule(
    client: Client | AsyncClient, name: str, rule: Rule, task: Task[..., Any] | str, options: Options
) -> Schedule:
    """What is to be created; without an organisation, the caller's."""
    if "org" not in options and (org := client._org()) is not None:
        options = {**options, "org": org}
    return Schedule(name, rule, task, **options)


def _jobs(wanted: Shots) -> list[NewJob]:
    return [shot.job for shot in wanted if shot.job is not None]


def _sealed(wanted: Shots, jobs: list[NewJob]) -> Shots:
    """The same fires with their jobs encrypted; all have one, or none has."""
    return [shot._replace(job=job) for shot, job in zip(wanted, jobs, strict=True)] if jobs else wanted
