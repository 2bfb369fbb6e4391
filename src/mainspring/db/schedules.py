"""What people and workers do with schedules, as dialogues."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime
from heapq import merge
from itertools import groupby, islice
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec

from mainspring.db.jobs import Who, check_limit, check_texts, to_uuid, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Row, Statement, ask, scalar
from mainspring.declare.registry import Registry
from mainspring.declare.schedule import EACH_ZONE, Schedule, make
from mainspring.errors import ConfigurationError, ScheduleNotFound, ValidationError
from mainspring.job import DEFAULT_ORG, NewJob
from mainspring.text.texts import MAX_NAME, did_you_mean, shown
from mainspring.uuid7 import uuid7
from mainspring.when.fire import label
from mainspring.when.rule import Rule
from mainspring.when.zones import zone_info

Saved = Literal["created", "changed", "same"]
_encode = msgspec.json.Encoder().encode


class FanOutProgress(msgspec.Struct, frozen=True, kw_only=True):
    """How far the jobs of a fire over entities are made."""

    fire_id: UUID
    zone: str
    instant: datetime
    begun_at: datetime
    jobs: int
    refused: int
    problem: str | None
    finished_at: datetime | None


class Fire(msgspec.Struct, frozen=True, kw_only=True):
    """One firing: at which instant, what the zone's clock showed, and what became of it."""

    id: UUID
    zone: str
    instant: datetime
    local: str
    how: str
    reason: str | None
    instants: int
    job_id: UUID | None
    at: datetime
    state: str | None = None  # of its job, while there is one
    fan_out: FanOutProgress | None = None


class SchedulePosition(msgspec.Struct, frozen=True, kw_only=True):
    """Where a schedule stands in a zone ('': its rule's own)."""

    zone: str
    after: datetime
    next_at: datetime | None
    problem: str | None


class Upcoming(NamedTuple):
    """An instant to come, and what the zone's clock will show."""

    at: datetime
    zone: str
    local: datetime


class ScheduleRow(msgspec.Struct, frozen=True, kw_only=True):
    """A schedule as it stands in the database."""

    org_id: str
    name: str
    rule: dict[str, Any]
    description: str
    zone: str
    task: str
    job: NewJob
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
    undeclared_at: datetime | None
    paused_at: datetime | None
    paused_by: str | None
    pause_reason: str | None
    created_at: datetime
    changed_at: datetime
    now: datetime
    zones: list[SchedulePosition]
    last: Fire | None
    fan_out: FanOutProgress | None

    @property
    def status(self) -> str:
        """`active`, `paused`, or `no longer declared`: then nobody fires it."""
        if self.undeclared_at is not None:
            return "no longer declared"
        return "active" if self.paused_at is None else "paused"

    @property
    def words(self) -> str:
        """The rule in words."""
        rule = self._rule()
        return rule.describe(EACH_ZONE if self.by_zone else None) if rule else self.description

    def upcoming(self, count: int) -> list[Upcoming]:
        """The next instants, over all zones, in order; none while it is paused or no longer declared."""
        rule = self._rule()
        if rule is None or self.status != "active":
            return []
        return list(islice(merge(*(self._from(rule, place) for place in self.zones)), count))

    def _from(self, rule: Rule, place: SchedulePosition) -> Iterator[Upcoming]:
        rule = rule.in_zone(place.zone) if place.zone else rule
        tick = rule.next(max(place.after, self.now))
        while tick is not None:
            yield Upcoming(tick.at, rule.zone, tick.local)
            tick = rule.next(tick.at)

    def _rule(self) -> Rule | None:
        try:
            return Rule.from_json(self.rule)
        except ValidationError:  # written by a later version, or in SQL
            return None


class Synced(NamedTuple):
    """What a sync did: the names of each kind."""

    created: list[str]
    changed: list[str]
    same: list[str]
    undeclared: list[str]


_decode = msgspec.json.Decoder(ScheduleRow).decode
_decode_fire = msgspec.json.Decoder(Fire).decode


def _schedules(rows: Any) -> list[ScheduleRow]:
    return [_decode(row[0]) for row in rows]


def _fires(rows: Any) -> list[Fire]:
    return [_decode_fire(row[0]) for row in rows]


def checked(registry: Registry) -> list[Schedule]:
    """The schedules of an application; one whose task it does not have is refused: nobody would run its jobs."""
    for schedule in registry.schedules():
        if schedule.task not in registry:
            problem = f"{schedule.task} is not of this application{did_you_mean(schedule.task, registry.names())}"
            raise ConfigurationError(f"schedule {schedule.name}: task: {problem}")
    return registry.schedules()


def sync(
    sql: Sql, origins: list[str], declared: list[Schedule], who: Who, reason: str | None = None
) -> Dialogue[Synced]:
    """Write every declared schedule; what the same registries no longer declare is marked so."""
    done = Synced([], [], [], [])
    found = sorted(declared, key=lambda schedule: schedule.place)
    for org, some in groupby(found, lambda schedule: schedule.org):
        rows = [
            {"org_id": org, "name": one.name, "definition": one.definition(), "declared_by": one.app} for one in some
        ]
        params = {"schedules": _encode(rows).decode(), **_by(who, reason)}
        for name, answer in (yield from ask(Statement(sql["save_schedules"], params, list, org=org))):
            getattr(done, answer).append(name)
    arrays = {
        "registries": array(origins),
        "orgs": array([schedule.org for schedule in found]),
        "names": array([schedule.name for schedule in found]),
    }
    for org in dict.fromkeys([DEFAULT_ORG, *(schedule.org for schedule in found)]):
        rows_: list[Row] = yield from ask(Statement(sql["undeclare_schedules"], arrays, list, org=org))
        done.undeclared.extend(name for _, name in rows_)
    return done


def create(
    sql: Sql, schedule: Schedule, who: Who, reason: str | None = None, *, replace: bool = False
) -> Dialogue[Saved]:
    """Create a schedule at run time; a name that is taken is refused, or changed where that is asked for."""
    if schedule.zones is not None or schedule.entities is not None:
        field = "entities" if schedule.zones is None else "zones"
        raise ValidationError(f"{field}: is code: declare the schedule in a registry", field=field)
    params: Params = {
        "org": schedule.org, "name": schedule.name, "definition": _encode(schedule.definition()).decode(),
        "replace": int(replace), **_by(who, reason),
    }  # fmt: skip
    saved: Saved | None = yield from ask(Statement(sql["save_schedule"], params, scalar))
    if saved is None:
        taken = yield from get(sql, schedule.name, Who(schedule.org))
        by = (
            f"is declared by {taken.declared_by}: change it there"
            if taken.declared_by
            else "is taken: say `replace` to change it"
        )
        raise ValidationError(f"name: {by}", field="name")
    return saved


def listing(sql: Sql, who: Who, *, after: str | None = None, limit: int = 100) -> Dialogue[list[ScheduleRow]]:
    """Schedules by name; `after` continues after the last one seen."""
    check_limit(limit, 10_000)
    check_texts(MAX_NAME, after=after)
    params: Params = {"org": who.org_id, "name": None, "after": after, "limit": limit}
    found: list[ScheduleRow] = yield from ask(Statement(sql["list_schedules"], params, _schedules))
    return found


def get(sql: Sql, name: str, who: Who) -> Dialogue[ScheduleRow]:
    """One schedule, or ScheduleNotFound."""
    check_texts(MAX_NAME, name=name)
    params: Params = {"org": _org(who), "name": name, "after": None, "limit": 1}
    found: list[ScheduleRow] = yield from ask(Statement(sql["list_schedules"], params, _schedules))
    return found[0] if found else (yield from _missing(sql, name, who))


def fires(sql: Sql, name: str, who: Who, limit: int = 20) -> Dialogue[list[Fire]]:
    """What a schedule did, newest first; also of one that was deleted since."""
    check_texts(MAX_NAME, name=name)
    check_limit(limit, 10_000)
    params: Params = {"org": _org(who), "name": name, "limit": limit}
    found: list[Fire] = yield from ask(Statement(sql["list_fires"], params, _fires))
    return found


def upcoming(sql: Sql, name: str, who: Who, count: int = 5) -> Dialogue[list[Upcoming]]:
    """The next instants of a schedule, with what its clocks will show."""
    if type(count) is not int or not 1 <= count <= 1000:
        raise ValidationError("count: is not between 1 and 1000", field="count")
    row = yield from get(sql, name, who)
    return row.upcoming(count)


def pause(sql: Sql, name: str, who: Who, reason: str | None = None) -> Dialogue[bool]:
    """Stop firing; when this returns, nothing fires any more. False when it was paused already."""
    return (yield from _act(sql, "pause_schedule", name, who, reason))


def resume(sql: Sql, name: str, who: Who, reason: str | None = None, *, catch_up: bool = False) -> Dialogue[bool]:
    """Fire again from now on; with `catch_up`, what fell into the pause follows the schedule's policy."""
    return (yield from _act(sql, "resume_schedule", name, who, reason, catch_up=int(catch_up)))


def delete(sql: Sql, name: str, who: Who, reason: str | None = None) -> Dialogue[None]:
    """Remove a schedule; when this returns, nothing fires any more. Its fires and jobs stay."""
    if not (yield from _act(sql, "delete_schedule", name, who, reason)):
        yield from _missing(sql, name, who)


class Shot(NamedTuple):
    """A fire by hand: in which zone, and its job, unless a scheduler makes one for each entity."""

    fire: UUID
    zone: str
    job: NewJob | None


def shots(row: ScheduleRow, zone: str | None = None) -> list[Shot]:
    """What firing a schedule by hand means: once, or once in each of its zones, or in the one that is named."""
    zones = [place.zone for place in row.zones]
    if zone is not None:
        known = [name or row.zone for name in zones]
        if zone not in known:
            raise ValidationError(f"zone: is none of the schedule's{did_you_mean(zone, known)}", field="zone")
        zones = [zones[known.index(zone)]]
    if not zones:
        raise ValidationError(
            "zone: none of the schedule is known yet: workers ask for them once a minute", field="zone"
        )
    made = list[Shot]()
    for name in zones:
        fire = uuid7()
        filled = {"zone": name or row.zone, "instant": row.now}
        fields = {field: value for field, value in filled.items() if field in row.fill}
        made.append(Shot(fire, name, None if row.by_entity else make(row.job, fire, row.name, None, fields)))
    return made


def run(sql: Sql, row: ScheduleRow, wanted: list[Shot], who: Who, reason: str | None = None) -> Dialogue[list[UUID]]:
    """Fire once beside the rule; answers the jobs: none where a scheduler makes one for each entity."""
    made = list[UUID]()
    for shot in wanted:
        local = row.now.astimezone(zone_info(shot.zone or row.zone))
        params: Params = {
            "org": row.org_id, "name": row.name, "zone": shot.zone, "fire": str(shot.fire), "local": label(local),
            "job": None if shot.job is None else _encode(shot.job).decode(), **_by(who, reason),
        }  # fmt: skip
        found: list[Row] = yield from ask(Statement(sql["run_schedule"], params, list))
        if not found:
            yield from _missing(sql, row.name, who)
        made += [to_uuid(job) for (job,) in found if job is not None]
    return made


def _act(sql: Sql, verb: str, name: str, who: Who, reason: str | None, **more: int) -> Dialogue[bool]:
    check_texts(MAX_NAME, name=name)
    params: Params = {"org": _org(who), "name": name, **_by(who, reason), **more}
    done: bool | None = yield from ask(Statement(sql[verb], params, scalar))
    if done is None:
        yield from _missing(sql, name, who)
    return bool(done)


def _missing(sql: Sql, name: str, who: Who) -> Dialogue[Any]:
    known: list[Row] = yield from ask(Statement(sql["schedule_names"], {"org": _org(who)}, list))
    near = did_you_mean(name, [row[0] for row in known])
    text = f"no schedule is called {shown(name)!r}{near}"
    raise ScheduleNotFound(
        text if near else f"{text}; `mainspring schedule sync --app …` brings those of an application"
    )


def _org(who: Who) -> str:
    return who.org_id or DEFAULT_ORG


def _by(who: Who, reason: str | None) -> Params:
    return {"actor_type": who.actor_type, "actor_id": who.actor_id, "reason": why(reason)}


def array(texts: list[str]) -> str:
    """A PostgreSQL array as text, so that every driver understands it."""
    quoted = ('"{}"'.format(text.replace("\\", "\\\\").replace('"', '\\"')) for text in texts)
    return "{" + ",".join(quoted) + "}"
