"""Jobs over HTTP: search for them, see one, and see it unmasked."""

from __future__ import annotations

from typing import Any

import msgspec
from msgspec.structs import asdict

from mainspring.db.search import JobPlace
from mainspring.job import Job
from mainspring.web.api.asking import Asking
from mainspring.web.api.job_search import JobFilter, JobSummary, find_jobs, summary
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import JobId
from mainspring.web.api.version import Versioned

jobs = Resource("jobs", "Requests to run a task, and what became of them.")


class JobView(Versioned, Job, frozen=True, kw_only=True):
    """A job and where it stands; what it carries is masked."""

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
async def list_jobs(asking: Asking, page: Paging[JobPlace], only: JobFilter) -> PageOf[JobSummary]:
    """Jobs that are meant: those that wait in the order in which they are claimed, others newest first.

    A page looks at some thousand jobs at most: where few of them are meant it may hold few or none, and `next` still
    says where to look on. `key` finds the last job that was enqueued under it.
    """
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
    carried = {name: asking.show(getattr(job, name)) for name in ("payload", "result", "error")}
    return JobView(**asdict(job) | carried)
