"""One function a verb: what clients and handlers do with batches and flows, as statements and dialogues."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from mainspring.db import jobs
from mainspring.db.decisions import check_reason
from mainspring.db.jobs import Who, check_id, check_limit, id_range, named, read_job, why
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue, Row, Statement, ask, nothing, scalar
from mainspring.declare.envelope import encode
from mainspring.errors import BatchNotFound, TransitionRefused, ValidationError
from mainspring.job import DEFAULT_ORG, Claim, Enqueued, Id, Job, NewJob
from mainspring.outcome import Cancelled
from mainspring.states import State
from mainspring.together.batch import Batch, NewBatch
from mainspring.together.flow import Flow

#: What is enqueued in one piece.
Together: TypeAlias = NewBatch | Flow
BATCH_STATES = ("open", "running", "stopping", "finished")
_decode = msgspec.json.Decoder(Batch).decode
_encode = msgspec.json.Encoder().encode


def jobs_of(what: Together) -> list[NewJob]:
    """Every job that it brings; the on-finish job of a batch is the last."""
    last = [what.on_finish] if isinstance(what, NewBatch) and what.on_finish is not None else []
    return [*what.jobs, *last]


def org_of(wanted: Sequence[NewJob], default: str | None) -> str:
    """The one organisation of completed jobs; where there are none, the caller's."""
    orgs = {job.org_id or DEFAULT_ORG for job in wanted}
    if len(orgs) > 1:
        raise ValidationError("org_id: is not the same for all jobs", field="org_id")
    return next(iter(orgs), default or DEFAULT_ORG)


def enqueue(
    sql: Sql, what: Together, wanted: Sequence[NewJob], org: str, *, portion: int | None = None
) -> Dialogue[list[Enqueued]]:
    """Insert a batch or a flow whose jobs are completed and checked: `jobs_of` it. In one statement, or in portions.

    Answers one row a job, without the on-finish job.
    """
    if isinstance(what, Flow):
        params = {"jobs": encode(wanted), "links": _encode(what.links).decode()}
        return (yield from ask(Statement(sql["enqueue_flow"], params, jobs.answers_of, org=org)))
    on_finish = wanted[-1] if what.on_finish is not None else None
    members = wanted[: len(what.jobs)]
    size = portion or len(members) or 1
    parts = [members[start : start + size] for start in range(0, len(members), size)] or [members]
    new: dict[str, Any] = {"name": what.name, "on_failure": what.on_failure, "on_finish": on_finish}
    new["open"] = what.open or len(parts) > 1
    answers: list[Enqueued] = []
    for part in parts:
        answers += yield from add(sql, what.id, org, part, new)
        new = {}
    if len(parts) > 1 and not what.open:
        yield from close(sql, what.id, Who(org))
    return answers


def enqueue_again(
    sql: Sql, what: Together, wanted: Sequence[NewJob], org: str, portion: int
) -> Dialogue[list[Enqueued]]:
    """The same after a connection was lost on the way: it committed whole, or not at all."""
    members = wanted[: len(what.jobs)]
    states = (yield from jobs.known(sql, wanted)) if wanted else {}
    there = bool(states)
    if isinstance(what, NewBatch):
        params = {"id": str(what.id), "org": org}
        there = yield from ask(Statement(sql["batch_exists"], params, scalar))
    if not there:
        return (yield from enqueue(sql, what, wanted, org, portion=portion))
    answers: list[Enqueued] = []
    for job in members:
        assert job.id is not None
        if job.id in states:
            answers.append(Enqueued(job.id, "created", states[job.id]))
        else:  # its key was taken
            found = (yield from jobs.find(sql, Who(org), None, job.key)) or job.id
            state = (yield from jobs.known(sql, [replace(job, id=found)])).get(found, "succeeded")
            answers.append(Enqueued(found, "existing", state))
    return answers


def add(
    sql: Sql, batch_id: Id, org: str, wanted: Sequence[NewJob], new: dict[str, Any] | None = None
) -> Dialogue[list[Enqueued]]:
    """Add jobs to a batch, or begin one: then `new` says how."""
    about = {"id": check_id(batch_id, "batch"), "org_id": org} | (new or {})
    params = {"batch": _encode(about).decode(), "jobs": encode(wanted)}
    return (yield from ask(Statement(sql["enqueue_batch"], params, jobs.answers_of, org=org)))


def close(sql: Sql, batch_id: Id, who: Who) -> Dialogue[None]:
    """Say that no more will be added."""
    params = {"id": str(check_id(batch_id, "batch")), "org": who.org_id}
    if not (yield from ask(Statement(sql["close_batch"], params, scalar))):
        raise _missing(batch_id)


def get(sql: Sql, batch_id: Id, who: Who) -> Dialogue[Batch]:
    """One batch with its counts, or BatchNotFound."""
    params = {"id": str(check_id(batch_id, "batch")), "org": who.org_id}
    text = yield from ask(Statement(sql["get_batch"], params, scalar))
    if text is None:
        raise _missing(batch_id)
    return _decode(text)


def listing(
    sql: Sql,
    who: Who,
    *,
    state: str | None = None,
    prefix: str | None = None,
    before: Id | None = None,
    limit: int = 50,
) -> Dialogue[list[Batch]]:
    """Batches, newest first; `before` continues after the last one seen."""
    check_limit(limit, 1000)
    if state is not None and state not in BATCH_STATES:
        raise ValidationError(f"state: is not one of {', '.join(BATCH_STATES)}", field="state")
    params: dict[str, str | int | None] = {"org": who.org_id, "state": state, "limit": limit, **id_range(prefix)}
    params["before"] = None if before is None else str(check_id(before, "before"))
    return (yield from ask(Statement(sql["list_batches"], params, lambda rows: [_decode(row[0]) for row in rows])))


def members(
    sql: Sql, batch_id: Id, who: Who, *, state: str | None = None, before: Id | None = None, limit: int = 50
) -> Dialogue[list[Job]]:
    """The jobs of a batch that were not pruned, newest first; `before` continues after the last one seen."""
    check_limit(limit, 1000)
    if state is not None and state not in State.__members__.values():
        raise ValidationError(f"state: is not one of {', '.join(State)}", field="state")
    found = yield from get(sql, batch_id, who)
    params: dict[str, str | int | None] = {"id": str(found.id), "org": found.org_id, "state": state, "limit": limit}
    params["before"] = None if before is None else str(check_id(before, "before"))
    return (yield from ask(Statement(sql["list_members"], params, _jobs)))


def retry_failed(sql: Sql, batch_id: Id, who: Who, reason: str) -> Dialogue[int]:
    """Replay the failed and dead members that nobody has decided about; says how many."""
    reason = check_reason(reason)
    params = named(check_id(batch_id, "batch"), who) | {"reason": reason}
    count: int | None = yield from ask(Statement(sql["retry_failed"], params, scalar, long=True))
    if count is None:
        raise _missing(batch_id)
    return count


def cancel(sql: Sql, batch_id: Id, who: Who, reason: str | None) -> Dialogue[None]:
    """Cancel what has not started, and ask what runs to stop."""
    reason = why(reason)
    params = named(check_id(batch_id, "batch"), who) | {"reason": reason}
    if not (yield from ask(Statement(sql["cancel_batch"], params, scalar, long=True))):
        found = yield from get(sql, batch_id, who)
        text = f"cancel: batch {batch_id} has {found.state}"
        raise TransitionRefused(text, verb="cancel", state=found.state, job_id=None)


def of_job(sql: Sql, job: Claim) -> Dialogue[Batch | None]:
    """The batch that a job belongs to, or that it finishes."""
    text = yield from ask(Statement(sql["batch_of_job"], {"org": job.org_id, "id": str(job.id)}, scalar))
    return None if text is None else _decode(text)


def parents(sql: Sql, job: Claim) -> Dialogue[list[Job]]:
    """The jobs that a job has waited for, in the order in which they were named."""
    return (yield from ask(Statement(sql["parents"], {"org": job.org_id, "id": str(job.id)}, _jobs)))


def join(sql: Sql, job: Claim, wanted: Sequence[NewJob]) -> Dialogue[list[Enqueued]]:
    """Insert follow-ups of a job as members of its batch; without a batch they are follow-ups like any."""
    answers = yield from jobs.enqueue_many(sql, wanted, portion=len(wanted) or 1)
    params = {"id": str(job.id), "ids": _ids(answers)}
    yield from ask(Statement(sql["add_members"], params, nothing, org=job.org_id))
    return answers


def split(
    sql: Sql, worker: str, job: Claim, wanted: Sequence[NewJob], detail: dict[str, Any]
) -> Dialogue[list[Enqueued]]:
    """Insert the halves of a chunk, which take its place in its batch and among what others wait for.

    Refused when the chunk's cancellation was asked for.
    """
    answers = yield from jobs.enqueue_many(sql, wanted)
    params: dict[str, str | int | None] = {"worker": worker, "epoch": job.epoch, "ids": _ids(answers)}
    params["detail"] = _encode(detail).decode()
    if not (yield from ask(Statement(sql["split"], params, scalar, org=job.org_id))):
        raise Cancelled
    return answers


def _jobs(rows: Sequence[Row]) -> list[Job]:
    return [read_job(row[0]) for row in rows]


def _ids(answers: Sequence[Enqueued]) -> str:
    return "{" + ",".join(str(answer.id) for answer in answers) + "}"


def _missing(batch_id: Id) -> BatchNotFound:
    return BatchNotFound(f"there is no batch {batch_id}")
