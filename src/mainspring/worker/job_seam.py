"""The seam of a handler: what `ctx.client` and blocks do is done in whichever block of its context is open."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.client.aio import AsyncSeam
from mainspring.client.seam import Seam
from mainspring.client.sync import SyncSeam
from mainspring.db import jobs
from mainspring.db.wire.statement import Dialogue
from mainspring.job import Enqueued, NewJob
from mainspring.worker.block import open_connection

if TYPE_CHECKING:
    from mainspring.worker.base_context import BaseContext
    from mainspring.worker.context import JobContext
    from mainspring.worker.resources import Resources
    from mainspring.worker.thread_context import ThreadContext

T = TypeVar("T")


class JobSeam(Seam):
    """The seam of a handler: it has no connections but those of the context's blocks, and can wait for its success."""

    _ctx: BaseContext

    def __init__(self, ctx: BaseContext, resources: Resources) -> None:
        # As if the schema were secured: there, too, a worker writes jobs by the verbs only.
        super().__init__(resources.sql, resources.ring, secured=True)
        self._ctx = ctx

    def org(self) -> str | None:
        """The organisation of the job."""
        return self._ctx.job.org_id

    def joins(self, conn: Any) -> Any:
        """The connection that was given, or that of the open block."""
        return open_connection() if conn is None else conn

    def follow_ups(self, wanted: Sequence[NewJob]) -> list[NewJob]:
        """Jobs completed as follow-ups; refused where the handler could not enqueue them."""
        return self._ctx.completed(wanted)

    def with_success(self, wanted: list[NewJob], write: Callable[[Sequence[NewJob]], Dialogue[list[Enqueued]]]) -> None:
        """Write follow-ups by a dialogue of the block's, in the transaction of the job's success."""
        self._ctx.groups.append((wanted, write))

    def tell_created(self, jobs: Sequence[NewJob], answers: list[Enqueued], conn: Any = None) -> list[Enqueued]:
        """Tell observers of them once they are committed: with the open block; outside of blocks they are already."""
        self._ctx.tell_created(jobs, answers, committed=self.joins(conn) is None)
        return answers


class AsyncJobSeam(JobSeam, AsyncSeam):
    """For async handlers."""

    _ctx: JobContext

    async def run_apart(self, dialogue: Dialogue[T], *, atomic: bool) -> T:
        """In a transaction of its own, under the job's lease."""
        async with self._ctx.transaction() as own:
            return await self.run(dialogue, own)

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one completed job."""
        return self.tell_created([job], await self.run(jobs.enqueue_many(self.sql, [job])))[0]


class SyncJobSeam(JobSeam, SyncSeam):
    """For plain handlers."""

    _ctx: ThreadContext

    def run_apart(self, dialogue: Dialogue[T], *, atomic: bool) -> T:
        """In a transaction of its own, under the job's lease."""
        with self._ctx.transaction() as own:
            return self.run(dialogue, own)

    def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one completed job."""
        return self.tell_created([job], self.run(jobs.enqueue_many(self.sql, [job])))[0]
