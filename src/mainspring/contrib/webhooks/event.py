"""An event that webhooks tell of: checked, and its body built once. Pure."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from uuid import UUID, uuid5

import msgspec

from mainspring.checks import check_instant
from mainspring.errors import ValidationError
from mainspring.text.document import check_payload, stable_hash
from mainspring.text.texts import text_problem
from mainspring.uuid7 import uuid7

MAX_TYPE: Final = 100
MAX_ID: Final = 200
PING: Final = "webhook.ping"

_TYPE: Final = re.compile(rf"[A-Za-z][A-Za-z0-9_.:-]{{0,{MAX_TYPE - 1}}}")


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """Something that happened to an aggregate, such as a booking; made by `event`."""

    type: str
    aggregate_type: str
    aggregate_id: str
    payload: bytes
    id: UUID
    occurred_at: datetime | None  # None: when it is published

    def body(self, now: datetime) -> str:
        """What receivers get: the same text for each of them, and on each attempt.

        >>> now = datetime(2026, 3, 4, 10, tzinfo=UTC)
        >>> event("order.paid", {"total": 7}, ("Order", 1), id=UUID(int=1)).body(now)[51:]
        '"event_type":"order.paid","aggregate_type":"Order","aggregate_id":"1","occurred_at":"2026-03-04T10:00:00Z","payload":{"total":7}}'
        """
        told = {
            "event_id": self.id,
            "event_type": self.type,
            "aggregate_type": self.aggregate_type,
            "aggregate_id": self.aggregate_id,
            "occurred_at": (self.occurred_at or now).astimezone(UTC),
            "payload": msgspec.Raw(self.payload),
        }
        return msgspec.json.encode(told).decode()


def event(
    type: str,
    payload: Any,
    aggregate: tuple[str, object],
    *,
    id: UUID | str | None = None,
    occurred_at: datetime | None = None,
    job: UUID | None = None,
) -> WebhookEvent:
    """An event, or one clear error. `job`: the one that tells it; its next attempt tells the same event again."""
    check_type("event_type", type)
    try:
        kind, key = aggregate
    except (TypeError, ValueError):
        raise ValidationError("aggregate: is not a type and an id", field="aggregate") from None
    for field, value, most in (("aggregate_type", kind, MAX_TYPE), ("aggregate_id", str(key), MAX_ID)):
        if problem := text_problem(value, most):
            raise ValidationError(f"{field}: {problem}", field=field)
    if occurred_at is not None:
        check_instant("occurred_at", occurred_at)
    raw = _written(payload)
    if id is None:
        # Another payload is another event: nothing that a handler tells twice on purpose is swallowed.
        parts = [type, kind, str(key), occurred_at, stable_hash(raw)]
        id = uuid7() if job is None else uuid5(job, msgspec.json.encode(parts).decode())
    return WebhookEvent(type, kind, str(key), raw, _uuid(id), occurred_at)


def check_type(field: str, type: object) -> None:
    """Refuse what is no name of an event: it goes into a header."""
    if not isinstance(type, str) or not _TYPE.fullmatch(type):
        raise ValidationError(f"{field}: is not a name such as order.paid, of letters, digits and . _ : -", field=field)


def _uuid(id: object) -> UUID:
    try:
        return id if isinstance(id, UUID) else UUID(str(id))
    except ValueError:
        raise ValidationError("event_id: is not a UUID", field="event_id") from None


def _written(payload: Any) -> bytes:
    try:
        plain = msgspec.to_builtins(payload, str_keys=True)
        raw = json.dumps(plain, allow_nan=False, ensure_ascii=False, separators=(",", ":")).encode()
    except (TypeError, ValueError, OverflowError, RecursionError):  # NaN, half a surrogate pair, a circle, a socket
        raise ValidationError("payload: cannot be written as JSON", field="payload") from None
    check_payload(raw)
    return raw
