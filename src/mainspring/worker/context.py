"""The contexts that handlers really get."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import AbstractAsyncContextManager, AbstractContextManager, asynccontextmanager, contextmanager
from typing import Any

import msgspec
from psycopg import AsyncConnection, Connection
from psycopg_pool import ConnectionPool

from mainspring.caller import NOBODY
from mainspring.context import Context, SyncContext
from mainspring.db import jobs
from mainspring.db.run import async_psycopg_door, psycopg_door, run, run_async
from mainspring.db.schema import Sql
from mainspring.db.translate import unavailable
from mainspring.envelope import complete
from mainspring.errors import LeaseLost, MainspringError, ValidationError
from mainspring.job import NewJob
from mainspring.worker.run import Run
from mainspring.worker.transactions import JobConnection, Transactions


def encode_result(result: Any) -> str | None:
    """A result as it is stored; what PostgreSQL could not store is refused here, not in the batch of others."""
    if result is None:
        return None
    try:
        text = msgspec.json.encode(result).decode()
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        raise ValidationError(f"result: cannot be written as JSON: {error}", field="result") from None
    if "\\u0000" in text:
        raise ValidationError("result: contains a NUL character", field="result")
    return text


class _Held:
    """What both contexts share: the attempt, and the follow-up jobs that wait for its success."""

    def __init__(self, run: Run, sql: Sql, worker: str) -> None:
        self.job = run.claim
        self.result: Any = None
        self.follow_ups: list[NewJob] = []
        self._run = run
        self._sql = sql
        self._worker = worker

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the job to stop."""
        return self._run.cancelled

    def _add(self, wanted: tuple[NewJob, ...]) -> None:
        self._refuse_if_settled()
        self.follow_ups += complete(wanted, NOBODY)  # the handler's context makes them follow-ups

    def _refuse_if_settled(self) -> None:
        if self._run.why == "lost":
            raise LeaseLost(job_id=self.job.id)
        if self._run.settled:
            raise MainspringError("the job has ended: its transaction was its success, nothing can follow it")

    def _ending(self) -> list[Any]:
        return [self._worker, self.job.epoch, encode_result(self.result)]


class JobContext(_Held, Context):
    """The context of an async handler."""

    def __init__(self, run: Run, sql: Sql, worker: str, transactions: Transactions) -> None:
        super().__init__(run, sql, worker)
        self._transactions = transactions

    async def enqueue(self, *jobs: NewJob) -> None:
        """See Context."""
        self._add(jobs)

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """See Context."""
        return self._transaction()

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        self._refuse_if_settled()
        with unavailable():
            conn = await self._transactions.take()
        try:
            yield conn  # what the handler's own statements raise stays what it is
            self._refuse_if_settled()
            self._run.committing = True
            with unavailable():
                if self.follow_ups:
                    await run_async(async_psycopg_door(conn), jobs.enqueue_many(self._sql, self.follow_ups))
                await self._end(conn)
            self._run.settled = True
        finally:
            self._run.committing = False
            await self._transactions.give(conn)

    async def _end(self, conn: JobConnection) -> None:
        """Complete and commit. Without a result both go out in one message: a round trip less for every job."""
        if self.result is None:
            await conn.command(self._sql["complete_and_commit"].format(worker=self._worker, epoch=self.job.epoch))
        else:
            await conn.execute(self._sql["complete_one"], self._ending())
            await conn.command("commit")


class ThreadContext(_Held, SyncContext):
    """The context of a plain function in a thread."""

    def __init__(self, run: Run, sql: Sql, worker: str, pool: ConnectionPool[Connection[Any]]) -> None:
        super().__init__(run, sql, worker)
        self._pool = pool

    def enqueue(self, *jobs: NewJob) -> None:
        """See SyncContext."""
        self._add(jobs)

    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        """See SyncContext."""
        return self._transaction()

    @contextmanager
    def _transaction(self) -> Iterator[Connection[Any]]:
        self._refuse_if_settled()
        self._pool.open()
        try:
            with self._pool.connection() as conn:
                with conn.transaction():
                    yield conn
                    self._refuse_if_settled()
                    self._run.committing = True
                    if self.follow_ups:
                        run(psycopg_door(conn), jobs.enqueue_many(self._sql, self.follow_ups))
                    with unavailable():
                        conn.execute(self._sql["complete_one"], self._ending())
                self._run.settled = True
        finally:
            self._run.committing = False
