"""Jobs over HTTP: see one, cancel it, and see it unmasked."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from mainspring.job import Job, Progress
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.refused import ApiRefused, not_found
from mainspring.web.api.terms import Instant, JobId, Reason
from mainspring.web.api.version import Versioned

jobs = Resource("jobs", "Requests to run a task, and what became of them.")


class JobView(Versioned, frozen=True, kw_only=True):
    """A job and where it stands; what it carries is masked."""

    id: JobId
    task: str
    state: str
    org_id: str
    project_id: UUID | None
    actor_type: str
    actor_id: str
    request_id: str
    correlation_id: str
    parent_id: UUID | None
    traceparent: str | None
    idempotency_key: str
    queue: str
    priority: int
    payload: dict[str, Any]
    attempt: int
    max_attempts: int
    crashes: int
    snoozes: int
    cancellable: bool
    created_at: Instant
    scheduled_for: Instant | None
    due_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    updated_at: Instant
    worker: str | None
    lease_expires_at: Instant | None
    cancel_requested_at: Instant | None
    result: Any
    error: dict[str, Any] | None
    resolution: str | None
    fixed_by: UUID | None
    fixes: UUID | None
    progress: Progress | None
    gate: str | None

    def version(self) -> tuple[Any, ...]:
        """Where it stands, what is decided about it, and what it was asked to do."""
        at = self.state, self.attempt, self.snoozes, self.queue, self.priority, self.due_at, self.cancel_requested_at
        return self.id, *at, self.finished_at, self.resolution, self.fixed_by, self.payload


class Unmasked(msgspec.Struct, frozen=True, kw_only=True):
    """What a job carries, as it is."""

    payload: dict[str, Any]
    result: Any
    error: dict[str, Any] | None


class Cancellation(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Why a job is cancelled."""

    reason: Reason = None


class JobAct(Versioned, frozen=True, kw_only=True):
    """What was done to a job: `cancelled`, or `cancel_requested` of one that runs, whose handler ends it."""

    outcome: str
    job: JobView

    def version(self) -> tuple[Any, ...]:
        """That of the job."""
        return self.job.version()


@jobs.get("/jobs/{id}", role="viewer")
async def show_job(asking: Asking, id: JobId) -> JobView:
    """One job: its envelope, where it stands, and what it carries, masked."""
    return _view(asking, await asking.client.get(id, conn=asking.conn))


@jobs.post("/jobs/{id}/cancel", role="operator", connects="api", if_match="optional", refuses=(409,))
async def cancel_job(asking: Asking, id: JobId, body: Cancellation) -> JobAct:
    """Stop a job: at once while it waits, by its token while it runs. Twice is harmless."""
    await asking.lock("job", id)
    asking.match(await show_job(asking, id))
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


@jobs.post("/jobs/{id}/reveal", role="viewer", connects="api", keeps=False)
async def reveal_job(asking: Asking, id: JobId) -> Unmasked:
    """What a job carries, unmasked and decrypted: a right of its own, and each look stands in the audit trail."""
    job = await asking.client.get(id, conn=asking.conn)
    reader = await asking.reveal(f"job {job.id}", job.org_id)
    seen = await reader.get(id, conn=asking.conn)
    return Unmasked(payload=seen.payload, result=seen.result, error=seen.error)


def _view(asking: Asking, job: Job) -> JobView:
    about = {name: value for name, value in asdict(job).items() if name in JobView.__struct_fields__}
    carried = {name: asking.show(about[name]) for name in ("payload", "result", "error")}
    return JobView(**about | carried)
