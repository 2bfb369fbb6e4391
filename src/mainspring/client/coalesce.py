"""Many single enqueues at once become one statement.

The first one goes out alone, at once, so that a lone enqueue waits for nobody. Those that come while it is under way go
out together when it is back: under load a hundred commits become one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeAlias

from mainspring.errors import DatabaseUnavailable, MainspringError
from mainspring.job import Enqueued, NewJob

MOST_COALESCED = 1000
Waiter: TypeAlias = tuple[NewJob, "asyncio.Future[Enqueued]"]


class Coalescer:
    """Sends single jobs, together where they come together; each caller gets its own answer or its own error."""

    def __init__(self, send: Callable[[list[NewJob]], Awaitable[list[Enqueued]]]) -> None:
        self._send = send
        self._pending: list[Waiter] = []
        self._busy = False
        self._flushing: asyncio.Task[None] | None = None

    def enqueue(self, job: NewJob) -> Awaitable[Enqueued]:
        """Enqueue one job: with the others if some are under way, else at once."""
        if not self._busy:
            return self._lead(job)
        future: asyncio.Future[Enqueued] = asyncio.get_running_loop().create_future()
        self._pending.append((job, future))
        return future

    async def _lead(self, job: NewJob) -> Enqueued:
        if self._busy:  # somebody came between the call and its first step
            return await self.enqueue(job)
        self._busy = True
        try:
            return (await self._send([job]))[0]
        finally:
            if self._pending:
                self._flushing = asyncio.ensure_future(self._flush())
            else:
                self._busy = False

    async def drain(self) -> None:
        """Wait until what was asked for is answered."""
        while self._flushing is not None and not self._flushing.done():
            await asyncio.wait([self._flushing])

    async def _flush(self) -> None:
        try:
            while self._pending:
                batch, self._pending = self._pending[:MOST_COALESCED], self._pending[MOST_COALESCED:]
                await self._send_batch(batch)
                await asyncio.sleep(0)  # who was answered may ask again: their next jobs go out together as well
        except BaseException as error:  # the loop is ending: nobody may be left waiting
            _fail(self._pending, error)
            self._pending = []
            raise
        finally:
            self._busy = False

    async def _send_batch(self, batch: list[Waiter]) -> None:
        batch = [waiter for waiter in batch if not waiter[1].done()]  # who was cancelled meanwhile wants no job
        if not batch:
            return
        try:
            answers = await self._send([job for job, _ in batch])
        except MainspringError as error:
            if len(batch) == 1 or isinstance(error, DatabaseUnavailable):
                _fail(batch, error)
                return
            # One of them is refused. The statement wrote none, so each half is sent by itself until it stands alone.
            await self._send_batch(batch[: len(batch) // 2])
            await self._send_batch(batch[len(batch) // 2 :])
        except Exception as error:
            _fail(batch, error)
        except BaseException as error:
            _fail(batch, error)
            raise
        else:
            for (_, future), answer in zip(batch, answers, strict=True):
                if not future.done():
                    future.set_result(answer)


def _fail(batch: list[Waiter], error: BaseException) -> None:
    for _, future in batch:
        if not future.done():
            future.set_exception(error)
