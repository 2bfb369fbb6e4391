"""What people decide about a dead letter, as dialogues: replay, discard, fix forward.

Each needs a reason and is audited with the person, before and after.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from mainspring.db import jobs
from mainspring.db.cipher import Keyring
from mainspring.db.dead import refused
from mainspring.db.jobs import Who, named, why
from mainspring.db.readable import is_encrypted, key_in, readable_job
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask, scalar
from mainspring.declare.task import Task
from mainspring.errors import TransitionRefused, ValidationError
from mainspring.job import Id
from mainspring.text.diff import diff, without_secrets
from mainspring.text.document import read_payload
from mainspring.uuid7 import uuid7


class Fix(msgspec.Struct, frozen=True, kw_only=True):
    """A job and its successor with a corrected payload; `checked`: against the task's own types."""

    job: UUID
    successor: UUID | None  # None after a dry run
    payload: dict[str, Any]
    diff: list[dict[str, Any]]
    checked: bool
    dry_run: bool


def check_reason(reason: str | None) -> str:
    """Refuse a decision that does not say why; the reason as it is kept."""
    said = why(reason)
    if said is None:
        raise ValidationError("reason: is missing", field="reason")
    return said


def replay(sql: Sql, job_id: Id, who: Who, reason: str) -> Dialogue[None]:
    """Make a failed or dead job ready again, attempts 0."""
    reason = check_reason(reason)
    params = named(job_id, who) | {"reason": reason}
    moved, in_the_way = yield from ask(Statement(sql["replay"], params, lambda rows: rows[0]))
    if in_the_way is not None:
        text = f"job {job_id} cannot be replayed while job {in_the_way} of its key is not finished"
        raise TransitionRefused(text, verb="replay", state=None, job_id=job_id)
    if not moved:
        raise refused("replay", (yield from jobs.get(sql, job_id, who)))


def discard(sql: Sql, job_id: Id, who: Who, reason: str) -> Dialogue[None]:
    """Take a dead letter off the open list; it stays as it is."""
    reason = check_reason(reason)
    params = named(job_id, who) | {"reason": reason}
    if not (yield from ask(Statement(sql["discard"], params, scalar))):
        raise refused("discard", (yield from jobs.get(sql, job_id, who)))


def fix(
    sql: Sql,
    job_id: Id,
    who: Who,
    reason: str,
    *,
    payload: Mapping[str, Any] | None = None,
    set: Mapping[str, Any] | None = None,
    unset: Sequence[str] = (),
    task: Task[Any, Any] | None = None,
    dry_run: bool = False,
    ring: Keyring | None = None,
) -> Dialogue[Fix]:
    """Enqueue a successor with a corrected payload: a whole one, or the old one with fields set and unset."""
    reason = check_reason(reason)
    if (payload is not None) == bool(set or unset):
        raise ValidationError("payload: give either a whole payload, or fields to set or unset", field="payload")
    job = yield from jobs.get(sql, job_id, who)
    key = key_in(job)
    if ring is not None and key is not None:
        job = readable_job(job, ring.to_read(job.org_id, key))
    if is_encrypted(job):
        raise ValidationError("payload: is encrypted, and cannot be read here", field="payload")
    if task is not None and job.task not in (task.name, *task.aliases):
        raise ValidationError(f"task: job {job_id} is of task {job.task}", field="task")
    for name in unset:
        if name not in job.payload:
            raise ValidationError(f"{name}: is not in the payload", field=name)
    kept = {name: value for name, value in job.payload.items() if name not in unset}
    raw = _written(payload if payload is not None else kept | dict(set or {}), task)
    after = msgspec.json.decode(raw)
    changes = without_secrets(diff(job.payload, after))  # people read them, and the trail outlives the payload
    if not changes:
        raise ValidationError("payload: is unchanged; replay the job instead", field="payload")
    successor = uuid7()
    text, kept_diff = raw.decode(), changes
    if ring is not None and key is not None:
        text, kept_diff = ring.sealed_again(job, successor, raw), [{"op": c["op"], "path": c["path"]} for c in changes]
    params = named(job_id, who) | {"new": str(successor), "payload": text, "reason": reason}
    params |= {"diff": msgspec.json.encode(kept_diff).decode(), "dry_run": str(dry_run)}
    moved, in_the_way = yield from ask(Statement(sql["fix_forward"], params, lambda rows: rows[0]))
    if in_the_way is not None:
        text = f"job {job_id} cannot be fixed while job {in_the_way} of its key is not finished"
        raise TransitionRefused(text, verb="fix", state=job.state, job_id=job.id)
    if not moved:
        raise refused("fix", (yield from jobs.get(sql, job_id, who)))
    return Fix(
        job=job.id,
        successor=None if dry_run else successor,
        payload=after,
        diff=changes,
        checked=task is not None,
        dry_run=dry_run,
    )


def _written(values: Mapping[str, Any], task: Task[Any, Any] | None) -> bytes:
    """The corrected payload, as enqueue would write it: by the task's own types where it is known."""
    try:
        text = json.dumps(values, default=msgspec.to_builtins)  # keeps NaN, which the check then refuses
    except (TypeError, ValueError, RecursionError) as error:
        raise ValidationError(f"payload: {str(error)[:200]}", field="payload") from None
    return bytes(read_payload(text) if task is None else task.typed(text).payload)
