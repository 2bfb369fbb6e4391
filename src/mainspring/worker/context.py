"""The context that an async handler really gets."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import (
    AbstractAsyncContextManager,
    asynccontextmanager,
    suppress,
)
from typing import Any, TypeVar

from psycopg import AsyncConnection

from mainspring.client.aio import AsyncClient
from mainspring.db import batches, completion, steps
from mainspring.db.batches import Together
from mainspring.db.completion import End
from mainspring.db.wire.adopt import adopt_async
from mainspring.db.wire.bound import async_bound_door, binding
from mainspring.db.wire.connect import refuse_stale
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.session import driver_of, roll_back_async
from mainspring.db.wire.statement import Dialogue
from mainspring.db.wire.translate import unavailable
from mainspring.declare.context import Context
from mainspring.errors import DatabaseUnavailable, MainspringError
from mainspring.job import SYSTEM, Job, NewJob
from mainspring.outcome import Error
from mainspring.text.document import MAX_BYTES
from mainspring.together.batch import Batch
from mainspring.together.chunk import EACH_CHECKPOINT
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.base_context import LAST_REPORT
from mainspring.worker.commit import tell_commit
from mainspring.worker.job_seam import AsyncJobSeam
from mainspring.worker.joined_context import ENDING_PATIENCE_S, NOT_AWAITED, OPEN_SESSION_PAUSES, JoinedContext
from mainspring.worker.promise import AsyncBlock, Later, not_enqueued
from mainspring.worker.resources import KEEP_PAUSES, Resources
from mainspring.worker.steps import inside, kept, read, type_of, written
from mainspring.worker.transactions import JobConnection

T = TypeVar("T")
BLOCK_IN_ASYNC = "ctx.complete() is a block: write `async with ctx.complete(result=…) as conn:`"


class JobContext(JoinedContext, Context):
    """The context of an async handler."""

    _client: AsyncClient | None = None  # made when it is asked for

    def __init__(self, attempt: LiveAttempt, resources: Resources) -> None:
        super().__init__(attempt, resources)
        self._transactions = resources.transactions

    @property
    def client(self) -> AsyncClient:
        """See Context."""
        if self._client is None:
            self._client = AsyncClient.over(AsyncJobSeam(self, self._resources))
        return self._client

    def enqueue(self, *jobs: NewJob | Together) -> Coroutine[Any, Any, None]:
        """See Context."""
        return self._promise(Later(lambda: self._enqueue(jobs), not_enqueued("enqueue", jobs)))

    async def _enqueue(self, wanted: Sequence[NewJob | Together]) -> None:
        await self._look_back()
        single, groups = self._sorted(wanted)
        self.follow_ups += await self._sealed(single)
        self.groups += [(await self._sealed(wanted), write) for wanted, write in groups]

    def add(self, *jobs: NewJob) -> Coroutine[Any, Any, None]:
        """See Context."""
        return self._promise(Later(lambda: self._add(jobs), not_enqueued("add", jobs)))

    async def _add(self, jobs: tuple[NewJob, ...]) -> None:
        await self._look_back()
        wanted, write = self._joining(jobs)
        self.groups.append((await self._sealed(wanted), write))

    async def _sealed(self, wanted: list[NewJob]) -> list[NewJob]:
        ring = self.ring
        if ring is None:
            return wanted
        return ring.sealed(wanted) if ring.ready(wanted) else await asyncio.to_thread(ring.sealed, wanted)

    async def batch(self) -> Batch | None:
        """See Context."""
        return await self._do(batches.of_job(self._sql, self.job))

    async def parents(self) -> list[Job]:
        """See Context."""
        found = await self._do(batches.parents(self._sql, self.job))
        key = self._parents_key(found)
        if key is None or self.ring is None:
            return found
        return self._parents_shown(found, await asyncio.to_thread(self.ring.to_read, self.job.org_id, key))

    def complete(self, result: object = None) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """See Context."""
        self._check_result(result)
        return self._promise(AsyncBlock(self._complete(result), BLOCK_IN_ASYNC))

    def complete_in(self, conn: Any, *, result: object = None) -> Coroutine[Any, Any, None]:
        """See Context."""
        return self._promise(Later(lambda: self._complete_in(conn, result), NOT_AWAITED))

    async def _complete_in(self, conn: Any, result: object) -> None:
        await self._look_back()
        with self._ours(), self._joining_elsewhere(result), unavailable():
            own = await self._do(completion.place(self._sql, self.job))
            door = await adopt_async(conn, self._sql["wake"])
            await run_async(door, self._complete_elsewhere(own), joined=True)
            self._joined, self._driver = conn, driver_of(conn)

    async def _look_back(self) -> None:
        """Where a transaction of the handler's own has completed the job: ask what became of it, without waiting."""
        if self._elsewhere == "done" and not self._attempt.settled:
            self._take_in(await self._do(self._end_of_it()))

    async def learn_end(self) -> None:
        """Ask what became of a transaction of the handler's own."""
        if (end := await self._end_soon()) == "open":
            self._left_open(await self._do(completion.session(self._sql, self._attempt.session)))
            if self._joined is not None:  # else it is in use, by a thread
                with self._ending_it():
                    async with asyncio.timeout(ENDING_PATIENCE_S):
                        await roll_back_async(self._joined)
                end = await self._end_soon()
            if end == "open":
                with self._ending_it():
                    await self._do(completion.end_session(self._sql, self._worker, self.job, self._attempt.session))
                if (end := await self._end_soon()) == "open":
                    with self._ending_it():
                        await self._do(self._cannot_end())
        self._ended_elsewhere(end)

    async def _end_soon(self) -> End:
        for pause in OPEN_SESSION_PAUSES:
            if (end := await self._do(self._end_of_it())) != "open":
                return end
            await asyncio.sleep(pause)
        return await self._do(self._end_of_it())

    def transaction(self) -> AbstractAsyncContextManager[AsyncConnection[Any]]:
        """See Context."""
        return self._transaction()

    async def step(self, name: str, fn: Callable[..., Any], /, *args: Any, type: Any = None, **kwargs: Any) -> Any:
        """See Context."""
        memory = self._begin_step(name)
        wanted = type_of(fn) if type is None else type
        if memory.recalled is None:
            memory.recalled = await self._do(steps.recall(self._sql, self.job))
        if name in memory.recalled:
            return read(f"step {name!r}", self._opened(f"step {name}", memory.recalled[name]), wanted)
        with inside(name):
            value = fn(*args, **kwargs)
            value = await value if inspect.isawaitable(value) else value
        text, value = kept(name, value, wanted)
        text = self._closed(f"step {name}", text)
        await self._keep(lambda: steps.remember(self._sql, self._worker, self.job, name, text))
        return value

    async def checkpoint(self, value: object) -> None:
        """See Context."""
        self._begin("a checkpoint")
        text = self._closed("checkpoint", written("checkpoint", value, MAX_BYTES))
        await self._keep(lambda: steps.save(self._sql, self._worker, self.job, text))
        self.check()

    async def resume_from(self, default: T, *, type: Any = None) -> T:
        """See Context."""
        found: T = self._saved(await self._do(steps.resume(self._sql, self.job)), default, type)
        return found

    async def each(self, items: Sequence[T], *, every: int = 1) -> AsyncIterator[T]:
        """See Context."""
        start = self._start_each(await self._do(steps.resume(self._sql, self.job)), every)
        for done, item in enumerate(items[start:], start + 1):
            self.check()
            yield item
            self._report(done, len(items), None)
            if done % every == 0 or done == len(items):
                await self.checkpoint({EACH_CHECKPOINT: done})

    async def done(self) -> tuple[int, bool]:
        """How many items of its list the job has done, and whether this attempt did some of them."""
        text, epoch = await self._do(steps.last(self._sql, self.job))
        return self.done_of(text), epoch == self.job.epoch

    async def split(self, halves: Sequence[NewJob], done: int, error: Error) -> None:
        """End the job by letting two others do what is left of its list."""
        wanted = await self._sealed(self.completed(halves))
        detail = {"done": done, "code": error.code}
        self.groups = [(wanted, lambda jobs: batches.split(self._sql, self._worker, self.job, jobs, detail))]
        self.result = detail | {"split": [job.id for job in wanted], "message": error.message}
        async with self.complete():
            pass

    async def progress(self, done: float, total: float | None = None, note: str | None = None) -> None:
        """See Context."""
        self._report(done, total, note)

    def breaker(self, name: str) -> AbstractAsyncContextManager[None]:
        """See Context."""
        self._refuse_if_settled()
        return self._resources.breakers.guard(self._attempt, name)

    async def write_last_report(self) -> None:
        """Write the last report before the attempt's end is recorded; without it the job does no worse."""
        if (dialogue := self._last_report()) is not None:
            with suppress(MainspringError, TimeoutError):
                async with asyncio.timeout(LAST_REPORT):
                    await self._do(dialogue)

    async def _keep(self, dialogue: Callable[[], Dialogue[bool]]) -> None:
        for pause in (*KEEP_PAUSES, None):
            try:
                self._learn(await self._do(dialogue()))
                break
            except DatabaseUnavailable:
                if pause is None:
                    raise
                await asyncio.sleep(pause)

    async def _do(self, dialogue: Dialogue[T]) -> T:
        """In a short transaction beside the handler's own."""
        with self._ours(), unavailable():
            conn = await self._transactions.take(self.job)
            try:
                answer = await run_async(async_psycopg_door(conn), dialogue)
                await conn.command("commit")
                return answer
            finally:
                await self._transactions.give(conn)

    @asynccontextmanager
    async def _transaction(self) -> AsyncIterator[AsyncConnection[Any]]:
        await self._look_back()
        self._begin("ctx.transaction()")
        with self._ours(), unavailable():
            conn = await self._transactions.take(self.job)
        try:
            with self._ours(conn), self._middle(conn) as created:
                yield conn
                self._refuse_if_settled()
                self._refuse_unkept()
                with unavailable():
                    refuse_stale(conn)
                    self._learn(await run_async(async_psycopg_door(conn), self._write_middle()))
                    tell_commit(self.job, "before", ends_job=False)
                    await conn.command("commit")
                    tell_commit(self.job, "after", ends_job=False)
            self._tell_committed(created)
        finally:
            await self._transactions.give(conn)

    @asynccontextmanager
    async def _complete(self, result: object = None) -> AsyncIterator[AsyncConnection[Any]]:
        await self._look_back()
        self._begin_complete()
        with self._ours(), unavailable():
            conn = await self._transactions.take(self.job)
        self._completing = True
        try:
            with self._ours(conn), self._block(conn):
                yield conn  # what the handler's own statements raise stays what it is
                self._refuse_if_settled()
                self._refuse_unkept()
                self.result = self.result if result is None else result
                with unavailable(sent=False):
                    refuse_stale(conn)
                self._attempt.committing = True
                with unavailable():
                    if self.follow_ups or self.groups:
                        await self._follow(conn)
                    if self._notes:
                        await run_async(async_psycopg_door(conn), self._write_notes())
                    if (report := self._last_report()) is not None:
                        await run_async(async_psycopg_door(conn), report)
                    tell_commit(self.job, "before", ends_job=True)
                    await self._end(conn)
                    tell_commit(self.job, "after", ends_job=True)
            self._attempt.settled = True
        finally:
            self._attempt.committing = self._completing = False
            await self._transactions.give(conn)

    async def _follow(self, conn: JobConnection) -> None:
        if self.job.org_id != SYSTEM:
            await run_async(async_psycopg_door(conn), self._write_follow_ups())
            return
        # Housekeeping fans out into jobs of organisations: each is written in the name of its own.
        await run_async(async_bound_door(conn, lambda: None), self._write_follow_ups())
        await conn.command(binding(conn.pgconn, SYSTEM))

    async def _end(self, conn: JobConnection) -> None:
        """Complete and commit. Without a result both go out in one message: a round trip less for every job."""
        if self.result is None:
            await conn.command(self._sql["complete_and_commit"].format(worker=self._worker, epoch=self.job.epoch))
        else:
            await conn.execute(self._sql["complete_one"], self._ending())
            await conn.command("commit")
