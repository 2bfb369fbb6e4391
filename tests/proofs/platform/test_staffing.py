"""What the staffing application asks of the engine below it, before it exists."""

from __future__ import annotations

import asyncio
import threading
from datetime import timedelta
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import psycopg
import pytest
from tests.databases import Database
from tests.worker.claims import CLAIM

from mainspring import Caller, Client, Context, NewJob, Registry, WorkerConfig, exponential
from mainspring.testing import Harness
from mainspring.worker import Worker
from mainspring.worker.attempt import NO_DEADLINE, LiveAttempt
from mainspring.worker.leases import LeaseWatch

#: STAFF-16.01, as staffing will declare it.
MESSAGES = exponential(base=30, factor=2, cap=3600, attempts=6, jitter="spread")


@pytest.mark.anyio
@pytest.mark.rule("STAFF-0.05", "STAFF-17.11")
async def test_a_job_may_take_nearly_five_minutes_and_no_more(tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    start = asyncio.get_running_loop().time()
    run = LiveAttempt(CLAIM, work, start, NO_DEADLINE)
    watch = LeaseWatch(WorkerConfig(), {1: run}, cast(Any, SimpleNamespace(give_back_late=lambda _: None)))

    run.deadline = start - 299 + work.limit  # entered 4 min 59 s ago
    await watch.tick()
    assert run.why is None

    run.deadline = start - 301 + work.limit
    await watch.tick()
    assert run.why == "timeout"


@pytest.mark.rule("STAFF-0.06")
def test_a_worker_stays_within_its_connections_however_many_jobs_wait(database: Database, tasks: Registry) -> None:
    @tasks.task
    async def charge(ctx: Context, *, booking: int) -> None:
        async with ctx.complete() as conn:
            await conn.execute("insert into paid values (%s)", [booking])

    @tasks.task
    def letter(*, booking: int) -> None: ...

    count, most = 1000, 10
    config = WorkerConfig(transactions=4, threads=1, exchanges=2, wakeups=True)  # and one for hints, one for the rest
    with database.connect() as conn, Client(database.dsn) as client:
        conn.execute("create table paid (booking integer)")
        jobs: list[NewJob] = [charge.job(booking=n) for n in range(count)] + [letter.job(booking=n) for n in range(50)]
        client.enqueue_many(jobs)
        seen: list[int] = []
        over = threading.Event()

        def look() -> None:
            with psycopg.connect(database.dsn, autocommit=True) as mine:
                while not over.is_set():
                    row = mine.execute(
                        "select count(*) from pg_stat_activity where datname = current_database() "
                        "and application_name like 'mainspring worker%'"
                    ).fetchone()
                    seen.append(row[0] if row else 0)

        watcher = threading.Thread(target=look)
        watcher.start()
        try:
            asyncio.run(_drain(Worker(database.dsn, tasks, config=config)))
        finally:
            over.set()
            watcher.join()
        assert conn.execute("select count(*) from paid").fetchone() == (count,)
    assert 4 < max(seen) <= most


async def _drain(worker: Worker) -> None:
    async with asyncio.timeout(60):
        await worker.drain()


@pytest.mark.rule("STAFF-16.01")
def test_retries_grow_from_half_a_minute_with_a_fifth_of_jitter_and_end_after_five(
    mainspring: Harness, tasks: Registry
) -> None:
    starts: dict[int, list[float]] = {1: [], 2: []}
    began = mainspring.now()

    @tasks.task(retry=MESSAGES)
    async def send(*, user: int) -> None:
        starts[user].append((mainspring.now() - began).total_seconds())
        raise ConnectionError("the provider is away")

    ids = [mainspring.client.enqueue(send.job(user=user)).id for user in starts]
    mainspring.advance(hours=2, raise_errors=False)

    for user, job in zip(starts, ids, strict=True):
        gaps = [later - sooner for sooner, later in pairwise(starts[user])]
        assert len(gaps) == 5
        for n, gap in enumerate(gaps):
            assert 0.8 * 30 * 2**n <= gap <= 1.2 * 30 * 2**n
        assert mainspring.client.get(job).state == "dead"
    assert starts[1] != starts[2]
    assert MESSAGES.raw(20) == timedelta(hours=1)


@pytest.mark.rule("STAFF-16.05")
def test_a_person_runs_a_dead_job_again_after_the_repair_and_the_trail_names_them(
    mainspring: Harness, tasks: Registry
) -> None:
    broken = [True]

    @tasks.task(retry=exponential(base=30, attempts=2))
    async def charge(*, booking: int) -> None:
        if broken:
            raise ConnectionError("the provider is away")

    ids = [mainspring.client.enqueue(charge.job(booking=n)).id for n in (7, 8)]
    mainspring.advance(hours=1, raise_errors=False)
    case = mainspring.client.dead.show(ids[0])
    assert case.job.payload == {"booking": 7}
    assert case.job.attempt == 2
    assert case.job.error is not None
    assert "away" in case.job.error["message"]

    broken.clear()
    with Client(mainspring.dsn, caller=Caller(actor_type="user", actor_id="dora")) as dora:
        dora.dead.replay(ids[0], reason="the provider is back")
        dora.dead.discard(ids[1], reason="paid by hand")
    mainspring.drain()

    assert [mainspring.client.get(job).state for job in ids] == ["succeeded", "dead"]
    trail = mainspring.conn.execute(
        "select job_id, event, detail ->> 'by', detail ->> 'reason' from mainspring.audit "
        "where event in ('job.replayed', 'job.discarded') order by id"
    ).fetchall()
    assert trail == [
        (ids[0], "job.replayed", "dora", "the provider is back"),
        (ids[1], "job.discarded", "dora", "paid by hand"),
    ]


@pytest.mark.rule("STAFF-16.06")
def test_one_correlation_id_follows_from_the_event_through_every_job_it_causes(
    mainspring: Harness, tasks: Registry
) -> None:
    @tasks.task
    async def notify(*, booking: int) -> None:
        if booking == 8:
            raise ConnectionError("the mail server is away")

    @tasks.task
    async def charge(ctx: Context, *, booking: int) -> None:
        await ctx.enqueue(notify.job(booking=booking))

    mainspring.client.enqueue(charge.job(booking=7).traced(correlation_id="week 12"))
    mainspring.client.enqueue(charge.job(booking=8).traced(correlation_id="week 12"))
    mainspring.drain(raise_errors=False)

    jobs = mainspring.conn.execute("select task, correlation_id from mainspring.job").fetchall()
    assert sorted(jobs) == [(task, "week 12") for task in ("charge", "charge", "notify", "notify")]
    trail = mainspring.conn.execute("select distinct correlation_id from mainspring.trail where job_id is not null")
    assert trail.fetchall() == [("week 12",)]
