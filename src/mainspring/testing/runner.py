"""A worker without loops: due jobs run one after another, by the worker's own claim, executor and outcomes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Executor as Threads
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from typing import Any, cast
from uuid import UUID

from mainspring.config import WorkerConfig
from mainspring.db import jobs
from mainspring.db.cipher import Keyring
from mainspring.db.jobs import Who
from mainspring.db.run import async_psycopg_door, run_async
from mainspring.db.schema import Sql
from mainspring.errors import JobError
from mainspring.job import Claim, Job
from mainspring.outcome import CRASH_BUDGET, Cancelled, Outcome, Snooze
from mainspring.task import Task
from mainspring.testing.joined import AsyncView, View
from mainspring.testing.ran import Crash, Drained, Ran
from mainspring.testing.tasks import Declared, shown
from mainspring.worker.crew import Crew
from mainspring.worker.executor import Executor
from mainspring.worker.outbox import Letter, Outbox
from mainspring.worker.processes import Children
from mainspring.worker.run import NEVER, Run
from mainspring.worker.talk import Talk
from mainspring.worker.transactions import Transactions

WORKER = "mainspring.testing"
LIMIT = 1000  # so many jobs in one go are probably one that enqueues itself
_CONFIG = WorkerConfig(prepare=False, wakeups=False)


class Runner:
    """Runs what is due. Made for one loop and one go."""

    def __init__(
        self,
        tasks: Declared,
        view: AsyncView,
        ring: Keyring,
        *,
        transactions: Transactions,
        pool: Any,  # a psycopg pool, or what stands in for it
        threads: Threads,
        queue: str | None = None,
        attempt: Callable[[], AbstractAsyncContextManager[None]] = nullcontext,
    ) -> None:
        self._registry, self._view, self._attempt = tasks.registry, view, attempt
        self._sql = sql = Sql(tasks.schema)
        self._queues = [queue] if queue else tasks.serves()
        self._talk = Talk(sql, WORKER, _CONFIG)
        self._outbox = Outbox()
        self._runs: dict[int, Run] = {}
        self._executor = _Executor(
            sql, WORKER, self._outbox, self._runs, transactions, pool, 1, tasks.authorize, Counter(), lambda: None
        )
        self._threads = threads
        self._executor.call_in(threads)
        self._executor.take_keys(ring)
        self._ring = ring

    async def drain(self, *, raise_errors: bool = True, limit: int = LIMIT) -> Drained:
        """Run everything that is due, and what becomes due by it."""
        runs: list[Ran] = []
        await self.rescue()
        while (claim := await self.claim()) is not None:
            if len(runs) >= limit:
                last = Counter(run.task for run in runs[-10:]).most_common()
                raise AssertionError(f"{limit} jobs ran and more are due; of the last: {last}")
            runs.append(await self.run(claim, raise_errors=raise_errors))
        return Drained(runs)

    async def claim(self, task: str | None = None, queue: str | None = None) -> Claim | None:
        """Take one due job, if there is one."""
        names = [task] if task else self._registry.names()
        crew = Crew(names, 1, dict.fromkeys([queue] if queue else self._queues, 1), self._executor.begin, 1)
        answer = await self._talk.turn(self._view, Letter([], [], []), [(crew, 1)], crew, 0.0, False, None)
        found = answer.found[0].jobs
        return found[0] if found else None

    async def run(self, claim: Claim, *, raise_errors: bool = True) -> Ran:
        """Run one attempt, and write how it ended."""
        loop = asyncio.get_running_loop()
        run = _Held(claim, self._registry.get(claim.task), loop.time(), NEVER)
        run.ask = self._cancelled
        self._runs[claim.epoch] = run
        self._executor.raised = None
        crew = Crew([], 1, {}, self._executor.begin, 1)
        self._executor.crews = dict.fromkeys(("async", "thread", "process"), crew)
        async with self._attempt():
            crew.add(run)
            assert run.handle is not None
            timer = loop.call_at(run.deadline, run.interrupt, "timeout")
            await asyncio.wait([run.handle])
            timer.cancel()
            if run.task.runs != "async":  # one that took too long goes on, and may use the connection until its end
                await loop.run_in_executor(self._threads, lambda: None)
        letter = self._outbox.take()
        if letter:
            await self._talk.turn(self._view, letter, [], None, 0.0, False, None)
        error = self._executor.raised
        job = await self.job(claim.id)
        ran = Ran(job, claim.attempt, claim.claimed_at, error)
        if raise_errors and (problem := _problem(ran, letter)):
            problem.add_note(f"job {job.id} of task {job.task}, attempt {claim.attempt}: now {job.state}")
            raise problem
        return ran

    async def rescue(self) -> list[UUID]:
        """Take back jobs whose lease has expired."""
        rows = await (await self._view.execute(self._sql["rescue"], [1000, CRASH_BUDGET])).fetchall()
        await self._view.execute(self._sql["release_held"])
        return [row[0] for row in rows]

    async def next_instant(self) -> datetime | None:
        """When something becomes due, or a lease ends."""
        row = await (await self._view.execute(self._sql["next_instant"], [self._registry.names()])).fetchone()
        return row[0] if row else None

    async def job(self, job: UUID) -> Job:
        """A job as it stands."""
        return shown(await run_async(async_psycopg_door(self._view), jobs.get(self._sql, job, Who())), self._ring)

    def _cancelled(self, epoch: int) -> bool:
        """Ask whether a running job is to stop: a worker would have been told meanwhile."""
        view = View(self._view.pgconn, autocommit=self._view.autocommit)
        return (epoch,) in view.execute(self._sql["cancelled"], [WORKER]).fetchall()


def _problem(ran: Ran, letter: Letter) -> Exception | None:
    """Why a test should fail: what the handler raised, unless it only asks to run later or to stop."""
    if isinstance(ran.error, Exception) and not isinstance(ran.error, Snooze | Cancelled):
        return ran.error
    for _, move in letter.moves:
        if move.error is not None:  # it took too long, or snoozed too long
            return JobError(f"{move.error.code}: {move.error.message}", job_id=ran.job.id)
    return None


class _Held(Run):
    """An attempt whose cancellation token is looked up when the handler asks."""

    __slots__ = ("_told", "ask")

    ask: Callable[[int], bool]

    @property
    def cancelled(self) -> bool:
        """Whether somebody asked for the job to stop."""
        return self._told or (self.handle is not None and not self.settled and self.ask(self.claim.epoch))

    @cancelled.setter
    def cancelled(self, told: bool) -> None:
        self._told = told


class _Executor(Executor):
    """The worker's, which also keeps what handlers raise, and calls plain functions where it is told."""

    raised: BaseException | None = None

    def call_in(self, threads: Threads) -> None:
        self._threads = cast(ThreadPoolExecutor, threads)
        self._children = _Inside(threads)

    def _ended(self, run: Run, outcome: Outcome) -> None:
        self.raised = sys.exc_info()[1]  # being handled by our caller
        if isinstance(self.raised, Crash):
            run.settled = True
        super()._ended(run, outcome)


class _Inside(Children):
    """CPU-bound functions in this process: starting another takes longer than most tests."""

    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self._threads = threads

    async def call(self, task: Task[Any, Any], payload: str) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: task.fn(**task.codec.decode(payload)))
