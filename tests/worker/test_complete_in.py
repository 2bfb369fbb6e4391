"""`ctx.complete_in`: the rows of the caller's own library and the job's success are one commit, or neither is."""

from __future__ import annotations

import signal
from collections.abc import Iterator, Sequence
from typing import Any
from uuid import UUID

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.conninfo import make_conninfo
from sqlalchemy import orm
from tests.client.frameworks.joins import ASYNC, SYNC, engine
from tests.databases import fresh_database
from tests.nursery import Nursery, nursery
from tests.worker.completing import POINTS, declare, drain, task_of
from tests.worker.stage import LEDGER, Stage

from mainspring import Context, Registry, SyncContext, fixed
from mainspring.db.alerts import event_of
from mainspring.embedded import SUPERUSER, Cluster
from mainspring.errors import AfterCompletion

pytestmark = pytest.mark.anyio

AT_ONCE = fixed(0, attempts=2)
EVERY_WAY = [*SYNC, *ASYNC]
#: One of each library, for the kills.
LIBRARIES = (
    "psycopg", "psycopg2", "SQLAlchemy Session, psycopg", "Django connection",
    "asyncpg", "SQLAlchemy AsyncSession, asyncpg",
)  # fmt: skip


@pytest.fixture(scope="session")
def own_tables() -> Sequence[str]:
    return [LEDGER]


@pytest.fixture(scope="module")
def kills() -> Iterator[Nursery]:
    with nursery(drain) as running:
        yield running


async def enqueue(stage: Stage, tasks: Registry, name: str) -> UUID:
    return await stage.enqueue(tasks.get(name).job())


@pytest.mark.parametrize("way", EVERY_WAY)
async def test_rows_and_success_are_one_commit(stage: Stage, way: str) -> None:
    stage.ledger()
    seen: list[tuple[str, list[str]]] = []

    def look(point: str) -> None:
        seen.append((stage.one("select state from mainspring.jobs"), stage.effects()))

    tasks = declare(way, stage.dsn, look)
    job = await enqueue(stage, tasks, task_of(way))
    worker = await stage.drain(tasks)

    assert seen == [("running", []), ("running", []), ("succeeded", ["paid"])]
    found = await stage.job(job)
    assert (found.state, found.result, found.error) == ("succeeded", {"paid": True}, None)
    assert worker.counts["succeeded"] == 1


@pytest.mark.parametrize("way", LIBRARIES)
@pytest.mark.parametrize("point", POINTS)
async def test_killed_at_any_boundary_the_effect_happens_once(
    stage: Stage, kills: Nursery, way: str, point: str
) -> None:
    stage.ledger()
    job = await enqueue(stage, declare(way, stage.dsn), task_of(way))

    assert kills.run(stage.dsn, way, point) == signal.SIGKILL
    committed = point == POINTS[-1]
    assert (stage.effects(), await stage.state(job)) == ((["paid"], "succeeded") if committed else ([], "running"))
    stage.clock.advance(seconds=61)
    await stage.drain(declare(way, stage.dsn))

    assert (stage.effects(), await stage.state(job)) == (["paid"], "succeeded")


@pytest.mark.parametrize("way", LIBRARIES)
async def test_what_is_rolled_back_completes_nothing_and_the_job_is_tried_again(stage: Stage, way: str) -> None:
    stage.ledger()
    times: list[str] = []

    def once(point: str) -> None:
        times.append(point)
        if times == [*POINTS[:2]]:
            raise RuntimeError("the ORM refuses")

    tasks = declare(way, stage.dsn, once)
    job = await enqueue(stage, tasks, task_of(way))
    await stage.drain(tasks)

    assert (stage.effects(), await stage.state(job)) == (["paid"], "succeeded")
    [failed] = stage.rows("select error ->> 'message' from mainspring.attempts where outcome = 'retried'")
    assert "the ORM refuses" in failed[0]


async def test_a_worker_that_lost_its_lease_commits_nothing(stage: Stage) -> None:
    stage.ledger()

    def steal(point: str) -> None:
        if point == POINTS[0]:
            stage.steal("in_thread")

    tasks = declare("SQLAlchemy Session, psycopg", stage.dsn, steal)
    await enqueue(stage, tasks, "in_thread")
    async with stage.work(tasks) as worker:
        await stage.until(lambda: worker.counts["claimed"] and not worker.running)

    assert stage.effects() == []


async def test_follow_ups_and_audit_commit_with_it(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task
    def follow() -> None: ...

    @tasks.task
    def work(ctx: SyncContext) -> None:
        with psycopg.connect(stage.dsn) as conn:
            ctx.enqueue(follow.job())
            ctx.audit("shop.paid", order=7)
            ctx.complete_in(conn)
            assert stage.one("select count(*) from mainspring.job") == 1  # with the commit, not before

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert stage.rows("select task, state from mainspring.jobs order by 1") == [
        ("follow", "succeeded"),
        ("work", "succeeded"),
    ]
    assert "shop.paid" in stage.events(job)


# -- what does not commit


def commit_nowhere(stage: Stage, tasks: Registry) -> None:
    @tasks.task(name="forgotten", retry=AT_ONCE)
    def forgotten(ctx: SyncContext) -> None:
        conn = psycopg.connect(stage.dsn)
        conn.execute("insert into ledger (note) values ('paid')")
        ctx.complete_in(conn)
        conn.close()

    @tasks.task(name="rolled_back", retry=AT_ONCE)
    def rolled_back(ctx: SyncContext) -> None:
        with psycopg.connect(stage.dsn) as conn:
            conn.execute("insert into ledger (note) values ('paid')")
            ctx.complete_in(conn)
            conn.rollback()


@pytest.mark.parametrize("name", ["forgotten", "rolled_back"])
async def test_a_completion_that_is_not_committed_fails_the_attempt(stage: Stage, tasks: Registry, name: str) -> None:
    stage.ledger()
    commit_nowhere(stage, tasks)

    job = await enqueue(stage, tasks, name)
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, found.attempt) == ("dead", 2)
    assert found.error is not None
    assert found.error["code"] == "COMPLETION_NOT_COMMITTED"
    assert found.error["message"] == "ctx.complete_in() was rolled back, or never committed"
    assert stage.effects() == []


async def test_a_session_that_nobody_can_end_costs_no_other_job_its_lease(stage: Stage, tasks: Registry) -> None:
    """Nothing is written for a job whose row an open transaction holds, nothing waits for it, and somebody is told."""
    left: list[Any] = []

    @tasks.task
    def leaves_it_open(ctx: SyncContext) -> None:
        conn = psycopg.connect(make_conninfo(stage.dsn, user=SUPERUSER, application_name="shop"))
        block = conn.transaction()
        block.__enter__()  # psycopg refuses a rollback in it, and the server to end a superuser's session
        ctx.complete_in(conn)
        left.extend((conn, block))

    @tasks.task
    async def other() -> None: ...

    held = await stage.enqueue(leaves_it_open.job())
    async with stage.work(tasks) as worker:
        await stage.until(lambda: left and not worker.running)
        more = [await stage.enqueue(other.job()) for _ in range(20)]
        await stage.until(lambda: worker.counts["succeeded"] == 20)
    assert {await stage.state(job) for job in more} == {"succeeded"}
    assert await stage.state(held) == "running"
    [alert] = await stage.client.alerts.list()
    assert (alert.name, alert.subject, alert.severity) == ("left-open", "leaves_it_open", "critical")
    pid = left[0].info.backend_pid
    assert f"session {pid} (shop) open" in alert.text  # more the worker's role may not see
    assert f"select pg_terminate_backend({pid})" in alert.text
    assert event_of(alert).runbook == "docs/operations/alerts.md#left-open"
    stage.clock.advance(seconds=120)
    told = await stage.client.explain(held)
    assert f"Session {pid} (shop) has completed it in a transaction that it holds open" in told.verdict

    left[0].execute("commit")  # late, but whole
    assert await stage.state(held) == "succeeded"
    left[0].close()


async def test_a_lease_is_renewed_beside_one_that_an_open_transaction_holds(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    await stage.enqueue_many([work.job(), work.job()])
    first, second = stage.claim("mine", "work")
    with psycopg.connect(stage.dsn) as session:
        session.execute("select mainspring.complete_in('mine', %s, null)", [first])
        stage.clock.advance(seconds=30)
        renewed = stage.rows(
            "select epoch, renewed from mainspring.renew('mine', '60 s', %s) order by epoch", [first, second]
        )
        stage.clock.advance(seconds=40)  # past the lease that was not renewed
        assert stage.rows("select * from mainspring.rescue(10, 3)") == []
        session.rollback()

    assert renewed == [(first, False), (second, True)]
    assert [row[0] for row in stage.rows("select job_id from mainspring.rescue(10, 3)")] == [
        stage.one("select id from mainspring.jobs where state = 'ready'")
    ]


# -- what is refused


async def refused(stage: Stage, tasks: Registry, name: str) -> str:
    """The message with which a job failed for good, though it may be tried again; nothing of it was written."""
    job = await enqueue(stage, tasks, name)
    await stage.drain(tasks)
    found = await stage.job(job)
    assert found.error is not None
    assert (found.state, found.attempt, found.error["code"]) == ("failed", 1, "HANDLER_MISTAKE")
    assert stage.effects() == []
    return str(found.error["message"])


@pytest.mark.parametrize(
    "way", ["psycopg", "psycopg2", "SQLAlchemy Connection, psycopg", "Django connection", "asyncpg"]
)
async def test_autocommit_and_no_transaction_are_refused(stage: Stage, tasks: Registry, way: str) -> None:
    stage.ledger()

    @tasks.task(name="in_thread", retry=AT_ONCE)
    def in_thread(ctx: SyncContext) -> None:
        with SYNC[way](stage.dsn) as caller:
            conn = caller.conn
            if way.startswith("psycopg"):
                conn.autocommit = True
            elif way.startswith("SQLAlchemy"):
                conn = conn.execution_options(isolation_level="AUTOCOMMIT")
            ctx.complete_in(conn)

    @tasks.task(name="work", retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        async with ASYNC[way](stage.dsn) as caller:
            await ctx.complete_in(caller.conn)

    assert "conn: is in autocommit mode, or in no transaction" in await refused(stage, tasks, task_of(way))


@pytest.mark.parametrize("level", ["REPEATABLE READ", "SERIALIZABLE"])
async def test_a_higher_isolation_is_refused(stage: Stage, tasks: Registry, level: str) -> None:
    stage.ledger()

    @tasks.task(retry=AT_ONCE)
    def work(ctx: SyncContext) -> None:
        with (
            engine(stage.dsn, "psycopg") as made,
            orm.Session(made.execution_options(isolation_level=level)) as session,
            session.begin(),
        ):
            session.execute(sa.text("insert into ledger (note) values ('paid')"))
            ctx.complete_in(session)

    assert "use READ COMMITTED" in await refused(stage, tasks, "work")


@pytest.mark.parametrize("migrated", [True, False])
async def test_another_database_is_refused(
    stage: Stage, tasks: Registry, volatile_cluster: Cluster, migrated: bool
) -> None:
    stage.ledger()

    with fresh_database(volatile_cluster, migrated=migrated) as other:

        @tasks.task(retry=AT_ONCE)
        def work(ctx: SyncContext) -> None:
            with psycopg.connect(other.dsn) as conn:
                ctx.complete_in(conn)

        assert "conn: leads to another database" in await refused(stage, tasks, "work")


async def test_a_connection_of_the_other_colour_is_refused(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task(retry=AT_ONCE)
    async def work(ctx: Context) -> None:
        with psycopg.connect(stage.dsn) as conn:
            await ctx.complete_in(conn)

    assert "conn: a psycopg Connection cannot be joined by AsyncClient" in await refused(stage, tasks, "work")


async def test_after_a_refusal_the_job_may_be_completed_otherwise(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task
    def work(ctx: SyncContext) -> None:
        with psycopg.connect(stage.dsn, autocommit=True) as conn, pytest.raises(Exception, match="autocommit"):
            ctx.complete_in(conn)
        with ctx.complete() as own:
            own.execute("insert into ledger (note) values ('paid')")

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert (stage.effects(), await stage.state(job)) == (["paid"], "succeeded")


async def test_inside_the_contexts_own_blocks_it_is_refused(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    def work(ctx: SyncContext) -> None:
        with psycopg.connect(stage.dsn) as conn:
            for block in (ctx.transaction, ctx.complete):
                with block(), pytest.raises(Exception, match="outside of the context's own blocks"):
                    ctx.complete_in(conn)

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert (await stage.job(job)).error is None


async def test_what_follows_it_is_refused_and_not_lost_without_a_word(stage: Stage, tasks: Registry) -> None:
    refused_with: list[str] = []

    @tasks.task
    def follow() -> None: ...

    @tasks.task
    def work(ctx: SyncContext) -> None:
        with psycopg.connect(stage.dsn) as conn:
            ctx.complete_in(conn)
            for act in (
                lambda: ctx.enqueue(follow.job()),
                lambda: ctx.audit("shop.late"),
                lambda: ctx.client.enqueue(follow.job()),  # it would wait for the lock that its own handler holds
                lambda: ctx.checkpoint(1),
                lambda: ctx.complete_in(conn),
                lambda: ctx.complete().__enter__(),
            ):
                with pytest.raises(AfterCompletion) as caught:
                    act()
                refused_with.append(str(caught.value))

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert len(refused_with) == 6
    assert all("ctx.complete_in()" in text for text in refused_with)
    assert (await stage.state(job), stage.one("select count(*) from mainspring.job")) == ("succeeded", 1)
