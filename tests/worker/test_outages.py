"""An outage of the job's own database gives the attempt back; another database's outage is the job's failure."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest
from tests.client.frameworks.joins import ASYNC, SYNC
from tests.worker.stage import Stage

from mainspring import Context, Registry, SyncContext, fixed
from mainspring.worker.base_context import MOST_OUTAGES

pytestmark = pytest.mark.anyio

ONCE = fixed(0, attempts=1)
WRITE = "insert into ledger (note) values ('paid')"
PID = "select pg_backend_pid()"
LIBRARIES = (
    "psycopg", "psycopg2", "SQLAlchemy Session, psycopg", "SQLAlchemy scoped_session", "Django connection",
    "async psycopg", "asyncpg", "SQLAlchemy AsyncConnection, psycopg", "SQLAlchemy AsyncSession, asyncpg",
)  # fmt: skip


def end_session(stage: Stage, pid: int) -> None:
    """What a restart does to it."""
    stage.rows("select pg_terminate_backend(%s, 5000)", pid)


def end_all(stage: Stage) -> None:
    """Every session of the database but ours, and those of the worker's quiet services with it."""
    stage.rows(
        "select pg_terminate_backend(pid, 5000) from pg_stat_activity "
        "where pid <> pg_backend_pid() and datname = current_database() and state like 'idle in%%'"
    )


async def given_back(stage: Stage, tasks: Registry, job: Any) -> None:
    """It is due again with its only attempt left, and succeeds then."""
    await stage.drain(tasks)
    found = await stage.job(job)
    assert (found.state, found.snoozes, found.error) == ("scheduled", 1, None)
    stage.clock.advance(seconds=6)
    await stage.drain(tasks)
    found = await stage.job(job)
    assert (found.state, found.attempt, stage.effects()) == ("succeeded", 1, ["paid"])


@pytest.mark.parametrize("block", ["complete", "transaction"])
async def test_an_outage_inside_a_block_gives_the_attempt_back(
    stage: Stage, tasks: Registry, colour: str, block: str
) -> None:
    stage.ledger()
    runs: list[int] = []

    def restart() -> None:
        runs.append(1)
        if len(runs) == 1:
            end_all(stage)

    @tasks.task(name="work", retry=ONCE)
    async def work(ctx: Context) -> None:
        async with getattr(ctx, block)() as conn:
            await conn.execute(WRITE)
            restart()

    @tasks.task(name="in_thread", retry=ONCE)
    def in_thread(ctx: SyncContext) -> None:
        with getattr(ctx, block)() as conn:
            conn.execute(WRITE)
            restart()
            conn.execute("select 1")

    await given_back(stage, tasks, await stage.enqueue((work if colour == "async" else in_thread).job()))


@pytest.mark.parametrize("way", LIBRARIES)
async def test_an_outage_before_the_commit_of_a_joined_transaction_gives_the_attempt_back(
    stage: Stage, tasks: Registry, way: str
) -> None:
    stage.ledger()
    runs: list[int] = []

    def restart() -> None:
        runs.append(1)
        if len(runs) == 1:
            end_all(stage)

    @tasks.task(name="in_thread", retry=ONCE)
    def in_thread(ctx: SyncContext) -> None:
        with SYNC[way](stage.dsn) as caller, caller.transaction():
            caller.execute(WRITE)
            ctx.complete_in(caller.conn)
            restart()

    @tasks.task(name="work", retry=ONCE)
    async def work(ctx: Context) -> None:
        async with ASYNC[way](stage.dsn) as caller, caller.transaction():
            await caller.execute(WRITE)
            await ctx.complete_in(caller.conn)
            restart()

    await given_back(stage, tasks, await stage.enqueue((in_thread if way in SYNC else work).job()))


async def test_an_outage_of_another_database_is_the_jobs_failure(stage: Stage, tasks: Registry, colour: str) -> None:
    mine = psycopg.connect(stage.dsn)  # given back open to a pool, as ORMs do

    def lose_another() -> None:
        mine.rollback()
        with psycopg.connect(stage.dsn) as other:
            end_session(stage, other.execute(PID).fetchone()[0])  # type: ignore[index]  # a row is there
            other.execute("select 1")

    @tasks.task(name="work", retry=ONCE)
    async def work(ctx: Context) -> None:
        async with ctx.complete():
            lose_another()

    @tasks.task(name="in_thread", retry=ONCE)
    def in_thread(ctx: SyncContext) -> None:
        ctx.complete_in(mine)
        lose_another()

    job = await stage.enqueue((work if colour == "async" else in_thread).job())
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, (found.error or {})["code"]) == ("dead", "DB_UNAVAILABLE")
    mine.close()


async def test_a_handler_that_takes_the_database_down_is_not_given_back_for_ever(stage: Stage, tasks: Registry) -> None:
    @tasks.task(retry=ONCE)
    def work(ctx: SyncContext) -> None:
        with ctx.complete() as conn:
            conn.execute("select pg_terminate_backend(pg_backend_pid())")

    job = await stage.enqueue(work.job())
    for _ in range(MOST_OUTAGES + 1):
        await stage.drain(tasks)
        stage.clock.advance(seconds=6)

    found = await stage.job(job)
    assert (found.state, found.snoozes, (found.error or {})["code"]) == ("dead", MOST_OUTAGES, "DB_UNAVAILABLE")
