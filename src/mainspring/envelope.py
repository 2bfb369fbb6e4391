"""Completing and checking jobs on their way to the database: the last pure step of an enqueue."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime

import msgspec
from msgspec.structs import replace

from mainspring.caller import Caller, current
from mainspring.checks import check_job, clean_traceparent, payload_key
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG, NewJob
from mainspring.uuid7 import uuid7

_encode = msgspec.json.Encoder().encode


def complete(jobs: Sequence[NewJob], defaults: Caller) -> list[NewJob]:
    """Fill each job's envelope from the calling context, then from the client's defaults, and check it.

    What stays empty is filled by the database: organisation `default`, actor `system`/`SYSTEM`, ids of its own.
    """
    caller = current()
    return [_complete(job, caller, defaults) for job in jobs]


def _complete(job: NewJob, caller: Caller, defaults: Caller) -> NewJob:
    actor = next((who for who in (job, caller) if who.actor_id is not None or who.actor_type is not None), defaults)
    job = replace(
        job,
        id=job.id or uuid7(),
        org_id=_first(job.org_id, caller.org_id, defaults.org_id),
        project_id=job.project_id or caller.project_id or defaults.project_id,
        actor_type=actor.actor_type,
        actor_id=actor.actor_id,
        request_id=_first(job.request_id, caller.request_id, defaults.request_id),
        correlation_id=_first(job.correlation_id, caller.correlation_id, defaults.correlation_id),
        parent_id=job.parent_id or caller.parent_id,
        traceparent=clean_traceparent(job.traceparent or caller.traceparent or defaults.traceparent),
    )
    if job.by_payload and job.key is None:
        job = replace(job, key=payload_key(job.task, job.org_id or DEFAULT_ORG, job.project_id, job.payload))
    check_job(job)
    if job.scheduled_for is not None or job.created_at is not None:
        job = replace(
            job,
            scheduled_for=_utc("scheduled_for", job.scheduled_for),
            created_at=_utc("created_at", job.created_at),
        )
    return job


def _first(own: str | None, callers: str | None, default: str | None) -> str | None:
    """The nearest text that was said; an empty one was said too, and is refused rather than replaced."""
    return own if own is not None else callers if callers is not None else default


def _utc(field: str, at: datetime | None) -> datetime | None:
    """The same instant in UTC: zones with seconds or far from Greenwich are no offset that every reader knows."""
    try:
        return at and at.astimezone(UTC)
    except OverflowError:  # the first hours of year 1
        raise ValidationError(f"{field}: lies before the year 1", field=field) from None


def encode(jobs: Sequence[NewJob]) -> str:
    """The jobs as the one JSON parameter of `enqueue_many`."""
    return _encode(jobs).decode()
