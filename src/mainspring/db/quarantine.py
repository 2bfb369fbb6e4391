"""Tasks that are held back because their jobs kill workers: see them, and let them go, as dialogues."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring.db.jobs import Who, check_texts, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, scalar
from mainspring.errors import ValidationError
from mainspring.text.texts import MAX_NAME


class Quarantined(msgspec.Struct, frozen=True, kw_only=True):
    """A task in quarantine: since when, the workers that its jobs killed, and how many of the oldest 10,000 wait."""

    task: str
    held_at: datetime
    workers: list[str]
    next_probe: datetime
    waiting: int


_decode = msgspec.json.Decoder(Quarantined).decode


def listing(sql: Sql) -> Dialogue[list[Quarantined]]:
    """Every task in quarantine, the oldest first."""
    read = lambda rows: [_decode(row[0]) for row in rows]  # noqa: E731 (used once)
    found: list[Quarantined] = yield from ask(Statement(sql["list_quarantine"], {}, read))
    return found


def release(sql: Sql, task: str, who: Who, *, reason: str) -> Dialogue[bool]:
    """Let a task go; False: it was not in quarantine."""
    check_texts(MAX_NAME, task=task)
    if reason is None:
        raise ValidationError("reason: is missing", field="reason")
    about = {"task": task, "actor_type": who.actor_type, "actor_id": who.actor_id, "reason": why(reason)}
    changed: bool = yield from ask(Statement(sql["release_quarantine"], about, scalar))
    return changed
