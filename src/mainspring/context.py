"""What a handler is given besides its payload."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from mainspring.outcome import Cancelled

if TYPE_CHECKING:
    import logging
    from contextlib import AbstractAsyncContextManager

    from mainspring.job import Claim, Enqueued, NewJob


class Context(ABC):
    """The running job, for its handler: a first parameter annotated with it receives it.

    ::

        @tasks.task
        async def issue_invoice(ctx: ms.Context, *, booking_id: int) -> None:
            async with ctx.transaction() as conn: ...
    """

    job: Claim
    log: logging.Logger | logging.LoggerAdapter[logging.Logger]

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

    @abstractmethod
    async def enqueue(self, *jobs: NewJob) -> list[Enqueued]:
        """Enqueue follow-up jobs, which inherit organisation, project, actor and trace."""

    @abstractmethod
    def transaction(self) -> AbstractAsyncContextManager[Any]:
        """A transaction in which business rows, follow-up jobs and the job's completion commit together."""
