"""One function a verb: what clients do with jobs, as statements and dialogues."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import Any, Literal
from uuid import UUID

import msgspec

from mainspring.checks import LOWEST_PRIORITY, check_instant, check_number, check_span
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Row, Statement, ask, nothing, scalar
from mainspring.declare.envelope import encode
from mainspring.errors import JobNotFound, TransitionRefused, ValidationError
from mainspring.job import DEFAULT_ORG, SYSTEM, ActorType, Enqueued, Id, Job, NewJob
from mainspring.states import FINISHED, State
from mainspring.text.sanitize import mask
from mainspring.text.texts import MAX_KEY, MAX_NAME, MAX_REASON, text_problem
from mainspring.uuid7 import FEWEST_DIGITS, beginning_with

CancelOutcome = Literal["cancelled", "cancel_requested", "already_finished", "not_cancellable", "not_found"]
_decode_job = msgspec.json.Decoder(Job).decode


def read_job(text: str) -> Job:
    """A job of the view; a number put in by hand that none of Python's can hold is read as text."""
    try:
        return _decode_job(text)
    except msgspec.ValidationError:
        return msgspec.convert(json.loads(text, parse_int=_number, parse_float=_number), Job, strict=False)


def _number(text: str) -> Any:
    try:
        return int(text)
    except ValueError:  # a fraction, or more digits than Python turns into a number
        value = float(text)
        return value if "." in text and math.isfinite(value) else text


class Attempt(msgspec.Struct, frozen=True, kw_only=True):
    """One execution of a job, as the view `mainspring.attempts` shows it."""

    attempt: int
    epoch: int
    worker: str
    started_at: datetime
    ended_at: datetime | None
    outcome: str
    error: dict[str, Any] | None


_decode_attempt = msgspec.json.Decoder(Attempt).decode


class Who(msgspec.Struct, frozen=True):
    """Who acts on a job, for the audit trail, and in which organisation (None: any)."""

    org_id: str | None = None
    actor_type: ActorType = "system"
    actor_id: str = "SYSTEM"

    def __post_init__(self) -> None:
        check_texts(MAX_NAME, org=self.org_id, actor_id=self.actor_id)


def why(reason: str | None) -> str | None:
    """A reason as it is kept: one that can be read, and tells no secret."""
    check_texts(MAX_REASON, reason=reason)
    return reason and mask(reason)


def check_texts(limit: int, **texts: str | None) -> None:
    """Refuse a text that no job can have, or that the database cannot hold, by its name."""
    for field, text in texts.items():
        if text is not None and (problem := text_problem(text, limit)):
            raise ValidationError(f"{field}: {problem}", field=field)


#: So many jobs go into one statement; more gain nothing.
ENQUEUE_PORTION = 1000


def enqueue_many(
    sql: Sql, jobs: Sequence[NewJob], *, portion: int = ENQUEUE_PORTION, by_org: bool = False
) -> Dialogue[list[Enqueued]]:
    """Insert completed and checked jobs; all or none when the dialogue runs in one transaction, or is one portion."""
    answers: list[Enqueued] = []
    for some in portions(jobs, portion, by_org):
        org = some[0].org_id or DEFAULT_ORG
        answers += yield from ask(Statement(sql["enqueue_many"], {"jobs": encode(some)}, answers_of, org=org))
    return answers


def portions(jobs: Sequence[NewJob], portion: int, by_org: bool) -> Iterator[Sequence[NewJob]]:
    """Jobs in portions of one statement each; on a secured schema a statement is of one organisation."""
    if by_org:
        for _, same in groupby(jobs, lambda job: job.org_id or DEFAULT_ORG):
            yield from portions(list(same), portion, False)
    else:
        for start in range(0, len(jobs), portion):
            yield jobs[start : start + portion]


def enqueue_one(sql: Sql, job: NewJob) -> Dialogue[list[Enqueued]]:
    """Insert one completed and checked job that is due now and has no key; any other goes to enqueue_many."""
    timed = job.scheduled_for or job.delay or job.created_at or job.wait
    if job.key or timed or job.strand or job.best_effort or job.id is None:
        return (yield from enqueue_many(sql, [job]))
    job_id = str(job.id)
    params: dict[str, str | int | None] = {
        "id": job_id,
        "org_id": job.org_id or DEFAULT_ORG,
        "task": job.task,
        "queue": job.queue,
        "priority": job.priority,
        "max_attempts": job.max_attempts,
        "cancellable": job.cancellable,
        "payload": bytes(job.payload).decode(),
        "project_id": str(job.project_id) if job.project_id else None,
        "actor_type": job.actor_type or "system",
        "actor_id": job.actor_id or SYSTEM,
        "request_id": job.request_id or job_id,
        "correlation_id": job.correlation_id or job_id,
        "parent_id": str(job.parent_id) if job.parent_id else None,
        "traceparent": job.traceparent,
    }
    yield from ask(Statement(sql["enqueue_one"], params, nothing))
    return [Enqueued(job.id, "created", "ready")]


def enqueue_again(sql: Sql, jobs: Sequence[NewJob], *, by_org: bool = False) -> Dialogue[list[Enqueued]]:
    """The same after a connection was lost on the way: what did commit is not inserted twice, the ids tell.

    A job that is not there has either not committed, or its key was taken: both are answered by asking once more.
    """
    states: dict[UUID, str] = {}
    for some in portions(jobs, len(jobs), by_org):
        states |= yield from known(sql, some)
    rest = iter((yield from enqueue_many(sql, [job for job in jobs if job.id not in states], by_org=by_org)))
    return [
        Enqueued(job.id, "created", states[job.id]) if job.id is not None and job.id in states else next(rest)
        for job in jobs
    ]


def answers_of(rows: Sequence[Row]) -> list[Enqueued]:
    """What enqueue answered, in order."""
    return [Enqueued(to_uuid(row[0]), row[1], row[2]) for row in rows]


def to_uuid(value: Any) -> UUID:
    """An id as every driver gives it."""
    return value if type(value) is UUID else UUID(str(value))


def known(sql: Sql, jobs: Sequence[NewJob]) -> Dialogue[dict[UUID, str]]:
    """The state of those of these jobs that exist: asked after a connection was lost during their enqueue."""
    ids = "{" + ",".join(str(job.id) for job in jobs) + "}"
    org = jobs[0].org_id or DEFAULT_ORG
    return (
        yield from ask(
            Statement(sql["known_jobs"], {"ids": ids}, lambda rows: {to_uuid(r[0]): r[1] for r in rows}, org=org)
        )
    )


def get(sql: Sql, job_id: Id, who: Who) -> Dialogue[Job]:
    """One job, or JobNotFound."""
    params = {"id": str(check_id(job_id)), "org": who.org_id}
    text = yield from ask(Statement(sql["get_job"], params, scalar))
    if text is None:
        raise JobNotFound(f"there is no job {job_id}", job_id=check_id(job_id))
    return read_job(text)


def get_by(sql: Sql, who: Who, job: Id | None, key: str | None) -> Dialogue[Job]:
    """One job by its id, or the last one that was enqueued under a key."""
    job_id = yield from find(sql, who, job, key)
    if job_id is None:
        raise JobNotFound("there is no job under this key")
    return (yield from get(sql, job_id, who))


def select(
    sql: Sql,
    who: Who,
    *,
    state: str | None = None,
    queue: str | None = None,
    task: str | None = None,
    prefix: str | None = None,
    before: Id | None = None,
    limit: int = 50,
) -> Dialogue[list[Job]]:
    """Jobs by filter, newest first; `before` continues after the last one seen."""
    check_limit(limit, 1000)
    if state is not None and state not in State.__members__.values():
        raise ValidationError(f"state: is not one of {', '.join(State)}", field="state")
    check_texts(MAX_NAME, queue=queue, task=task)
    params: dict[str, str | int | None] = {
        "org": who.org_id,
        "state": state,
        "queue": queue,
        "task": task,
        "limit": limit,
        **id_range(prefix),
    }
    params["before"] = None if before is None else str(check_id(before, "before"))
    return (yield from ask(Statement(sql["list_jobs"], params, lambda rows: [read_job(r[0]) for r in rows])))


def attempts(sql: Sql, job_id: Id, who: Who) -> Dialogue[list[Attempt]]:
    """The history of a job, oldest first."""
    job = yield from get(sql, job_id, who)
    params = {"id": str(job.id), "org": job.org_id}
    return (yield from ask(Statement(sql["attempts"], params, lambda rows: [_decode_attempt(r[0]) for r in rows])))


def find(sql: Sql, who: Who, job: Id | None, key: str | None) -> Dialogue[UUID | None]:
    """The job that a verb means: named by its id, or by its key in the organisation."""
    if (job is None) == (key is None):
        raise ValidationError("job: give either a job's id or a key", field="job")
    if job is not None:
        return check_id(job)
    check_texts(MAX_KEY, key=key)
    params = {"org": who.org_id or DEFAULT_ORG, "key": key}
    return (
        yield from ask(Statement(sql["job_by_key"], params, lambda rows: to_uuid(rows[0][0]) if rows[0][0] else None))
    )


def cancel(
    sql: Sql, who: Who, *, job: Id | None = None, key: str | None = None, reason: str | None = None
) -> Dialogue[CancelOutcome]:
    """Stop a job: at once while it waits, by its token while it runs."""
    reason = why(reason)
    job_id = yield from find(sql, who, job, key)
    if job_id is None:
        return "not_found"
    outcome: CancelOutcome = yield from ask(Statement(sql["cancel"], named(job_id, who) | {"reason": reason}, scalar))
    return outcome


def reschedule(
    sql: Sql,
    who: Who,
    *,
    job: Id | None = None,
    key: str | None = None,
    at: datetime | None = None,
    delay: timedelta | None = None,
    reason: str | None = None,
) -> Dialogue[str]:
    """Move a job that waits to another time and return its state."""
    reason = why(reason)
    if (at is None) == (delay is None):
        raise ValidationError("at: give either an instant or a delay", field="at")
    if at is not None:
        check_instant("at", at)
    instant = utc("at", at) if at is not None else None
    if delay is not None:
        check_span("delay", delay)
    job_id = yield from find(sql, who, job, key)
    if job_id is None:
        raise JobNotFound("there is no job under this key")
    params = named(job_id, who) | {"at": instant, "reason": reason}
    params["delay"] = f"{delay.total_seconds()} s" if delay is not None else None
    state: str | None = yield from ask(Statement(sql["reschedule"], params, scalar))
    if state is None:
        raise (yield from _why_not(sql, "reschedule", job_id, who))
    return state


def prioritize(sql: Sql, job_id: Id, who: Who, priority: int, reason: str | None = None) -> Dialogue[int]:
    """Change the priority of a job that waits and return the old one."""
    reason = why(reason)
    check_number("priority", priority, 0, LOWEST_PRIORITY)
    before: int | None = yield from ask(
        Statement(sql["prioritize"], named(job_id, who) | {"priority": priority, "reason": reason}, scalar)
    )
    if before is None:
        raise (yield from _why_not(sql, "prioritize", job_id, who))
    return before


def prune(sql: Sql, states: Sequence[str], age: timedelta, limit: int) -> Dialogue[int]:
    """Remove at most `limit` jobs of these states that finished longer ago than `age`; returns how many."""
    if not states or not isinstance(states, Sequence) or any(state not in FINISHED for state in states):
        raise ValidationError(f"states: are not among {', '.join(sorted(FINISHED))}", field="states")
    check_span("age", age)
    check_limit(limit, 100_000)
    params: dict[str, str | int | None] = {"states": "{" + ",".join(states) + "}", "limit": limit}
    params["age"] = f"{age.total_seconds()} s"
    count: int = yield from ask(Statement(sql["prune"], params, scalar, long=True))
    return count


def check_limit(limit: int, most: int) -> None:
    """Refuse a limit that is none."""
    if type(limit) is not int or not 1 <= limit <= most:
        raise ValidationError(f"limit: is not between 1 and {most}", field="limit")


def check_id(value: object, field: str = "job") -> UUID:
    """The id of a job; what is none is refused."""
    try:
        return value if isinstance(value, UUID) else UUID(value)  # type: ignore[arg-type]  # a text may be one
    except (TypeError, ValueError, AttributeError):
        raise ValidationError(f"{field}: is not a UUID", field=field) from None


def id_range(prefix: str | None) -> dict[str, str]:
    """Which ids a list is about: all, or those that begin with some digits."""
    try:
        low, high = (UUID(int=0), UUID(int=2**128 - 1)) if prefix is None else beginning_with(prefix)
    except (ValueError, AttributeError):
        text = f"prefix: is not the first {FEWEST_DIGITS} digits of an id, or more of them"
        raise ValidationError(text, field="prefix") from None
    return {"low": str(low), "high": str(high)}


def utc(field: str, at: datetime) -> str:
    """An instant as every server reads it, whatever its zone."""
    try:
        return at.astimezone(UTC).isoformat()
    except OverflowError:  # the first hours of year 1
        raise ValidationError(f"{field}: lies before the year 1", field=field) from None


def now(sql: Sql) -> Dialogue[datetime]:
    """The engine's clock."""
    at: datetime = yield from ask(Statement(sql["now"], {}, scalar))
    return at


def named(job_id: Id, who: Who) -> dict[str, str | int | None]:
    """The parameters of a verb: which job, and who acts."""
    return {"id": str(check_id(job_id)), "org": who.org_id, "actor_type": who.actor_type, "actor_id": who.actor_id}


def _why_not(sql: Sql, verb: str, job_id: Id, who: Who) -> Dialogue[Exception]:
    """The error for a verb that moved nothing: no such job, or its state does not allow it."""
    try:
        job = yield from get(sql, job_id, who)
    except JobNotFound as error:
        return error
    return TransitionRefused(f"{verb}: job {job_id} is {job.state}", verb=verb, state=job.state, job_id=job.id)
