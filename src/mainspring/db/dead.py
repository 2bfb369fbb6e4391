"""What people see of dead letters, as dialogues: failed and dead jobs that nobody has decided about."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, TypedDict
from uuid import UUID

import msgspec

from mainspring.codes import explained
from mainspring.db import jobs
from mainspring.db.audit import after_place, instant
from mainspring.db.jobs import Attempt, Who, check_limit, check_texts
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Statement, ask
from mainspring.errors import TransitionRefused, ValidationError
from mainspring.job import Id, Job
from mainspring.plans import Plan
from mainspring.states import State
from mainspring.text.texts import MAX_NAME, MAX_QUEUE

#: The states of a dead letter.
OPEN = (State.FAILED, State.DEAD)
OLDEST_DEAD_LETTER = timedelta(days=36525)


class Only(TypedDict, total=False):
    """Which dead letters are meant; what is left out means any."""

    task: str | None
    queue: str | None  # the one that it came from
    code: str | None
    fingerprint: str | None
    state: str | None  # failed or dead
    older_than: timedelta | None
    newer_than: timedelta | None
    since: datetime | None  # when they died
    until: datetime | None


class DeadLetter(msgspec.Struct, frozen=True, kw_only=True):
    """A dead letter as the view `mainspring.dead_letters` shows it."""

    id: UUID
    org_id: str
    task: str
    state: str
    queue: str
    attempt: int
    max_attempts: int
    crashes: int
    created_at: datetime
    finished_at: datetime
    code: str | None
    message: str | None
    fingerprint: str
    payload_hash: str
    key: str | None


class DeadLetterGroup(msgspec.Struct, frozen=True, kw_only=True):
    """Dead letters whose errors look alike; `message` and `example` are of the newest."""

    fingerprint: str
    count: int
    orgs: int  # so many organisations it touches
    task: str
    code: str | None
    message: str | None
    oldest: datetime
    newest: datetime
    example: UUID


class Size(msgspec.Struct, frozen=True, kw_only=True):
    """How many dead letters a task has left in a queue, and how old the oldest is."""

    task: str
    queue: str
    size: int
    oldest: datetime
    oldest_age_s: float


class Decision(msgspec.Struct, frozen=True, kw_only=True):
    """What somebody decided about a dead letter."""

    resolution: str
    at: datetime
    by: str
    by_type: str
    reason: str
    successor: UUID | None


class DeadLetterDetails(msgspec.Struct, frozen=True, kw_only=True):
    """What is known of a failed or dead job besides the job and its attempts."""

    queue: str
    fingerprint: str
    payload_hash: str
    decision: Decision | None


class Case(msgspec.Struct, frozen=True, kw_only=True):
    """Everything about one dead letter: every attempt with its error, what the error means and what to do."""

    job: Job
    attempts: list[Attempt]
    about: DeadLetterDetails
    meaning: str
    plan: Plan


def _reader(kind: type[Any]) -> Any:
    decode = msgspec.json.Decoder(kind).decode
    return lambda rows: [decode(row[0]) for row in rows]


_letters, _groups, _sizes, _about = (_reader(kind) for kind in (DeadLetter, DeadLetterGroup, Size, DeadLetterDetails))


def listing(
    sql: Sql,
    who: Who,
    only: Only,
    *,
    limit: int = 50,
    before: Id | None = None,
    place: tuple[datetime, UUID] | None = None,
) -> Dialogue[list[DeadLetter]]:
    """Open dead letters, newest first; `before` continues after the last one seen, `place` after where it stood."""
    check_limit(limit, 1000)
    if before is not None:
        last = yield from jobs.get(sql, before, who)
        if last.finished_at is None:
            raise ValidationError("before: this job is no dead letter any more; start with the newest", field="before")
        place = last.finished_at, last.id
    params = filters(who, only) | {"limit": limit} | after_place(place)
    found: list[DeadLetter] = yield from ask(Statement(sql["list_dead"], params, _letters))
    return found


def groups(
    sql: Sql, who: Who, only: Only, *, limit: int = 50, newest: int | None = None
) -> Dialogue[list[DeadLetterGroup]]:
    """Open dead letters by what their errors have in common, the most frequent first; of all, or the newest so many."""
    check_limit(limit, 1000)
    params = filters(who, only) | {"limit": limit, "newest": None if newest is None else str(newest)}
    found: list[DeadLetterGroup] = yield from ask(Statement(sql["group_dead"], params, _groups))
    return found


def summary(sql: Sql, who: Who) -> Dialogue[list[Size]]:
    """How many are open and how old the oldest is, by task and queue; cheap enough for metrics."""
    found: list[Size] = yield from ask(Statement(sql["sum_dead"], {"org": who.org_id}, _sizes))
    return found


def show(sql: Sql, job_id: Id, who: Who) -> Dialogue[Case]:
    """One failed or dead job with its history and an action plan."""
    job = yield from jobs.get(sql, job_id, who)
    found: list[DeadLetterDetails] = yield from ask(
        Statement(sql["about_dead"], {"id": str(job.id)}, _about, org=job.org_id)
    )
    if not found:
        raise refused("show", job)
    attempts = yield from jobs.attempts(sql, job_id, who)
    code = explained(job.error or {})
    return Case(job=job, attempts=attempts, about=found[0], meaning=code.text, plan=code.plan)


def filters(who: Who, only: Only) -> dict[str, str | int | None]:
    """The parameters of every statement that looks for dead letters."""
    said: dict[str, Any] = {name: only.get(name) for name in Only.__annotations__}
    check_texts(MAX_NAME, **{name: said[name] for name in ("task", "code", "fingerprint")})
    check_texts(MAX_QUEUE, queue=said["queue"])
    if said["state"] not in (None, *OPEN):
        raise ValidationError(f"state: is not one of {', '.join(OPEN)}", field="state")
    for name in ("older_than", "newer_than"):
        if said[name] is not None:
            if not isinstance(said[name], timedelta) or not timedelta(0) <= said[name] <= OLDEST_DEAD_LETTER:
                raise ValidationError(f"{name}: is not a time span from 0 to 100 years", field=name)
            said[name] = f"{said[name].total_seconds()} s"
    for name in ("since", "until"):
        said[name] = instant(name, said[name])
    return {"org": who.org_id, **said}


def refused(verb: str, job: Job) -> TransitionRefused:
    """Why an act on a job moved nothing: it is no dead letter, or somebody has decided already."""
    if job.fixed_by is not None:
        text = f"{verb}: job {job.id} was fixed forward by job {job.fixed_by}"
    elif job.resolution is not None:
        text = f"{verb}: job {job.id} is {job.resolution} already"
    else:
        text = f"{verb}: job {job.id} is {job.state}, which is no dead letter"
    return TransitionRefused(text, verb=verb, state=job.state, job_id=job.id)
