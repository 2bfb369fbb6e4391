"""Alerts that last, as dialogues: opened, closed, watched, told and listed; one guarded statement a verb."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, NamedTuple
from uuid import UUID

import msgspec

from mainspring.db.audit import after_place
from mainspring.db.jobs import Who, check_id, check_limit, check_texts, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Row, Statement, ask, scalar
from mainspring.events import Alert
from mainspring.health.alert import (
    FAILED_LATE_ALERT,
    LEFT_OPEN_ALERT,
    RUNBOOK,
    AlertRow,
    Severity,
    Wrong,
    alert_subject,
    check_name,
)
from mainspring.health.watch import BROKEN_WATCH_ALERT
from mainspring.job import DEFAULT_ORG, Id
from mainspring.text.texts import MAX_NAME
from mainspring.uuid7 import uuid7

#: So many are told at once; the rest a minute later.
TOLD_AT_ONCE = 1000

_decode = msgspec.json.Decoder(AlertRow).decode


class Found(NamedTuple):
    """One thing that a watch found wrong."""

    org: str
    subject: str
    text: str
    severity: Severity


def open_alert(sql: Sql, wrong: Wrong, org: str | None, *, told: bool) -> Dialogue[bool]:
    """Open an alert; False: it was open already, and is counted."""
    check_texts(MAX_NAME, org=org)
    params: dict[str, str | int | None] = {
        "org": DEFAULT_ORG if org is None else org,
        "name": wrong.name,
        "subject": wrong.subject,
        "text": wrong.text,
        "severity": wrong.severity,
        "detail": wrong.detail,
        "told": str(told),
    }
    opened: bool = yield from ask(Statement(sql["open_alert"], params, scalar))
    return opened


def close_alert(
    sql: Sql, name: str, subject: str, who: Who, *, told: bool, reason: str | None = None
) -> Dialogue[AlertRow | None]:
    """Close an alert and answer it; None: it was not open."""
    params: dict[str, str | int | None] = {
        "org": DEFAULT_ORG if who.org_id is None else who.org_id,
        "name": check_name(name),
        "subject": alert_subject(subject),
        "actor_type": who.actor_type,
        "actor_id": who.actor_id,
        "reason": why(reason),
        "told": str(told),
    }
    text: str | None = yield from ask(Statement(sql["close_alert"], params, scalar))
    return None if text is None else _decode(text)


def names_open(sql: Sql, names: Sequence[str]) -> Dialogue[set[str]]:
    """The names among these of which something is open."""
    params: dict[str, str | int | None] = {"names": msgspec.json.encode(names).decode()}
    found: set[str] = yield from ask(Statement(sql["names_open"], params, lambda rows: {row[0] for row in rows}))
    return found


def keep_watch(
    sql: Sql, name: str, found: Iterable[Found], *, close: bool, among: Sequence[str] | None = None
) -> Dialogue[list[AlertRow]]:
    """Say what is wrong now, each thing once; answers what opened and what closed by it."""
    rows = [{"id": uuid7(), **one._asdict()} for one in found]
    params: dict[str, str | int | None] = {
        "name": name,
        "found": msgspec.json.encode(rows).decode(),
        "close": str(close),
        "among": None if among is None else msgspec.json.encode(among).decode(),
    }
    changed: list[AlertRow] = yield from ask(Statement(sql["keep_watch"], params, _rows))
    return changed


def untold(sql: Sql) -> Dialogue[list[Alert]]:
    """What observers have not heard yet, to be told once this has committed."""
    statement = Statement(sql["tell_alerts"], {"limit": TOLD_AT_ONCE}, lambda rows: [(_decode(a), h) for a, h in rows])
    found: list[tuple[AlertRow, bool]] = yield from ask(statement)
    events: list[Alert] = []
    for row, heard in sorted(found, key=lambda pair: (pair[0].opened_at, pair[0].id)):
        events += [] if heard else [event_of(row, firing=True)]
        events += [] if row.is_open else [event_of(row)]
    return events


def listing(
    sql: Sql,
    who: Who,
    *,
    is_open: bool | None = True,
    name: str | None = None,
    limit: int = 100,
    place: tuple[datetime, UUID] | None = None,
) -> Dialogue[list[AlertRow]]:
    """Alerts, newest first, after the one that opened then; `is_open` None: also those that are over."""
    check_limit(limit, 10_000)
    check_texts(MAX_NAME, name=name)
    params = {"org": who.org_id, "name": name, "limit": limit} | after_place(place)
    if is_open:
        return (yield from ask(Statement(sql["list_open_alerts"], params, _rows)))
    over = params | {"over": str(is_open is not None)}
    found: list[AlertRow] = yield from ask(Statement(sql["list_alerts"], over, _rows))
    return found


def get(sql: Sql, alert: Id, who: Who) -> Dialogue[AlertRow | None]:
    """One alert, open or over; None: there is none."""
    params: dict[str, str | int | None] = {"id": str(check_id(alert, "alert")), "org": who.org_id}
    found: list[AlertRow] = yield from ask(Statement(sql["get_alert"], params, _rows))
    return found[0] if found else None


def event_of(row: AlertRow, *, firing: bool | None = None) -> Alert:
    """What observers hear of a row: that it began, or that it is over."""
    firing = row.is_open if firing is None else firing
    text = row.text or row.name
    about: dict[str, Any] = {"subject": row.subject, "org_id": row.org_id}
    return Alert(row.name, row.severity, text if firing else f"over: {text}", runbook(row.name), firing, **about)


def runbook(name: str) -> str:
    """Where it says what to do about a lasting alert of the engine's own; of its own alerts the application knows.

    >>> runbook("failed-late"), runbook("payment-needs-a-person")
    ('docs/operations/alerts.md#failed-late', '')
    """
    return f"{RUNBOOK}#{name}" if name in (BROKEN_WATCH_ALERT, FAILED_LATE_ALERT, LEFT_OPEN_ALERT) else ""


def _rows(rows: Sequence[Row]) -> list[AlertRow]:
    return [_decode(row[0]) for row in rows]
