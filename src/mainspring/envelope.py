"""Completing and checking jobs on their way to the database: the last pure step of an enqueue."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from mainspring.caller import Caller, current
from mainspring.checks import check_job, clean_traceparent, payload_key
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
    actor = job if job.actor_id else caller if caller.actor_id else defaults
    job = replace(
        job,
        id=job.id or uuid7(),
        org_id=job.org_id or caller.org_id or defaults.org_id,
        project_id=job.project_id or caller.project_id or defaults.project_id,
        actor_type=actor.actor_type,
        actor_id=actor.actor_id,
        request_id=job.request_id or caller.request_id or defaults.request_id,
        correlation_id=job.correlation_id or caller.correlation_id or defaults.correlation_id,
        parent_id=job.parent_id or caller.parent_id,
        traceparent=clean_traceparent(job.traceparent or caller.traceparent or defaults.traceparent),
    )
    if job.by_payload and job.key is None:
        job = replace(job, key=payload_key(job.task, job.org_id or DEFAULT_ORG, job.project_id, job.payload))
    check_job(job)
    return job


def encode(jobs: Sequence[NewJob]) -> str:
    """The jobs as the one JSON parameter of `enqueue_many`."""
    return _encode(jobs).decode()
