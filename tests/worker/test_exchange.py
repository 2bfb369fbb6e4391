from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.db.engine import Engine
from tests.worker.stage import Stage

from mainspring import Context, Registry, Snooze, fixed
from mainspring.worker import Worker
from mainspring.worker.statements import ExchangeRequest

pytestmark = pytest.mark.anyio

AT_ONCE = fixed(0, attempts=5)
BACKENDS = "application_name like 'mainspring worker%%' and datname = current_database()"
NEVER = timedelta(seconds=600)  # a poll interval that no test waits for


def after_send(worker: Worker, monkeypatch: pytest.MonkeyPatch, then: Callable[[Any], Awaitable[None]]) -> None:
    """Let something happen between a commit and the arrival of its answer; it gets the claims of the answer."""
    send = worker._parts.exchange._send

    async def disturbed(*args: Any) -> Any:
        answer = await send(*args)
        await then([job for found in answer.found for job in found.jobs])
        return answer

    monkeypatch.setattr(worker._parts.exchange, "_send", disturbed)


# -- what comes first ---------------------------------------------------------------------------------------------


@pytest.mark.rule("ENG-10.08")
async def test_a_flood_of_critical_jobs_leaves_the_default_queue_its_share(stage: Stage, tasks: Registry) -> None:
    order: list[str] = []

    @tasks.task
    async def work(ctx: Context) -> None:
        order.append(ctx.job.queue)

    await stage.enqueue_many([work.job().on_queue("q:critical") for _ in range(400)])
    await stage.enqueue_many([work.job() for _ in range(20)])
    await stage.drain(tasks, concurrency=4, batch=10)

    assert Counter(order) == {"q:critical": 400, "q:default": 20}
    last = max(n for n, queue in enumerate(order) if queue == "q:default")
    assert last < 150


@pytest.mark.rule("ENG-10.08")
async def test_a_queue_with_more_weight_gets_more_of_the_slots(stage: Stage, tasks: Registry) -> None:
    order: list[str] = []

    @tasks.task
    async def work(ctx: Context) -> None:
        order.append(ctx.job.queue)

    await stage.enqueue_many([work.job().on_queue(queue) for queue in ("q:a", "q:b") for _ in range(100)])
    await stage.drain(tasks, queues={"q:a": 3, "q:b": 1}, concurrency=1, batch=4, exchanges=1)

    assert 65 <= Counter(order[:100])["q:a"] <= 85


@pytest.mark.rule("ENG-11.04")
async def test_priority_orders_inside_a_queue_and_gives_no_right_over_another(stage: Stage, tasks: Registry) -> None:
    order: list[tuple[str, int]] = []

    @tasks.task
    async def work(ctx: Context) -> None:
        order.append((ctx.job.queue, ctx.job.priority))

    wanted = [("q:maintenance", 0)] * 20 + [("q:default", 3)] * 5 + [("q:default", 2)] * 5
    await stage.enqueue_many([work.job().on_queue(queue).with_priority(n) for queue, n in wanted])
    await stage.drain(tasks, concurrency=1, batch=2, exchanges=1)

    assert "q:default" in [queue for queue, _ in order[:8]]
    default = [priority for queue, priority in order if queue == "q:default"]
    assert default[0] == 2
    assert sum(default[:5]) < sum(default[5:]), "2 before 3, but for the turn of the oldest"


@pytest.mark.rule("ENG-11.05")
async def test_an_old_job_of_low_priority_starts_within_eight_claims_of_endless_other_work(
    stage: Stage, tasks: Registry
) -> None:
    order: list[int] = []

    @tasks.task
    async def work(ctx: Context) -> None:
        order.append(ctx.job.priority)

    await stage.enqueue(work.job().with_priority(3))
    await stage.enqueue_many([work.job().with_priority(1) for _ in range(60)])
    await stage.drain(tasks, queues={"q:default": 1}, concurrency=1, batch=1, exchanges=1)

    assert order.index(3) <= 8
    assert order[:3] == [1, 1, 1]


# -- when it looks --------------------------------------------------------------------------------------------------


@pytest.mark.rule("ENG-16.01", "ENG-7.06")
async def test_without_any_notification_jobs_are_found_by_polling(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> str:
        return "found"

    async with stage.work(tasks, wakeups=False):
        await stage.until(lambda: stage.rows("select 1 from mainspring.worker"))
        for _ in range(3):
            assert await stage.result(await stage.enqueue(work.job())) == "found"
        assert stage.rows(f"select query from pg_stat_activity where {BACKENDS} and query ilike 'listen%%'") == []


@pytest.mark.rule("ENG-16.02")
async def test_with_defaults_a_job_that_nobody_announced_is_found_by_the_next_poll(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def work() -> str:
        return "found"

    async with stage.work(tasks, poll_interval=timedelta(seconds=1)) as worker:
        worker._parts.exchange.pace.poll = 1.0  # as after a long idle time
        assert await stage.result(await stage.enqueue(work.job())) == "found"


@pytest.mark.rule("ENG-13.02", "ENG-3.02")
async def test_a_timer_runs_when_it_is_due_though_the_next_poll_is_far_and_never_before(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def work() -> None: ...

    jobs = [await stage.enqueue(work.job().after(0.15 + 0.02 * n)) for n in range(5)]
    async with stage.work(tasks, poll_interval=NEVER):
        for job in jobs:
            await stage.result(job)

    late = stage.rows(
        "select extract(epoch from f.started_at - j.scheduled_for)::float "
        "from mainspring.finished f join mainspring.job j using (id)"
    )
    assert len(late) == 5
    assert all(seconds >= 0 for (seconds,) in late)


@pytest.mark.rule("ENG-2.09", "ENG-13.02")
async def test_the_clock_of_the_database_decides_what_is_due(stage: Stage, tasks: Registry) -> None:
    runs: list[int] = []

    @tasks.task
    async def work() -> None:
        runs.append(1)

    stage.clock.set(stage.clock.now() - timedelta(hours=1))  # the worker's clock is an hour ahead
    job = await stage.enqueue(work.job().after(60))
    await stage.drain(tasks)
    stage.clock.advance(seconds=59)
    await stage.drain(tasks)
    assert runs == []

    stage.clock.advance(seconds=1)
    await stage.drain(tasks)
    assert await stage.state(job) == "succeeded"


async def test_a_full_worker_takes_the_next_job_as_soon_as_one_of_its_transactions_has_committed(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            await asyncio.sleep(0.15)  # longer than the pauses between polls that follow a find

    jobs = [await stage.enqueue(work.job()) for _ in range(3)]
    async with stage.work(tasks, concurrency=1, poll_interval=NEVER):
        await asyncio.gather(*(stage.result(job) for job in jobs))

    assert stage.one("select max(finished_at) - min(started_at) from mainspring.finished") < NEVER / 20


async def test_draining_runs_what_follows_from_what_it_runs(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def chain(ctx: Context, *, left: int) -> None:
        if left:
            async with ctx.complete():
                await ctx.enqueue(chain.job(left=left - 1))

    await stage.enqueue(chain.job(left=8))
    worker = await stage.drain(tasks)

    assert worker.counts["succeeded"] == 9


async def test_draining_does_not_end_on_a_look_from_before_a_follow_up_came(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    go, delayed = asyncio.Event(), list[int]()

    @tasks.task
    async def follow() -> None: ...

    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            await go.wait()
            await ctx.enqueue(follow.job())

    async def delay(claims: list[Any]) -> None:
        if not claims and worker.running and not delayed:  # a look that found nothing, while the handler runs
            delayed.append(1)
            go.set()
            await stage.until(lambda: not worker.running)

    await stage.enqueue(work.job())
    worker = stage.worker(tasks, exchanges=1)
    await worker.start()
    after_send(worker, monkeypatch, delay)
    async with asyncio.timeout(10):
        await worker._parts.exchange.idle.wait()
    await worker.stop()

    assert delayed
    assert worker.counts["succeeded"] == 2


@pytest.mark.rule("ENG-16.10", "ENG-5.01")
async def test_workers_side_by_side_run_each_job_once(stage: Stage, tasks: Registry) -> None:
    runs: Counter[int] = Counter()

    @tasks.task
    async def work(*, n: int) -> None:
        runs[n] += 1
        await asyncio.sleep(0)

    await stage.enqueue_many([work.job(n=n) for n in range(1000)])
    workers = [stage.worker(tasks, batch=20, concurrency=10) for _ in range(3)]
    await asyncio.gather(*(worker.drain() for worker in workers))

    assert runs == Counter(range(1000))
    assert sum(worker.counts["succeeded"] for worker in workers) == 1000
    assert all(worker.counts["succeeded"] for worker in workers)


# -- when the database goes away ------------------------------------------------------------------------------------


@pytest.mark.rule("ENG-16.12")
async def test_a_worker_that_loses_all_its_connections_resumes_and_nothing_is_lost_or_doubled(
    stage: Stage, tasks: Registry
) -> None:
    stage.rows("create table effect (n integer)")
    runs: Counter[int] = Counter()

    @tasks.task(retry=AT_ONCE)
    async def plain(*, n: int) -> None:
        runs[n] += 1
        await asyncio.sleep(0.001)

    @tasks.task(retry=AT_ONCE)
    async def transactional(ctx: Context, *, n: int) -> None:
        async with ctx.complete() as conn:
            await conn.execute("insert into effect values (%s)", [n])

    jobs = [job for n in range(300) for job in (plain.job(n=n), transactional.job(n=n))]
    await stage.enqueue_many(jobs)
    cuts = 0
    async with stage.work(tasks, batch=40, concurrency=20, wakeups=True):
        for _ in range(4):
            done = stage.one("select count(*) from mainspring.finished")
            await stage.until(lambda done=done: stage.one("select count(*) from mainspring.finished") > done)  # type: ignore[misc]
            cuts += len(stage.rows(f"select pg_terminate_backend(pid) from pg_stat_activity where {BACKENDS}"))
        await stage.until(lambda: stage.one("select count(*) from mainspring.finished") == 600)

    assert cuts >= 4
    assert stage.rows("select distinct state from mainspring.finished") == [("succeeded",)]
    assert stage.one("select count(distinct n) from effect") == stage.one("select count(*) from effect") == 300
    assert runs == Counter(range(300)), "a lost connection is no reason to run a handler again"
    assert stage.rows("select 1 from mainspring.finished where crashes > 0") == []


async def test_a_claim_whose_answer_was_lost_is_given_back_without_burning_an_attempt(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: Counter[int] = Counter()
    lost: list[Any] = []

    @tasks.task
    async def work(*, n: int) -> None:
        runs[n] += 1

    async def lose(claims: list[Any]) -> None:
        if claims and len(lost) < 3:
            lost.append(claims)
            raise psycopg.OperationalError("the connection was cut while the answer was on its way")

    async with stage.work(tasks, batch=10, concurrency=10) as worker:
        after_send(worker, monkeypatch, lose)
        await stage.enqueue_many([work.job(n=n) for n in range(50)])
        await stage.until(lambda: stage.one("select count(*) from mainspring.finished") == 50)

    assert len(lost) == 3
    assert worker.counts["orphaned"] == sum(len(claims) for claims in lost)
    assert runs == Counter(range(50))
    assert stage.rows("select distinct state, attempt, crashes from mainspring.finished") == [("succeeded", 1, 0)]


async def test_a_claim_that_commits_after_its_loss_was_cleared_up_is_given_back_as_well(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    lost: list[Any] = []

    @tasks.task
    async def work() -> None: ...

    async def lose(claims: list[Any]) -> None:
        if not lost:
            lost.append(claims)
            raise psycopg.OperationalError("the connection was cut")

    async with stage.work(tasks, lease=timedelta(seconds=3), renew_every=timedelta(seconds=1)) as worker:
        after_send(worker, monkeypatch, lose)
        worker._parts.state.signal.hint()
        await stage.until(lambda: bool(lost) and not worker._parts.exchange.unsure)
        with stage.conn.transaction():  # nobody else may have it in between
            engine = Engine(stage.conn)
            job = engine.enqueue(task="work").id
            (claim,) = engine.claim(worker.id, 1, tasks=["work"], lease=timedelta(hours=1))
        assert claim.id == job
        await stage.result(job)

    assert worker.counts["orphaned"] == 1
    assert (await stage.job(job)).attempt == 1


async def test_a_claim_that_is_still_under_way_is_not_taken_for_a_lost_one(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[int] = []
    arrived, go = asyncio.Event(), asyncio.Event()

    @tasks.task
    async def work() -> None:
        runs.append(1)

    async def delay(claims: list[Any]) -> None:
        if claims:
            arrived.set()
            await go.wait()

    async with stage.work(tasks) as worker:
        after_send(worker, monkeypatch, delay)
        job = await stage.enqueue(work.job())
        await asyncio.wait_for(arrived.wait(), 5)
        worker._parts.exchange._unsure = True
        worker._parts.state.signal.hint()
        await asyncio.sleep(0.1)
        assert await stage.state(job) == "running"
        go.set()
        await stage.result(job)

    assert runs == [1]
    assert worker.counts["orphaned"] == 0
    assert (await stage.job(job)).attempt == 1


async def test_outcomes_whose_answer_was_lost_are_sent_again_and_count_once(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs: list[str] = []
    cut: list[int] = []

    @tasks.task(retry=AT_ONCE)
    async def work(ctx: Context, *, way: str) -> str:
        runs.append(way)
        if way == "fail" and ctx.attempt == 1:
            raise ValueError
        return way

    async def lose(claims: list[Any]) -> None:
        if not claims and runs and len(cut) < 2:
            cut.append(1)
            raise psycopg.OperationalError("cut")

    async with stage.work(tasks) as worker:
        after_send(worker, monkeypatch, lose)
        jobs = [await stage.enqueue(work.job(way=way)) for way in ("succeed", "fail")]
        assert [await stage.result(job) for job in jobs] == ["succeed", "fail"]

    assert len(cut) == 2
    assert sorted(runs) == ["fail", "fail", "succeed"]
    assert [(await stage.job(job)).attempt for job in jobs] == [1, 2]


async def test_one_outcome_that_cannot_be_written_does_not_hold_up_the_others(stage: Stage, tasks: Registry) -> None:
    @tasks.task(snooze_limit=None)
    async def work(*, n: int) -> int:
        if n == 3:
            raise Snooze(timedelta(days=999_999_999))  # later than PostgreSQL can say
        return n

    jobs = [await stage.enqueue(work.job(n=n)) for n in range(8)]
    await stage.drain(tasks)

    states = [await stage.state(job) for job in jobs]
    assert states == ["succeeded"] * 3 + ["failed"] + ["succeeded"] * 4
    error = (await stage.job(jobs[3])).error
    assert error is not None
    assert error["code"] == "INTERNAL_ERROR"


async def test_an_outcome_is_not_blamed_for_the_claim_that_failed_beside_it(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    @tasks.task
    async def work() -> str:
        return "done"

    worker = stage.worker(tasks, concurrency=1, batch=1, exchanges=1)
    await worker.start()
    send = worker._parts.exchange._send

    async def refuse(conn: Any, request: ExchangeRequest) -> Any:
        if len(request.outcomes) == 1 and request.asks and len(failed) < 3:
            failed.append(1)
            raise psycopg.errors.InsufficientPrivilege("claim: permission denied")
        return await send(conn, request)

    monkeypatch.setattr(worker._parts.exchange, "_send", refuse)
    jobs = await stage.enqueue_many([work.job() for _ in range(10)])
    assert [await stage.result(job.id) for job in jobs] == ["done"] * 10
    await worker.stop()

    assert len(failed) == 3


async def test_an_error_of_our_own_does_not_end_the_exchange(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[int] = []

    @tasks.task
    async def work() -> str:
        return "done"

    async def bug(claims: list[Any]) -> None:
        if len(failed) < 2:
            failed.append(1)
            raise KeyError("a bug")

    async with stage.work(tasks) as worker:
        after_send(worker, monkeypatch, bug)
        await stage.until(lambda: len(failed) == 2)
        assert await stage.result(await stage.enqueue(work.job())) == "done"


async def test_nothing_starts_that_could_not_be_recorded(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    started: list[int] = []
    go = asyncio.Event()

    @tasks.task
    async def work(*, n: int) -> None:
        started.append(n)
        await go.wait()

    jobs = [await stage.enqueue(work.job(n=n)) for n in range(2)]
    async with stage.work(tasks, concurrency=1) as worker:
        worker._parts.crews["async"]._duration = 0.001  # so that it holds the second
        await stage.until(lambda: worker.running == 2)
        cut = asyncio.Event()
        connect = psycopg.AsyncConnection.__dict__["connect"].__func__

        async def refuse(kind: type, *args: Any, **kwargs: Any) -> Any:
            if not cut.is_set():
                raise psycopg.OperationalError("refused")
            return await connect(kind, *args, **kwargs)

        monkeypatch.setattr(psycopg.AsyncConnection, "connect", classmethod(refuse))
        stage.rows(f"select pg_terminate_backend(pid) from pg_stat_activity where {BACKENDS}")
        await stage.until(lambda: not worker._parts.crews["async"].open)
        go.set()
        await asyncio.sleep(0.1)
        assert started == [0]
        cut.set()
        await asyncio.gather(*(stage.result(job) for job in jobs))

    assert started == [0, 1]


@pytest.mark.rule("ENG-16.02")
async def test_an_idle_worker_with_every_kind_of_handler_polls_no_more_often_than_it_should(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    polls: list[int] = []

    @tasks.task
    async def in_loop() -> None: ...

    @tasks.task
    def in_thread() -> None: ...

    async def count(claims: list[Any]) -> None:
        polls.append(1)

    async with stage.work(tasks, poll_interval=timedelta(milliseconds=100)) as worker:
        after_send(worker, monkeypatch, count)
        await stage.result(await stage.enqueue(in_loop.job()))
        await stage.result(await stage.enqueue(in_thread.job()))
        first, second = worker._parts.exchange._crews
        first.bounds.scan_at, second.bounds.scan_at = 0.0, time.monotonic() + 5  # one is about to scan, the other not
        worker._parts.state.signal.hint()
        polls.clear()
        await asyncio.sleep(0.6)

    assert 1 <= len(polls) <= 12


async def test_a_worker_that_starts_on_a_backlog_in_one_of_its_queues_never_claims_in_vain(
    stage: Stage, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    taken: list[int] = []

    @tasks.task(queue="q:exports")
    async def export() -> None: ...

    async def count(claims: list[Any]) -> None:
        if sum(taken) < 2000:
            taken.append(len(claims))

    for _ in range(2):
        await stage.enqueue_many([export.job() for _ in range(1000)])
    stage.clock.advance(minutes=1)  # it is older than any margin
    queues = dict.fromkeys(("q:default", "q:critical", "q:exports", "q:planning", "q:maintenance", "q:other"), 1)
    async with stage.work(tasks, exchanges=1, queues=queues) as worker:
        after_send(worker, monkeypatch, count)  # it has not said anything yet
        await stage.until(lambda: worker.counts["succeeded"] == 2000)

    assert sum(taken) == 2000
    assert all(taken), (
        f"after {taken.index(0)} claims nothing was found, though {2000 - sum(taken[: taken.index(0)])} wait"
    )
