"""A transaction that its handler left open, with the job's completion in it: the worker ends it, and says so."""

from __future__ import annotations

import threading
from contextlib import AsyncExitStack, ExitStack, suppress
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.client.frameworks.joins import ASYNC, SYNC
from tests.worker.stage import Stage

from mainspring import Context, Registry, SyncContext, fixed
from mainspring.errors import ResultUnavailable

pytestmark = pytest.mark.anyio

WRITE = "insert into ledger (note) values ('paid')"
LIBRARIES = (
    "psycopg", "psycopg2", "SQLAlchemy Connection, psycopg2", "SQLAlchemy Session, psycopg",
    "SQLAlchemy scoped_session", "Django connection",
    "async psycopg", "asyncpg", "asyncpg pool", "SQLAlchemy AsyncConnection, psycopg",
    "SQLAlchemy AsyncSession, asyncpg", "SQLAlchemy async_scoped_session",
)  # fmt: skip


@pytest.mark.parametrize("way", LIBRARIES)
async def test_a_forgotten_commit_fails_the_attempt_and_the_next_one_works_on_the_same_session(
    stage: Stage, tasks: Registry, way: str
) -> None:
    stage.ledger()
    kept = ExitStack()  # of the module, as it were: the session outlives the handler
    kept_async = AsyncExitStack()
    blocks: list[Any] = []

    @tasks.task(name="in_thread", retry=fixed(0, attempts=2))
    def in_thread(ctx: SyncContext) -> None:
        with ExitStack() as now:
            caller = (kept if ctx.attempt == 1 else now).enter_context(SYNC[way](stage.dsn))
            block = caller.transaction()
            block.__enter__()
            caller.execute(WRITE)
            ctx.complete_in(caller.conn)
            blocks.append(block)  # its end is forgotten
            if ctx.attempt == 2:
                block.__exit__(None, None, None)

    @tasks.task(name="work", retry=fixed(0, attempts=2))
    async def work(ctx: Context) -> None:
        async with AsyncExitStack() as now:
            caller = await (kept_async if ctx.attempt == 1 else now).enter_async_context(ASYNC[way](stage.dsn))
            block = caller.transaction()
            await block.__aenter__()
            await caller.execute(WRITE)
            await ctx.complete_in(caller.conn)
            blocks.append(block)
            if ctx.attempt == 2:
                await block.__aexit__(None, None, None)

    job = await stage.enqueue(tasks.get("in_thread" if way in SYNC else "work").job())
    await stage.drain(tasks)
    with suppress(Exception):  # whatever the library says to an end after its end
        await blocks[0].__aexit__(None, None, None) if way in ASYNC else blocks[0].__exit__(None, None, None)
    with suppress(Exception):
        kept.close()
    await kept_async.aclose()

    found = await stage.job(job)
    assert (found.state, found.attempt, stage.effects()) == ("succeeded", 2, ["paid"])
    [(code, message)] = stage.rows(
        "select error ->> 'code', error ->> 'message' from mainspring.attempts where outcome = 'retried'"
    )
    assert code == "COMPLETION_NOT_COMMITTED"
    assert "ctx.complete_in(): its commit was forgotten; the handler left session" in message
    assert "idle in transaction for" in message


async def test_a_session_that_is_not_closed_goes_on_after_its_forgotten_commit(stage: Stage, tasks: Registry) -> None:
    """As one of a module or a thread: the next attempt finds it in no transaction, and may commit."""
    stage.ledger()
    mine = psycopg.connect(stage.dsn, application_name="shop")

    @tasks.task(retry=fixed(0, attempts=2))
    def work(ctx: SyncContext) -> None:
        mine.execute(WRITE)
        ctx.complete_in(mine)
        if ctx.attempt == 2:
            mine.commit()

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert (await stage.state(job), stage.effects()) == ("succeeded", ["paid"])
    told = stage.one("select error ->> 'message' from mainspring.attempts where outcome = 'retried'")
    assert f"session {mine.info.backend_pid} (shop, idle in transaction for" in told
    mine.close()


async def test_a_session_that_cannot_be_rolled_back_is_ended_in_the_server(stage: Stage, tasks: Registry) -> None:
    stage.ledger()
    mine = psycopg.connect(stage.dsn)
    block = mine.transaction()

    @tasks.task(retry=fixed(0, attempts=1))
    def work(ctx: SyncContext) -> None:
        block.__enter__()  # psycopg refuses a rollback in it
        mine.execute(WRITE)
        ctx.complete_in(mine)

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, (found.error or {})["code"], stage.effects()) == ("dead", "COMPLETION_NOT_COMMITTED", [])
    with pytest.raises(psycopg.OperationalError):
        mine.execute("select 1")
    mine.close()


async def test_a_thread_that_goes_on_in_its_own_transaction_holds_up_nobody(stage: Stage, tasks: Registry) -> None:
    """Its job's row is locked until that transaction ends: whoever wrote the timeout would wait for it, and with it
    everything that this worker has to write."""
    stage.ledger()
    mine = psycopg.connect(stage.dsn)
    released = threading.Event()

    @tasks.task(timeout=timedelta(seconds=0.3), retry=fixed(0, attempts=1))
    def endless(ctx: SyncContext) -> None:
        mine.execute(WRITE)
        ctx.complete_in(mine)
        released.wait(30)
        mine.commit()

    @tasks.task
    async def other() -> int:
        return 1

    async with stage.work(tasks):
        job = await stage.enqueue(endless.job())
        with pytest.raises(ResultUnavailable):
            await stage.result(job)
        assert [await stage.result(await stage.enqueue(other.job())) for _ in range(5)] == [1] * 5
        assert not released.is_set()
        released.set()

    found = await stage.job(job)
    assert (found.state, (found.error or {})["code"], stage.effects()) == ("dead", "TIMEOUT", [])
    with pytest.raises(psycopg.OperationalError):
        mine.execute("select 1")
    mine.close()
    assert stage.one("select count(*) from mainspring.attempts where outcome = 'dead'") == 1


async def test_a_transaction_that_commits_just_after_its_time_is_the_success(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task(timeout=timedelta(seconds=0.3), retry=fixed(0, attempts=1))
    def slow(ctx: SyncContext) -> None:
        with psycopg.connect(stage.dsn) as conn:
            conn.execute(WRITE)
            ctx.complete_in(conn)
            while not ctx.cancelled:
                conn.execute("select pg_sleep(0.01)")

    async with stage.work(tasks):
        job = await stage.enqueue(slow.job())
        await stage.result(job)

    assert (await stage.state(job), stage.effects()) == ("succeeded", ["paid"])
