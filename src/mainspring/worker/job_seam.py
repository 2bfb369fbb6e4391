"""`ctx.client`: the verbs of a client, in whichever block of the handler's context is open."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from mainspring.client.aio import AsyncSeam
from mainspring.client.seam import ClientSeam, Seam
from mainspring.client.sync import SyncSeam
from mainspring.config import ANSWERED_WITHIN
from mainspring.db import jobs
from mainspring.db.wire.statement import Dialogue
from mainspring.job import Enqueued, NewJob
from mainspring.worker.block import open_connection

if TYPE_CHECKING:
    from mainspring.worker.context import JobContext
    from mainspring.worker.resources import Resources
    from mainspring.worker.thread_context import ThreadContext

T = TypeVar("T")


class JobSeam(ClientSeam):
    """The seam of a handler's client: it has no connections but those of the context's blocks."""

    def __init__(self, ctx: Any, resources: Resources) -> None:
        Seam.__init__(self, resources.sql, resources.ring)
        # As if the schema were secured: there, too, a worker writes jobs by the verbs only.
        self.dsn, self.secured, self.answered_within = resources.ring.dsn, True, ANSWERED_WITHIN
        self._ctx = ctx

    def joins(self, conn: Any) -> Any:
        """The connection that was given, or that of the open block."""
        return open_connection() if conn is None else conn

    def tell_created(self, jobs: Sequence[NewJob], answers: list[Enqueued], conn: Any = None) -> list[Enqueued]:
        """Tell observers of them once they are committed: with the open block; outside of blocks they are already."""
        self._ctx.tell_created(jobs, answers, committed=self.joins(conn) is None)
        return answers


class AsyncJobSeam(JobSeam, AsyncSeam):
    """For async handlers."""

    def __init__(self, ctx: JobContext, resources: Resources) -> None:
        JobSeam.__init__(self, ctx, resources)

    async def run(self, dialogue: Dialogue[T], conn: Any = None, *, atomic: bool = False) -> T:
        """In the open block; else in a transaction of its own, under the job's lease."""
        if (conn := self.joins(conn)) is not None:
            return await AsyncSeam.run(self, dialogue, conn)
        async with self._ctx.transaction() as own:
            return await AsyncSeam.run(self, dialogue, own)

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one completed job."""
        return self.tell_created([job], await self.run(jobs.enqueue_many(self.sql, [job])))[0]

    async def close(self) -> None:
        """There is nothing of its own to close."""


class SyncJobSeam(JobSeam, SyncSeam):
    """For plain handlers."""

    def __init__(self, ctx: ThreadContext, resources: Resources) -> None:
        JobSeam.__init__(self, ctx, resources)

    def run(self, dialogue: Dialogue[T], conn: Any = None, *, atomic: bool = False) -> T:
        """In the open block; else in a transaction of its own, under the job's lease."""
        if (conn := self.joins(conn)) is not None:
            return SyncSeam.run(self, dialogue, conn)
        with self._ctx.transaction() as own:
            return SyncSeam.run(self, dialogue, own)

    def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one completed job."""
        return self.tell_created([job], self.run(jobs.enqueue_many(self.sql, [job])))[0]

    def close(self) -> None:
        """There is nothing of its own to close."""
