"""What a test holds in its hands: one database, its clock, and the verbs that run and look."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from concurrent.futures import Executor, ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from typing import Any, Self, TypeVar
from uuid import UUID

import psycopg
from psycopg.pq import TransactionStatus
from psycopg.rows import TupleRow

from mainspring.client import Client
from mainspring.config import DEFAULT_SCHEMA
from mainspring.db.cipher import Keyring
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.declare.registry import Registry
from mainspring.declare.task import Task
from mainspring.errors import ConfigurationError
from mainspring.events import Event
from mainspring.job import Claim, Job, NewJob
from mainspring.job import Enqueued as Answer
from mainspring.testing.enqueued import EnqueuedVerbs, name_of
from mainspring.testing.working import Working
from mainspring.text.span import Span, span_of
from mainspring.virtual.calling_thread import run_from_thread
from mainspring.virtual.clock import Clock
from mainspring.virtual.joined import AsyncView
from mainspring.virtual.ran import Drained, Ran
from mainspring.virtual.runner import MOST_DRAINED, Runner, running
from mainspring.virtual.tasks import DeclaredTasks, Tasks
from mainspring.virtual.visitor import Visitor, Visitors

T = TypeVar("T")
_YEAR = timedelta(days=366)
Wanted = NewJob | Task[..., Any] | Answer | Job | UUID
MISSING = "which tasks? Let the fixture mainspring_app return your App or Registry, or set mainspring_app = module:name"


class Harness(EnqueuedVerbs):
    """One test's Mainspring: a database of its own, where time moves only when the test says so.

    ::

        def test_auto_approval_waits_four_hours(mainspring):
            submit_timesheet(mainspring.conn, 9)
            mainspring.advance(hours=3, minutes=59)
            assert status(mainspring.conn, 9) == "pending"
            mainspring.advance(minutes=1)
            assert status(mainspring.conn, 9) == "verified"

    Verbs that run jobs have async twins, which run them in the test's own event loop: `await mainspring.adrain()`.
    `visitors` are others who act while time passes; see `Visitor`.
    """

    def __init__(self, dsn: str, app: Tasks | None = None, *, schema: str = DEFAULT_SCHEMA) -> None:
        self.dsn = dsn
        self._app = app
        self._declared = known = DeclaredTasks.by(app) if app is not None else DeclaredTasks(Registry("none"), schema)
        self._sql = Sql(known.schema)
        self._ring = Keyring(known.cipher, dsn, self._sql)
        self.conn: psycopg.Connection[TupleRow] = psycopg.connect(dsn, autocommit=True)
        self.client = Client(
            dsn, schema=known.schema, caller=known.caller, observers=known.observers, cipher=known.cipher
        )
        self.clock = Clock(self.conn, schema=self._sql.schema)
        self.clock.set(self.clock.now())
        self._ask(known.declare(self._sql))
        self._working: Working | None = None
        self._thread = threading.get_ident()
        self.visitors: list[Visitor] = []

    def close(self) -> None:
        """Hang up."""
        self._ring.close()
        self.client.close()
        self.conn.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    # -- time ---------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """What the database's clock shows; in other threads, such as the sandbox's, where the test has stopped it."""
        return super().now() if threading.get_ident() == self._thread else self.clock.at

    def advance(
        self,
        delta: Span | None = None,
        *,
        to: datetime | None = None,
        raise_errors: bool = True,
        limit: int = MOST_DRAINED,
        **units: float,
    ) -> Drained:
        """Let time pass, `advance("4h")`, and run what becomes due on the way, each job at its exact instant.

        A lease that ends on the way is rescued, and visitors come when they want to. While a worker is `working`, time
        moves at once and the worker runs.
        """
        target = self._target(delta, to, units)
        return self._in_thread(lambda runner: self._advance(runner, target, raise_errors, limit))

    async def aadvance(
        self,
        delta: Span | None = None,
        *,
        to: datetime | None = None,
        raise_errors: bool = True,
        limit: int = MOST_DRAINED,
        **units: float,
    ) -> Drained:
        """`advance`, in the test's own loop."""
        target = self._target(delta, to, units)
        return await self._in_loop(lambda runner: self._advance(runner, target, raise_errors, limit))

    def _target(self, delta: Span | None, to: datetime | None, units: dict[str, float]) -> datetime:
        now = self.now()
        target = to if to is not None else now + (timedelta(**units) if delta is None else span_of("delta", delta))
        if target < now:
            raise ValueError(f"time does not go back: it is {now}, not before {target}")
        return target

    async def _advance(self, runner: Runner, target: datetime, raise_errors: bool, limit: int) -> Drained:
        runs: list[Ran] = []
        while self._working is None:
            runs += await runner.drain(raise_errors=raise_errors, limit=limit - len(runs))
            instant = await runner.next_instant()
            if instant is None or instant > target:
                break
            self.clock.set(instant)
        while self._working is not None and (instant := runner.visitors.next_at()) is not None and instant <= target:
            self.clock.set(max(instant, self.clock.at))
            await runner.visitors.visit()
        self.clock.set(target)
        return Drained(runs)

    def run_until(
        self,
        until: datetime | Callable[[], object],
        *,
        within: Span = _YEAR,
        raise_errors: bool = True,
        limit: int = MOST_DRAINED,
    ) -> Drained:
        """Let time pass up to an instant, or until something is so, `run_until(lambda: status(conn, 9) == "verified")`.

        A condition is looked at before each job and each visit and at each due instant, and time stops where it holds.
        If it does not hold `within` so much virtual time, or nothing is due any more, the test fails.
        """
        if isinstance(until, datetime):
            return self.advance(to=until, raise_errors=raise_errors, limit=limit)
        condition, target = until, self._target(span_of("within", within), None, {})

        async def so(runner: Runner) -> object:  # in the test's own thread, as its code expects
            return await asyncio.get_running_loop().run_in_executor(runner.threads, condition)

        return self._in_thread(lambda runner: self._run_until(runner, so, target, raise_errors, limit))

    async def arun_until(
        self,
        until: datetime | Callable[[], object],
        *,
        within: Span = _YEAR,
        raise_errors: bool = True,
        limit: int = MOST_DRAINED,
    ) -> Drained:
        """`run_until`, in the test's own loop; the condition may be async."""
        if isinstance(until, datetime):
            return await self.aadvance(to=until, raise_errors=raise_errors, limit=limit)
        condition, target = until, self._target(span_of("within", within), None, {})

        async def so(_: Runner) -> object:
            found = condition()
            return await found if inspect.isawaitable(found) else found

        return await self._in_loop(lambda runner: self._run_until(runner, so, target, raise_errors, limit))

    async def _run_until(
        self,
        runner: Runner,
        so: Callable[[Runner], Awaitable[object]],
        target: datetime,
        raise_errors: bool,
        limit: int,
    ) -> Drained:
        if self._working is not None:
            raise RuntimeError("a worker works: wait for what it tells, mainspring.wait_for(...)")
        runs: list[Ran] = []
        visits = 0
        await runner.fire()
        while not await so(runner):
            if (claim := await runner.claim()) is not None:
                if len(runs) >= limit:
                    raise AssertionError(f"{limit} jobs ran, and it is still not so")
                runs.append(await runner.run(claim, raise_errors=raise_errors))
                continue
            if await runner.visitors.visit():
                visits += 1
                if visits > limit:
                    raise AssertionError(f"visitors came {limit} times at {self.clock.at}, and it is still not so")
                continue
            instant = await runner.next_instant()
            if instant is None or instant > target:
                why = "nothing else is due" if instant is None else f"the next is due {instant}, not before {target}"
                raise AssertionError(f"it is not so, and {why}; it is {self.now()}, and {len(runs)} jobs ran")
            self.clock.set(instant)
            visits = 0
            await runner.rescue()
            await runner.fire()
        return Drained(runs)

    # -- running ------------------------------------------------------------------------------------------------

    def drain(self, *, queue: str | None = None, raise_errors: bool = True, limit: int = MOST_DRAINED) -> Drained:
        """Run everything that is due now, and what becomes due by it, one job after another.

        A handler that raises fails the test with its traceback; its attempt is recorded all the same. Where failing is
        the point, say `raise_errors=False`.
        """
        return self._in_thread(lambda runner: runner.drain(raise_errors=raise_errors, limit=limit), queue)

    async def adrain(
        self, *, queue: str | None = None, raise_errors: bool = True, limit: int = MOST_DRAINED
    ) -> Drained:
        """`drain`, in the test's own loop."""
        return await self._in_loop(lambda runner: runner.drain(raise_errors=raise_errors, limit=limit), queue)

    def run_one(self, job: Wanted, *, raise_errors: bool = True) -> Ran:
        """Run exactly one job: a new one, which is enqueued, or one that is due, or the first that is due of a task."""
        wanted = self._enqueued(job)
        return self._in_thread(lambda runner: self._run_one(runner, wanted, raise_errors))

    async def arun_one(self, job: Wanted, *, raise_errors: bool = True) -> Ran:
        """`run_one`, in the test's own loop."""
        wanted = self._enqueued(job)
        return await self._in_loop(lambda runner: self._run_one(runner, wanted, raise_errors))

    def crash(self, job: Wanted) -> Job:
        """Let a worker claim a job and die: it holds the lease, and nobody works."""
        wanted = self._enqueued(job)

        async def die(runner: Runner) -> Job:
            return await runner.job((await self._claim(runner, wanted)).id)

        return self._in_thread(die)

    def expire_leases(self) -> list[Job]:
        """Move time to where the last lease ends, and take back what is held; returns the rescued jobs."""
        ((last,),) = self.conn.execute(self._sql["last_lease"]).fetchall()
        if last is not None and last > self.now():
            self.clock.set(last)

        async def rescue(runner: Runner) -> list[Job]:
            return [await runner.job(job) for job in await runner.rescue()]

        return self._in_thread(rescue)

    def _enqueued(self, job: Wanted) -> UUID | str:
        """The job that is meant, or the name of the task of which any is."""
        match job:
            case NewJob():
                return self.client.enqueue(job).id
            case Task():
                return job.name
            case UUID():
                return job
            case _:
                return job.id

    async def _run_one(self, runner: Runner, wanted: UUID | str, raise_errors: bool) -> Ran:
        return await runner.run(await self._claim(runner, wanted), raise_errors=raise_errors)

    async def _claim(self, runner: Runner, wanted: UUID | str) -> Claim:
        if isinstance(wanted, str):
            claim = await runner.claim(wanted)
            if claim is None:
                raise AssertionError(f"no job of {wanted} is due at {self.now()}")
            return claim
        job = self.client.get(wanted)
        with psycopg.connect(self.dsn) as other:
            other.execute(self._sql["hold_others"], [wanted])
            claim = await runner.claim(job.task, job.queue)
            other.rollback()
        if claim is None:
            due = f", due {job.due_at}; it is {self.now()}" if job.due_at else ""
            raise AssertionError(f"job {job.id} of {job.task} cannot be claimed: it is {job.state}{due}")
        return claim

    # -- a worker in the background -----------------------------------------------------------------------------

    @contextmanager
    def working(self, **settings: Any) -> Iterator[Working]:
        """A real worker in a thread of its own, inside the block; `settings` are those of `WorkerConfig`."""
        with Working(self.dsn, self._tasks(), settings) as self._working:
            try:
                yield self._working
            finally:
                self._working = None

    def wait_for(
        self, event: str, *, job_id: UUID | None = None, task: Task[..., Any] | str | None = None, timeout: Span = 10.0
    ) -> Event:
        """Wait until the worker has told of an event, such as `job.succeeded`, since its block began."""
        return self._background().wait_for(event, job_id=job_id, task=name_of(task), timeout=timeout)

    async def await_for(
        self, event: str, *, job_id: UUID | None = None, task: Task[..., Any] | str | None = None, timeout: Span = 10.0
    ) -> Event:
        """`wait_for`, while the test's own loop goes on."""
        return await self._background().await_for(event, job_id=job_id, task=name_of(task), timeout=timeout)

    def _background(self) -> Working:
        if self._working is None:
            raise RuntimeError("nobody works: wait inside of `with mainspring.working():`")
        return self._working

    # -- where jobs run -----------------------------------------------------------------------------------------

    def _tasks(self) -> DeclaredTasks:
        if self._app is None:
            raise ConfigurationError(MISSING)
        return self._declared

    def _ask(self, dialogue: Dialogue[T]) -> T:
        return run(psycopg_door(self.conn), dialogue)

    def _in_thread(self, go: Callable[[Runner], Awaitable[T]], queue: str | None = None) -> T:
        async def main(threads: Executor) -> T:
            async with self._runner(threads, queue) as runner:
                return await go(runner)

        return run_from_thread(main)

    async def _in_loop(self, go: Callable[[Runner], Awaitable[T]], queue: str | None = None) -> T:
        with ThreadPoolExecutor(1) as threads:
            async with self._runner(threads, queue) as runner:
                return await go(runner)

    @asynccontextmanager
    async def _runner(self, threads: Executor, queue: str | None) -> AsyncIterator[Runner]:
        """A runner whose handlers have transactions of their own, as in production."""
        tasks = self._tasks()
        if self.conn.info.transaction_status != TransactionStatus.IDLE:
            raise RuntimeError("leave the transaction of mainspring.conn first: the jobs in it are not committed yet")
        view = AsyncView(self.conn.pgconn, autocommit=True)
        visitors = Visitors(self.visitors, lambda: self.clock.at, threads)
        async with running(Runner, self.dsn, tasks, view, self._ring, threads, queue, visitors) as runner:
            yield runner
