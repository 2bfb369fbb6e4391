from __future__ import annotations

import asyncio
import threading
from collections.abc import Sequence
from contextlib import suppress
from typing import Any
from uuid import UUID

import psycopg
import pytest
from tests.worker.stage import LEDGER, Stage

import mainspring as ms
from mainspring import Context, Registry, SyncContext, fixed
from mainspring.db.wire.fence import System
from mainspring.errors import LeaseLost, MainspringError, ValidationError

pytestmark = pytest.mark.anyio

AT_ONCE = fixed(0, attempts=3)
INSERT = "insert into ledger values (%s, %s)"
TRACE = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.fixture(scope="session")
def own_tables() -> Sequence[str]:
    return [LEDGER]


@pytest.mark.rule("ENG-9.10", "ENG-16.07", "ENG-4.11", "ENG-9.15")
async def test_effect_follow_ups_result_and_completion_commit_together(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    stage.ledger()
    inside: list[Any] = []

    @tasks.task
    async def follow(*, n: int) -> int:
        return n

    def look() -> None:
        inside.append((stage.effects(), stage.one("select count(*) from mainspring.job")))

    if colour == "async":

        @tasks.task(name="work")
        async def work(ctx: Context) -> None:
            async with ctx.complete() as conn:
                await conn.execute(INSERT, [ctx.job.id, "effect"])
                await ctx.enqueue(follow.job(n=1), follow.job(n=2))
                ctx.result = "result"
                look()
    else:

        @tasks.task(name="work")
        def work(ctx: SyncContext) -> None:
            with ctx.complete() as conn:
                conn.execute(INSERT, [ctx.job.id, "effect"])
                ctx.enqueue(follow.job(n=1), follow.job(n=2))
                ctx.result = "result"
                look()

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert inside == [([], 1)], "nothing is visible before the commit"
    assert await stage.result(job) == "result"
    assert stage.effects() == ["effect"]
    children = stage.rows("select result from mainspring.jobs where parent_id = %s and state = 'succeeded'", job)
    assert sorted(children) == [(1,), (2,)]


@pytest.mark.rule("ENG-9.10", "ENG-16.07", "ENG-4.11", "ENG-1.04")
async def test_a_handler_that_raises_in_its_transaction_leaves_nothing_and_its_retry_does_it_once(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    stage.ledger()

    @tasks.task
    async def follow() -> None: ...

    if colour == "async":

        @tasks.task(name="work", retry=AT_ONCE)
        async def work(ctx: Context) -> None:
            async with ctx.complete() as conn:
                await conn.execute(INSERT, [ctx.job.id, f"attempt {ctx.attempt}"])
                await ctx.enqueue(follow.job())
                if ctx.attempt == 1:
                    raise ValueError("half way")
    else:

        @tasks.task(name="work", retry=AT_ONCE)
        def work(ctx: SyncContext) -> None:
            with ctx.complete() as conn:
                conn.execute(INSERT, [ctx.job.id, f"attempt {ctx.attempt}"])
                ctx.enqueue(follow.job())
                if ctx.attempt == 1:
                    raise ValueError("half way")

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, found.attempt) == ("succeeded", 2)
    assert stage.effects() == ["attempt 2"]
    assert stage.one("select count(*) from mainspring.job where task = 'follow'") == 1


@pytest.mark.rule("ENG-6.09", "ENG-9.11", "ENG-6.05")
async def test_a_worker_that_lost_its_lease_cannot_commit_its_effect(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    stage.ledger()
    go, entered, seen = threading.Event(), threading.Event(), list[Exception]()

    @tasks.task
    async def follow() -> None: ...

    if colour == "async":

        @tasks.task(name="work")
        async def work(ctx: Context) -> None:
            try:
                async with ctx.complete() as conn:
                    await conn.execute(INSERT, [ctx.job.id, "stale"])
                    await ctx.enqueue(follow.job())
                    entered.set()
                    while not go.is_set():
                        await asyncio.sleep(0.005)
            except LeaseLost as error:
                seen.append(error)
                raise
    else:

        @tasks.task(name="work")
        def work(ctx: SyncContext) -> None:
            try:
                with ctx.complete() as conn:
                    conn.execute(INSERT, [ctx.job.id, "stale"])
                    ctx.enqueue(follow.job())
                    entered.set()
                    go.wait(60)
            except LeaseLost as error:
                seen.append(error)
                raise

    job = await stage.enqueue(work.job())
    async with stage.work(tasks) as worker:
        await stage.until(entered.is_set)
        (epoch,) = stage.steal("work")
        go.set()
        await stage.until(lambda: not worker.running)

    assert len(seen) == 1
    assert stage.effects() == []
    assert stage.rows("select 1 from mainspring.job where task = 'follow'") == []
    assert stage.rows("select id, worker, epoch from mainspring.running") == [(job, "thief", epoch)]
    assert stage.rows("select mainspring.complete('thief', array[%s]::bigint[])", epoch) == [(epoch,)]
    assert await stage.state(job) == "succeeded"


@pytest.mark.rule("ENG-4.12", "ENG-23.04", "ENG-1.07")
@pytest.mark.parametrize("way", ["context", "client", "thread"])
async def test_a_follow_up_inherits_everything_of_its_parent(stage: Stage, tasks: Registry, way: str) -> None:
    @tasks.task
    async def follow() -> None: ...

    if way != "thread":

        @tasks.task(name="work")
        async def work(ctx: Context) -> None:
            await (ctx.enqueue(follow.job()) if way == "context" else stage.client.enqueue(follow.job()))
    else:

        @tasks.task(name="work")
        def work(ctx: SyncContext) -> None:
            ctx.enqueue(follow.job())

    wanted = (
        work.job().for_org("acme").in_project(UUID(int=7)).by("jane", "api_key")
        .traced(request_id="req-1", correlation_id="cor-1", traceparent=TRACE)
    )  # fmt: skip
    job = await stage.enqueue(wanted)
    await stage.drain(tasks)

    (child,) = await stage.client.jobs(task="follow")
    assert (child.org_id, child.project_id, child.actor_type, child.actor_id) == (
        "acme",
        UUID(int=7),
        "api_key",
        "jane",
    )
    assert (child.request_id, child.correlation_id, child.traceparent) == ("req-1", "cor-1", TRACE)
    assert child.parent_id == job


@pytest.mark.rule("ENG-9.10", "ENG-4.11")
async def test_the_context_s_client_joins_the_block_that_is_open(stage: Stage, tasks: Registry, colour: str) -> None:
    stage.ledger()
    seen: list[int] = []

    @tasks.task
    async def follow(*, n: int) -> None: ...

    def look() -> None:
        seen.append(stage.one("select count(*) from mainspring.job where task = 'follow'"))

    def timer(n: int) -> ms.NewJob:
        return follow.job(n=n).after(3600).with_key("follow")

    if colour == "async":

        @tasks.task(name="work")
        async def work(ctx: Context) -> None:
            await ctx.client.enqueue(follow.job(n=0))
            look()
            async with ctx.transaction() as conn:
                await conn.execute(INSERT, [ctx.job.id, "reserved"])
                await ctx.client.enqueue(follow.job(n=1))
                look()
            look()
            async with ctx.complete() as conn:
                await conn.execute(INSERT, [ctx.job.id, "effect"])
                await ctx.client.enqueue_many([follow.job(n=2), follow.job(n=3)])
                await ctx.client.timers.set(timer(4))
                assert (await ctx.client.timers.try_set(timer(5))) is not None
                assert (await ctx.client.timers.get("follow")) is not None
                look()
    else:

        @tasks.task(name="work")
        def work(ctx: SyncContext) -> None:
            ctx.client.enqueue(follow.job(n=0))
            look()
            with ctx.transaction() as conn:
                conn.execute(INSERT, [ctx.job.id, "reserved"])
                ctx.client.enqueue(follow.job(n=1))
                look()
            look()
            with ctx.complete() as conn:
                conn.execute(INSERT, [ctx.job.id, "effect"])
                ctx.client.enqueue_many([follow.job(n=2), follow.job(n=3)])
                ctx.client.timers.set(timer(4))
                assert ctx.client.timers.try_set(timer(5)) is not None
                assert ctx.client.timers.get("follow") is not None
                look()

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert (await stage.job(job)).state == "succeeded"
    assert seen == [1, 1, 2, 2]
    assert stage.effects() == ["effect", "reserved"]
    assert stage.one("select count(*) from mainspring.job where task = 'follow' and parent_id = %s", job) == 5


@pytest.mark.rule("ENG-9.10", "ENG-4.11")
async def test_what_was_begun_in_a_block_and_outlives_it_is_not_done_on_its_connection(
    stage: Stage, tasks: Registry
) -> None:
    seen: list[int] = []

    @tasks.task
    async def follow() -> None: ...

    @tasks.task
    async def work(ctx: Context) -> None:
        over = asyncio.Event()

        async def later() -> None:
            await over.wait()
            await ctx.client.enqueue(follow.job())
            seen.append(stage.one("select count(*) from mainspring.job where task = 'follow'"))

        async with ctx.transaction():
            begun = asyncio.create_task(later())
        with suppress(ZeroDivisionError):
            async with ctx.transaction():  # most likely on the connection of the first
                over.set()
                await begun
                raise ZeroDivisionError

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert (await stage.job(job)).state == "succeeded"
    assert seen == [1]
    assert stage.one("select count(*) from mainspring.job where task = 'follow'") == 1


@pytest.mark.rule("ENG-9.10", "ENG-4.11")
async def test_what_a_failed_block_enqueued_is_gone_though_the_job_goes_on(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    stage.ledger()

    @tasks.task
    async def follow(*, n: int) -> None: ...

    if colour == "async":

        @tasks.task(name="work")
        async def work(ctx: Context) -> None:
            await ctx.enqueue(follow.job(n=0))
            for block in (ctx.transaction, ctx.complete):
                with suppress(ValueError):
                    async with block():
                        await ctx.enqueue(follow.job(n=1))
                        await ctx.client.enqueue(follow.job(n=2))
                        ctx.audit("work.half", way=True)
                        raise ValueError("half way")
            async with ctx.complete():
                await ctx.enqueue(follow.job(n=3))
                await ctx.client.enqueue(follow.job(n=4))
    else:

        @tasks.task(name="work")
        def work(ctx: SyncContext) -> None:
            ctx.enqueue(follow.job(n=0))
            for block in (ctx.transaction, ctx.complete):
                with suppress(ValueError), block():
                    ctx.enqueue(follow.job(n=1))
                    ctx.client.enqueue(follow.job(n=2))
                    ctx.audit("work.half", way=True)
                    raise ValueError("half way")
            with ctx.complete():
                ctx.enqueue(follow.job(n=3))
                ctx.client.enqueue(follow.job(n=4))

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert (await stage.job(job)).state == "succeeded"
    rows = stage.rows("select (payload ->> 'n')::int from mainspring.job where task = 'follow' order by 1")
    assert rows == [(0,), (3,), (4,)]
    assert stage.one("select count(*) from mainspring.audit where event = 'work.half'") == 0


@pytest.mark.rule("ENG-4.11")
async def test_follow_ups_without_a_transaction_are_written_with_the_success_and_only_then(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    waiting: list[int] = []

    @tasks.task
    async def follow() -> None: ...

    def look(attempt: int) -> None:
        waiting.append(stage.one("select count(*) from mainspring.job where task = 'follow'"))
        if attempt == 1:
            raise ConnectionError

    if colour == "async":

        @tasks.task(name="work", retry=AT_ONCE)
        async def work(ctx: Context) -> str:
            await ctx.enqueue(follow.job())
            look(ctx.attempt)
            return "done"
    else:

        @tasks.task(name="work", retry=AT_ONCE)
        def work(ctx: SyncContext) -> str:
            ctx.enqueue(follow.job())
            look(ctx.attempt)
            return "done"

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert waiting == [0, 0]
    assert await stage.result(job) == "done"
    assert stage.one("select count(*) from mainspring.job where task = 'follow'") == 1


async def test_a_follow_up_that_is_wrong_is_refused_where_it_is_enqueued(stage: Stage, tasks: Registry) -> None:
    refused: list[str] = []

    @tasks.task
    async def work(ctx: Context) -> None:
        try:
            await ctx.enqueue(work.job().with_priority(7))
        except ValidationError as error:
            refused.append(error.field)

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert refused == ["priority"]
    assert await stage.state(job) == "succeeded"


async def test_after_the_transaction_the_job_has_ended_and_nothing_can_follow(
    stage: Stage, tasks: Registry, colour: str, caplog: pytest.LogCaptureFixture
) -> None:
    stage.ledger()
    refused: list[str] = []

    if colour == "async":

        @tasks.task(name="work", retry=AT_ONCE)
        async def work(ctx: Context) -> None:
            async with ctx.complete() as conn:
                await conn.execute(INSERT, [ctx.job.id, "first"])
            try:
                await ctx.enqueue(work.job())
            except MainspringError as error:
                refused.append(str(error))
            async with ctx.complete() as conn:
                await conn.execute(INSERT, [ctx.job.id, "second"])
    else:

        @tasks.task(name="work", retry=AT_ONCE)
        def work(ctx: SyncContext) -> None:
            with ctx.complete() as conn:
                conn.execute(INSERT, [ctx.job.id, "first"])
            try:
                ctx.enqueue(work.job())
            except MainspringError as error:
                refused.append(str(error))
            with ctx.complete() as conn:
                conn.execute(INSERT, [ctx.job.id, "second"])

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert ["the job is completed" in text for text in refused] == [True]
    assert stage.effects() == ["first"]
    found = await stage.job(job)
    assert (found.state, found.attempt) == ("succeeded", 1)
    assert "failed after its completion" in caplog.text


async def test_the_handler_cannot_commit_or_roll_back_behind_the_engines_back(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task(retry=fixed(60, attempts=2))
    async def sly(ctx: Context, *, way: str) -> None:
        async with ctx.complete() as conn:
            await conn.execute(INSERT, [ctx.job.id, way])
            await getattr(conn, way)()

    jobs = [await stage.enqueue(sly.job(way=way)) for way in ("commit", "rollback")]
    await stage.drain(tasks)

    assert stage.effects() == []
    assert [await stage.state(job) for job in jobs] == ["retrying", "retrying"]


async def test_a_savepoint_inside_the_transaction_can_be_rolled_back_alone(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete() as conn:
            await conn.execute(INSERT, [ctx.job.id, "kept"])
            async with conn.transaction(force_rollback=True):
                await conn.execute(INSERT, [ctx.job.id, "dropped"])

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert await stage.state(job) == "succeeded"
    assert stage.effects() == ["kept"]


async def test_a_business_error_of_the_database_stays_what_it_is(stage: Stage, tasks: Registry, colour: str) -> None:
    stage.rows("create table stock (n integer check (n >= 0))")
    seen: list[str | None] = []

    if colour == "async":

        @tasks.task(name="work", retry=AT_ONCE)
        async def work(ctx: Context) -> str:
            try:
                async with ctx.complete() as conn:
                    await conn.execute("insert into stock values (-1)")
            except psycopg.errors.CheckViolation as error:
                seen.append(error.diag.table_name)
            return "sold out"
    else:

        @tasks.task(name="work", retry=AT_ONCE)
        def work(ctx: SyncContext) -> str:
            try:
                with ctx.complete() as conn:
                    conn.execute("insert into stock values (-1)")
            except psycopg.errors.CheckViolation as error:
                seen.append(error.diag.table_name)
            return "sold out"

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    assert await stage.result(job) == "sold out"
    assert seen == ["stock"]


@pytest.mark.rule("ENG-9.12")
async def test_a_constraint_of_the_domain_stops_a_second_effect_even_without_the_gate(
    stage: Stage, tasks: Registry
) -> None:
    stage.rows("create table invoice (booking integer unique)")

    @tasks.task(retry=fixed(60, attempts=1))
    async def issue(ctx: Context, *, booking: int) -> None:
        async with ctx.complete() as conn:
            await conn.execute("insert into invoice values (%s)", [booking])

    jobs = [await stage.enqueue(issue.job(booking=7)) for _ in range(2)]
    await stage.drain(tasks)

    assert sorted([await stage.state(job) for job in jobs]) == ["dead", "succeeded"]
    assert stage.rows("select booking from invoice") == [(7,)]


async def test_a_result_that_cannot_be_stored_rolls_the_transaction_back(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete() as conn:
            await conn.execute(INSERT, [ctx.job.id, "effect"])
            ctx.result = object()

    job = await stage.enqueue(work.job())
    await stage.drain(tasks)

    found = await stage.job(job)
    assert (found.state, found.error and found.error["code"]) == ("failed", "VALIDATION_ERROR")
    assert stage.effects() == []


async def test_a_connection_lost_while_it_was_idle_costs_no_attempt(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task
    async def work(ctx: Context) -> int:
        async with ctx.complete() as conn:
            await conn.execute(INSERT, [ctx.job.id, "effect"])
            ctx.result = conn.info.backend_pid
        return 0

    async with stage.work(tasks):
        first = await stage.result(await stage.enqueue(work.job()))
        assert stage.one("select pg_terminate_backend(%s, 5000)", first)
        job = await stage.enqueue(work.job())
        assert await stage.result(job) != first

    assert (await stage.job(job)).attempt == 1


async def test_more_handlers_than_connections_take_turns(stage: Stage, tasks: Registry) -> None:
    stage.ledger()

    @tasks.task
    async def work(ctx: Context) -> None:
        async with ctx.complete() as conn:
            await conn.execute(INSERT, [ctx.job.id, "effect"])

    await stage.enqueue_many([work.job() for _ in range(30)])
    worker = await stage.drain(tasks, transactions=2)

    assert worker.counts["succeeded"] == 30
    assert stage.one("select count(distinct job) from ledger") == 30


@pytest.mark.rule("ENG-16.04", "ENG-16.07")
async def test_an_attempt_parses_loads_works_stores_and_leaves_its_trail_in_that_order(
    stage: Stage, tasks: Registry
) -> None:
    stage.ledger()
    stage.rows("insert into ledger values (null, 'input')")
    steps: list[str] = []

    @tasks.task
    async def work(ctx: Context, *, n: int) -> None:
        steps.append(f"parsed {n!r}")
        async with ctx.complete() as conn:
            cursor = await conn.execute("select note from ledger")
            steps.append(f"loaded {await cursor.fetchone()}")
            ctx.result = n + 1
            await conn.execute(INSERT, [ctx.job.id, "output"])
            steps.append(f"stored, and not yet seen: {stage.effects()}")

    job = await stage.enqueue(work.job(n=1))
    await stage.drain(tasks)

    assert steps == ["parsed 1", "loaded ('input',)", "stored, and not yet seen: ['input']"]
    assert stage.effects() == ["input", "output"]
    assert await stage.result(job) == 2
    trail = stage.rows("select event from mainspring.trail where job_id = %s order by at", job)
    assert [event for (event,) in trail] == ["job.enqueued", "job.started", "job.succeeded"]


async def test_a_transaction_on_a_server_that_was_replaced_meanwhile_does_not_commit_there(
    stage: Stage, tasks: Registry, colour: str
) -> None:
    """It began before the promotion, and the old primary would still take it."""
    stage.ledger()
    attempts: list[System] = []

    def promoted(conn: Any) -> None:
        attempts.append(conn.server.system)
        if len(attempts) == 1:
            conn.server.system.timeline += 1  # as another connection would learn

    if colour == "async":

        @tasks.task
        async def work(ctx: Context) -> None:
            async with ctx.complete() as conn:
                await conn.execute(INSERT, [ctx.job.id, "paid"])
                promoted(conn)
    else:

        @tasks.task(name="work")
        def work(ctx: SyncContext) -> None:
            with ctx.complete() as conn:
                conn.execute(INSERT, [ctx.job.id, "paid"])
                promoted(conn)

    job = await stage.enqueue(work.job())
    async with stage.work(tasks):
        await stage.until(lambda: attempts)
        await asyncio.sleep(0.1)
        seen = stage.effects(), stage.one("select count(*) from mainspring.running")
        attempts[0].timeline -= 1  # here the new primary is the same server
        assert seen == ([], 1)
        await stage.until(lambda: stage.rows("select 1 from mainspring.waiting where snoozes = 1"))
        stage.clock.advance(seconds=5)
        await stage.result(job)

    assert (stage.effects(), len(attempts)) == (["paid"], 2)
    assert (await stage.job(job)).attempt == 1  # it could not be made, so it is not counted
