from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from mainspring.client import AsyncClient
from mainspring.declare.context import Context
from mainspring.job import Claim, Job, NewJob
from mainspring.outcome import Cancelled
from mainspring.together.batch import Batch, NewBatch
from mainspring.together.flow import Flow


class Quiet(Context):
    """The least that a worker must bring."""

    def __init__(self, job: Claim, cancelled: bool) -> None:
        self.job = job
        self._cancelled = cancelled

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    @property
    def client(self) -> AsyncClient:
        raise NotImplementedError

    async def enqueue(self, *jobs: NewJob | NewBatch | Flow) -> None: ...

    async def add(self, *jobs: NewJob) -> None: ...

    async def batch(self) -> Batch | None: ...

    async def parents(self) -> list[Job]:
        return []

    def audit(self, event: str, **detail: object) -> None: ...

    def transaction(self) -> AbstractAsyncContextManager[Any]:
        return nullcontext()

    def complete(self, result: object = None) -> AbstractAsyncContextManager[Any]:
        return nullcontext()

    async def complete_in(self, conn: Any, *, result: object = None) -> None: ...

    async def step(self, name: str, fn: Any, /, *args: Any, **kwargs: Any) -> Any: ...

    async def checkpoint(self, value: object) -> None: ...

    async def resume_from(self, default: Any, *, type: Any = None) -> Any: ...

    async def each(self, items: Sequence[Any], *, every: int = 1) -> AsyncIterator[Any]:
        for item in items:
            yield item

    async def progress(self, done: float, total: float | None = None, note: str | None = None) -> None: ...

    def breaker(self, name: str) -> AbstractAsyncContextManager[None]:
        return nullcontext()


def a_context(*, cancelled: bool = False) -> Quiet:
    fields: dict[str, Any] = dict.fromkeys(Claim.__struct_fields__)
    now = datetime(2026, 1, 1, tzinfo=UTC)
    claim = Claim(**(fields | {"id": UUID(int=7), "key": "k", "attempt": 2, "epoch": 41, "created_at": now}))
    return Quiet(claim, cancelled)


def test_a_context_shows_the_job_it_runs() -> None:
    ctx = a_context()

    assert (ctx.idempotency_key, ctx.attempt, ctx.epoch) == ("k", 2, 41)
    assert ctx.step_key("post") == f"{UUID(int=7)}:post"


def test_a_check_stops_only_a_cancelled_job() -> None:
    a_context().check()

    with pytest.raises(Cancelled):
        a_context(cancelled=True).check()
