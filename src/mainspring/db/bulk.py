"""Decisions about many dead letters, as a dialogue: counted first, then replayed or discarded batch by batch.

A batch is a transaction of its own, and waits for nobody: what somebody else works on is left alone. So an act that was
broken off is run again to take the rest, and two at once share the work.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from mainspring.db import jobs
from mainspring.db.audit import instant
from mainspring.db.dead import OPEN, Only, filters
from mainspring.db.decisions import check_reason
from mainspring.db.jobs import Who, check_limit
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, nothing, scalar
from mainspring.errors import ValidationError
from mainspring.uuid7 import uuid7

#: So many are replayed or discarded in one transaction.
DECISION_BATCH = 500
#: Replays a second.
SLOWEST, FASTEST = 0.001, 10_000
#: Replays begin within this time.
LATEST_REPLAY = timedelta(days=366)


class Bulk(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters were meant, moved, and left alone because their key or they were in use."""

    matched: int
    moved: int = 0
    skipped: int = 0
    next_due_at: datetime | None = None  # of the rest, at this rate
    dry_run: bool = False


def act(
    sql: Sql,
    verb: Literal["replay", "discard"],
    who: Who,
    only: Only,
    reason: str | None,
    *,
    rate: float | None = None,
    first_due_at: datetime | None = None,
    limit: int | None = None,
    dry_run: bool = False,
) -> Dialogue[Bulk]:
    """Replay or discard the dead letters that are meant, the oldest first; what dies meanwhile is not taken again.

    `rate` spreads the due times of replayed jobs: so many a second, the first now or at `first_due_at`. `limit` stops
    after so many.
    """
    wanted = filters(who, only)
    if rate is not None and not SLOWEST <= rate <= FASTEST:
        raise ValidationError(f"rate: is not between {SLOWEST} and {FASTEST} a second", field="rate")
    if limit is not None:
        check_limit(limit, 10_000_000)
    instant("first_due_at", first_due_at)
    if reason is not None or not dry_run:
        reason = check_reason(reason)
    matched: int = yield from ask(Statement(sql["count_dead"], wanted, scalar, long=True))
    if dry_run or not matched:
        return Bulk(matched=matched, dry_run=dry_run)
    params: dict[str, Any] = {"actor_type": who.actor_type, "actor_id": who.actor_id, "reason": reason}
    params["bulk"] = str(uuid7())
    now = yield from jobs.now(sql)
    due = max(now, first_due_at or now)
    if due > now + LATEST_REPLAY:
        raise ValidationError("first_due_at: is more than a year away", field="first_due_at")
    start = now.isoformat()
    said = {name: value for name, value in wanted.items() if value is not None}
    detail = {
        "filter": said,
        "matched": matched,
        "rate": rate,
        "limit": limit,
        "bulk": params["bulk"],
        "reason": reason,
    }
    about = {"event": f"dead_letters.{verb}", "org": who.org_id, "detail": msgspec.json.encode(detail).decode()}
    yield from ask(Statement(sql["record_bulk"], params | about, nothing))
    every = f"{1 / rate} s" if rate else None
    seen = moved = 0
    for state in [wanted["state"]] if wanted["state"] else OPEN:  # one at a time: the index goes by state and instant
        last = {"last_at": "-infinity", "last_id": str(UUID(int=0))}
        while room := DECISION_BATCH if limit is None else min(DECISION_BATCH, limit - moved):
            place = wanted | last | {"state": state, "start": start, "limit": room}
            found = yield from ask(Statement(sql["batch_dead"], place, list, long=True))
            if not found:
                break
            last = {"last_at": found[-1][1], "last_id": str(found[-1][0])}
            ids = "{" + ",".join(str(row[0]) for row in found) + "}"
            batch = params | {"ids": ids, "due": due.isoformat(), "every": every, "moved": moved}
            moved += yield from ask(Statement(sql[f"{verb}_many"], batch, scalar, long=True, org=who.org_id))
            seen += len(found)
    rest = due + timedelta(seconds=moved / rate) if rate and seen < matched else None
    return Bulk(matched=matched, moved=moved, skipped=seen - moved, next_due_at=rest)
