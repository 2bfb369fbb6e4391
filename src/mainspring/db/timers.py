"""Timers: jobs that start at an instant and are addressed by their key."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.db.jobs import CancelOutcome, Who, check_texts, to_uuid, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Row, Statement, ask
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG, NewJob
from mainspring.text.texts import MAX_KEY, text_problem


class Timer(msgspec.Struct, frozen=True, kw_only=True):
    """What is under way for a key: a job that waits, or the one that runs.

    `due_at` is when it may start. `behind` is the running job of the same key that must end first, if there is one.
    """

    key: str
    job_id: UUID
    task: str
    state: str  # scheduled, ready, retrying or running
    due_at: datetime
    behind: UUID | None


def timer(job: NewJob) -> NewJob:
    """A job as a timer: it takes the place of the one under its key that has not started."""
    if job.key is None:
        raise ValidationError("key: is missing: a timer is addressed by it, .with_key(...)", field="key")
    if job.scheduled_for is None and job.delay is None:
        raise ValidationError("scheduled_for: is missing: when, .at(...) or .after(...)?", field="scheduled_for")
    return replace(job, mode="replace", wait=None)


def cancel_many(
    sql: Sql, keys: Sequence[str], who: Who, reason: str | None = None
) -> Dialogue[dict[str, CancelOutcome]]:
    """Stop what is under way for these keys; the answer of each."""
    for key in keys:
        check_texts(MAX_KEY, keys=key)
    if not keys:
        return {}
    params: dict[str, str | int | None] = {"org": who.org_id or DEFAULT_ORG, "keys": json.dumps(list(keys))}
    params |= {"actor_type": who.actor_type, "actor_id": who.actor_id, "reason": why(reason)}
    return (yield from ask(Statement(sql["cancel_many"], params, lambda rows: {row[0]: row[1] for row in rows})))


def get(sql: Sql, key: str, who: Who) -> Dialogue[Timer | None]:
    """What is under way for a key, or None."""
    if problem := text_problem(key, MAX_KEY):
        raise ValidationError(f"key: {problem}", field="key")
    params = {"org": who.org_id or DEFAULT_ORG, "key": key}

    def read(rows: Sequence[Row]) -> Timer | None:
        for job_id, task, state, due_at, behind in rows:
            return Timer(
                key=key,
                job_id=to_uuid(job_id),
                task=task,
                state=state,
                due_at=due_at,
                behind=behind and to_uuid(behind),
            )
        return None

    return (yield from ask(Statement(sql["get_timer"], params, read)))
