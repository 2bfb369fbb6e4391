"""`client.schedules`: each verb is written once, over a dialogue of `mainspring.db`."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any, TypeAlias, Unpack
from uuid import UUID

from mainspring.client.colour import Async, Sync, Verbs, Work, verb
from mainspring.client.seam import Seam
from mainspring.db import backfill, schedules
from mainspring.db.backfill import PastInstant
from mainspring.db.schedules import Fire, FirePlace, Saved, ScheduleRow, Shot, Synced, Upcoming, shots
from mainspring.declare.registry import Registry
from mainspring.declare.schedule import Schedule, ScheduleOptions
from mainspring.declare.task import Task
from mainspring.job import NewJob
from mainspring.when.fire import FireKind
from mainspring.when.rule import Rule

# Named here, because inside the classes `list` is a method.
ScheduleRows: TypeAlias = list[ScheduleRow]
Fires: TypeAlias = list[Fire]
Instants: TypeAlias = list[Upcoming]
FiredJobIds: TypeAlias = list[UUID]
Shots: TypeAlias = list[Shot]
PastInstants: TypeAlias = list[PastInstant]


class ScheduleVerbs(Verbs):
    """Named rules of time, each with the task that it enqueues: created, seen, paused, fired by hand.

    ::

        client.schedules.create("digest", ms.daily("08:00", zone="Europe/Oslo"), send_digest)
        client.schedules.next("digest", 3)
        client.schedules.pause("digest", reason="the mail server moves")
    """

    @verb
    def create(
        self,
        name: str,
        rule: Rule,
        task: Task[..., Any] | str,
        *,
        replace: bool = False,
        reason: str | None = None,
        conn: Any = None,
        **options: Unpack[ScheduleOptions],
    ) -> Work[Saved]:
        """Create a schedule, or change the one of this name; see `mainspring.declare.schedule.ScheduleOptions`."""
        seam, schedule = self.seam, _schedule(self.seam, name, rule, task, options)
        return seam.ask(schedules.create(seam.sql, schedule, seam.who(), reason, replace=replace), conn)

    @verb
    def list(
        self,
        *,
        after: str | None = None,
        after_org: str | None = None,
        without: str | None = None,
        limit: int = 100,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[ScheduleRows]:
        """Schedules by name, each with where it stands; `after` continues after the last one seen, of `after_org`.

        `without` leaves out those that a registry declares, such as the engine's own, `mainspring`.
        """
        place: dict[str, Any] = {"after": after, "after_org": after_org, "without": without, "limit": limit}
        return self.seam.ask(schedules.listing(self.seam.sql, self.seam.who(org), **place), conn)

    @verb
    def get(self, name: str, *, org: str | None = None, conn: Any = None) -> Work[ScheduleRow]:
        """One schedule, or ScheduleNotFound."""
        return self.seam.ask(schedules.get(self.seam.sql, name, self.seam.who(org)), conn)

    @verb
    def fires(
        self,
        name: str | None = None,
        *,
        limit: int = 20,
        how: Sequence[FireKind] = (),
        state: Sequence[str] = (),
        since: datetime | None = None,
        until: datetime | None = None,
        before: FirePlace | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[Fires]:
        """What a schedule did, or all of them, newest first; `state` is that of its job."""
        only: dict[str, Any] = {"how": how, "state": state, "since": since, "until": until, "before": before}
        return self.seam.ask(schedules.fires(self.seam.sql, name, self.seam.who(org), limit, **only), conn)

    @verb
    def next(self, name: str, count: int = 5, *, org: str | None = None, conn: Any = None) -> Work[Instants]:
        """The next instants, in UTC and in local time."""
        return self.seam.ask(schedules.upcoming(self.seam.sql, name, self.seam.who(org), count), conn)

    @verb
    def run(
        self, name: str, *, zone: str | None = None, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[FiredJobIds]:
        """Fire once now, beside the rule, also while it is paused: the jobs, none where they are one an entity."""
        seam = self.seam
        row = yield from seam.ask(schedules.get(seam.sql, name, seam.who(org)), conn)
        wanted = shots(row, zone)
        wanted = _sealed(wanted, (yield from seam.sealed(_jobs(wanted))))
        return (yield from seam.ask(schedules.run(seam.sql, row, wanted, seam.who(org), reason), conn, atomic=True))

    @verb
    def backfill(
        self,
        name: str,
        since: datetime,
        until: datetime | None = None,
        *,
        zone: str | None = None,
        limit: int = 100,
        dry_run: bool = False,
        reason: str | None = None,
        org: str | None = None,
        conn: Any = None,
    ) -> Work[PastInstants]:
        """Fire the instants of a range that have passed and made nothing, each once; more than `limit` are refused.

        A dry run shows them; only it needs no reason.
        """
        seam, who = self.seam, self.seam.who(org)
        row = yield from seam.ask(schedules.get(seam.sql, name, who), conn)
        found = backfill.instants(row, since, until, zone, limit)
        found = yield from seam.ask(backfill.without_fired(seam.sql, row, found), conn)
        if dry_run:
            return found
        wanted = backfill.backfill_shots(row, found)
        wanted = _sealed(wanted, (yield from seam.sealed(_jobs(wanted))))
        return (yield from seam.ask(backfill.backfill(seam.sql, row, found, wanted, who, reason), conn, atomic=True))

    @verb
    def pause(self, name: str, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> Work[bool]:
        """Stop firing; False when it was paused already."""
        return self.seam.ask(schedules.pause(self.seam.sql, name, self.seam.who(org), reason), conn)

    @verb
    def resume(
        self, name: str, *, catch_up: bool = False, reason: str | None = None, org: str | None = None, conn: Any = None
    ) -> Work[bool]:
        """Fire again, from now on; `catch_up` deals with what fell into the pause, too. False: it was not paused."""
        seam = self.seam
        return seam.ask(schedules.resume(seam.sql, name, seam.who(org), reason, catch_up=catch_up), conn)

    @verb
    def delete(self, name: str, *, reason: str | None = None, org: str | None = None, conn: Any = None) -> Work[None]:
        """Remove a schedule; its fires and jobs stay."""
        return self.seam.ask(schedules.delete(self.seam.sql, name, self.seam.who(org), reason), conn)

    @verb
    def sync(self, registry: Registry, *, reason: str | None = None, conn: Any = None) -> Work[Synced]:
        """Write what a registry declares to the database, as a worker does when it starts."""
        seam = self.seam
        dialogue = schedules.sync(seam.sql, registry.origins(), schedules.checked(registry), seam.who(), reason)
        return seam.ask(dialogue, conn)


class Schedules(ScheduleVerbs, Sync):
    """Schedules, for sync code."""


class AsyncSchedules(ScheduleVerbs, Async):
    """Schedules, for async code."""


def _schedule(seam: Seam, name: str, rule: Rule, task: Task[..., Any] | str, options: ScheduleOptions) -> Schedule:
    """What is to be created; without an organisation, the caller's."""
    if "org" not in options and (org := seam.org()) is not None:
        options = {**options, "org": org}
    return Schedule(name, rule, task, **options)


def _jobs(wanted: Shots) -> list[NewJob]:
    return [shot.job for shot in wanted if shot.job is not None]


def _sealed(wanted: Shots, jobs: list[NewJob]) -> Shots:
    """The same fires with their jobs encrypted; all have one, or none has."""
    return [shot._replace(job=job) for shot, job in zip(wanted, jobs, strict=True)] if jobs else wanted
