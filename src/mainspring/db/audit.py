"""The audit trail: reading it, writing to it, sealing it and checking the seals, as dialogues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec

from mainspring.audit import MAX_EVENT, AuditEvent, AuditFinding, TrailHead, Verified
from mainspring.db.jobs import check_id, check_limit, check_texts
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Params, Row, Statement, ask, scalar
from mainspring.declare.caller import Caller
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG, SYSTEM, Id
from mainspring.text.texts import MAX_NAME

#: So many rows go into one seal.
SEAL_ROWS = 1000
#: So many seals are checked by one statement.
SEALS_PAGE = 50
#: Ids are drawn in order, but an event may be so much older than those before it: its statement took so long.
AT_MOST_LATE = timedelta(hours=1)

VerifyProgress = Callable[[str, int, int], None]  # organisation, seals and rows so far


class _Checked(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    rows: int
    hash: str
    previous: str | None
    floor: int
    intact: bool
    missing: list[int]
    changed: list[int]


class _Looked(msgspec.Struct, frozen=True):
    id: int
    at: datetime


class _Unnamed(msgspec.Struct, frozen=True, kw_only=True):
    added: list[int]
    waiting: int
    oldest: datetime | None


def _reader(kind: type[Any]) -> Callable[[Sequence[Row]], Any]:
    decode = msgspec.json.Decoder(kind).decode
    return lambda rows: [decode(row[0]) for row in rows]


_events, _heads, _checked, _looked, _unnamed = map(_reader, (AuditEvent, TrailHead, _Checked, _Looked, _Unnamed))


def trail(sql: Sql, job: Id, *, org: str | None = None, event: str | None = None) -> Dialogue[list[AuditEvent]]:
    """Everything that happened to a job, in order."""
    check_texts(MAX_NAME, org=org, event=event)
    params: dict[str, str | int | None] = {"job": str(check_id(job)), "org": org, "event": event, "limit": 10_000}
    found: list[AuditEvent] = yield from ask(Statement(sql["trail_of_job"], params, _events))
    return found


def listing(
    sql: Sql,
    *,
    org: str | None = None,
    event: str | None = None,
    subject: str | None = None,
    actor: str | None = None,
    job: Id | None = None,
    correlation: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    limit: int = 50,
) -> Dialogue[list[AuditEvent]]:
    """Stored events by filter, newest first; `before` continues after the last one seen."""
    filters: dict[str, Any] = {"org": org, "event": event, "subject": subject, "actor": actor, "job": job}
    filters |= {"correlation": correlation, "since": since, "until": until}
    return (yield from _listed(sql, _params(filters, before, limit, None)))


def search(
    sql: Sql, *, newest: int, since: datetime | None = None, before: int | None = None, limit: int = 50, **only: Any
) -> Dialogue[tuple[list[AuditEvent], int | None]]:
    """The same among the newest so many, and the id of the last that was looked at where it may go on there.

    So no filter makes one question expensive, also one that fits nothing.
    """
    params = _params({**only, "since": since}, before, limit, newest)
    found = yield from _listed(sql, params)
    if len(found) == limit:
        return found, found[-1].id
    looked: list[_Looked] = yield from ask(Statement(sql["audit_looked"], params, _looked))
    if not looked or (since is not None and looked[0].at < since - AT_MOST_LATE):
        return found, None
    return found, looked[0].id


def _listed(sql: Sql, params: Params) -> Dialogue[list[AuditEvent]]:
    found: list[AuditEvent] = yield from ask(Statement(sql["list_audit"], params, _events))
    return found


def _params(filters: dict[str, Any], before: int | None, limit: int, newest: int | None) -> Params:
    check_limit(limit, 1000)
    said = {name: filters.get(name) for name in ("org", "subject", "actor", "event", "correlation")}
    check_texts(MAX_NAME, **{name: said[name] for name in said if name != "event"})
    check_texts(MAX_EVENT, event=said["event"])
    job = filters.get("job")
    params: Params = {**said, "job": None if job is None else str(check_id(job)), "limit": limit, "before": before}
    params |= {name: instant(name, filters.get(name)) for name in ("since", "until")}
    return params | {"newest": None if newest is None else str(newest)}


def instant(field: str, at: datetime | None) -> str | None:
    """An instant as a statement takes it; one without a zone is refused."""
    if at is not None and at.utcoffset() is None:
        raise ValidationError(f"{field}: is not a time with a time zone", field=field)
    return at.astimezone(UTC).isoformat() if at else None


def after_place(place: tuple[datetime, UUID] | None) -> Params:
    """The parameters by which a list continues after the place of the last one seen: its instant and its id."""
    at, id_ = place or (None, None)
    return {"before_at": instant("before", at), "before_id": None if id_ is None else str(id_)}


def record(
    sql: Sql, event: str, detail: str, caller: Caller, *, subject: str | None = None, attempt: int | None = None
) -> Dialogue[int]:
    """Write a business event that is checked already. What a job changes is changed by SYSTEM."""
    of_job = caller.parent_id is not None
    params: dict[str, str | int | None] = {
        "event": event,
        "detail": detail,
        "org": DEFAULT_ORG if caller.org_id is None else caller.org_id,
        "job": str(caller.parent_id) if of_job else None,
        "attempt": attempt,
        "project": str(caller.project_id) if caller.project_id else None,
        "actor_type": "system" if of_job or caller.actor_type is None else caller.actor_type,
        "actor_id": SYSTEM if of_job or caller.actor_id is None else caller.actor_id,
        "request_id": caller.request_id,
        "correlation_id": caller.correlation_id,
        "subject": subject,
    }
    check_texts(MAX_NAME, request_id=caller.request_id, correlation_id=caller.correlation_id)
    check_texts(MAX_NAME, org=caller.org_id, actor_id=caller.actor_id)
    new_id: int = yield from ask(Statement(sql["record_business"], params, scalar))
    return new_id


def top(sql: Sql) -> Dialogue[int]:
    """The highest id so far."""
    highest: int = yield from ask(Statement(sql["audit_top"], {}, scalar))
    return highest


def unsealed(sql: Sql, *, since: int = 0) -> Dialogue[list[str]]:
    """The organisations that have events above an id; without one, those that have events in no seal."""
    if since:
        return (yield from ask(Statement(sql["organisations_since"], {"since": since}, _column)))
    return (yield from ask(Statement(sql["organisations_unsealed"], {}, _column)))


def seal(sql: Sql, org: str | None = None) -> Dialogue[int]:
    """Seal what can be sealed now, of one organisation or of all, and answer how many rows were."""
    check_texts(MAX_NAME, org=org)
    total = 0
    for one in [org] if org else (yield from unsealed(sql)):
        rows = SEAL_ROWS
        while rows == SEAL_ROWS:
            rows = yield from seal_some(sql, one)
            total += rows
    return total


def seal_some(sql: Sql, org: str) -> Dialogue[int]:
    """One seal, in a transaction of its own; answers how many rows it covers."""
    rows: int = yield from ask(Statement(sql["seal"], {"org": org, "limit": SEAL_ROWS}, scalar, alone=True, long=True))
    return rows


def heads(sql: Sql, org: str | None = None) -> Dialogue[list[TrailHead]]:
    """The end of each chain."""
    check_texts(MAX_NAME, org=org)
    found: list[TrailHead] = yield from ask(Statement(sql["seal_heads"], {"org": org}, _heads))
    return found


def verify(
    sql: Sql,
    *,
    org: str | None = None,
    head: str | None = None,
    newest: int | None = None,
    progress: VerifyProgress = lambda org, seals, rows: None,
) -> Dialogue[list[Verified]]:
    """Recompute every seal, or the newest so many. `head` is a hash that was kept elsewhere: the chain must hold it."""
    check_texts(MAX_NAME, org=org, head=head)
    orgs = [org] if org else (yield from ask(Statement(sql["audit_organisations"], {}, _column, long=True)))
    found, met = [], False
    for one in orgs:
        before = 0
        if newest is not None:
            ends = yield from heads(sql, one)
            before = max(ends[0].number - newest, 0) if ends else 0
        verified, has_head = yield from _verify_one(sql, one, head, before, progress)
        found.append(verified)
        met = met or has_head
    if head is not None and not met:
        unknown = AuditFinding(org_id=org or "-", problem="head unknown")
        if not found:
            found = [
                Verified(org_id=org or "-", seals=0, rows=0, waiting=0, oldest_waiting=None, head=None, findings=[])
            ]
        found[0].findings.append(unknown)
    return found


def _verify_one(
    sql: Sql, org: str, head: str | None, before: int, progress: VerifyProgress
) -> Dialogue[tuple[Verified, bool]]:
    findings: list[AuditFinding] = []
    number, rows, floor, has_head = before, 0, 0, False
    above = None if before else 0  # what stands below the first of these seals is not looked at
    last: str | None = None
    while True:
        params: dict[str, str | int | None] = {"org": org, "after": number, "limit": SEALS_PAGE}
        page: list[_Checked] = yield from ask(Statement(sql["verify_seals"], params, _checked, long=True))
        for seal in page:
            missing = range(number + 1, seal.number)
            findings += [AuditFinding(org_id=org, problem="seal missing", number=gone) for gone in missing]
            linked = missing or seal.number == before + 1 > 1 or seal.previous == last
            if not seal.intact or not linked:
                findings.append(AuditFinding(org_id=org, problem="seal changed", number=seal.number))
            findings += [
                AuditFinding(org_id=org, problem="missing", number=seal.number, id=id_) for id_ in seal.missing
            ]
            findings += [
                AuditFinding(org_id=org, problem="changed", number=seal.number, id=id_) for id_ in seal.changed
            ]
            number, rows, last, floor = seal.number, rows + seal.rows, seal.hash, seal.floor
            above = seal.floor if above is None else above
            has_head = has_head or seal.hash == head
        progress(org, number, rows)
        if len(page) < SEALS_PAGE:
            break
    about: Params = {"org": org, "floor": floor, "above": above or 0}
    (unnamed,) = yield from ask(Statement(sql["verify_rows"], about, _unnamed, long=True))
    findings += [AuditFinding(org_id=org, problem="added", id=id_) for id_ in unnamed.added]
    verified = Verified(
        org_id=org,
        first=before + 1,
        seals=number,
        rows=rows,
        waiting=unnamed.waiting,
        oldest_waiting=unnamed.oldest,
        head=last,
        findings=findings,
    )
    return verified, has_head


def _column(rows: Sequence[Row]) -> list[str]:
    return [row[0] for row in rows]
