"""Schedules over HTTP: see when they fire, create and change them, pause them, fire them by hand."""

from __future__ import annotations

from typing import Annotated, Any
from uuid import UUID

import msgspec
from msgspec.structs import asdict, replace

from mainspring.db.backfill import MOST_BACKFILLED, PastInstant
from mainspring.db.jobs import now
from mainspring.db.schedules import FanOutProgress, Fire, SchedulePosition, ScheduleRow, Upcoming
from mainspring.declare.registry import ENGINE_REGISTRY
from mainspring.errors import ScheduleNotFound
from mainspring.text.sanitize import sanitize
from mainspring.web.api.asking import Asking
from mainspring.web.api.fires import shown_fan_out, shown_fire
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.refused import ApiRefused
from mainspring.web.api.schedule_rule import NewSchedule, ScheduleRule
from mainspring.web.api.terms import Instant, NeededReason, ScheduleName, SpanText, WithReason, ZoneName
from mainspring.web.api.version import Versioned
from mainspring.when.occurrences import Gap, Overlap
from mainspring.when.spoken import spoken_rule

schedules = Resource("schedules", "Rules of time, each with the task that it enqueues.")

Count = Annotated[int, msgspec.Meta(ge=1, le=200, description="How many.")]


class UpcomingView(msgspec.Struct, frozen=True, kw_only=True):
    """An instant: in UTC, and what the zone's clock shows then, with its offset."""

    at: Instant
    zone: str
    local: Instant


class RulePreview(msgspec.Struct, frozen=True, kw_only=True):
    """A rule in words, and its next instants."""

    words: str
    instants: list[UpcomingView]


class ScheduleView(Versioned, frozen=True, kw_only=True):
    """A schedule, its definition and where it stands; its payload is masked."""

    org_id: str
    name: ScheduleName
    status: str
    words: str
    rule: dict[str, Any]
    zone: str
    task: str
    payload: Any
    queue: str
    priority: int
    fill: list[str]
    catch_up: str
    within_s: float | None
    most: int | None
    running: str
    jitter_s: float
    by_zone: bool
    by_entity: bool
    page: int
    spread_s: float
    declared_by: str | None
    undeclared_at: Instant | None
    paused_at: Instant | None
    paused_by: str | None
    pause_reason: str | None
    created_at: Instant
    changed_at: Instant
    next: UpcomingView | None
    zones: list[SchedulePosition]
    last: Fire | None
    fan_out: FanOutProgress | None

    def version(self) -> tuple[Any, ...]:
        """Its definition, and what people say of it."""
        moves = ("words", "next", "zones", "last", "fan_out", "status")
        return tuple(getattr(self, name) for name in self.__struct_fields__ if name not in moves)


class Resumption(WithReason):
    """Why a schedule fires again, and whether also what fell into the pause is dealt with, by its policy."""

    catch_up: bool = False


class RunNow(WithReason):
    """Why a schedule fires by hand; of one over zones, in which."""

    zone: ZoneName | None = None


class RanNow(msgspec.Struct, frozen=True, kw_only=True):
    """The jobs that were made; none where workers make one for each entity."""

    jobs: list[UUID]


class Backfill(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which instants are made up for: from `since` up to `until`, or up to now; more than `limit` are refused."""

    since: Instant
    reason: NeededReason
    until: Instant | None = None
    zone: ZoneName | None = None
    limit: Annotated[int, msgspec.Meta(ge=1, le=MOST_BACKFILLED)] = 100
    dry_run: bool = False


class BackfillView(msgspec.Struct, frozen=True, kw_only=True):
    """What became of each instant, or would: `to_fire`, `fired`, `fired_before`, or `still_due`, by the rule itself."""

    dry_run: bool
    fired: int
    instants: list[PastInstant]


@schedules.get("/schedules", role="viewer")
async def list_schedules(
    asking: Asking,
    page: Paging[tuple[str, str]],
    maintenance: Annotated[bool, msgspec.Meta(description="Those of the engine itself, too.")] = False,
) -> PageOf[ScheduleView]:
    """Schedules by name: when each fires next, when it did last, and what became of it."""
    after, after_org = page.after or (None, None)
    without = None if maintenance else ENGINE_REGISTRY
    found = await asking.client.schedules.list(
        after=after, after_org=after_org, without=without, limit=page.wanted, conn=asking.conn
    )
    return page.of([_view(asking, row) for row in found], lambda one: (one.name, one.org_id))


@schedules.get("/schedule-preview", role="viewer")
async def preview_rule(
    asking: Asking,
    cron: Annotated[str, msgspec.Meta(max_length=200, examples=["0 10 * * WED"])] | None = None,
    every: SpanText | None = None,
    zone: ZoneName = "UTC",
    gap: Gap = "shift",
    overlap: Overlap = "first",
    anchor: Instant | None = None,
    after: Instant | None = None,
    count: Count = 10,
) -> RulePreview:
    """The next instants of a rule that need not be saved, later than `after` or than now."""
    rule = spoken_rule(cron, every, zone=zone, gap=gap, overlap=overlap, anchor=anchor)
    at = await asking.ask(now(asking.sql)) if after is None else after
    found = list[UpcomingView]()
    while len(found) < count and (tick := rule.next(at)) is not None:
        at = tick.at
        found.append(UpcomingView(at=at, zone=zone, local=tick.local))
    return RulePreview(words=rule.describe(), instants=found)


@schedules.get("/schedules/{name}", role="viewer")
async def show_schedule(asking: Asking, name: ScheduleName) -> ScheduleView:
    """One schedule."""
    return _view(asking, await asking.client.schedules.get(name, conn=asking.conn))


@schedules.get("/schedules/{name}/next", role="viewer")
async def show_next(asking: Asking, name: ScheduleName, count: Count = 10) -> list[UpcomingView]:
    """When a schedule fires next, over all its zones; never while it is paused or no longer declared."""
    found = await asking.client.schedules.next(name, count, conn=asking.conn)
    return [_upcoming(one) for one in found]


@schedules.post("/schedules", role="admin", status=201, refuses=(409,))
async def create_schedule(asking: Asking, body: NewSchedule) -> ScheduleView:
    """Create a schedule, which any worker fires; its task and payload are checked against the application's."""
    await asking.lock("schedule", body.name)
    try:
        await asking.client.schedules.get(body.name, conn=asking.conn)
    except ScheduleNotFound:
        await _save(asking, body.name, body, body.payload or {})
        return await show_schedule(asking, body.name)
    raise ApiRefused(409, "NAME_TAKEN", "A schedule has this name.")


@schedules.put("/schedules/{name}", role="admin", if_match="required", refuses=(409,))
async def change_schedule(asking: Asking, name: ScheduleName, body: ScheduleRule) -> ScheduleView:
    """Say anew what a schedule is, as a whole; without a payload it keeps the one that it has."""
    await _look(asking, name)
    row = await asking.client.schedules.get(name, conn=asking.conn)
    if row.declared_by is not None and row.undeclared_at is None:
        raise ApiRefused(409, "DECLARED", "The code declares this schedule: change it there.")
    kept: dict[str, Any] = msgspec.json.decode(row.job.payload)
    await _save(asking, name, body, kept if body.payload is None else body.payload, replace=True)
    return await show_schedule(asking, name)


@schedules.post("/schedules/{name}/delete", role="admin", if_match="required")
async def delete_schedule(asking: Asking, name: ScheduleName, body: WithReason) -> None:
    """Remove a schedule that no code declares; its fires and jobs stay."""
    await _look(asking, name)
    await asking.client.schedules.delete(name, reason=body.reason, conn=asking.conn)


@schedules.post("/schedules/{name}/pause", role="operator", if_match="required")
async def pause_schedule(asking: Asking, name: ScheduleName, body: WithReason) -> ScheduleView:
    """Stop a schedule from firing; jobs that it has made run."""
    await _look(asking, name)
    await asking.client.schedules.pause(name, reason=body.reason, conn=asking.conn)
    return await show_schedule(asking, name)


@schedules.post("/schedules/{name}/resume", role="operator", if_match="required")
async def resume_schedule(asking: Asking, name: ScheduleName, body: Resumption) -> ScheduleView:
    """Let a schedule fire again, from now on."""
    await _look(asking, name)
    await asking.client.schedules.resume(name, catch_up=body.catch_up, reason=body.reason, conn=asking.conn)
    return await show_schedule(asking, name)


@schedules.post("/schedules/{name}/run", role="operator")
async def run_schedule(asking: Asking, name: ScheduleName, body: RunNow) -> RanNow:
    """Fire a schedule once, now, beside its rule; also one that is paused."""
    return RanNow(jobs=await asking.writer.schedules.run(name, zone=body.zone, reason=body.reason, conn=asking.conn))


@schedules.post("/schedules/{name}/backfill", role="operator")
async def backfill_schedule(asking: Asking, name: ScheduleName, body: Backfill) -> BackfillView:
    """Make up for instants of a range that passed and made nothing, each once; a dry run shows them."""
    found = await asking.writer.schedules.backfill(
        name, body.since, body.until, zone=body.zone, limit=body.limit, dry_run=body.dry_run, reason=body.reason,
        conn=asking.conn,
    )  # fmt: skip
    return BackfillView(dry_run=body.dry_run, fired=sum(one.outcome == "fired" for one in found), instants=found)


async def _look(asking: Asking, name: str) -> None:
    """Compare what is there with what was seen."""
    await asking.lock("schedule", name)
    asking.match(await show_schedule(asking, name))


async def _save(
    asking: Asking, name: str, body: ScheduleRule, payload: dict[str, Any], *, replace: bool = False
) -> None:
    rule, task = body.spoken(), body.known_task(asking.registry)
    await asking.client.schedules.create(
        name, rule, task, replace=replace, reason=body.reason, conn=asking.conn, payload=payload, **body.options()
    )


def _upcoming(one: Upcoming) -> UpcomingView:
    return UpcomingView(at=one.at, zone=one.zone, local=one.local)


def _view(asking: Asking, row: ScheduleRow) -> ScheduleView:
    following = row.upcoming(1)
    about = {name: value for name, value in asdict(row).items() if name in ScheduleView.__struct_fields__}
    zones = [replace(one, problem=one.problem and sanitize(one.problem)) for one in row.zones]
    about |= {
        "status": row.status, "words": row.words, "queue": row.job.queue, "priority": row.job.priority,
        "payload": asking.show(msgspec.json.decode(row.job.payload)), "zones": zones,
        "next": _upcoming(following[0]) if following else None, "last": row.last and shown_fire(row.last),
        "fan_out": shown_fan_out(row.fan_out),
    }  # fmt: skip
    return ScheduleView(**about)
