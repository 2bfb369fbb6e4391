"""A worker without loops: due jobs run one after another, by the worker's own claim, executor and outcomes."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import Executor as Threads
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from datetime import datetime, timedelta
from typing import Any, TypeVar
from uuid import UUID

from mainspring.circuit import declared
from mainspring.config import WorkerConfig
from mainspring.db import jobs
from mainspring.db.cipher import Keyring
from mainspring.db.jobs import Who
from mainspring.db.wire.connect import pool
from mainspring.db.wire.run import async_psycopg_door, run_async
from mainspring.db.wire.sql import Sql
from mainspring.declare.task import Task
from mainspring.errors import JobError
from mainspring.events import Bus
from mainspring.job import Claim, Job
from mainspring.outcome import CRASH_BUDGET, BreakerOpen, Cancelled, Move, Outcome, Snooze, Withheld
from mainspring.virtual.joined import AsyncView, View
from mainspring.virtual.ran import Crash, Drained, Ran
from mainspring.virtual.tasks import DeclaredTasks, shown
from mainspring.virtual.visitor import Visitors
from mainspring.worker.attempt import NO_DEADLINE, LiveAttempt
from mainspring.worker.breakers import BreakerService
from mainspring.worker.crew import Crew
from mainspring.worker.executor import Executor
from mainspring.worker.handlers import Handlers
from mainspring.worker.outbox import Outbox
from mainspring.worker.processes import Children
from mainspring.worker.rates import Rates
from mainspring.worker.reporter import Reports
from mainspring.worker.resources import Resources
from mainspring.worker.schedules.fan_out import FanOut
from mainspring.worker.schedules.firing import Firing
from mainspring.worker.signal import Signal
from mainspring.worker.state import WorkerState
from mainspring.worker.statements import ExchangeRequest, ExchangeStatements
from mainspring.worker.transactions import Transactions

R = TypeVar("R", bound="Runner")

VIRTUAL_WORKER = "mainspring.testing"
MOST_DRAINED = 1000  # so many jobs in one go are probably one that enqueues itself
_CONFIG = WorkerConfig(prepare=False, wakeups=False)


class Runner:
    """Runs what is due. Made for one loop and one go."""

    def __init__(
        self,
        tasks: DeclaredTasks,
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
        names = tasks.registry.names()
        self._statements = ExchangeStatements(sql, VIRTUAL_WORKER, _CONFIG, self._queues, names)
        self.threads, self._pool, self._ring, bus = threads, pool, ring, Bus(tasks.observers)
        self._state = WorkerState(VIRTUAL_WORKER, _CONFIG, Signal(), Outbox(), Rates())
        self._outbox = self._state.outbox
        rules, serves = declared(tasks.breakers, tasks.registry), (self._queues, names)
        self._breakers = BreakerService(self._use, sql, rules, serves, bus, lambda: None)
        resources = Resources(sql, VIRTUAL_WORKER, transactions, pool, self._breakers, ring, Reports())
        handlers = Handlers(resources, threads, _Inside(threads), self._state.rates)
        self._executor = _VirtualExecutor(self._state, handlers, tasks.authorize)
        self._firing = Firing(sql, tasks.registry, ring, bus, housekeeping=False)
        self._fan_out = FanOut(sql, self._firing, pool, threads)
        self._fires, self._synced = fires, False
        self.visitors = visitors or Visitors()

    async def drain(self, *, raise_errors: bool = True, limit: int = MOST_DRAINED) -> Drained:
        """Run everything that is due, and what becomes due by it."""
        runs: list[Ran] = []
        visits = 0
        await self.rescue()
        await self.fire()
        while True:
            claim = await self.claim() or await self._let_go()
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

    async def _let_go(self) -> Claim | None:
        """Take a job that waited for a breaker and may go now, or try."""
        await self._breakers.tick(all_gates=True)
        return await self.claim()

    async def claim(self, task: str | None = None, queue: str | None = None) -> Claim | None:
        """Take one due job, if there is one."""
        found = await self.exchange(1, task, queue)
        return found[0] if found else None

    async def exchange(self, want: int, task: str | None = None, queue: str | None = None) -> list[Claim]:
        """Write how the last attempts ended and take due jobs, in one turn as a worker does."""
        names = [task] if task else self._registry.names()
        crew = self._crew(names, want, [queue] if queue else self._queues)
        statements = ExchangeStatements(self._sql, VIRTUAL_WORKER, _CONFIG, crew.weights.names, names)
        suspects = {crew: want}  # here they cannot harm each other
        reply = await statements.send(self._view, ExchangeRequest(self._outbox.take(), [(crew, want)], suspects))
        if not reply.found[0].jobs and await statements.alone_due(self._view):
            return (await statements.send(self._view, ExchangeRequest(alone=True))).alone
        return reply.found[0].jobs

    def _crew(self, tasks: Sequence[str], size: int, queues: Sequence[str]) -> Crew:
        return Crew(tasks, size, dict.fromkeys(queues, 1), size, self._state.rates, self._executor.begin)

    async def run(self, claim: Claim, *, raise_errors: bool = True) -> Ran:
        """Run one attempt, and write how it ended."""
        error, move = await self.attempt(claim)
        if outcomes := self._outbox.take():
            await self._statements.send(self._view, ExchangeRequest(outcomes))
        job = await self.job(claim.id)
        ran = Ran(job, claim.attempt, claim.claimed_at, error)
        if raise_errors and (problem := _problem(ran, move)):
            problem.add_note(f"job {job.id} of task {job.task}, attempt {claim.attempt}: now {job.state}")
            raise problem
        return ran

    async def attempt(self, claim: Claim) -> tuple[BaseException | None, Move | None]:
        """Run one attempt, whose end waits to be written: what its handler raised, and its end if not a success."""
        loop = asyncio.get_running_loop()
        await self._breakers.tick()
        attempt = _AskingAttempt(claim, self._registry.get(claim.task), loop.time(), NO_DEADLINE)
        attempt.ask, attempt.crew = self._cancelled, self._crew([], 1, [])
        self._state.attempts[claim.epoch] = attempt
        self._executor.raised = None
        async with self._attempt():
            attempt.crew.add(attempt)
            assert attempt.handle is not None
            timer = loop.call_at(attempt.deadline, attempt.interrupt, "timeout")
            await asyncio.wait([attempt.handle])
            timer.cancel()
            if attempt.task.runs != "async":  # one that took too long goes on, and may use the connection until its end
                await loop.run_in_executor(self.threads, lambda: None)
        await self._breakers.tick(thorough=True)
        moves = self._outbox.moves
        return self._executor.raised, moves[-1][1] if moves and moves[-1][0] is attempt else None

    async def _use(self, ask: Callable[[Any], Awaitable[Any]]) -> Any:
        return await ask(self._view)

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
        rows = await (await self._view.execute(self._sql["rescue"], [1000, CRASH_BUDGET, timedelta(0)])).fetchall()
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
        return (epoch,) in view.execute(self._sql["cancelled"], [VIRTUAL_WORKER]).fetchall()


def _problem(ran: Ran, move: Move | None) -> Exception | None:
    """Why a test should fail: what the handler raised, unless it only asks to run later or to stop."""
    if isinstance(ran.error, Exception) and not isinstance(ran.error, Snooze | Cancelled | BreakerOpen | Withheld):
        return ran.error
    if move is not None and move.error is not None:  # it took too long, or snoozed too long
        return JobError(f"{move.error.code}: {move.error.message}", job_id=ran.job.id)
    return None


class _AskingAttempt(LiveAttempt):
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
    tasks: DeclaredTasks,
    view: Any,
    ring: Keyring,
    threads: Threads,
    queue: str | None = None,
    visitors: Visitors | None = None,
) -> AsyncIterator[R]:
    """A runner whose handlers have transactions of their own, as in production."""
    transactions = Transactions(dsn, VIRTUAL_WORKER, size=4, prepare=False)
    own = pool(dsn, size=4, name=VIRTUAL_WORKER, prepare=False, answered_within=None)
    try:
        yield kind(
            tasks, view, ring, transactions=transactions, pool=own, threads=threads, queue=queue, fires=True,
            visitors=visitors,
        )  # fmt: skip
    finally:
        await transactions.close()
        own.close()


class _VirtualExecutor(Executor):
    """The worker's, which also keeps what handlers raise."""

    raised: BaseException | None = None
    failing: Callable[[Claim], object] = staticmethod(lambda claim: None)  # told before a failure is judged

    async def _classified(self, attempt: LiveAttempt, error: BaseException) -> Outcome:
        self.failing(attempt.claim)
        return await super()._classified(attempt, error)

    def _end(self, attempt: LiveAttempt, outcome: Outcome, error: BaseException | None = None) -> None:
        self.raised = error
        if isinstance(error, Crash):
            attempt.settled = True
        super()._end(attempt, outcome, error)

    async def _failed_late(self, attempt: LiveAttempt, outcome: Outcome, raised: BaseException) -> None:
        self.raised = raised
        await super()._failed_late(attempt, outcome, raised)


class _Inside(Children):
    """CPU-bound functions in this process: starting another takes longer than most tests."""

    def __init__(self, threads: Threads) -> None:
        super().__init__()
        self._threads = threads

    async def call(
        self,
        task: Task[Any, Any],
        payload: str,
        start_by: float = float("inf"),
        entered: Callable[[], None] = lambda: None,
    ) -> Any:
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: task.fn(**task.codec.decode(payload)))
