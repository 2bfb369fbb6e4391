"""One attempt in this process, from claim to outcome."""

from __future__ import annotations

import asyncio
from typing import Any

from mainspring.job import Claim
from mainspring.task import Task

NEVER = float("inf")


class Run:
    """An attempt that this worker holds; one object per job, so it is kept small."""

    __slots__ = (
        "began",
        "cancelled",
        "claim",
        "committing",
        "deadline",
        "handle",
        "held_since",
        "settled",
        "task",
        "trusted_until",
        "why",
    )

    def __init__(self, claim: Claim, task: Task[Any, Any], now: float, trusted_until: float) -> None:
        self.claim = claim
        self.task = task
        self.held_since = now
        self.trusted_until = trusted_until  # after that the lease may be somebody else's
        self.began = now  # when the handler was entered
        self.deadline = NEVER  # the task's time limit, from the start on
        self.handle: asyncio.Task[None] | None = None
        self.cancelled = False  # the cancellation token
        self.committing = False  # its own transaction is about to commit: the fence decides, nobody else
        self.settled = False  # its end is recorded or given up: nothing more is written for it
        self.why: str | None = None  # why we interrupted it: timeout, lost, stop

    def interrupt(self, why: str) -> None:
        """Stop the handler as far as Python can: an async one now, a thread when it looks at its token."""
        self.why = self.why or why
        self.cancelled = True
        if self.handle is not None:
            self.handle.cancel()
