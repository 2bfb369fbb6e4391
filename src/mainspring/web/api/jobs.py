"""Jobs over HTTP: search for them, see one, and see it unmasked."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from mainspring.db.search import JobPlace
from mainspring.job import Job, Progress
from mainspring.states import State
from mainspring.web.api.asking import Asking
from mainspring.web.api.job_search import (
    IdDigits,
    JobFilter,
    JobSummary,
    Project,
    SearchText,
    Traced,
    find_jobs,
    summary,
)
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import Instant, JobId, JobKey, QueueName, Since, TaskName, Until
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


@jobs.get("/jobs", role="viewer")
async def list_jobs(
    asking: Asking,
    page: Paging[JobPlace],
    state: tuple[State, ...] = (),
    queue: QueueName | None = None,
    task: TaskName | None = None,
    project: Project | None = None,
    correlation: Traced | None = None,
    request: Traced | None = None,
    key: JobKey | None = None,
    prefix: IdDigits | None = None,
    created_from: Since | None = None,
    created_to: Until | None = None,
    due_from: Since | None = None,
    due_to: Until | None = None,
    finished_from: Since | None = None,
    finished_to: Until | None = None,
    text: SearchText | None = None,
) -> PageOf[JobSummary]:
    """Jobs that are meant: those that wait in the order in which they are claimed, others newest first.

    A page looks at some thousand jobs at most: where few of them are meant it may hold few or none, and `next` still
    says where to look on. `key` finds the last job that was enqueued under it.
    """
    only = JobFilter(
        state=state, queue=queue, task=task, project=project, correlation=correlation, request=request, key=key,
        prefix=prefix, created_from=created_from, created_to=created_to, due_from=due_from, due_to=due_to,
        finished_from=finished_from, finished_to=finished_to, text=text,
    )  # fmt: skip
    found = await find_jobs(asking, only, after=page.after, limit=page.limit)
    return page.up_to([summary(asking, line) for line in found.jobs], found.place)


@jobs.get("/jobs/{id}", role="viewer")
async def show_job(asking: Asking, id: JobId) -> JobView:
    """One job: its envelope, where it stands, and what it carries, masked."""
    return _view(asking, await asking.client.get(id, conn=asking.conn))


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
