"""The words of the audit trail: its events, the seals over them, and what a check of the seals finds."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final, Literal
from uuid import UUID

import msgspec

from mainspring.errors import ValidationError
from mainspring.text.document import MAX_DEPTH
from mainspring.text.sanitize import MASK, names_secret, sanitize
from mainspring.text.texts import text_problem

MAX_EVENT: Final = 100
MAX_DETAIL: Final = 16 * 1024
#: Names of the engine: an application's events have nouns of their own.
ENGINE_NOUNS: Final = (
    "job", "batch", "queue", "limit", "breaker", "worker", "schedule", "schema", "audit", "cipher", "dead_letters",
    "notification", "webhook", "alert", "quarantine", "access",
)  # fmt: skip
_NAME: Final = re.compile(r"[a-z][a-z0-9_-]*(?:\.[a-z][a-z0-9_-]*)+")

Problem = Literal["changed", "missing", "added", "seal changed", "seal missing", "head unknown"]


class AuditEvent(msgspec.Struct, frozen=True, kw_only=True):
    """One event, as the view `mainspring.trail` shows it.

    `actor_id` is who asked for the job, `by` who acted, `subject` what it is about, such as `booking 17`. The events of
    a job happened in the order of `place`. `id` is null where the job itself proves the event.
    """

    id: int | None
    place: int
    at: datetime
    event: str
    org_id: str
    job_id: UUID | None
    task: str | None
    attempt: int | None
    project_id: UUID | None
    actor_type: str
    actor_id: str
    by: str
    request_id: str
    correlation_id: str
    subject: str | None
    detail: dict[str, Any]


class TrailHead(msgspec.Struct, frozen=True, kw_only=True):
    """The last seal of an organisation: keep its hash elsewhere, and nobody can cut the chain unseen."""

    org_id: str
    number: int
    hash: str
    sealed_at: datetime


class AuditFinding(msgspec.Struct, frozen=True, kw_only=True):
    """Something that is not as it was sealed: a row of `audit` by its id, or a seal by its number."""

    org_id: str
    problem: Problem
    id: int | None = None
    number: int | None = None

    def __str__(self) -> str:
        match self.problem:
            case "changed" | "missing":
                what = f"audit row {self.id} of seal {self.number} is {self.problem}"
            case "added":
                what = f"audit row {self.id} was put in after the rows around it were sealed"
            case "seal changed":
                what = f"seal {self.number} was changed"
            case "seal missing":
                what = f"seal {self.number} is missing"
            case "head unknown":
                what = "no seal has this hash: the end of the chain was cut off or made anew"
        return f"{self.org_id}: {what}"


class Verified(msgspec.Struct, frozen=True, kw_only=True):
    """What a check of one organisation's chain found, from its `first` seal on; `waiting` rows are not sealed yet."""

    org_id: str
    first: int = 1
    seals: int
    rows: int
    waiting: int
    oldest_waiting: datetime | None
    head: str | None
    findings: list[AuditFinding]


def written_event(event: object, detail: Mapping[str, Any]) -> str:
    """The detail of a business event as it is stored: checked, bounded, without secrets.

    >>> written_event("billing.frozen", {"invoice": 7, "api_key": "x"})
    '{"invoice":7,"api_key":"***"}'
    """
    if problem := text_problem(event, MAX_EVENT):
        raise ValidationError(f"event: {problem}", field="event")
    if not isinstance(event, str) or not _NAME.fullmatch(event):
        raise ValidationError("event: is not of the form noun.verb", field="event")
    if event.partition(".")[0] in ENGINE_NOUNS:
        raise ValidationError("event: is a name of the engine; use a noun of your domain", field="event")
    return written_detail(detail)


def written_detail(detail: Mapping[str, Any]) -> str:
    """A detail as it is stored: JSON, bounded, without secrets."""
    try:
        plain = msgspec.to_builtins(dict(detail), str_keys=True)
        text = msgspec.json.encode(_masked(plain, 0)).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        if isinstance(error, ValidationError):
            raise
        raise ValidationError("detail: cannot be written as JSON", field="detail") from None
    if len(text.encode()) > MAX_DETAIL:
        raise ValidationError(
            f"detail: is larger than {MAX_DETAIL // 1024} KiB: keep a reference to it", field="detail"
        )
    return text


def _masked(value: Any, depth: int) -> Any:
    if depth > MAX_DEPTH:
        raise ValidationError(f"detail: is nested deeper than {MAX_DEPTH} levels", field="detail")
    if isinstance(value, dict):
        return {sanitize(key): MASK if names_secret(key) else _masked(item, depth + 1) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_masked(item, depth + 1) for item in value]
    return sanitize(value, MAX_DETAIL) if isinstance(value, str) else value
