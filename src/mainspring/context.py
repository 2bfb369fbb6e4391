"""What a handler is given besides its payload."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from mainspring.outcome import Cancelled

if TYPE_CHECKING:
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from psycopg import AsyncConnection, Connection

    from mainspring.job import Claim, NewJob


class _Job(ABC):
    """What both colours of the context offer."""

    job: Claim
    result: Any = None  # what `client.result` returns; a handler that uses no transaction may also return it

    @property
    def idempotency_key(self) -> str:
        """The same on every attempt; send it to systems that accept one."""
        return self.job.idempotency_key

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

    def check(self) -> None:
        """Stop here if the job was cancelled; call it between the steps of a long job."""
        if self.cancelled:
            raise Cancelled


class Context(_Job):
    """The running job, for an async handler: a first parameter annotated with it receives it.

    ::

        @tasks.task
        async def issue_invoice(ctx: ms.Context, *, booking_id: int) -> None:
            async with ctx.transaction() as conn: ...
    """

    @abstractmethod
    async def enqueue(self, *jobs: NewJob) -> None:
        """Enqueue follow-up jobs, which inherit organisation, project, actor and trace.

        They are checked now and written with the job's success: in its transaction, or with its completion.
        """

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """A transaction in which business rows, follow-up jobs and the job's completion commit together, fenced."""


class SyncContext(_Job):
    """The running job, for a plain function, which runs in a thread."""

    @abstractmethod
    def enqueue(self, *jobs: NewJob) -> None:
        """Enqueue follow-up jobs; they are written with the job's success."""

    @abstractmethod
    def transaction(self) -> AbstractContextManager[Connection[Any]]:
        """A transaction in which business rows, follow-up jobs and the job's completion commit together, fenced."""
