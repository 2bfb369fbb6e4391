"""The audit trail: reading it, writing to it, sealing it and checking the seals, as dialogues."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from mainspring.audit import MAX_EVENT, AuditEvent, AuditFinding, TrailHead, Verified
from mainspring.db.jobs import check_id, check_limit, check_texts
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Row, Statement, ask, scalar
from mainspring.declare.caller import Caller
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG, SYSTEM, Id
from mainspring.text.texts import MAX_NAME

#: So many rows go into one seal.
SEAL_ROWS = 1000
#: So many seals are checked by one statement.
SEALS_PAGE = 50

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


class _Unnamed(msgspec.Struct, frozen=True, kw_only=True):
    added: list[int]
    waiting: int
    oldest: datetime | None


def _reader(kind: type[Any]) -> Callable[[Sequence[Row]], Any]:
    decode = msgspec.json.Decoder(kind).decode
    return lambda rows: [decode(row[0]) for row in rows]


_events, _heads, _checked, _unnamed = map(_reader, (AuditEvent, TrailHead, _Checked, _Unnamed))


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
    since: datetime | None = None,
    until: datetime | None = None,
    before: int | None = None,
    limit: int = 50,
) -> Dialogue[list[AuditEvent]]:
    """Stored events by filter, newest first; `before` continues after the last one seen."""
    check_limit(limit, 1000)
    check_texts(MAX_NAME, org=org, subject=subject, actor=actor)
    check_texts(MAX_EVENT, event=event)
    params: dict[str, str | int | None] = {"org": org, "event": event, "subject": subject, "actor": actor}
    params |= {"limit": limit, "before": before, "since": _instant("since", since), "until": _instant("until", until)}
    found: list[AuditEvent] = yield from ask(Statement(sql["list_audit"], params, _events))
    return found


def _instant(field: str, at: datetime | None) -> str | None:
    if at is not None and at.utcoffset() is None:
        raise ValidationError(f"{field}: is not a time with a time zone", field=field)
    return at.astimezone(UTC).isoformat() if at else None


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
    progress: VerifyProgress = lambda org, seals, rows: None,
) -> Dialogue[list[Verified]]:
    """Recompute every seal. `head` is a hash that was kept elsewhere: the chain must hold it."""
    check_texts(MAX_NAME, org=org, head=head)
    orgs = [org] if org else (yield from ask(Statement(sql["audit_organisations"], {}, _column, long=True)))
    found, met = [], False
    for one in orgs:
        verified, has_head = yield from _verify_one(sql, one, head, progress)
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


def _verify_one(sql: Sql, org: str, head: str | None, progress: VerifyProgress) -> Dialogue[tuple[Verified, bool]]:
    findings: list[AuditFinding] = []
    number, rows, floor, has_head = 0, 0, 0, False
    last: str | None = None
    while True:
        params: dict[str, str | int | None] = {"org": org, "after": number, "limit": SEALS_PAGE}
        page: list[_Checked] = yield from ask(Statement(sql["verify_seals"], params, _checked, long=True))
        for seal in page:
            missing = range(number + 1, seal.number)
            findings += [AuditFinding(org_id=org, problem="seal missing", number=gone) for gone in missing]
            if not seal.intact or (not missing and seal.previous != last):
                findings.append(AuditFinding(org_id=org, problem="seal changed", number=seal.number))
            findings += [
                AuditFinding(org_id=org, problem="missing", number=seal.number, id=id_) for id_ in seal.missing
            ]
            findings += [
                AuditFinding(org_id=org, problem="changed", number=seal.number, id=id_) for id_ in seal.changed
            ]
            number, rows, last, floor = seal.number, rows + seal.rows, seal.hash, seal.floor
            has_head = has_head or seal.hash == head
        progress(org, number, rows)
        if len(page) < SEALS_PAGE:
            break
    (unnamed,) = yield from ask(Statement(sql["verify_rows"], {"org": org, "floor": floor}, _unnamed, long=True))
    findings += [AuditFinding(org_id=org, problem="added", id=id_) for id_ in unnamed.added]
    verified = Verified(
        org_id=org,
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
