"""Running what is due once: limits, counts, overlap, time."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.databases import Database

import mainspring as ms
from mainspring.db.schema.migrate import migrate
from mainspring.embedded import Cluster
from mainspring.errors import ConfigurationError, DatabaseUnavailable
from mainspring.outcome import Cancelled
from mainspring.uuid7 import uuid7
from mainspring.virtual.clock import Clock

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def noop(tasks: ms.Registry) -> ms.Task[..., Any]:
    @tasks.task
    async def noop() -> None:
        """Do nothing."""

    return noop


@pytest.mark.rule("ENG-18.02")
def test_no_more_than_the_limit_runs_and_nothing_before_its_time(app: ms.App, noop: ms.Task[..., Any]) -> None:
    with app.client() as client:
        client.enqueue_many([noop.job(), noop.job(), noop.job(), noop.job().after(timedelta(hours=1))])

        first = app.run_due(limit=2)
        second = app.run_due(limit=2)

        assert (first.claimed, first.succeeded, first.remaining) == (2, 2, 1)
        assert (second.claimed, second.succeeded, second.remaining) == (1, 1, 0)
        assert Counter(job.state for job in client.jobs()) == {"succeeded": 3, "scheduled": 1}


@pytest.mark.rule("ENG-15.07")
def test_ten_jobs_run_unless_another_limit_is_given(app: ms.App, noop: ms.Task[..., Any]) -> None:
    with app.client() as client:
        client.enqueue_many([noop.job() for _ in range(25)])

    assert [app.run_due().processed for _ in range(3)] == [10, 10, 5]


@pytest.mark.rule("ENG-15.08")
def test_processed_counts_good_and_bad_and_remaining_what_is_tried_again(app: ms.App, tasks: ms.Registry) -> None:
    @tasks.task
    async def good() -> None:
        """Succeed."""

    @tasks.task(retry=ms.fixed(600, attempts=3))
    async def bad() -> None:
        """Fail."""
        raise ValueError("no")

    with app.client() as client:
        client.enqueue_many([good.job(), bad.job(), good.job().on_queue("q:of_others"), good.job().after(60)])

    summary = app.run_due()

    assert (summary.processed, summary.succeeded, summary.retried) == (2, 1, 1)
    assert summary.remaining == 1  # neither what is scheduled, nor what other queues hold


@pytest.mark.rule("ENG-18.03")
def test_the_summary_tells_one_of_each(app: ms.App, tasks: ms.Registry, database: Database) -> None:
    @tasks.task(retry=ms.fixed(60, attempts=3))
    async def end(ctx: ms.Context, *, how: str) -> None:
        """End in some way."""
        match how:
            case "retried":
                raise ValueError("again")
            case "failed":
                raise ms.Permanent("never")
            case "deferred":
                raise ms.Snooze(60)
            case "cancelled":
                with database.connect() as conn, app.client() as client:
                    client.cancel(ctx.job.id, conn=conn)
                raise Cancelled
            case "skipped":  # somebody else has taken the job over
                with database.connect() as conn:
                    conn.execute("update mainspring.running set worker = 'thief' where id = %s", [ctx.job.id])

    @tasks.task(retry=ms.fixed(60, attempts=1))
    async def die() -> None:
        """Fail for the last time."""
        raise ValueError("no attempt is left")

    with app.client() as client:
        ways = ["succeeded", "retried", "failed", "deferred", "cancelled", "skipped"]
        client.enqueue_many([*(end.job(how=how) for how in ways), die.job()])
        before = client.now()

        summary = app.run_due()

        after = client.now()
    counts = {name: getattr(summary, name) for name in (*ways, "dead")}
    assert counts == dict.fromkeys(counts, 1)
    assert (summary.claimed, summary.processed, summary.remaining) == (7, 6, 1)
    assert before <= summary.as_of <= after


def test_nothing_due_is_answered_at_once_and_leaves_nothing_behind(
    app: ms.App, noop: ms.Task[..., Any], database: Database
) -> None:
    begun = time.monotonic()
    summary = app.run_due(budget=timedelta(seconds=600))

    assert time.monotonic() - begun < 300
    assert (summary.claimed, summary.processed, summary.remaining) == (0, 0, 0)
    with database.connect() as conn:
        for _ in range(500):  # a server ends a session a moment after its client has hung up
            if (left := connections(conn)) == 0:
                break
            time.sleep(0.01)
        assert left == 0
        assert conn.execute("select count(*) from mainspring.worker").fetchone() == (0,)


def connections(conn: psycopg.Connection[Any]) -> int:
    """How many sessions a worker has in this database."""
    ours = "datname = current_database() and application_name like 'mainspring%'"
    row = conn.execute(f"select count(*) from pg_stat_activity where {ours}".encode()).fetchone()
    assert row is not None
    return int(row[0])


def test_two_connections_are_enough(app: ms.App, tasks: ms.Registry, database: Database) -> None:
    seen: list[int] = []

    @tasks.task
    async def look() -> None:
        """Count the sessions."""
        with database.connect() as conn:
            seen.append(connections(conn))

    with database.connect() as conn:
        for _ in range(5):
            conn.execute("select mainspring.enqueue('look')")
    assert app.run_due().succeeded == 5
    assert max(seen) <= 3  # the third looked at the schema, and is about to end
    assert seen[-1] <= 2


def test_what_a_handler_enqueues_runs_in_the_same_call(app: ms.App, tasks: ms.Registry, noop: Any) -> None:
    @tasks.task
    async def parent(ctx: ms.Context) -> None:
        """Enqueue a child."""
        await ctx.enqueue(noop.job())

    with app.client() as client:
        client.enqueue(parent.job())
    assert app.run_due().succeeded == 2


def test_plain_functions_run_as_well(app: ms.App, tasks: ms.Registry) -> None:
    @tasks.task
    def plain() -> str:
        """Return a value."""
        return "done"

    with app.client() as client:
        job = client.enqueue(plain.job()).id
        assert app.run_due().succeeded == 1
        assert client.get(job).result == "done"


def test_only_the_queues_that_are_named_are_served(app: ms.App, noop: ms.Task[..., Any]) -> None:
    with app.client() as client:
        client.enqueue_many([noop.job(), noop.job().on_queue("q:exports")])

    summary = app.run_due(queues=["q:exports"])

    assert (summary.processed, summary.remaining) == (1, 0)
    assert app.run_due().processed == 1


@pytest.mark.rule("ENG-15.15")
def test_nothing_is_claimed_once_the_budget_is_used(app: ms.App, tasks: ms.Registry) -> None:
    @tasks.task
    async def slow() -> None:
        """Take a while."""
        await asyncio.sleep(0.8)

    with app.client() as client:
        client.enqueue_many([slow.job() for _ in range(10)])
    summary = app.run_due(budget=timedelta(seconds=2))

    assert 1 <= summary.processed < 10
    assert summary.processed == summary.succeeded  # what ran when time was up could end
    assert summary.remaining == 10 - summary.processed


@pytest.mark.rule("ENG-15.16")
@pytest.mark.anyio
async def test_five_calls_at_once_run_each_job_once(app: ms.App, tasks: ms.Registry) -> None:
    runs: Counter[int] = Counter()

    @tasks.task
    async def count(*, number: int) -> None:
        """Count."""
        runs[number] += 1
        await asyncio.sleep(0.002)

    async with app.async_client() as client:
        await client.enqueue_many([count.job(number=number) for number in range(40)])
    summaries = await asyncio.gather(*(app.arun_due(limit=10, concurrency=3) for _ in range(5)))

    assert runs == dict.fromkeys(range(40), 1)
    assert sum(summary.processed for summary in summaries) == 40
    assert all(summary.claimed <= 10 for summary in summaries)


def test_a_job_whose_worker_died_is_taken_back_and_run(
    app: ms.App, noop: ms.Task[..., Any], database: Database
) -> None:
    with app.client() as client, database.connect() as conn:
        job = client.enqueue(noop.job()).id
        conn.execute(
            "with gone as (delete from mainspring.waiting returning *) insert into mainspring.running (id, epoch, "
            "worker, org_id, task, queue, priority, due_at, attempt, crashes, snoozes, suspect, started_at, "
            "lease_expires_at) select id, 1, 'dead', org_id, task, queue, priority, due_at, 1, 0, 0, false, now(), "
            "now() - interval '1 s' from gone"
        )
        assert app.run_due().succeeded == 1
        assert client.get(job).crashes == 1


@pytest.mark.rule("ENG-18.04")
def test_a_given_time_moves_the_clock_of_a_test_database(
    app: ms.App, noop: ms.Task[..., Any], database: Database
) -> None:
    with app.client() as client, database.connect() as conn:
        Clock(conn).set(NOON)
        client.enqueue(noop.job().at(NOON + timedelta(hours=4)))
        assert app.run_due(now=NOON + timedelta(hours=3)).processed == 0
        summary = app.run_due(now=NOON + timedelta(hours=4))
        assert (summary.processed, summary.as_of) == (1, NOON + timedelta(hours=4))
        with pytest.raises(ms.ValidationError, match=r"^now: lies before") as caught:
            app.run_due(now=NOON)
        assert caught.value.field == "now"


@pytest.mark.rule("ENG-18.04")
def test_in_production_a_time_far_ahead_is_refused_and_another_decides_nothing(
    volatile_cluster: Cluster, tasks: ms.Registry, noop: ms.Task[..., Any]
) -> None:
    name = f"production_{uuid7().hex}"
    volatile_cluster.ensure_database(name)
    app = ms.App(tasks, dsn=volatile_cluster.dsn(name), maintenance=False)
    with psycopg.connect(app.dsn, autocommit=True) as conn, app.client() as client:
        migrate(conn)
        client.enqueue_many([noop.job(), noop.job().after(timedelta(seconds=50))])
        with pytest.raises(ms.ValidationError, match=r"^now: is more than 60 s ahead") as caught:
            app.run_due(now=client.now() + timedelta(days=1))
        assert caught.value.field == "now"
        assert app.run_due(now=client.now() + timedelta(seconds=59)).processed == 1
        assert app.run_due(now=NOON - timedelta(days=3650)).processed == 0


@pytest.mark.parametrize(
    ("field", "how"),
    [
        ("limit", {"limit": 0}), ("limit", {"limit": 10_001}), ("limit", {"limit": "5"}), ("limit", {"limit": True}),
        ("concurrency", {"concurrency": 0}), ("budget", {"budget": timedelta(seconds=-1)}), ("budget", {"budget": "x"}),
        ("now", {"now": NOON.replace(tzinfo=None)}), ("now", {"now": datetime.max.replace(tzinfo=UTC)}),
    ],
)  # fmt: skip
def test_a_call_that_makes_no_sense_is_refused_by_field(app: ms.App, field: str, how: dict[str, Any]) -> None:
    with pytest.raises(ms.ValidationError) as caught:
        app.run_due(**how)
    assert caught.value.field == field


@pytest.mark.anyio
async def test_the_plain_call_inside_a_loop_says_what_to_await(app: ms.App) -> None:
    with pytest.raises(ConfigurationError, match=r"await app\.arun_due"):
        app.run_due()


def test_a_database_that_is_away_is_said_at_once(tasks: ms.Registry) -> None:
    app = ms.App(tasks, dsn="host=/nowhere dbname=x")
    with pytest.raises(DatabaseUnavailable):
        app.run_due()


def test_a_long_job_keeps_its_lease(database: Database, tasks: ms.Registry) -> None:
    lease: dict[str, Any] = {"lease": timedelta(seconds=2), "renew_every": timedelta(seconds=0.2)}
    app = ms.App(tasks, dsn=database.dsn, config=ms.WorkerConfig(**lease, rescue_every=timedelta(seconds=0.1)))

    @tasks.task
    async def long() -> None:
        """Take longer than a lease."""
        await asyncio.sleep(2.5)

    with app.client() as client:
        job = client.enqueue(long.job()).id
        summary = app.run_due()
        assert (summary.succeeded, client.get(job).attempt, client.get(job).crashes) == (1, 1, 0)


def test_due_schedules_fire_first(database: Database, tasks: ms.Registry) -> None:
    app = ms.App(tasks, dsn=database.dsn, maintenance=False)
    ran: list[str] = []

    @tasks.task
    async def tick() -> None:
        """Tick."""
        ran.append("tick")

    tasks.schedule("ticks", ms.every(minutes=5), tick)
    with database.connect() as conn:
        Clock(conn).set(NOON)
        assert app.run_due().processed == 0  # it is written to the database, and counts from here
        assert app.run_due(now=NOON + timedelta(minutes=4)).processed == 0
        assert app.run_due(now=NOON + timedelta(minutes=5)).processed == 1
        assert app.run_due().processed == 0
    assert ran == ["tick"]


@pytest.mark.anyio
async def test_a_caller_that_gives_up_aborts_no_job(app: ms.App, tasks: ms.Registry) -> None:
    started = asyncio.Event()

    @tasks.task
    async def work() -> str:
        """Take a moment."""
        started.set()
        await asyncio.sleep(0.3)
        return "done"

    async with app.async_client() as client:
        first, second = [answer.id for answer in await client.enqueue_many([work.job(), work.job()])]
        call = asyncio.create_task(app.arun_due())
        await started.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
        states = {(await client.get(job)).state for job in (first, second)}
    assert states == {"succeeded", "ready"}
