"""The client for async code, and its connections."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Coroutine, Sequence
from typing import Any, Self, TypeVar, overload

from psycopg.pq import TransactionStatus
from psycopg_pool import PoolTimeout

from mainspring.cipher import Cipher
from mainspring.client.alerts import AsyncClientAlerts
from mainspring.client.audit import AsyncAudit
from mainspring.client.batches import AsyncBatches, AsyncEnqueuedBatch, EnqueuedBatchVerbs
from mainspring.client.breakers import AsyncBreakers
from mainspring.client.coalesce import Coalescer
from mainspring.client.colour import Async, Work, do_async
from mainspring.client.dead import AsyncDeadLetters
from mainspring.client.enqueue import EnqueueVerbs, bound, enqueue, enqueue_together, send
from mainspring.client.jobs import JobVerbs
from mainspring.client.limits import AsyncLimits
from mainspring.client.quarantine import AsyncQuarantine
from mainspring.client.schedules import AsyncSchedules
from mainspring.client.seam import ClientSeam, Seam, still_open
from mainspring.client.timers import AsyncTimers
from mainspring.config import ANSWERED_WITHIN, DEFAULT_SCHEMA
from mainspring.db.batches import Together
from mainspring.db.wire.adopt import adopt_async
from mainspring.db.wire.bound import async_bound_door
from mainspring.db.wire.connect import CONNECT_PATIENCE_S, AsyncConnection, async_pool, why_not
from mainspring.db.wire.run import AsyncDoor, async_psycopg_door, run_async
from mainspring.db.wire.statement import Dialogue
from mainspring.db.wire.translate import is_read_only, unavailable
from mainspring.declare.caller import NOBODY, Caller
from mainspring.errors import DatabaseUnavailable
from mainspring.events import Observer
from mainspring.job import AsyncEnqueued, Enqueued, NewJob
from mainspring.text.span import Span, configured_span
from mainspring.together.batch import NewBatch
from mainspring.together.flow import Flow

T = TypeVar("T")


class AsyncClient(JobVerbs, EnqueueVerbs, Async):
    """Enqueues and manages jobs from async code; single enqueues that come together become one statement.

    ::

        async with ms.AsyncClient("postgresql://localhost/shop") as client:
            await client.enqueue(send_welcome.job(user_id=7))

    On a schema that `mainspring schema secure` has secured, `secured=True` binds each statement to its organisation.
    """

    def __init__(
        self,
        dsn: str,
        *,
        schema: str = DEFAULT_SCHEMA,
        caller: Caller = NOBODY,
        pool_size: int = 4,
        timeout: Span = CONNECT_PATIENCE_S,
        answered_within: Span = ANSWERED_WITHIN,
        secured: bool = False,
        observers: Sequence[Observer] = (),
        cipher: Cipher | None = None,
    ) -> None:
        about: dict[str, Any] = {"schema": schema, "caller": caller, "secured": secured, "observers": observers}
        about |= {"cipher": cipher, "answered_within": answered_within}
        self._begin(AsyncClientSeam(dsn, pool_size=pool_size, timeout=timeout, **about))

    @classmethod
    def over(cls, seam: AsyncSeam) -> Self:
        """A client whose verbs work by another seam: that of a handler's context."""
        client = cls.__new__(cls)
        client._begin(seam)
        return client

    def _begin(self, seam: AsyncSeam) -> None:
        self.seam = seam
        self.dead = AsyncDeadLetters(self)
        self.alerts = AsyncClientAlerts(self)
        self.audit = AsyncAudit(self)
        self.batches = AsyncBatches(self)
        self.breakers = AsyncBreakers(self)
        self.limits = AsyncLimits(self)
        self.quarantine = AsyncQuarantine(self)
        self.schedules = AsyncSchedules(self)
        self.timers = AsyncTimers(self)

    @property
    def dsn(self) -> str:
        """The database."""
        return self.seam.dsn

    @overload
    async def enqueue(self, job: NewJob[T], *, conn: Any = None) -> AsyncEnqueued[T]: ...
    @overload
    async def enqueue(self, job: NewBatch, *, conn: Any = None) -> AsyncEnqueuedBatch: ...
    @overload
    async def enqueue(self, job: Flow, *, conn: Any = None) -> list[Enqueued]: ...
    async def enqueue(
        self, job: NewJob | Together, *, conn: Any = None
    ) -> Enqueued | EnqueuedBatchVerbs | list[Enqueued]:
        """Enqueue one job; or a batch or a flow, all of it or nothing."""
        seam = self.seam
        if conn is None and isinstance(job, NewJob) and seam.keyring.cipher is None:
            # The same work; as a generator it costs a tenth more.
            return bound(self, await seam.enqueue(seam.complete([job])[0]))
        if isinstance(job, NewBatch):
            return AsyncEnqueuedBatch(self, job, bound(self, await seam.do(enqueue_together(seam, job, conn))))
        return bound(self, await seam.do(enqueue(seam, job, conn)))

    async def close(self) -> None:
        """Close the client's own connections."""
        await self.seam.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class AsyncSeam(Seam, ABC):
    """The seam of async code: it does a verb's work in the event loop."""

    def do(self, work: Work[T]) -> Coroutine[Any, Any, T]:
        """Do a verb's work."""
        return do_async(work, self)

    async def run(self, dialogue: Dialogue[T], conn: Any = None, *, atomic: bool = False) -> T:
        """Run a dialogue: in the transaction that it joins, or apart."""
        if (conn := self.joins(conn)) is None:
            return await self.run_apart(dialogue, atomic=atomic)
        with unavailable():
            return await run_async(await adopt_async(conn, self.sql["wake"]), dialogue, joined=True)

    @abstractmethod
    async def run_apart(self, dialogue: Dialogue[T], *, atomic: bool) -> T:
        """Run a dialogue on a connection that nobody gave; `atomic`: in one transaction."""

    @abstractmethod
    def enqueue(self, job: NewJob) -> Awaitable[Enqueued]:
        """Enqueue one completed job."""

    async def close(self) -> None:
        """Close what it has of its own."""


class AsyncClientSeam(ClientSeam, AsyncSeam):
    """The seam of an async client, and its connections."""

    def __init__(self, dsn: str, *, pool_size: int, timeout: Span, **about: Any) -> None:
        super().__init__(dsn, **about)
        limit, wait = self.answered_within, configured_span("timeout", timeout).total_seconds()
        self._pool = async_pool(dsn, size=pool_size, name="mainspring client", timeout=wait, answered_within=limit)
        self._kept: tuple[AsyncConnection, AsyncDoor] | None = None
        self._coalescer = Coalescer(lambda wanted: self.do(send(self, wanted)))

    async def run_apart(self, dialogue: Dialogue[T], *, atomic: bool) -> T:
        """On a connection of the client's."""
        # One connection is kept at hand, with its door: a pool's bookkeeping would cost a third of an enqueue.
        kept, self._kept = self._kept, None
        if kept and kept[0].stale:  # its server was replaced
            await kept[0].close()
            await self._pool.putconn(kept[0])
            kept = None
        own, door = kept or await self._connection()
        try:
            if not atomic:
                return await run_async(door, dialogue)
            with unavailable():
                async with own.transaction():
                    return await run_async(door, dialogue)
        except DatabaseUnavailable as error:
            if is_read_only(error):
                await own.close()
            raise
        finally:
            if own.closed:  # the others of the pool are probably as lost
                await self._pool.drain()
            if self._kept is None and own.pgconn.transaction_status == TransactionStatus.IDLE:
                self._kept = own, door
            else:
                await self._pool.putconn(own)

    async def close(self) -> None:
        """Close the connections, when what was asked for is answered."""
        await self._coalescer.drain()
        await asyncio.to_thread(self.keyring.close)
        if self._kept is not None:
            await self._pool.putconn(self._kept[0])
            self._kept = None
        await self._pool.close()

    def enqueue(self, job: NewJob) -> Awaitable[Enqueued]:
        """Enqueue one completed job, together with others that come now."""
        return self._coalescer.enqueue(job)

    async def _connection(self) -> tuple[AsyncConnection, AsyncDoor]:
        with still_open():
            await self._pool.open()
            try:
                own = await self._pool.getconn()
                return own, async_bound_door(own, self.org) if self.secured else async_psycopg_door(own)
            except PoolTimeout:
                why = await asyncio.to_thread(why_not, self.dsn)
                raise DatabaseUnavailable(f"the database is unavailable: {why}", sent=False) from None
