"""Several workers and one dependency: what one of them learns, all of them know."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any

import pytest
from tests.databases import Database
from tests.observe.conftest import Heard
from tests.worker.breakers.conftest import PAUSE, WITHIN, Dependency
from tests.worker.stage import SETTINGS, Stage

import mainspring as ms
from mainspring.events import BreakerClosed, BreakerOpened, JobDeferred
from mainspring.worker import Worker
from mainspring.worker.local_breaker import whole

pytestmark = pytest.mark.anyio
RETRY = ms.fixed(1, attempts=2)


@pytest.fixture
async def stage(database: Database) -> AsyncIterator[Stage]:
    with database.connect() as conn:
        async with ms.AsyncClient(database.dsn) as client:
            stage = Stage(database, conn, client)
            stage.clock.set(stage.clock.now())
            yield stage


async def team(stage: Stage, stack: AsyncExitStack, app: ms.App, size: int, **settings: Any) -> list[Worker]:
    """So many workers that run until the end of the block."""
    workers = []
    for _ in range(size):
        config = ms.WorkerConfig(**(SETTINGS | settings))
        worker = Worker(stage.dsn, app.registry, config=config, observers=app.observers, breakers=app.breakers)
        await worker.start()
        stack.push_async_callback(worker.stop)
        workers.append(worker)
    return workers


def knows(worker: Worker) -> bool:
    """Whether a worker has seen that the breaker is open."""
    gate = worker._parts.breakers._locals.get(whole("stripe"))
    return gate is not None and not gate.closed


def held(worker: Worker) -> bool:
    """Whether a worker has seen that somebody holds the breaker closed."""
    gate = worker._parts.breakers._locals.get(whole("stripe"))
    return gate is not None and gate.held


async def in_time(stage: Stage, holds: Callable[[], object]) -> None:
    """Wait for a fact while time passes: who is stopped while the breaker changes asks again a moment later."""

    def look() -> object:
        stage.clock.advance(milliseconds=10)
        return holds()

    await stage.until(look, 20)


async def fail_to_probe(stage: Stage, heard: Heard) -> None:
    """Let the pause pass, and it open once more."""
    before = len(heard.of(BreakerOpened))
    stage.clock.advance(PAUSE)
    await in_time(stage, lambda: len(heard.of(BreakerOpened)) > before)


def quiet(stage: Stage) -> bool:
    """Whether nothing is due and nothing runs."""
    due = "select count(*) from mainspring.waiting where due_at <= mainspring.now()"
    return bool(stage.one(f"select ({due}) + (select count(*) from mainspring.running)") == 0)


@pytest.mark.rule("STAFF-16.02", "STAFF-16.03")
async def test_a_thousand_jobs_of_a_dead_dependency_make_few_calls_burn_nothing_and_all_succeed_later(
    stage: Stage, tasks: ms.Registry, dependency: Dependency
) -> None:
    heard = Heard()
    stripe = ms.breaker("stripe", failures=5, within=WITHIN, pause=PAUSE)
    app = ms.App(tasks, dsn=stage.dsn, breakers=[stripe], observers=[heard], maintenance=False)

    @tasks.task(needs=("stripe",), retry=RETRY)
    async def charge(*, n: int) -> None:
        up = dependency.up
        dependency.calls.append(n)
        await asyncio.sleep(0.01)
        if not up:
            raise ConnectionError("down")

    await stage.enqueue_many([charge.job(n=n) for n in range(1000)])
    async with AsyncExitStack() as stack:
        dependency.up = False
        await team(stage, stack, app, 3, wakeups=True)
        await stage.until(lambda: quiet(stage))
        opened = len(dependency.calls)
        burnt = stage.one("select count(*) from mainspring.attempt")
        assert opened <= 15  # five of each, however many slots they have
        assert burnt <= opened

        for _ in range(2):  # probes that fail
            await fail_to_probe(stage, heard)
        assert len(dependency.calls) - opened < 30
        assert stage.one("select count(*) from mainspring.attempt") == burnt

        dependency.up = True
        stage.clock.advance(PAUSE)
        await in_time(stage, lambda: stage.one("select count(*) from mainspring.finished") == 1000)

    assert stage.rows("select state, count(*) from mainspring.finished group by 1") == [("succeeded", 1000)]
    assert stage.one("select max(attempt) from mainspring.finished") <= 2
    assert len(heard.of(BreakerClosed)) == 1
    assert heard.of(BreakerOpened)[0].pause == 60.0
    assert heard.of(JobDeferred)  # of those that were claimed; the others were parked where they stood


async def test_what_one_worker_saw_stops_another(stage: Stage, tasks: ms.Registry, dependency: Dependency) -> None:
    app = ms.App(tasks, dsn=stage.dsn, breakers=[ms.breaker("stripe", failures=2, pause=PAUSE)], maintenance=False)
    called: list[str] = []

    @tasks.task(needs=("stripe",), retry=RETRY, queue="q:a")
    async def first() -> None:
        called.append("first")
        raise ConnectionError("down")

    @tasks.task(needs=("stripe",), retry=RETRY, queue="q:b")
    async def second() -> None:
        called.append("second")

    async with AsyncExitStack() as stack:
        (other,) = await team(stage, stack, app, 1, queues={"q:b": 1})
        await team(stage, stack, app, 1, queues={"q:a": 1})
        await stage.enqueue_many([first.job(), first.job()])
        await stage.until(lambda: knows(other))
        job = await stage.enqueue(second.job())
        await in_time(stage, lambda: stage.one("select count(*) from mainspring.waiting where gate is not null") >= 1)

    assert called == ["first", "first"]
    assert (await stage.job(job)).attempt == 0


async def test_a_worker_that_starts_calls_nothing_that_is_open(
    stage: Stage, tasks: ms.Registry, dependency: Dependency
) -> None:
    app = ms.App(tasks, dsn=stage.dsn, breakers=[ms.breaker("stripe", failures=1, pause=PAUSE)], maintenance=False)

    @tasks.task(needs=("stripe",), retry=RETRY)
    async def charge() -> None:
        dependency.call()

    dependency.up = False
    await stage.enqueue(charge.job())
    await app.worker(ms.WorkerConfig(**SETTINGS)).drain()
    assert len(dependency.taken()) == 1
    await stage.enqueue_many([charge.job() for _ in range(20)])
    await app.worker(ms.WorkerConfig(**SETTINGS)).drain()

    assert dependency.taken() == []


async def test_jobs_run_at_once_when_a_person_closes_it(
    stage: Stage, tasks: ms.Registry, dependency: Dependency
) -> None:
    app = ms.App(tasks, dsn=stage.dsn, breakers=[ms.breaker("stripe")], maintenance=False)

    @tasks.task(needs=("stripe",), retry=RETRY)
    async def charge(*, n: int) -> None:
        dependency.call(n)

    async with AsyncExitStack() as stack:
        (worker,) = await team(stage, stack, app, 1, wakeups=True)
        await stage.client.breakers.open("stripe", reason="maintenance")
        await stage.until(lambda: knows(worker))
        await stage.enqueue_many([charge.job(n=n) for n in range(10)])
        await in_time(stage, lambda: stage.one("select count(*) from mainspring.waiting where gate is not null") == 10)
        await stage.client.breakers.auto("stripe", reason="it is over")
        await stage.until(lambda: len(dependency.calls) == 10)  # the clock stands: they did not wait for their instant


async def test_all_jobs_call_at_once_what_a_person_holds_closed_however_many_fail(
    stage: Stage, tasks: ms.Registry, dependency: Dependency, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.worker.local_breaker.FIRST_CALLS_S", 60.0)
    app = ms.App(tasks, dsn=stage.dsn, breakers=[ms.breaker("stripe", failures=2, pause=PAUSE)], maintenance=False)
    together = asyncio.Barrier(5)  # which nobody passes if some are held back to see how the first ones fare

    @tasks.task(needs=("stripe",), retry=ms.fixed(3600, attempts=2))
    async def charge(*, n: int) -> None:
        if n < 20:
            await together.wait()
        dependency.call(n)

    dependency.up = False
    async with AsyncExitStack() as stack:
        (worker,) = await team(stage, stack, app, 1, concurrency=5)
        await stage.client.breakers.close("stripe", reason="I know better")
        await stage.until(lambda: held(worker))
        await stage.enqueue_many([charge.job(n=n) for n in range(20)])
        await stage.until(lambda: stage.one("select count(*) from mainspring.attempt") == 20)
        assert (len(dependency.taken()), knows(worker)) == (20, False)

        await stage.client.breakers.auto("stripe", reason="or do I")
        await stage.until(lambda: not held(worker))
        await stage.enqueue_many([charge.job(n=n) for n in range(20, 40)])
        await stage.until(lambda: knows(worker))


async def test_a_task_that_needs_nothing_is_not_touched(
    stage: Stage, tasks: ms.Registry, dependency: Dependency
) -> None:
    app = ms.App(tasks, dsn=stage.dsn, breakers=[ms.breaker("stripe", failures=1)], maintenance=False)

    @tasks.task(retry=RETRY)
    async def free() -> None:
        dependency.call()

    dependency.up = False
    await stage.enqueue_many([free.job() for _ in range(5)])
    await app.worker(ms.WorkerConfig(**SETTINGS)).drain()

    assert len(dependency.taken()) == 5
    assert stage.one("select state from mainspring.breaker") == "closed"


async def test_workers_without_breakers_ask_the_database_nothing(stage: Stage, tasks: ms.Registry) -> None:
    @tasks.task
    async def plain() -> None: ...

    await stage.enqueue(plain.job())
    await stage.drain(tasks)

    assert stage.one("select count(*) from mainspring.breaker") == 0


async def test_a_job_that_takes_long_as_a_probe_keeps_the_others_waiting(
    stage: Stage, tasks: ms.Registry, dependency: Dependency
) -> None:
    app = ms.App(tasks, dsn=stage.dsn, breakers=[ms.breaker("stripe", failures=1, pause=PAUSE)], maintenance=False)
    go = asyncio.Event()
    began: list[int] = []

    @tasks.task(needs=("stripe",), retry=RETRY)
    async def charge(*, n: int) -> None:
        began.append(n)
        if not dependency.up:
            raise ConnectionError("down")
        await go.wait()

    dependency.up = False
    async with AsyncExitStack() as stack:
        workers = await team(stage, stack, app, 2)
        await stage.enqueue(charge.job(n=0))
        await stage.until(lambda: stage.one("select count(*) from mainspring.breaker where state = 'open'") == 1)
        await stage.enqueue_many([charge.job(n=n) for n in range(1, 9)])
        await stage.until(lambda: quiet(stage) and all(knows(worker) for worker in workers))
        tried = len(began)
        dependency.up = True
        stage.clock.advance(2 * PAUSE + timedelta(seconds=1))  # all of them are due
        await in_time(stage, lambda: len(began) > tried)
        await asyncio.sleep(0.5)
        assert len(began) == tried + 1  # one probe, of two workers
        go.set()
        await in_time(stage, lambda: stage.one("select count(*) from mainspring.finished") == 9)


async def test_nobody_works_when_the_pause_ends_and_who_starts_later_tries_and_lets_all_go(
    stage: Stage, tasks: ms.Registry, dependency: Dependency
) -> None:
    app = ms.App(tasks, dsn=stage.dsn, breakers=[ms.breaker("stripe", failures=1, pause=PAUSE)], maintenance=False)

    @tasks.task(needs=("stripe",), retry=RETRY)
    async def charge() -> None:
        dependency.call()

    dependency.up = False
    await stage.enqueue_many([charge.job() for _ in range(50)])
    async with AsyncExitStack() as stack:
        await team(stage, stack, app, 2)
        parked = "select count(*) > 0 from mainspring.waiting where due_at = 'infinity'"
        await in_time(stage, lambda: stage.one(parked) and quiet(stage))

    stage.clock.advance(days=1)
    dependency.up = True
    async with AsyncExitStack() as stack:
        await team(stage, stack, app, 1)
        await in_time(stage, lambda: stage.one("select count(*) from mainspring.finished") == 50)


async def test_who_declares_no_breaker_lets_go_whom_one_has_stopped_that_is_gone(
    stage: Stage, tasks: ms.Registry
) -> None:
    @tasks.task
    async def charge() -> None: ...

    await stage.enqueue_many([charge.job() for _ in range(5)])
    parked = "gate = 'breaker:stripe', due_then = due_at, due_at = 'infinity'"
    stage.rows(f"update mainspring.waiting set {parked}")
    async with stage.work(tasks):
        await stage.until(lambda: stage.one("select count(*) from mainspring.finished") == 5)
