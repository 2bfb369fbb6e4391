"""What a job must be to be enqueued. Every refusal names the field and does not repeat its value.

Bulk enqueue checks tens of thousands of jobs a second, so each check first asks a cheap question that clears nearly
every job, and looks closely only at the others.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from functools import lru_cache
from typing import Final, NoReturn, get_args
from uuid import UUID

from mainspring.dedupe import MODES
from mainspring.errors import ValidationError
from mainspring.job import ActorType, NewJob
from mainspring.queue import DEAD_LETTER
from mainspring.retry import MAX_ATTEMPTS
from mainspring.text.document import check_payload
from mainspring.text.sanitize import sanitize
from mainspring.text.texts import MAX_KEY, MAX_NAME, MAX_QUEUE, did_you_mean, text_problem

LOWEST_PRIORITY: Final = 3
LONGEST_DELAY: Final = timedelta(days=3653)
LAST_YEAR: Final = 2200
_ZERO: Final = timedelta(0)

_TRACEPARENT: Final = re.compile(r"(?!ff)[0-9a-f]{2}-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def check_job(job: NewJob) -> None:
    """Refuse a job that must not be written.

    >>> from msgspec import Raw
    >>> check_job(NewJob(task="greet", payload=Raw(b"{}"), priority=7))
    Traceback (most recent call last):
    mainspring.errors.ValidationError: priority: is not a whole number from 0 to 3
    """
    check_envelope(job)
    check_payload(job.payload, job.allow_secrets)


def check_envelope(job: NewJob) -> None:
    """Refuse a job whose fields around the payload are missing or wrong; `traceparent` is cleaned, not refused."""
    try:
        _check_task(job.task, job.queue, job.priority, job.max_attempts)
        _check_caller(job.org_id, job.actor_type, job.actor_id, job.request_id, job.correlation_id)
    except TypeError:  # a list, say, cannot be remembered: ask the functions behind the memory
        _check_task.__wrapped__(job.task, job.queue, job.priority, job.max_attempts)
        _check_caller.__wrapped__(job.org_id, job.actor_type, job.actor_id, job.request_id, job.correlation_id)
    if job.id is not None and not isinstance(job.id, UUID):
        _refuse("id", "is not a UUID")
    if job.project_id is not None and not isinstance(job.project_id, UUID):
        _refuse("project_id", "is not a UUID")
    if job.parent_id is not None and not isinstance(job.parent_id, UUID):
        _refuse("parent_id", "is not a UUID")
    if job.project_scoped and job.project_id is None:
        _refuse("project_id", f"is missing: {job.task} belongs to a project")
    if job.created_at is not None:
        check_instant("created_at", job.created_at)
    if job.scheduled_for is not None or job.delay is not None:
        _check_due(job)
    if job.key is not None:
        _check_text("key", job.key, MAX_KEY)
    if job.strand is not None:
        _check_text("strand", job.strand, MAX_NAME)
    if job.mode is not None or job.reset or job.unless_live:
        _check_mode(job)


def check_subject(subject: object) -> str:
    """What an event, a message or an alert is about, as it is stored: by this text people find it.

    >>> check_subject("booking 17")
    'booking 17'
    """
    _check_text("subject", subject, MAX_NAME)
    return sanitize(str(subject))


# Jobs of one task, and jobs of one request, repeat these values: they are remembered, refusals are not.
@lru_cache(maxsize=1024, typed=True)
def _check_task(task: object, queue: object, priority: object, max_attempts: object) -> None:
    _check_text("task", task, MAX_NAME)
    _check_text("queue", queue, MAX_QUEUE)
    if queue == DEAD_LETTER:
        _refuse("queue", f"{DEAD_LETTER} holds dead jobs; nothing is enqueued to it")
    check_number("priority", priority, 0, LOWEST_PRIORITY)
    check_number("max_attempts", max_attempts, 1, MAX_ATTEMPTS)


@lru_cache(maxsize=1024, typed=True)
def _check_caller(
    org_id: object, actor_type: object, actor_id: object, request_id: object, correlation_id: object
) -> None:
    # What is not said is completed later: by the calling context, at last by the database. Half an actor is a mistake.
    if actor_type is not None or actor_id is not None:
        _check_text("actor_id", actor_id, MAX_NAME)
        if actor_type not in get_args(ActorType):
            _refuse("actor_type", f"is not one of {', '.join(get_args(ActorType))}")
    for field, value in (("org_id", org_id), ("request_id", request_id), ("correlation_id", correlation_id)):
        if value is not None:
            _check_text(field, value, MAX_NAME)


def _check_due(job: NewJob) -> None:
    if not job.schedulable:
        _refuse("scheduled_for", f"is not allowed: {job.task} cannot be scheduled")
    if job.scheduled_for is not None:
        check_instant("scheduled_for", job.scheduled_for)
    if job.delay is not None:
        check_span("delay", job.delay)
        if job.scheduled_for is not None:
            _refuse("delay", "is given together with scheduled_for")


def _check_mode(job: NewJob) -> None:
    if job.mode is not None and job.mode not in MODES:
        _refuse("mode", f"is not one of {', '.join(MODES)}{did_you_mean(job.mode, MODES)}")
    if job.key is None and not job.by_payload:
        _refuse("key", f"is missing: {job.mode or ('reset' if job.reset else 'unless_live')} needs one")
    if job.mode == "debounce":
        check_span("wait", job.wait)
    if job.ttl is not None:
        check_span("ttl", job.ttl)


def _check_text(field: str, value: object, limit: int) -> None:
    if problem := text_problem(value, limit):
        _refuse(field, problem)


def check_number(field: str, value: object, low: int, high: int) -> None:
    """Refuse what is no whole number of a range."""
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        _refuse(field, f"is not a whole number from {low} to {high}")


def check_instant(field: str, value: object) -> None:
    """Refuse what is no instant, or one that no calendar of a server or a handler reaches."""
    if not isinstance(value, datetime) or value.utcoffset() is None:
        _refuse(field, "is not a time with a time zone")
    if value.year > LAST_YEAR:
        _refuse(field, f"lies after the year {LAST_YEAR}")


def check_span(field: str, value: object) -> None:
    """Refuse what is no time span, a negative one, and one that nobody means."""
    if not isinstance(value, timedelta) or not _ZERO <= value <= LONGEST_DELAY:
        _refuse(field, "is missing" if value is None else "is not a time span from 0 to 10 years")


def clean_traceparent(value: object) -> str | None:
    """The value if it is a W3C trace context, else None: a broken trace must not cost a job.

    >>> clean_traceparent("nonsense") is None
    True
    """
    return value if isinstance(value, str) and _TRACEPARENT.fullmatch(value) else None


def _refuse(field: str, problem: str) -> NoReturn:
    raise ValidationError(f"{field}: {problem}", field=field)
