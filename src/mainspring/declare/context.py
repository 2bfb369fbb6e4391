"""What a handler is given besides its payload."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar, overload

from mainspring.declare.caller import job_fields
from mainspring.outcome import Cancelled

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from psycopg import AsyncConnection, Connection

    from mainspring.client import AsyncClient, Client
    from mainspring.job import Claim, Job, NewJob
    from mainspring.together.batch import Batch, NewBatch
    from mainspring.together.flow import Flow

P = ParamSpec("P")
R = TypeVar("R")
T = TypeVar("T")


class _AnyContext(ABC):
    """What both colours of the context offer."""

    job: Claim
    result: Any = None  # what `client.result` returns; a handler that does not call `complete` may also return it

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt; send it to systems that accept one."""
        return self.job.idempotency_key

    @property
    def log(self) -> logging.LoggerAdapter[logging.Logger]:
        """A logger whose lines carry the job's ids, whatever formats them."""
        return logging.LoggerAdapter(logging.getLogger(f"mainspring.task.{self.job.task}"), job_fields(self.job))

    def step_key(self, name: str) -> str:
        """The same for this step of this job on every attempt, and for no other: a step's own idempotency key."""
        return f"{self.job.id}:{name}"

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.job.attempt

    @property
    def epoch(self) -> int:
        """The number of this claim: with the worker's id, the fencing token."""
        return self.job.epoch

    @property
    @abstractmethod
    def cancelled(self) -> bool:
        """Whether somebody asked for the job to stop."""

    @abstractmethod
    def audit(self, event: str, *, subject: str | None = None, **detail: object) -> None:
        """Put an event of your domain, such as `billing.frozen`, on the audit trail, by SYSTEM, with the job's success.

        In a block it commits with the rows that it reports; elsewhere it is not written if the attempt fails.
        `subject` is what it is about, such as `booking 17`: `client.audit.events(subject="booking 17")` finds it.
        """

    def check(self) -> None:
        """Stop here if the job was cancelled; call it between the steps of a long job."""
        if self.cancelled:
            raise Cancelled


class Context(_AnyContext):
    """The running job, for an async handler: a first parameter annotated with it receives it.

    ::

        @tasks.task
        async def issue_invoice(ctx: ms.Context, *, booking_id: int) -> None:
            async with ctx.complete() as conn: ...
    """

    @property
    @abstractmethod
    def client(self) -> AsyncClient:
        """A client whose verbs join the block that is open, `ctx.transaction()` or `ctx.complete()`, and fail with it.

        ::

            async with ctx.complete() as conn:
                await conn.execute(...)
                await ctx.client.timers.set(remind.job(order_id=7).after(3600).with_key("remind:7"))

        Outside of blocks each verb is a transaction of its own, under the lease, which a later failure does not undo.
        """

    @abstractmethod
    async def enqueue(self, *jobs: NewJob | NewBatch | Flow) -> None:
        """Enqueue follow-up jobs, batches and flows, which inherit organisation, project, actor and trace.

        They are checked now and written with the job's success; what was enqueued in a block that fails is not.
        Inside of `ctx.transaction()` single jobs commit with that block, under a key that is the same on every attempt
        (the job's own where it has one), so that a retry does not enqueue them twice.
        """

    @abstractmethod
    async def add(self, *jobs: NewJob) -> None:
        """Enqueue follow-up jobs as further members of the batch that this job belongs to, if it does."""

    @abstractmethod
    async def batch(self) -> Batch | None:
        """The batch that this job belongs to, or that it finishes, as it stands now."""

    @abstractmethod
    async def parents(self) -> list[Job]:
        """The jobs of its flow that this one has waited for, with their results, in the order of their names there."""

    @abstractmethod
    def complete(self, result: object = None) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """The last transaction of the job: business rows, follow-up jobs, result and success are one commit, fenced.

        ::

            async with ctx.complete() as conn:
                await conn.execute("insert into shop.mail values (%s)", [order_id])
                await ctx.enqueue(ask_for_review.job(order_id=order_id))

        Nothing can follow it: an exception, a value that is returned or a block that is opened after it is recorded on
        the attempt, told as `job.failed_late`, and opens an alert, while the job stays succeeded.
        """

    @abstractmethod
    def complete_in(self, conn: Any, *, result: object = None) -> Awaitable[None]:
        """Complete the job in a transaction of your own: its rows and the job's success are one commit, fenced.

        ::

            async with AsyncSession(engine) as session, session.begin():
                session.add(Receipt(order_id=order_id))
                await ctx.complete_in(session)

        Takes an async SQLAlchemy session or connection, or one of psycopg or asyncpg, in an open transaction of READ
        COMMITTED. If that does not commit, the attempt fails with `CompletionNotCommitted`.
        """

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A transaction in the middle of the job: what is written there commits at the end of the block, fenced.

        ::

            async with ctx.transaction() as conn:
                booking = await store.reserve(conn, booking_id)  # committed before the call that follows
            await provider.call(booking, key=ctx.idempotency_key)

        The job goes on after it, and an attempt that fails later does not undo it: reads, and reservations. Steps and
        other transactions come before or after its block, not inside: it holds a connection.
        """

    @overload
    async def step(self, name: str, fn: Callable[[], object], /, *, type: type[T]) -> T: ...
    @overload
    async def step(self, name: str, fn: Callable[P, Awaitable[R]], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @overload
    async def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @abstractmethod
    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a function once in the life of the job: its result is kept, and a later attempt gets it without a call.

        ::

            invoice = await ctx.step("post", invoicing.create, booking, key=ctx.step_key("post"))

        The result comes back as JSON made it, or as the type that the function says it returns, or as `type`, for a
        function without arguments. A job that was cancelled does not start its next step. A crash between the
        function's effect and the end of the step means that it is called again: send a key where it acts elsewhere.
        """

    @abstractmethod
    async def checkpoint(self, value: object) -> None:
        """Save where to go on, in place of the last checkpoint, and stop here if the job was cancelled."""

    @abstractmethod
    async def resume_from(self, default: T, *, type: type[T] | None = None) -> T:
        """What the last checkpoint saved, as `type` or the type of the default; the default where there is none.

        ::

            for page in range(await ctx.resume_from(1), 101):
                await fetch(page)
                await ctx.checkpoint(page + 1)
        """

    @abstractmethod
    def each(self, items: Sequence[T], *, every: int = 1) -> AsyncIterator[T]:
        """Go through a list item by item: what is done is saved, so that a later attempt goes on with the rest.

        ::

            async for row in ctx.each(rows):
                await load(row)

        After each item, or after so many, checkpoint and progress are written; no other checkpoint is saved then.
        """

    @abstractmethod
    async def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Show how far the job is to whoever looks; call it as often as you like, twice a second one is written."""

    @abstractmethod
    def breaker(self, name: str) -> AbstractAsyncContextManager[None]:
        """Around one call of something outside, such as `sms` or `webhook:7`: its breaker hears how the call ended.

        ::

            async with ctx.breaker("sms"):
                await sms.send(number, text)

        While the breaker is open it raises `BreakerOpen`: the job waits, and its attempt is given back.
        """


class SyncContext(_AnyContext):
    """The running job, for a plain function, which runs in a thread."""

    @property
    @abstractmethod
    def client(self) -> Client:
        """A client whose verbs join the block that is open, `ctx.transaction()` or `ctx.complete()`; as in Context."""

    @abstractmethod
    def enqueue(self, *jobs: NewJob | NewBatch | Flow) -> None:
        """Enqueue follow-up jobs, batches and flows; as in Context."""

    @abstractmethod
    def add(self, *jobs: NewJob) -> None:
        """Enqueue follow-up jobs as further members of the batch that this job belongs to, if it does."""

    @abstractmethod
    def batch(self) -> Batch | None:
        """The batch that this job belongs to, or that it finishes, as it stands now."""

    @abstractmethod
    def parents(self) -> list[Job]:
        """The jobs of its flow that this one has waited for, with their results, in the order of their names there."""

    @abstractmethod
    def complete(self, result: object = None) -> AbstractContextManager[Connection[Any]]:
        """The last transaction of the job: business rows, follow-up jobs, result and success are one commit, fenced."""

    @abstractmethod
    def complete_in(self, conn: Any, *, result: object = None) -> None:
        """Complete the job in a transaction of your own: its rows and the job's success are one commit, fenced.

        ::

            with Session(engine) as session, session.begin():
                session.add(Receipt(order_id=order_id))
                ctx.complete_in(session)

        Takes a SQLAlchemy session or connection, a Django connection, or one of psycopg or psycopg2; as in Context.
        """

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        """A transaction in the middle of the job: what is written there commits at the end of the block, fenced."""

    @overload
    def step(self, name: str, fn: Callable[[], object], /, *, type: type[T]) -> T: ...
    @overload
    def step(self, name: str, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> R: ...
    @abstractmethod
    def step(self, name: str, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        """Call a plain function once in the life of the job; as in Context."""

    @abstractmethod
    def checkpoint(self, value: object) -> None:
        """Save where to go on, in place of the last checkpoint, and stop here if the job was cancelled."""

    @abstractmethod
    def resume_from(self, default: T, *, type: type[T] | None = None) -> T:
        """What the last checkpoint saved, as `type` or the type of the default; the default where there is none."""

    @abstractmethod
    def each(self, items: Sequence[T], *, every: int = 1) -> Iterator[T]:
        """Go through a list item by item: what is done is saved, so that a later attempt goes on with the rest."""

    @abstractmethod
    def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """Show how far the job is to whoever looks; call it as often as you like, twice a second one is written."""

    @abstractmethod
    def breaker(self, name: str) -> AbstractContextManager[None]:
        """Around one call of something outside, such as `sms` or `webhook:7`; as in Context."""
