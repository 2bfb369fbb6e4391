"""One attempt in this process, from claim to outcome."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.cipher import Seal
from mainspring.declare.task import Task
from mainspring.job import Claim, NewJob
from mainspring.outcome import Error

if TYPE_CHECKING:
    from mainspring.worker.crew import Crew

NO_DEADLINE = float("inf")
#: A job that was enqueued and is new, and its state.
Created = tuple[NewJob, str]
NO_FOLLOW_UPS: list[Any] = []  # shared: whoever has follow-ups brings a list


class Trace(Protocol):
    """What is told of every attempt while it runs: a span that is current inside the handler."""

    def begin(self, claim: Claim) -> Any:
        """The handler is about to be entered, in this context."""

    def failed(self, span: Any, error: Error) -> None:
        """The attempt failed."""

    def end(self, span: Any) -> None:
        """The handler was left."""


class LiveAttempt:
    """An attempt that this worker holds; one object per job, so it is kept small."""

    crew: Crew  # whose slot it takes; set when it is taken in

    __slots__ = (
        "alone",
        "began",
        "blamed",
        "cancelled",
        "claim",
        "cleared",
        "committing",
        "created",
        "crew",
        "deadline",
        "ended",
        "entered",
        "entered_by",
        "failed",
        "handle",
        "passes",
        "passing",
        "received_at",
        "seal",
        "session",
        "settled",
        "shares",
        "span",
        "start_by",
        "task",
        "thread",
        "trusted_until",
        "why",
    )

    def __init__(self, claim: Claim, task: Task[Any, Any], now: float, trusted_until: float) -> None:
        self.claim = claim
        self.task = task
        self.received_at = now
        self.trusted_until = trusted_until  # after that the lease may be somebody else's
        self.began = now  # when its handler was entered
        self.ended = now  # when its handler was left
        self.deadline = NO_DEADLINE  # the task's time limit, from the start on
        self.shares: list[Any] = NO_FOLLOW_UPS  # of rates, that count it when its handler is entered
        self.passing = False  # they let it through, and it is on its way there
        self.start_by = NO_DEADLINE  # after that they do not any more
        self.entered = False  # its handler is, as far as rates are concerned
        self.entered_by: int | None = None  # the thread that calls it
        self.alone = False  # nothing else is here while it runs
        self.cleared = False  # it may have crashed a worker before, and no longer counts as one that may
        self.handle: asyncio.Task[None] | None = None
        self.thread: asyncio.Future[Any] | None = None  # of a plain function, which may go on after its time
        self.cancelled = False  # the cancellation token
        self.committing = False  # its own transaction is about to commit: the fence decides, nobody else
        self.session = 0  # in the server, whose own transaction completes it: until that ends, it holds its row
        self.settled = False  # its end is recorded or given up: nothing more is written for it
        self.created: list[Created] = NO_FOLLOW_UPS  # follow-ups, to be told of once they are committed
        self.seal: Seal | None = None  # of a job that is encrypted
        self.passes: list[Any] = NO_FOLLOW_UPS  # what its breakers want to hear of
        self.blamed: Any = None  # what one of them has heard of already
        self.failed: bool | None = None  # by what it called; None: that is not known
        self.span: Any = None  # of the trace, where there is one
        self.why: str | None = None  # why we interrupted it: timeout, lost, stop

    def interrupt(self, why: str) -> None:
        """Stop the handler as far as Python can: an async one now, a thread when it looks at its token."""
        self.why = self.why or why
        self.cancelled = True
        if self.handle is not None:
            self.handle.cancel()
