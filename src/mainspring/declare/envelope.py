"""Completing and checking jobs on their way to the database: the last pure step of an enqueue."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.checks import check_job, clean_traceparent
from mainspring.declare.caller import NOBODY, Caller, current
from mainspring.declare.trace import ambient
from mainspring.errors import ValidationError
from mainspring.job import DEFAULT_ORG, NewJob, no_job
from mainspring.text.document import payload_key, stable_hash
from mainspring.uuid7 import uuid7

_encode = msgspec.json.Encoder().encode


def complete(jobs: Sequence[NewJob], defaults: Caller) -> list[NewJob]:
    """Fill each job's envelope from the calling context, then from the client's defaults, and check it.

    What stays empty is filled by the database: organisation `default`, actor `system`/`SYSTEM`, ids of its own.
    An empty text was said too: it is refused, not replaced.
    """
    for job in jobs:
        if not isinstance(job, NewJob):
            raise no_job(job)
    caller = merged(current(), defaults)
    if (traceparent := ambient(jobs)) is not None:
        caller = dataclasses.replace(caller, traceparent=traceparent)
    return [_complete(job, caller) for job in jobs]


def derived_key(parent: UUID, job: NewJob, repeats: Counter[str]) -> str:
    """The key of a follow-up that is the same on every attempt of its parent; `repeats` tells equal ones apart."""
    same = f"{parent}:{job.task}:{stable_hash(job.payload)[:16]}"
    repeats[same] += 1
    return f"{same}:{repeats[same]}"


def merged(caller: Caller, defaults: Caller) -> Caller:
    """The calling context, and where it says nothing, the client's defaults."""
    if caller is NOBODY:
        return defaults
    actor = caller if caller.actor_id is not None or caller.actor_type is not None else defaults
    return Caller(
        org_id=defaults.org_id if caller.org_id is None else caller.org_id,
        project_id=caller.project_id or defaults.project_id,
        actor_type=actor.actor_type,
        actor_id=actor.actor_id,
        request_id=defaults.request_id if caller.request_id is None else caller.request_id,
        correlation_id=defaults.correlation_id if caller.correlation_id is None else caller.correlation_id,
        parent_id=caller.parent_id,
        traceparent=caller.traceparent or defaults.traceparent,
    )


def _complete(job: NewJob, caller: Caller) -> NewJob:
    if caller is NOBODY:  # a bare script or a single tenant: nothing to take over
        new_id = uuid7() if job.id is None else job.id
        job = replace(job, id=new_id, traceparent=job.traceparent and clean_traceparent(job.traceparent))
    else:
        job = _taken_over(job, caller)
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


def _taken_over(job: NewJob, caller: Caller) -> NewJob:
    actor = job if job.actor_id is not None or job.actor_type is not None else caller
    return replace(
        job,
        id=uuid7() if job.id is None else job.id,
        org_id=caller.org_id if job.org_id is None else job.org_id,
        project_id=job.project_id or caller.project_id,
        actor_type=actor.actor_type,
        actor_id=actor.actor_id,
        request_id=caller.request_id if job.request_id is None else job.request_id,
        correlation_id=caller.correlation_id if job.correlation_id is None else job.correlation_id,
        parent_id=job.parent_id or caller.parent_id,
        traceparent=clean_traceparent(job.traceparent or caller.traceparent),
    )


def _utc(field: str, at: datetime | None) -> datetime | None:
    """The same instant in UTC: zones with seconds or far from Greenwich are no offset that every reader knows."""
    try:
        return at and at.astimezone(UTC)
    except OverflowError:  # the first hours of year 1
        raise ValidationError(f"{field}: lies before the year 1", field=field) from None


def encode(jobs: Sequence[NewJob]) -> str:
    """The jobs as the one JSON parameter of `enqueue_many`."""
    return _encode(jobs).decode()
