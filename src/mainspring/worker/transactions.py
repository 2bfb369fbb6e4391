"""Connections for handlers' own transactions.

Every transactional job pays for its round trips, so they are few: begin, the handler's own statements, and one message
that completes the job and commits. That message is guarded by the lease: without it the completion raises, and nothing
commits. The completion must be the last word, so the handler cannot commit by itself. The first message also binds the
transaction to the job's organisation and project (`mainspring.org`, `mainspring.project`): row-level security by these
settings, the engine's or an application's, holds for whatever the handler does there.
"""

from __future__ import annotations

import asyncio

import psycopg
from psycopg import generators
from psycopg.abc import PQGen
from psycopg.errors import error_from_result
from psycopg.pq import ExecStatus, TransactionStatus

from mainspring.db.wire.bound import binding
from mainspring.db.wire.connect import AsyncConnection, options
from mainspring.db.wire.translate import unavailable
from mainspring.errors import MainspringError
from mainspring.job import Claim


class JobConnection(AsyncConnection):
    """A connection whose transaction ends with the job's completion."""

    in_job = False

    async def command(self, text: str) -> None:
        """Execute without parameters and without a cursor, as psycopg sends its own begin and commit.

        A cursor costs a fifth of a transactional job (measured); psycopg has no public name for going without.
        """
        async with self.lock:
            await self.wait(self._commands(text.encode(self.pgconn._encoding)))

    def _commands(self, text: bytes) -> PQGen[None]:
        self.pgconn.send_query(text)
        last = (yield from generators.execute(self.pgconn))[-1]
        if last.status not in {ExecStatus.COMMAND_OK, ExecStatus.TUPLES_OK}:
            raise error_from_result(last, self.pgconn._encoding)

    async def begin(self, job: Claim) -> None:
        """Begin a transaction of the job's organisation and project: one message, as without them."""
        await self.command(f"begin; {binding(self.pgconn, job.org_id, job.project_id)}")

    async def commit(self) -> None:
        """Refused inside a block of the context."""
        self._refuse()
        await super().commit()

    async def rollback(self) -> None:
        """Refused inside a block of the context."""
        self._refuse()
        await super().rollback()

    def _refuse(self) -> None:
        if self.in_job:
            raise MainspringError("leave the block to commit, or raise to roll back")


class Transactions:
    """A stack of such connections: the one used last is used next, because its caches are warm."""

    def __init__(self, dsn: str, name: str, *, size: int, prepare: bool) -> None:
        self._dsn = dsn
        self._options = options(dsn, name, prepare=prepare) | {"answered_within": None}  # a handler takes its time
        self._free = asyncio.Semaphore(size)
        self.size, self.in_use = size, 0
        self._idle: list[JobConnection] = []

    async def take(self, job: Claim) -> JobConnection:
        """A connection in a new transaction, bound to the job's organisation."""
        await self._free.acquire()
        try:
            while self._idle:
                conn = self._idle.pop()
                try:
                    if not conn.stale:
                        await conn.begin(job)
                        break
                except psycopg.OperationalError:  # lost while it was idle: no fault of the job
                    pass
                await conn.close()
            else:
                with unavailable(sent=False):
                    conn = await JobConnection.connect(self._dsn, **self._options)
                    await conn.begin(job)
        except BaseException:
            self._free.release()
            raise
        conn.in_job = True
        self.in_use += 1
        return conn

    async def give(self, conn: JobConnection) -> None:
        """Take it back; what is not committed is rolled back."""
        conn.in_job = False
        self.in_use -= 1
        try:
            if conn.info.transaction_status != TransactionStatus.IDLE:
                await conn.rollback()
        except psycopg.Error:  # it is lost, and the handler has seen why
            await conn.close()
        except BaseException:
            await conn.close()
            raise
        finally:
            if not conn.closed and not conn.broken:
                self._idle.append(conn)
            self._free.release()

    async def close(self) -> None:
        """Hang up."""
        while self._idle:
            await self._idle.pop().close()
