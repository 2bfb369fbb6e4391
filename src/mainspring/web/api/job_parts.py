"""The parts of one job over HTTP: attempts, steps, events, relations, children, and why it does not run."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Any, Final, TypeVar

import msgspec
from msgspec.structs import asdict, replace

from mainspring.db.jobs import Attempt
from mainspring.db.related import Related, related
from mainspring.db.search import JobPlace
from mainspring.db.steps import Step
from mainspring.health.explain import Explanation
from mainspring.web.api.asking import Asking
from mainspring.web.api.job_search import JobFilter, JobSummary, find_jobs, summary
from mainspring.web.api.jobs import jobs
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import Instant, JobId

V = TypeVar("V")
#: Which of a history comes next: how many were seen. Histories only grow at their end.
Nth = Annotated[int, msgspec.Meta(ge=0)]
#: What a job enqueues is created while it runs, give or take the clocks.
_ABOUT_A_RUN: Final = timedelta(minutes=5)


class EventOfJob(msgspec.Struct, frozen=True, kw_only=True):
    """What happened to a job, by whom, and why; what it tells is masked. No id: the job itself proves it."""

    id: int | None
    at: Instant
    event: str
    attempt: int | None
    by: str
    actor_type: str
    actor_id: str
    request_id: str
    correlation_id: str
    subject: str | None
    detail: dict[str, Any]


@jobs.get("/jobs/{id}/attempts", role="viewer")
async def list_attempts(asking: Asking, id: JobId, page: Paging[Nth]) -> PageOf[Attempt]:
    """The executions of a job, oldest first."""
    found = await asking.client.attempts(id, conn=asking.conn)
    return _part(page, [replace(one, error=asking.show(one.error)) for one in found])


@jobs.get("/jobs/{id}/steps", role="viewer")
async def list_steps(asking: Asking, id: JobId, page: Paging[Nth]) -> PageOf[Step]:
    """What a job has done and remembers, in order."""
    found = await asking.client.steps(id, conn=asking.conn)
    return _part(page, [replace(one, result=asking.show(one.result)) for one in found])


@jobs.get("/jobs/{id}/events", role="viewer")
async def list_events(asking: Asking, id: JobId, page: Paging[Nth]) -> PageOf[EventOfJob]:
    """The trail of a job, in order: who did what, and why."""
    await asking.client.get(id, conn=asking.conn)
    found = [asdict(one) for one in await asking.client.audit.trail(id, conn=asking.conn)]
    names = EventOfJob.__struct_fields__
    return _part(
        page, [EventOfJob(**{n: one[n] for n in names} | {"detail": asking.show(one["detail"])}) for one in found]
    )


@jobs.get("/jobs/{id}/related", role="viewer")
async def show_related(asking: Asking, id: JobId) -> Related:
    """What a job has to do with others: its parent, what it waits for, what waits for it, its batch."""
    return await asking.ask(related(asking.sql, id, asking.who))


@jobs.get("/jobs/{id}/children", role="viewer")
async def list_children(asking: Asking, id: JobId, page: Paging[JobPlace]) -> PageOf[JobSummary]:
    """What the handler of a job has enqueued, newest first; like a search it may look on at `next`."""
    job = await asking.client.get(id, conn=asking.conn)
    ran = await asking.client.attempts(id, conn=asking.conn)
    if not ran:
        return page.up_to([], None)
    began, ended = ran[0].started_at - _ABOUT_A_RUN, None if job.state == "running" else ran[-1].ended_at
    only = JobFilter(created_from=began, created_to=None if ended is None else ended + _ABOUT_A_RUN)
    found = await find_jobs(asking, only, after=page.after, limit=page.limit, parent=job.id)
    return page.up_to([summary(asking, line) for line in found.jobs], found.place)


@jobs.get("/jobs/{id}/explain", role="viewer", connects="operator")
async def explain_job(asking: Asking, id: JobId) -> Explanation:
    """Why a job runs or does not: what a claim asks, one by one, and what to do about it."""
    found = await asking.client.explain(id, conn=asking.conn)
    checks = [
        replace(check, detail=asking.show(check.detail), reason=asking.show(check.reason)) for check in found.checks
    ]
    return replace(found, verdict=asking.show(found.verdict), advice=asking.show(found.advice), checks=checks)


def _part(page: Paging[int], found: list[V]) -> PageOf[V]:
    """A page of what is short enough to be read as a whole."""
    seen = page.after or 0
    some = found[seen : seen + page.limit]
    return page.up_to(some, seen + len(some) if seen + len(some) < len(found) else None)
