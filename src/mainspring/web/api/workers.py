"""Workers over HTTP: which processes live, and what they hold."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated
from uuid import UUID

import msgspec

from mainspring.db.queues import HeldJob, WorkerRow
from mainspring.text.texts import MAX_NAME
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.refused import not_found
from mainspring.web.api.terms import Instant

workers = Resource("workers", "Processes that run jobs.")

WorkerId = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_NAME, description="A worker process.")]


@workers.get("/workers", role="viewer", connects="operator")
async def list_workers(asking: Asking, page: Paging[tuple[Instant, str]]) -> PageOf[WorkerRow]:
    """Every worker process, the oldest first; who belongs to an organisation sees what it runs of that one's."""
    found = sorted(await processes(asking), key=_place)
    return page.of([one for one in found if page.after is None or _place(one) > page.after], _place)


@workers.get("/workers/{id}", role="viewer", connects="operator")
async def show_worker(asking: Asking, id: WorkerId) -> WorkerRow:
    """One worker process."""
    for row in await processes(asking):
        if row.id == id:
            return row
    raise not_found()


@workers.get("/workers/{id}/jobs", role="viewer", connects="operator")
async def list_worker_jobs(asking: Asking, id: WorkerId, page: Paging[tuple[Instant, UUID]]) -> PageOf[HeldJob]:
    """The jobs that a worker holds, those first that have run longest: of the organisation that is asked about."""
    found = await asking.client.worker_jobs(id, limit=page.wanted, after=page.after, org=asking.org, conn=asking.conn)
    return page.of(found, _held_place)


async def processes(asking: Asking) -> list[WorkerRow]:
    """Worker processes are everybody's; what they run is counted for who belongs to an organisation."""
    return await asking.client.workers(org=asking.principal.org, conn=asking.conn)


def _place(one: WorkerRow) -> tuple[datetime, str]:
    return one.started_at, one.id


def _held_place(job: HeldJob) -> tuple[datetime, UUID]:
    assert job.started_at is not None, "it runs"
    return job.started_at, job.job_id
