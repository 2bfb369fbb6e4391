"""What is done to one job over HTTP: enqueue it, cancel it, move it, let it go first."""

from __future__ import annotations

from typing import Annotated
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.db.readable import is_encrypted
from mainspring.declare.registry import ENGINE_REGISTRY
from mainspring.dedupe import Mode
from mainspring.errors import JobNotFound, KeyReused, ValidationError
from mainspring.events import enqueued
from mainspring.job import NewJob
from mainspring.text.document import read_payload
from mainspring.web.api.asking import Asking
from mainspring.web.api.jobs import JobView, jobs, show_job
from mainspring.web.api.refused import ApiRefused, not_found
from mainspring.web.api.terms import Delay, Instant, JobId, JobKey, Priority, QueueName, Reason, TaskName
from mainspring.web.api.version import Versioned

RawPayload = Annotated[
    msgspec.Raw, msgspec.Meta(description="A JSON object.", extra_json_schema={"type": "object"})
]  # as it came: exact numbers


class JobOrder(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A job to be enqueued: `at` or `delay` says when, `key` and `mode` what a second one under the key does."""

    task: TaskName
    payload: RawPayload = msgspec.field(default_factory=lambda: msgspec.Raw(b"{}"))
    queue: QueueName | None = None
    priority: Priority | None = None
    at: Instant | None = None
    delay: Delay = None
    key: JobKey | None = None
    mode: Mode | None = None
    project: UUID | None = None


class OrderedJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job that an order became: `answer` is what became of it, `checked` whether the task is known here."""

    id: JobId
    answer: str
    state: str
    checked: bool


class Because(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Why something is done to a job."""

    reason: Reason = None


class Rescheduling(Because, forbid_unknown_fields=True, kw_only=True):
    """When a job is due: either at an instant, or after a time span."""

    at: Instant | None = None
    delay: Delay = None


class Precedence(Because, forbid_unknown_fields=True, kw_only=True):
    """Where among the others of its queue a job goes."""

    priority: Priority


class JobAct(Versioned, frozen=True, kw_only=True):
    """What was done to a job: its state now, or `cancel_requested` of one that runs, whose handler ends it."""

    outcome: str
    job: JobView

    def version(self) -> tuple[object, ...]:
        """That of the job."""
        return self.job.version()


@jobs.post("/jobs", role="operator", connects="api", refuses=(409,))
async def enqueue_job(asking: Asking, body: JobOrder) -> OrderedJob:
    """Enqueue a job; its payload is checked against its task where the application knows it.

    A key that a job has whose payload is masked is taken (409), also with the same payload, for who may not reveal it.
    """
    text, known = bytes(body.payload).decode(), body.task in asking.registry
    job = asking.registry.get(body.task).typed(text) if known else NewJob(task=body.task, payload=read_payload(text))
    if known and asking.registry.get(body.task).app == ENGINE_REGISTRY:
        raise ValidationError("task: is the engine's own, and no job of yours", field="task")
    said = {"queue": body.queue, "priority": body.priority, "key": body.key, "mode": body.mode}
    job = replace(job, **{name: value for name, value in said.items() if value is not None}, project_id=body.project)
    if body.at is not None and body.delay is not None:
        raise ValidationError("at: give either an instant or a delay", field="at")
    job = job if body.at is None else job.at(body.at)
    job = job if body.delay is None else job.after(body.delay)
    try:
        (job,) = asking.writer.seam.complete([job])
    except ValidationError as error:
        if error.field != "scheduled_for":
            raise
        raise ValidationError(str(error).replace("scheduled_for", "at", 1), field="at") from None
    try:
        answer = await asking.writer.enqueue(job, conn=asking.conn)
    except KeyReused as error:
        raise error if asking.principal.reveals else _taken(error.job_id) from None
    if answer.answer == "existing" and not asking.principal.reveals and await _hides(asking, answer.id):
        raise _taken(answer.id)
    if answer.answer == "created":
        asking.tell(enqueued(job, answer.state))
    return OrderedJob(id=answer.id, answer=answer.answer, state=answer.state, checked=known)


def _taken(id: UUID | None) -> ApiRefused:
    """The same for an equal payload and for another: they are not told apart for who may not see what is there."""
    return ApiRefused(409, "IDEMPOTENCY_KEY_REUSED", f"key: is taken by job {id}.")


async def _hides(asking: Asking, id: UUID) -> bool:
    """Whether a job carries something that is not shown to everybody; one that is gone may have."""
    try:
        job = await asking.client.get(id, conn=asking.conn)
    except JobNotFound:
        return True
    return is_encrypted(job) or asking.show(job.payload) != job.payload


@jobs.post("/jobs/{id}/cancel", role="operator", connects="api", if_match="optional", refuses=(409,))
async def cancel_job(asking: Asking, id: JobId, body: Because) -> JobAct:
    """Stop a job: at once while it waits, by its token while it runs. Twice is harmless."""
    await _look(asking, id)
    outcome = await asking.client.cancel(id, reason=body.reason, conn=asking.conn)
    match outcome:
        case "cancelled" | "cancel_requested":
            return JobAct(outcome=outcome, job=await show_job(asking, id))
        case "not_found":
            raise not_found()
        case "not_cancellable":
            raise ApiRefused(409, "NOT_CANCELLABLE", "The task is declared not cancellable, and the job runs.")
        case "already_finished":
            raise ApiRefused(409, "ALREADY_FINISHED", "The job has ended already.")


@jobs.post("/jobs/{id}/reschedule", role="operator", connects="api", if_match="optional", refuses=(409,))
async def reschedule_job(asking: Asking, id: JobId, body: Rescheduling) -> JobAct:
    """Move a job that waits to another time; one that is held by others stays so until they let it go."""
    await _look(asking, id)
    state = await asking.client.reschedule(id, at=body.at, delay=body.delay, reason=body.reason, conn=asking.conn)
    return JobAct(outcome=state, job=await show_job(asking, id))


@jobs.post("/jobs/{id}/run", role="operator", connects="api", if_match="optional", refuses=(409,))
async def run_job(asking: Asking, id: JobId, body: Because) -> JobAct:
    """Let a job that waits for its time be due now."""
    await _look(asking, id)
    state = await asking.client.reschedule(id, delay=0, reason=body.reason, conn=asking.conn)
    return JobAct(outcome=state, job=await show_job(asking, id))


@jobs.post("/jobs/{id}/prioritize", role="operator", if_match="optional", refuses=(409,))
async def prioritize_job(asking: Asking, id: JobId, body: Precedence) -> JobAct:
    """Let a job that waits go earlier or later than the others of its queue."""
    await _look(asking, id)
    await asking.client.prioritize(id, body.priority, reason=body.reason, conn=asking.conn)
    job = await show_job(asking, id)
    return JobAct(outcome=job.state, job=job)


async def _look(asking: Asking, id: UUID) -> None:
    """Compare what is there with what was seen."""
    await asking.lock("job", id)
    asking.match(await show_job(asking, id))
