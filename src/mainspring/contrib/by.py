"""By whom a block acts: a client, or the context of a handler; each has a seam, and a verb is written once for all."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from mainspring.client import AsyncClient, Client
from mainspring.client.aio import AsyncSeam
from mainspring.client.colour import Work, do, do_async
from mainspring.client.seam import Seam
from mainspring.client.sync import SyncSeam
from mainspring.db import jobs
from mainspring.db.cipher import Keyring
from mainspring.db.wire.run import async_psycopg_door, psycopg_door, run, run_async
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.context import Context, SyncContext
from mainspring.errors import ConfigurationError
from mainspring.job import Enqueued, NewJob
from mainspring.worker.base_context import BaseContext

T = TypeVar("T")
SyncBy = Client | SyncContext
AsyncBy = AsyncClient | Context
By = SyncBy | AsyncBy


class HandlerSeam(Seam):
    """The seam of a handler: what it makes follows from its job, and is told with the job's success.

    Only here blocks meet the worker's contexts.
    """

    def __init__(self, ctx: Context | SyncContext, sql: Sql) -> None:
        super().__init__(sql, getattr(ctx, "ring", None) or Keyring(None, "", sql))
        self._ctx: Any = ctx

    def org(self) -> str | None:
        """The organisation of the job."""
        org: str | None = self._ctx.job.org_id
        return org

    def follow_ups(self, jobs: Sequence[NewJob]) -> list[NewJob]:
        """Jobs completed as follow-ups; refused where the handler could not enqueue them."""
        completed: list[NewJob] = self._ctx.completed(tuple(jobs))
        return completed

    def with_success(self, jobs: list[NewJob], write: Callable[[Sequence[NewJob]], Dialogue[list[Enqueued]]]) -> None:
        """Write follow-ups by a dialogue of the block's, in the transaction of the job's success."""
        self._ctx.groups.append((jobs, write))

    def tell_created(self, jobs: Sequence[NewJob], answers: list[Enqueued], conn: Any = None) -> list[Enqueued]:
        """Tell observers of them as of the job's other follow-ups."""
        if isinstance(self._ctx, BaseContext):
            self._ctx.tell_created(jobs, answers)
        return answers


class AsyncHandlerSeam(HandlerSeam):
    """The seam of an async handler."""

    def do(self, work: Work[T]) -> Coroutine[Any, Any, T]:
        """Do a verb's work in the event loop; without a connection under the job's lease."""
        return do_async(work, self)

    async def run(self, dialogue: Dialogue[T], conn: Any = None, *, atomic: bool = True) -> T:
        """Run a dialogue: in the transaction of `conn`, or in one of its own, under the job's lease."""
        if conn is not None:
            return await run_async(async_psycopg_door(conn), dialogue)
        async with self._ctx.transaction() as own:
            return await run_async(async_psycopg_door(own), dialogue)

    async def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one completed job at once."""
        return (await self.run(jobs.enqueue_many(self.sql, [job])))[0]


class SyncHandlerSeam(HandlerSeam):
    """The seam of a plain handler."""

    def do(self, work: Work[T]) -> T:
        """Do a verb's work here and now; without a connection under the job's lease."""
        return do(work, self)

    def run(self, dialogue: Dialogue[T], conn: Any = None, *, atomic: bool = True) -> T:
        """Run a dialogue: in the transaction of `conn`, or in one of its own, under the job's lease."""
        if conn is not None:
            return run(psycopg_door(conn), dialogue)
        with self._ctx.transaction() as own:
            return run(psycopg_door(own), dialogue)

    def enqueue(self, job: NewJob) -> Enqueued:
        """Enqueue one completed job at once."""
        return self.run(jobs.enqueue_many(self.sql, [job]))[0]


def seam_of(by: By, sql: Sql) -> SyncSeam | AsyncSeam | SyncHandlerSeam | AsyncHandlerSeam:
    """The seam of who acts; a handler's knows the statements that the block gives."""
    match by:
        case Client() | AsyncClient():
            return by.seam
        case SyncContext():
            return SyncHandlerSeam(by, sql)
        case Context():
            return AsyncHandlerSeam(by, sql)
    raise ConfigurationError("by: is neither a client nor the context of a handler")
