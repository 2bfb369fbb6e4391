"""One function a verb: what clients do with jobs, as statements and flows."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal
from uuid import UUID

import msgspec

from mainspring.checks import LAST_YEAR, LONGEST_DELAY, MAX_KEY, MAX_NAME, text_problem
from mainspring.db.schema import Sql
from mainspring.db.statement import Flow, Row, Statement, ask, nothing, scalar
from mainspring.envelope import encode
from mainspring.errors import JobNotFound, TransitionRefused, ValidationError
from mainspring.job import DEFAULT_ORG, SYSTEM, ActorType, Enqueued, Job, NewJob
from mainspring.states import FINISHED, State

CancelOutcome = Literal["cancelled", "cancel_requested", "already_finished", "not_cancellable", "not_found"]
_decode_job = msgspec.json.Decoder(Job).decode


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


def check_texts(limit: int, **texts: str | None) -> None:
    """Refuse a text that no job can have, or that the database cannot hold, by its name."""
    for field, text in texts.items():
        if text is not None and (problem := text_problem(text, limit)):
            raise ValidationError(f"{field}: {problem}", field=field)


#: So many jobs go into one statement; more gain nothing.
BATCH = 1000
#: The longest reason for what somebody does to a job or a queue.
MAX_REASON = 1000


def enqueue_many(sql: Sql, jobs: Sequence[NewJob], *, batch: int = BATCH) -> Flow[list[Enqueued]]:
    """Insert completed and checked jobs; all or none when the flow runs in one transaction, or is one batch."""
    answers: list[Enqueued] = []
    for start in range(0, len(jobs), batch):
        params = {"jobs": encode(jobs[start : start + batch])}
        answers += yield from ask(Statement(sql["enqueue_many"], params, _answers))
    return answers


def enqueue_one(sql: Sql, job: NewJob) -> Flow[list[Enqueued]]:
    """Insert one completed and checked job that is due now and has no key; any other goes to enqueue_many."""
    if job.key or job.scheduled_for or job.delay or job.created_at or job.wait or job.id is None:
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


def enqueue_again(sql: Sql, jobs: Sequence[NewJob]) -> Flow[list[Enqueued]]:
    """The same after a connection was lost on the way: what did commit is not inserted twice, the ids tell.

    A job that is not there has either not committed, or its key was taken: both are answered by asking once more.
    """
    states = yield from known(sql, jobs)
    rest = iter((yield from enqueue_many(sql, [job for job in jobs if job.id not in states])))
    return [
        Enqueued(job.id, "created", states[job.id]) if job.id is not None and job.id in states else next(rest)
        for job in jobs
    ]


def _answers(rows: Sequence[Row]) -> list[Enqueued]:
    return [Enqueued(_uuid(row[0]), row[1], row[2]) for row in rows]


def _uuid(value: Any) -> UUID:
    return value if type(value) is UUID else UUID(str(value))


def known(sql: Sql, jobs: Sequence[NewJob]) -> Flow[dict[UUID, str]]:
    """The state of those of these jobs that exist: asked after a connection was lost during their enqueue."""
    ids = "{" + ",".join(str(job.id) for job in jobs) + "}"
    return (yield from ask(Statement(sql["known_jobs"], {"ids": ids}, lambda rows: {_uuid(r[0]): r[1] for r in rows})))


def get(sql: Sql, job_id: UUID, who: Who) -> Flow[Job]:
    """One job, or JobNotFound."""
    text = yield from ask(Statement(sql["get_job"], {"id": str(job_id), "org": who.org_id}, scalar))
    if text is None:
        raise JobNotFound(f"there is no job {job_id}", job_id=job_id)
    return _decode_job(text)


def select(
    sql: Sql,
    who: Who,
    *,
    state: str | None = None,
    queue: str | None = None,
    task: str | None = None,
    before: UUID | None = None,
    limit: int = 50,
) -> Flow[list[Job]]:
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
    }
    params["before"] = str(before) if before else None
    return (yield from ask(Statement(sql["list_jobs"], params, lambda rows: [_decode_job(r[0]) for r in rows])))


def attempts(sql: Sql, job_id: UUID, who: Who) -> Flow[list[Attempt]]:
    """The history of a job, oldest first."""
    job = yield from get(sql, job_id, who)
    params = {"id": str(job.id), "org": job.org_id}
    return (yield from ask(Statement(sql["attempts"], params, lambda rows: [_decode_attempt(r[0]) for r in rows])))


def find(sql: Sql, who: Who, job: UUID | None, key: str | None) -> Flow[UUID | None]:
    """The job that a verb means: named by its id, or by its key in the organisation."""
    if (job is None) == (key is None):
        raise ValidationError("job: give either a job's id or a key", field="job")
    if job is not None:
        return job
    check_texts(MAX_KEY, key=key)
    params = {"org": who.org_id or DEFAULT_ORG, "key": key}
    return (
        yield from ask(Statement(sql["job_by_key"], params, lambda rows: _uuid(rows[0][0]) if rows[0][0] else None))
    )


def cancel(
    sql: Sql, who: Who, *, job: UUID | None = None, key: str | None = None, reason: str | None = None
) -> Flow[CancelOutcome]:
    """Stop a job: at once while it waits, by its token while it runs."""
    check_texts(MAX_REASON, reason=reason)
    job_id = yield from find(sql, who, job, key)
    if job_id is None:
        return "not_found"
    outcome: CancelOutcome = yield from ask(Statement(sql["cancel"], _named(job_id, who) | {"reason": reason}, scalar))
    return outcome


def reschedule(
    sql: Sql,
    who: Who,
    *,
    job: UUID | None = None,
    key: str | None = None,
    at: datetime | None = None,
    delay: timedelta | None = None,
) -> Flow[str]:
    """Move a job that waits to another time and return its state."""
    if (at is None) == (delay is None):
        raise ValidationError("at: give either an instant or a delay", field="at")
    if at is not None and (at.utcoffset() is None or at.year > LAST_YEAR):
        raise ValidationError(f"at: is not a time with a time zone up to the year {LAST_YEAR}", field="at")
    if delay is not None and not timedelta(0) <= delay <= LONGEST_DELAY:
        raise ValidationError("delay: is not a time span from 0 to 10 years", field="delay")
    job_id = yield from find(sql, who, job, key)
    if job_id is None:
        raise JobNotFound("there is no job under this key")
    params = _named(job_id, who) | {"at": at.astimezone(UTC).isoformat() if at else None}
    params["delay"] = f"{delay.total_seconds()} s" if delay is not None else None
    state: str | None = yield from ask(Statement(sql["reschedule"], params, scalar))
    if state is None:
        raise (yield from _why_not(sql, "reschedule", job_id, who))
    return state


def prioritize(sql: Sql, job_id: UUID, who: Who, priority: int) -> Flow[int]:
    """Change the priority of a job that waits and return the old one."""
    if priority not in range(4):
        raise ValidationError("priority: is not 0, 1, 2 or 3", field="priority")
    before: int | None = yield from ask(
        Statement(sql["prioritize"], _named(job_id, who) | {"priority": priority}, scalar)
    )
    if before is None:
        raise (yield from _why_not(sql, "prioritize", job_id, who))
    return before


def replay(sql: Sql, job_id: UUID, who: Who, reason: str | None = None) -> Flow[None]:
    """Make a failed or dead job ready again, attempts 0."""
    check_texts(MAX_REASON, reason=reason)
    params = _named(job_id, who) | {"reason": reason}
    moved, in_the_way = yield from ask(Statement(sql["replay"], params, lambda rows: rows[0]))
    if in_the_way is not None:
        text = f"job {job_id} cannot be replayed while job {in_the_way} of its key is not finished"
        raise TransitionRefused(text, verb="replay", state=None, job_id=job_id)
    if not moved:
        raise (yield from _why_not(sql, "replay", job_id, who))


def prune(sql: Sql, states: Sequence[str], age: timedelta, limit: int) -> Flow[int]:
    """Remove at most `limit` jobs of these states that finished longer ago than `age`; returns how many."""
    if not states or not FINISHED.issuperset(states):
        raise ValidationError(f"states: are not among {', '.join(sorted(FINISHED))}", field="states")
    if age < timedelta(0):
        raise ValidationError("age: is negative", field="age")
    check_limit(limit, 100_000)
    params: dict[str, str | int | None] = {"states": "{" + ",".join(states) + "}", "limit": limit}
    params["age"] = f"{age.total_seconds()} s"
    count: int = yield from ask(Statement(sql["prune"], params, scalar))
    return count


def check_limit(limit: int, most: int) -> None:
    """Refuse a limit that is none."""
    if not 1 <= limit <= most:
        raise ValidationError(f"limit: is not between 1 and {most}", field="limit")


def now(sql: Sql) -> Flow[datetime]:
    """The engine's clock."""
    at: datetime = yield from ask(Statement(sql["now"], {}, scalar))
    return at


def _named(job_id: UUID, who: Who) -> dict[str, str | int | None]:
    return {"id": str(job_id), "org": who.org_id, "actor_type": who.actor_type, "actor_id": who.actor_id}


def _why_not(sql: Sql, verb: str, job_id: UUID, who: Who) -> Flow[Exception]:
    """The error for a verb that moved nothing: no such job, or its state does not allow it."""
    try:
        job = yield from get(sql, job_id, who)
    except JobNotFound as error:
        return error
    return TransitionRefused(f"{verb}: job {job_id} is {job.state}", verb=verb, state=job.state, job_id=job_id)
