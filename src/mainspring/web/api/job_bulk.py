"""What is done to many jobs over HTTP, by their ids or by a filter: in one transaction, in the order of their ids."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection
from typing import Annotated, Final
from uuid import UUID

import msgspec
from msgspec.structs import replace

from mainspring.checks import check_instant, check_span
from mainspring.db.search import JobLine, Sought, sift
from mainspring.errors import JobNotFound, TransitionRefused, ValidationError
from mainspring.states import RUNNING, WAITING
from mainspring.text.span import span_of
from mainspring.text.texts import MAX_REASON
from mainspring.web.api.asking import Asking
from mainspring.web.api.job_search import JobFilter, find_jobs
from mainspring.web.api.jobs import jobs
from mainspring.web.api.many import Done, LeftAlone, Many
from mainspring.web.api.terms import Delay, Instant

#: What an act answers of a job to which it was done; all else is why not.
_CANCELLED: Final = frozenset({"cancelled", "cancel_requested"})

Act = Callable[[UUID], Awaitable[str]]
Foretell = Callable[[JobLine], str]


class ManyJobs(Many, forbid_unknown_fields=True, kw_only=True):
    """Which jobs, by their ids or by a filter (without states: those that wait), how many at most, and why."""

    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_REASON)]
    filter: JobFilter | None = None


class ManyMoves(ManyJobs, forbid_unknown_fields=True, kw_only=True):
    """The same, and when they are due: either at an instant, or after a time span."""

    at: Instant | None = None
    delay: Delay = None


class ManyDone(Done, frozen=True, kw_only=True):
    """How many jobs were meant, and to how many it was done, or would be; `more`: others may be meant as well."""

    more: bool


@jobs.post("/bulk/jobs/cancel", role="operator", connects="api")
async def cancel_jobs(asking: Asking, body: ManyJobs) -> ManyDone:
    """Stop many jobs: at once those that wait, by their tokens those that run."""

    async def cancel(id: UUID) -> str:
        return await asking.client.cancel(id, reason=body.reason, conn=asking.conn)

    return await _do(asking, body, cancel, _would_cancel, _CANCELLED)


@jobs.post("/bulk/jobs/reschedule", role="operator", connects="api")
async def reschedule_jobs(asking: Asking, body: ManyMoves) -> ManyDone:
    """Move many jobs that wait to another time."""
    if (body.at is None) == (body.delay is None):
        raise ValidationError("at: give either an instant or a delay", field="at")
    if body.at is not None:  # a dry run refuses what the act would refuse
        check_instant("at", body.at)
    if body.delay is not None:
        check_span("delay", span_of("delay", body.delay))

    async def reschedule(id: UUID) -> str:
        try:
            return await asking.client.reschedule(
                id, at=body.at, delay=body.delay, reason=body.reason, conn=asking.conn
            )
        except TransitionRefused as error:
            return error.state or "lost"
        except JobNotFound:
            return "not_found"

    return await _do(asking, body, reschedule, lambda job: job.state, WAITING)


async def _do(asking: Asking, body: ManyJobs, act: Act, foretell: Foretell, done: Collection[str]) -> ManyDone:
    ids, more = await _meant(asking, body)
    outcomes = dict.fromkeys(ids, "not_found")
    if body.dry_run:
        found = await asking.ask(sift(asking.sql, asking.who, Sought(), ids, len(ids))) if ids else []
        outcomes |= {job.id: foretell(job) for job in found}
    else:
        for id in ids:
            outcomes[id] = await act(id)
    left = [LeftAlone(id=id, outcome=outcome) for id, outcome in outcomes.items() if outcome not in done]
    return ManyDone(meant=len(ids), done=len(ids) - len(left), left_alone=left, more=more, dry_run=body.dry_run)


async def _meant(asking: Asking, body: ManyJobs) -> tuple[list[UUID], bool]:
    """Their ids, in an order that is the same for all, so that no two acts wait for each other."""
    if (body.ids is None) == (body.filter is None):
        raise ValidationError("ids: give either ids or a filter", field="ids")
    if body.filter is None:
        ids, rest = body.named()
        return ids, rest > 0
    if not body.filter.says - {"text"}:
        raise ValidationError("filter: means all jobs; say which, by more than a text", field="filter")
    only = body.filter if body.filter.state else replace(body.filter, state=tuple(sorted(WAITING)))
    found = await find_jobs(asking, only, limit=body.limit)
    return sorted(job.id for job in found.jobs), found.place is not None


def _would_cancel(job: JobLine) -> str:
    if job.state in WAITING:
        return "cancelled"
    if job.state in RUNNING:
        return "cancel_requested" if job.cancellable else "not_cancellable"
    return "cancelled" if job.state == "cancelled" else "already_finished"
