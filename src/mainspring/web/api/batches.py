"""Batches and flows over HTTP: how far they are, their jobs, and what is done to them."""

from __future__ import annotations

from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec.structs import asdict

from mainspring.db.flows import Linked, around
from mainspring.job import Job
from mainspring.states import State
from mainspring.together.batch import Batch, OnFailure
from mainspring.web.api.asking import Asking
from mainspring.web.api.operation import Resource
from mainspring.web.api.paging import PageOf, Paging
from mainspring.web.api.terms import Instant, JobId, NeededReason, Reason
from mainspring.web.api.version import Versioned

batches = Resource("batches", "Jobs that are counted together, and jobs that wait for others.")

BatchId = Annotated[UUID, msgspec.Meta(description="The id of a batch.")]
BatchState = Literal["open", "running", "stopping", "finished"]


class BatchView(Versioned, frozen=True, kw_only=True):
    """A batch and how far it is; `ended` of its `total` jobs have ended."""

    id: BatchId
    org_id: str
    name: str
    state: BatchState
    on_failure: OnFailure
    on_finish: UUID | None
    total: int
    ended: int
    percent: float
    succeeded: int
    failed: int
    dead: int
    cancelled: int
    running: int
    waiting: int
    created_at: Instant
    closed_at: Instant | None
    stopped_at: Instant | None
    stop_reason: str | None
    finished_at: Instant | None

    def version(self) -> tuple[Any, ...]:
        """What is said of it, not how far it is."""
        return self.id, self.state, self.on_finish, self.closed_at, self.stopped_at, self.stop_reason, self.finished_at


class BatchJob(msgspec.Struct, frozen=True, kw_only=True):
    """A job of a batch and where it stands, with the error of one that failed, masked."""

    id: JobId
    task: str
    state: str
    queue: str
    attempt: int
    max_attempts: int
    created_at: Instant
    due_at: Instant | None
    started_at: Instant | None
    finished_at: Instant | None
    code: str | None
    message: str | None
    resolution: str | None


class BatchCancelled(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """NeededReason a batch is cancelled."""

    reason: Reason = None


class BatchRetried(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """NeededReason the failed jobs of a batch are replayed."""

    reason: NeededReason


class BatchAct(Versioned, frozen=True, kw_only=True):
    """How many jobs were replayed, and the batch as it is now."""

    replayed: int
    batch: BatchView

    def version(self) -> tuple[Any, ...]:
        """That of the batch."""
        return self.batch.version()


@batches.get("/batches", role="viewer")
async def list_batches(asking: Asking, page: Paging[UUID], state: BatchState | None = None) -> PageOf[BatchView]:
    """Batches, newest first."""
    found = await asking.client.batches.list(state=state, before=page.after, limit=page.wanted, conn=asking.conn)
    return page.of([_view(one) for one in found], lambda one: one.id)


@batches.get("/batches/{id}", role="viewer")
async def show_batch(asking: Asking, id: BatchId) -> BatchView:
    """One batch with its counts."""
    return _view(await asking.client.batches.get(id, conn=asking.conn))


@batches.get("/batches/{id}/jobs", role="viewer")
async def list_batch_jobs(
    asking: Asking, id: BatchId, page: Paging[UUID], state: State | None = None
) -> PageOf[BatchJob]:
    """The jobs of a batch that are still there, newest first."""
    how: dict[str, Any] = {"state": state, "before": page.after, "limit": page.wanted}
    found = await asking.client.batches.members(id, **how, conn=asking.conn)
    return page.of([_job(asking, job) for job in found], lambda job: job.id)


@batches.post("/batches/{id}/retry-failed", role="operator", if_match="optional")
async def retry_batch(asking: Asking, id: BatchId, body: BatchRetried) -> BatchAct:
    """Replay the jobs that failed or died and that nobody has decided about; its on-finish job runs again."""
    await _look(asking, id)
    replayed = await asking.client.batches.retry_failed(id, reason=body.reason, conn=asking.conn)
    return BatchAct(replayed=replayed, batch=await show_batch(asking, id))


@batches.post("/batches/{id}/cancel", role="operator", connects="api", if_match="optional")
async def cancel_batch(asking: Asking, id: BatchId, body: BatchCancelled) -> BatchView:
    """Cancel what has not started, and ask what runs to stop; its on-finish job runs when all have ended."""
    await _look(asking, id)
    await asking.client.batches.cancel(id, reason=body.reason, conn=asking.conn)
    return await show_batch(asking, id)


@batches.get("/flows/{id}", role="viewer")
async def show_flow(asking: Asking, id: JobId) -> Linked:
    """The jobs that are linked with one, up to 500, and which of them waits for which."""
    return await asking.ask(around(asking.sql, await asking.client.get(id, conn=asking.conn)))


async def _look(asking: Asking, id: UUID) -> None:
    """Compare what is there with what was seen."""
    await asking.lock("batch", id)
    asking.match(await show_batch(asking, id))


def _job(asking: Asking, job: Job) -> BatchJob:
    error = job.error or {}
    about = {name: getattr(job, name) for name in BatchJob.__struct_fields__ if name not in ("code", "message")}
    return BatchJob(**about, code=error.get("code"), message=asking.show(error.get("message")))


def _view(batch: Batch) -> BatchView:
    return BatchView(**asdict(batch), ended=batch.ended, percent=round(batch.percent, 2))
