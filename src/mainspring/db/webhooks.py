"""Webhooks that we send, as dialogues: endpoints, secrets, deliveries."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple
from uuid import UUID

import msgspec

from mainspring.checks import check_span
from mainspring.db.jobs import Who, check_id, check_limit, check_texts, to_uuid, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Row, Statement, ask, nothing, scalar
from mainspring.errors import UnknownName, ValidationError
from mainspring.job import DEFAULT_ORG, NewJob
from mainspring.text.texts import did_you_mean

EndpointState = Literal["active", "paused", "disabled"]
DeliveryStatus = Literal["pending", "delivered", "failed"]
DELIVERY_STATUSES: tuple[DeliveryStatus, ...] = ("pending", "delivered", "failed")
LONGEST_OVERLAP = timedelta(days=30)
_encode = msgspec.json.Encoder().encode


class Endpoint(msgspec.Struct, frozen=True, kw_only=True):
    """Where an organisation wants its events; the secrets and headers of it are for workers only."""

    org_id: str
    id: UUID
    url: str
    events: list[str]
    description: str | None
    prefix: str
    state: EndpointState
    reason: str | None
    changed_at: datetime
    created_at: datetime


class Delivery(msgspec.Struct, frozen=True, kw_only=True):
    """One event for one endpoint, as the view `mainspring.deliveries` shows it; of one that is asked for, all of it."""

    org_id: str
    id: UUID
    endpoint: UUID
    event_id: UUID
    event_type: str
    aggregate_type: str
    aggregate_id: str
    status: DeliveryStatus
    attempts: int
    attempted_at: datetime | None
    http_status: int | None
    error: str | None
    response_cut: bool
    delivered_at: datetime | None
    job_id: UUID
    created_at: datetime
    body: str | None = None
    response_headers: dict[str, Any] | None = None
    response_body: bytes | None = None


class Begun(msgspec.Struct, frozen=True, kw_only=True):
    """What an attempt needs; `state` is None when the endpoint was removed."""

    id: UUID
    endpoint: UUID
    event_id: UUID
    event_type: str
    body: str
    delivered: bool
    now: datetime
    url: str | None
    prefix: str | None
    headers: str | None
    state: EndpointState | None
    secrets: list[str]


class MadeDelivery(NamedTuple):
    """A delivery that an event became."""

    id: UUID
    endpoint: UUID


@dataclass(frozen=True, slots=True)
class AttemptRecord:
    """What is kept of an attempt's call."""

    status: int | None = None
    error: str | None = None
    headers: str | None = None  # JSON
    body: str | None = None  # in base64
    cut: bool = False


@dataclass(frozen=True, slots=True)
class Published:
    """An event on its way to the database."""

    org: str
    id: UUID
    type: str
    aggregate_type: str
    aggregate_id: str
    body: str


_endpoint = msgspec.json.Decoder(Endpoint).decode
_delivery = msgspec.json.Decoder(Delivery).decode
_begun = msgspec.json.Decoder(Begun).decode


# -- events and attempts


def publish(sql: Sql, event: Published, job: NewJob, only: UUID | None = None) -> Dialogue[list[MadeDelivery]]:
    """A delivery and a job for every endpoint that wants the event and does not have it yet."""
    params: Params = {"org": event.org, "event": str(event.id), "type": event.type, "body": event.body}
    params |= {"aggregate_type": event.aggregate_type, "aggregate_id": event.aggregate_id}
    params |= {"job": _encode(job).decode(), "only": None if only is None else str(only)}
    return (yield from ask(Statement(sql["publish"], params, _made)))


def begin(sql: Sql, org: str, delivery: UUID) -> Dialogue[Begun | None]:
    """What an attempt needs; it is counted if it is going to call."""
    params: Params = {"org": org, "id": str(delivery)}
    text: str | None = yield from ask(Statement(sql["begin_delivery"], params, scalar))
    return None if text is None else _begun(text)


def record(sql: Sql, org: str, delivery: UUID, kept: AttemptRecord, *, delivered: bool) -> Dialogue[None]:
    """Keep how a call ended."""
    params: Params = {"org": org, "id": str(delivery), "status": kept.status, "error": kept.error}
    params |= {"headers": kept.headers, "body": kept.body, "cut": str(kept.cut), "delivered": str(delivered)}
    yield from ask(Statement(sql["record_answer"], params, nothing))


# -- endpoints


def add(
    sql: Sql,
    who: Who,
    endpoint: UUID,
    *,
    url: str,
    events: Sequence[str],
    description: str | None,
    prefix: str,
    headers: str | None,
    secret: str,
) -> Dialogue[Endpoint]:
    """Register an endpoint whose fields are checked already."""
    params = _named(endpoint, who) | {"url": url, "events": _encode(events).decode(), "description": description}
    params |= {"prefix": prefix, "headers": headers, "secret": secret}
    yield from ask(Statement(sql["add_endpoint"], params, nothing))
    return (yield from endpoint_of(sql, endpoint, who))


def endpoints(sql: Sql, who: Who, *, after: UUID | None = None, limit: int = 100) -> Dialogue[list[Endpoint]]:
    """Endpoints in the order in which they were made; `after` continues behind the last one seen."""
    check_limit(limit, 1000)
    return (yield from _endpoints(sql, who, after=after, limit=limit))


def endpoint_of(sql: Sql, endpoint: UUID, who: Who) -> Dialogue[Endpoint]:
    """One endpoint, or UnknownName."""
    found = yield from _endpoints(sql, who, id=endpoint)
    if not found:
        raise _unknown("endpoint", endpoint)
    return found[0]


def _endpoints(
    sql: Sql, who: Who, *, id: UUID | None = None, after: UUID | None = None, limit: int = 1
) -> Dialogue[list[Endpoint]]:
    params: Params = {"org": who.org_id, "limit": limit, "id": None if id is None else str(check_id(id, "endpoint"))}
    params["after"] = None if after is None else str(check_id(after, "after"))
    return (yield from ask(Statement(sql["endpoints"], params, lambda rows: [_endpoint(row[0]) for row in rows])))


def set_state(sql: Sql, endpoint: UUID, who: Who, becomes: EndpointState, reason: str | None) -> Dialogue[bool]:
    """Make an endpoint active, paused or disabled; False: so it was already."""
    who = yield from _owner(sql, endpoint, who)
    params = _named(endpoint, who) | {"becomes": becomes, "reason": why(reason)}
    before: str | None = yield from ask(Statement(sql["set_endpoint"], params, scalar))
    if before is None:
        raise _unknown("endpoint", endpoint)
    return before != becomes


def remove(sql: Sql, endpoint: UUID, who: Who, reason: str | None) -> Dialogue[None]:
    """Remove an endpoint and its secrets; what waits for it is cancelled."""
    who = yield from _owner(sql, endpoint, who)
    found: bool = yield from ask(
        Statement(sql["remove_endpoint"], _named(endpoint, who) | {"reason": why(reason)}, scalar)
    )
    if not found:
        raise _unknown("endpoint", endpoint)


def rotate(
    sql: Sql, endpoint: UUID, who: Who, *, secret: str, overlap: timedelta, reason: str | None = None
) -> Dialogue[None]:
    """Give an endpoint a new secret; the older ones sign as well until the overlap is over."""
    check_overlap(overlap)
    params = _named(endpoint, who) | {
        "secret": secret,
        "overlap": f"{overlap.total_seconds()} s",
        "reason": why(reason),
    }
    found: bool = yield from ask(Statement(sql["rotate_secret"], params, scalar))
    if not found:
        raise _unknown("endpoint", endpoint)


def check_overlap(overlap: timedelta) -> None:
    """Refuse what is no overlap."""
    check_span("overlap", overlap)
    if overlap > LONGEST_OVERLAP:
        raise ValidationError("overlap: is not a time span from 0 to 30 days", field="overlap")


# -- deliveries


def deliveries(
    sql: Sql,
    who: Who,
    *,
    endpoint: UUID | None = None,
    status: str | None = None,
    event: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> Dialogue[list[Delivery]]:
    """Deliveries by endpoint, status and type of event, newest first; `before` continues after the last one seen."""
    check_limit(limit, 1000)
    check_texts(100, event=event)
    if status is not None and status not in DELIVERY_STATUSES:
        known = f"is not one of {', '.join(DELIVERY_STATUSES)}{did_you_mean(status, DELIVERY_STATUSES)}"
        raise ValidationError(f"status: {known}", field="status")
    params: Params = {"org": who.org_id, "status": status, "event": event, "limit": limit}
    params["endpoint"] = None if endpoint is None else str(check_id(endpoint, "endpoint"))
    params["before"] = None if before is None else str(check_id(before, "before"))
    return (yield from ask(Statement(sql["deliveries"], params, lambda rows: [_delivery(row[0]) for row in rows])))


def delivery_of(sql: Sql, delivery: UUID, who: Who) -> Dialogue[Delivery]:
    """One delivery with what was sent and answered, or UnknownName."""
    params: Params = {"org": who.org_id, "id": str(check_id(delivery, "delivery"))}
    text: str | None = yield from ask(Statement(sql["delivery"], params, scalar))
    if text is None:
        raise _unknown("delivery", delivery)
    return _delivery(text)


def redeliver(sql: Sql, delivery: UUID, who: Who, job: NewJob, reason: str) -> Dialogue[UUID]:
    """Send a delivery again under its own id; answers the job that does. Refused while one does already."""
    if reason is None:
        raise ValidationError("reason: is missing", field="reason")
    params: Params = {"org": who.org_id, "id": str(check_id(delivery, "delivery")), "job": _encode(job).decode()}
    params |= {"actor_type": who.actor_type, "actor_id": who.actor_id, "reason": why(reason)}
    rows: Sequence[Row] = yield from ask(Statement(sql["redeliver"], params, lambda rows: rows))
    if not rows:
        raise _unknown("delivery", delivery)
    answer, job_id = rows[0][0], to_uuid(rows[0][1])
    if answer == "pending":
        raise ValidationError(f"delivery: is still being tried, by job {job_id}", field="delivery")
    return job_id


# -- parts


def _owner(sql: Sql, endpoint: UUID, who: Who) -> Dialogue[Who]:
    """Who acts, in the organisation of the endpoint where they name none."""
    if who.org_id is not None:
        return who
    return msgspec.structs.replace(who, org_id=(yield from endpoint_of(sql, endpoint, who)).org_id)


def _named(endpoint: UUID, who: Who) -> Params:
    org = who.org_id or DEFAULT_ORG
    return {"org": org, "id": str(endpoint), "actor_type": who.actor_type, "actor_id": who.actor_id}


def _made(rows: Sequence[Row]) -> list[MadeDelivery]:
    return [MadeDelivery(to_uuid(row[0]), to_uuid(row[1])) for row in rows]


def _unknown(what: str, id: UUID) -> UnknownName:
    return UnknownName(f"{what}: there is no {what} {id}", field=what)
