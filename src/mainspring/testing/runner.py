"""A worker without loops: due jobs run one after another, by the worker's own claim, executor and outcomes."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable
from concurrent.futures import Executor as Threads
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any, TypeVar, cast
from uuid import UUID

from mainspring.breaker import declared
from mainspring.config import WorkerConfig
from mainspring.db import jobs
from mainspring.db.cipher import Keyring
from mainspring.db.connect import pool
from mainspring.db.jobs import Who
from mainspring.db.run import async_psycopg_door, run_async
from mainspring.db.schema import Sql
from mainspring.errors import JobError
from mainspring.events import Bus
from mainspring.job import Claim, Job
from mainspring.outcome import CRASH_BUDGET, BreakerOpen, Cancelled, Move, Outcome, Snooze
from mainspring.task import Task
from mainspring.testing.joined import AsyncView, View
from mainspring.testing.ran import Crash, Drained, Ran
from mainspring.testing.tasks import Declared, shown
from mainspring.testing.visitor import Visitors
from mainspring.worker.breakers import Breakers
from mainspring.worker.crew import Crew
from mainspring.worker.executor import Executor
from mainspring.worker.fanout import FanOut
from mainspring.worker.firing import Firing
from mainspring.worker.outbox import Outbox
from mainspring.worker.processes import Children
from mainspring.worker.run import NEVER, Run
from mainspring.worker.talk import Talk
from mainspring.worker.transactions import Transactions

R = TypeVar("R", bound="Runner")

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
        fires: bool = False,  # schedules: where time is the test's
        visitors: Visitors | None = None,
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
        self.threads, self._pool = threads, pool
        self._executor.call_in(threads)
        self._executor.take_keys(ring)
        self._ring = ring
        self._firing = Firing(sql, tasks.registry, ring, Bus(tasks.observers), housekeeping=False)
        self._fan_out = FanOut(sql, self._firing, pool, threads)
        self._fires, self._synced = fires, False
        self.visitors = visitors or Visitors()
        if rules := declared(tasks.breakers, tasks.registry):
            self._executor.breakers = Breakers(self._use, sql, rules, Bus(tasks.observers), lambda: None)

    async def drain(self, *, raise_errors: bool = True, limit: int = LIMIT) -> Drained:
        """Run everything that is due, and what becomes due by it."""
        runs: list[Ran] = []
        visits = 0
        await self.rescue()
        await self.fire()
        while True:
            claim = await self.claim()
            if claim is None:
                if not await self.visitors.visit():
                    return Drained(runs)
                visits += 1
                if visits > limit:
                    raise AssertionError(f"visitors came {limit} times and want to come again, at the same instant")
                continue
            if len(runs) >= limit:
                last = Counter(run.task for run in runs[-10:]).most_common()
                raise AssertionError(f"{limit} jobs ran and more are due; of the last: {last}")
            runs.append(await self.run(claim, raise_errors=raise_errors))

    async def claim(self, task: str | None = None, queue: str | None = None) -> Claim | None:
        """Take one due job, if there is one."""
        found = await self.exchange(1, task, queue)
        return found[0] if found else None

    async def exchange(self, want: int, task: str | None = None, queue: str | None = None) -> list[Claim]:
        """Write how the last attempts ended and take due jobs, in one turn as a worker does."""
        names = [task] if task else self._registry.names()
        crew = Crew(names, want, dict.fromkeys([queue] if queue else self._queues, 1), self._executor.begin, want)
        answer = await self._talk.turn(self._view, self._outbox.take(), [(crew, want)], crew, 0.0, False, None)
        return answer.found[0].jobs

    async def run(self, claim: Claim, *, raise_errors: bool = True) -> Ran:
        """Run one attempt, and write how it ended."""
        error, move = await self.attempt(claim)
        if letter := self._outbox.take():
            await self._talk.turn(self._view, letter, [], None, 0.0, False, None)
        job = await self.job(claim.id)
        ran = Ran(job, claim.attempt, claim.claimed_at, error)
        if raise_errors and (problem := _problem(ran, move)):
            problem.add_note(f"job {job.id} of task {job.task}, attempt {claim.attempt}: now {job.state}")
            raise problem
        return ran

    async def attempt(self, claim: Claim) -> tuple[BaseException | None, Move | None]:
        """Run one attempt, whose end waits to be written: what its handler raised, and its end if not a success."""
        loop = asyncio.get_running_loop()
        await self._executor.breakers.tick()
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
                await loop.run_in_executor(self.threads, lambda: None)
        await self._executor.breakers.tick(thorough=True)
        moves = self._outbox.moves
        return self._executor.raised, moves[-1][1] if moves and moves[-1][0] is run else None

    async def _use(self, talk: Callable[[Any], Awaitable[Any]]) -> Any:
        return await talk(self._view)

    async def fire(self) -> None:
        """Fire the schedules that are due, as a scheduler does; those that are declared are written first."""
        if not self._fires:
            return
        if not self._synced:
            await self._firing.sync(self._view)
            self._synced = True
        await self._fan_out.zones(self._view, timedelta(0))
        while await self._firing.fire(self._view) + await self._fan_out.page(self._view):
            pass

    async def rescue(self) -> list[UUID]:
        """Take back jobs whose lease has expired."""
        rows = await (await self._view.execute(self._sql["rescue"], [1000, CRASH_BUDGET])).fetchall()
        await self._view.execute(self._sql["release_held"])
        return [row[0] for row in rows]

    async def next_instant(self) -> datetime | None:
        """When something becomes due, a schedule fires, a lease ends, or a visitor comes."""
        await self.fire()  # what ran meanwhile may have brought a new zone or a new schedule
        row = await (await self._view.execute(self._sql["next_instant"], [self._registry.names()])).fetchone()
        found = [at for at in (row[0] if row else None, self.visitors.next_at()) if at is not None]
        return min(found, default=None)

    async def job(self, job: UUID) -> Job:
        """A job as it stands."""
        return shown(await run_async(async_psycopg_door(self._view), jobs.get(self._sql, job, Who())), self._ring)

    def _cancelled(self, epoch: int) -> bool:
        """Ask whether a running job is to stop: a worker would have been told meanwhile."""
        view = View(self._view.pgconn, autocommit=self._view.autocommit)
        return (epoch,) in view.execute(self._sql["cancelled"], [WORKER]).fetchall()


def _problem(ran: Ran, move: Move | None) -> Exception | None:
    """Why a test should fail: what the handler raised, unless it only asks to run later or to stop."""
    if isinstance(ran.error, Exception) and not isinstance(ran.error, Snooze | Cancelled | BreakerOpen):
        return ran.error
    if move is not None and move.error is not None:  # it took too long, or snoozed too long
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


@asynccontextmanager
async def running(
    kind: type[R],
    dsn: str,
    tasks: Declared,
    view: Any,
    ring: Keyring,
    threads: Threads,
    queue: str | None = None,
    visitors: Visitors | None = None,
) -> AsyncIterator[R]:
    """A runner whose handlers have transactions of their own, as in production."""
    transactions = Transactions(dsn, WORKER, size=4, prepare=False)
    own = pool(dsn, size=4, name=WORKER, prepare=False)
    try:
        yield kind(
            tasks, view, ring, transactions=transactions, pool=own, threads=threads, queue=queue, fires=True,
            visitors=visitors,
        )  # fmt: skip
    finally:
        await transactions.close()
        own.close()


class _Executor(Executor):
    """The worker's, which also keeps what handlers raise, and calls plain functions where it is told."""

    raised: BaseException | None = None
    failing: Callable[[Claim], object] = staticmethod(lambda claim: None)  # told before a failure is judged

    def _classified(self, run: Run, error: BaseException) -> Outcome:
        self.failing(run.claim)
        return super()._classified(run, error)

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

    async def call(self, task: Task[Any, Any], payload: str, start_by: float = float("inf")) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: task.fn(**task.codec.decode(payload)))
