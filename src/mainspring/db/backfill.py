"""Making up for instants of a schedule that passed and made nothing, as dialogues: shown first, then fired."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import UTC, datetime, timedelta
from itertools import chain, islice
from typing import Any, Final, Literal
from uuid import UUID, uuid5

import msgspec

from mainspring.checks import check_instant
from mainspring.db.decisions import check_reason
from mainspring.db.jobs import Who, check_limit, to_uuid
from mainspring.db.schedules import ScheduleRow, Shot, places
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Row, Statement, ask
from mainspring.declare.schedule import make
from mainspring.errors import ScheduleNotFound, ValidationError
from mainspring.when.fire import label
from mainspring.when.rule import FIRST_YEAR

#: So many instants at once.
MOST_BACKFILLED: Final = 1000
LONGEST_BACKFILL: Final = timedelta(days=3653)

_NAMESPACE: Final = UUID("0199a8c3-1f00-7a52-9c11-6d61696e7370")
_encode = msgspec.json.Encoder().encode


class PastInstant(msgspec.Struct, frozen=True, kw_only=True):
    """An instant of a range: `to_fire`, `fired` by it, `fired_before`, or `still_due`: the rule will deal with it."""

    fire_id: UUID
    at: datetime
    zone: str
    local: datetime
    outcome: Literal["to_fire", "fired", "fired_before", "still_due"]
    job_id: UUID | None = None


def instants(
    row: ScheduleRow, since: datetime, until: datetime | None, zone: str | None = None, limit: int = 100
) -> list[PastInstant]:
    """The instants of a schedule from `since` up to `until`, or up to now, at most `limit`: more are refused."""
    check_limit(limit, MOST_BACKFILLED)
    until = row.now if until is None else until
    check_instant("since", since)
    check_instant("until", until)
    if until > row.now:
        raise ValidationError("until: lies in the future", field="until")
    if since.year < FIRST_YEAR or not timedelta(0) <= until - since <= LONGEST_BACKFILL:
        raise ValidationError("since: is not up to 10 years before until", field="since")
    rule = row.parsed()
    if rule is None:
        raise ValidationError("name: its rule is none that this version knows", field="name")
    just_before = since - timedelta(microseconds=1)
    ticks = (
        ((place, here.zone, tick) for tick in here.ticks(just_before, until))
        for place in places(row, zone)
        for here in [rule.in_zone(place.zone) if place.zone else rule]
    )
    found = list(islice(chain.from_iterable(ticks), limit + 1))
    if len(found) > limit:
        raise ValidationError(f"since: more than {limit} instants lie there: ask for fewer at once", field="since")
    made = [
        PastInstant(
            fire_id=_fire_id(row, place.zone, tick.at),
            at=tick.at,
            zone=name,
            local=tick.local,
            outcome="to_fire" if tick.at <= place.after else "still_due",
        )
        for place, name, tick in found
    ]
    return sorted(made, key=lambda one: (one.at, one.zone))


def without_fired(sql: Sql, row: ScheduleRow, found: Sequence[PastInstant]) -> Dialogue[list[PastInstant]]:
    """The same, knowing which have fired."""
    if not found:
        return []
    params: Params = {"org": row.org_id, "name": row.name, "fires": _encode(_rows(row, found)).decode()}
    rows: list[Row] = yield from ask(Statement(sql["fired_before"], params, list))
    return _marked(found, {to_uuid(id): None for (id,) in rows}, "fired_before")


def backfill_shots(row: ScheduleRow, found: Sequence[PastInstant]) -> list[Shot]:
    """Those that are to fire, each with its job unless a scheduler makes one for each entity."""
    made = list[Shot]()
    for one in found:
        if one.outcome == "to_fire":
            given = {"zone": one.zone, "instant": one.at}
            fields = {field: value for field, value in given.items() if field in row.fill}
            job = None if row.by_entity else make(row.job, one.fire_id, row.name, one.at, fields)
            made.append(Shot(one.fire_id, one.zone, job))
    return made


def backfill(
    sql: Sql, row: ScheduleRow, found: Sequence[PastInstant], wanted: Sequence[Shot], who: Who, reason: str | None
) -> Dialogue[list[PastInstant]]:
    """Fire them, all or none, each once whoever asks meanwhile; answers what became of each."""
    reason = check_reason(reason)
    if not wanted:
        return list(found)
    jobs = {shot.fire: shot.job for shot in wanted}
    fires = [one | {"job": jobs[one["id"]]} for one in _rows(row, [one for one in found if one.fire_id in jobs])]
    params: Params = {
        "org": row.org_id, "name": row.name, "fires": _encode(fires).decode(),
        "actor_type": who.actor_type, "actor_id": who.actor_id, "reason": reason,
    }  # fmt: skip
    rows: list[Row] = yield from ask(Statement(sql["backfill_schedule"], params, list))
    made = {to_uuid(fire): None if job is None else to_uuid(job) for fire, job in rows}
    if not made:  # others were faster, or it was deleted meanwhile
        seen = yield from without_fired(sql, row, found)
        if any(one.outcome == "to_fire" for one in seen):
            raise ScheduleNotFound(f"no schedule is called {row.name!r}")
        return seen
    late = dict.fromkeys(jobs.keys() - made.keys())
    return _marked(_marked(found, made, "fired"), late, "fired_before")


def _marked(found: Sequence[PastInstant], which: Any, outcome: Literal["fired", "fired_before"]) -> list[PastInstant]:
    return [
        msgspec.structs.replace(one, outcome=outcome, job_id=which[one.fire_id]) if one.fire_id in which else one
        for one in found
    ]


def _rows(row: ScheduleRow, found: Collection[PastInstant]) -> list[dict[str, Any]]:
    own = {place.zone or row.zone: place.zone for place in row.zones}
    return [{"id": one.fire_id, "zone": own[one.zone], "instant": one.at, "local": label(one.local)} for one in found]


def _fire_id(row: ScheduleRow, zone: str, at: datetime) -> UUID:
    """Made of the instant, so that it is made up for once."""
    return uuid5(_NAMESPACE, _encode((row.org_id, row.name, zone, at.astimezone(UTC))).decode())
