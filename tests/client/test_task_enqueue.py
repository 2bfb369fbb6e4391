"""`task.enqueue(...)`: a job by the client of the task's own application, in the colour of who calls."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import psycopg
import pytest
from tests.databases import Database

import mainspring as ms
from mainspring.errors import ConfigurationError, DeclarationError, ResultUnavailable
from mainspring.testing import Harness

pytestmark = pytest.mark.anyio

Send = ms.Task[..., None, Any]


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("shop")


@pytest.fixture
def send(tasks: ms.Registry) -> Send:
    @tasks.task
    async def send(*, order_id: int) -> None: ...

    return send


@pytest.fixture
def app(tasks: ms.Registry, database: Database) -> Iterator[ms.App]:
    app = ms.App(tasks, dsn=database.dsn)
    yield app
    app.close()


@pytest.fixture
async def in_loop(app: ms.App) -> AsyncIterator[ms.App]:
    yield app
    await app.aclose()


def test_sync_code_has_the_answer(app: ms.App, send: Send) -> None:
    answer = send.enqueue(order_id=7)

    with app.client() as client:
        assert (client.get(answer.id).payload, answer.answer) == ({"order_id": 7}, "created")


async def test_async_code_awaits_it(in_loop: ms.App, send: Send) -> None:
    answer = await send.enqueue(order_id=7)

    async with in_loop.async_client() as client:
        assert (await client.get(answer.id)).payload == {"order_id": 7}


def test_every_event_loop_has_connections_of_its_own(app: ms.App, send: Send) -> None:
    async def once(order_id: int) -> str:
        try:
            return (await send.enqueue(order_id=order_id)).answer
        finally:
            await app.aclose()

    assert [asyncio.run(once(order)) for order in (1, 2)] == ["created", "created"]


def test_sync_connection_is_joined(app: ms.App, send: Send, database: Database) -> None:
    with psycopg.connect(database.dsn) as conn:
        left = send.enqueue(order_id=7, conn=conn)
        conn.rollback()
        kept = send.enqueue(order_id=8, conn=conn)

    with app.client() as client:
        assert [job.id for job in client.jobs()] == [kept.id]
        assert left.id != kept.id


async def test_connection_says_the_colour_also_where_a_loop_runs(
    in_loop: ms.App, send: Send, database: Database
) -> None:
    with psycopg.connect(database.dsn) as conn:
        assert send.enqueue(order_id=7, conn=conn).answer == "created"
        conn.rollback()
    async with await psycopg.AsyncConnection.connect(database.dsn) as own:
        assert (await send.enqueue(order_id=8, conn=own)).answer == "created"
        await own.rollback()

    async with in_loop.async_client() as client:
        assert await client.jobs() == []


def test_enqueue_in_joins_too(app: ms.App, send: Send, database: Database) -> None:
    with psycopg.connect(database.dsn) as conn:
        send.enqueue_in(conn, order_id=7)
        conn.rollback()
        kept = send.enqueue_in(conn, order_id=8)

    with app.client() as client:
        assert [job.id for job in client.jobs()] == [kept.id]
    with pytest.raises(ms.ValidationError, match="conn: is missing"):
        send.enqueue_in(None, order_id=9)


async def test_enqueue_in_is_awaited_where_the_connection_is_async(
    in_loop: ms.App, send: Send, database: Database
) -> None:
    async with await psycopg.AsyncConnection.connect(database.dsn) as own:
        assert (await send.enqueue_in(own, order_id=8)).answer == "created"


def test_closed_application_opens_again(app: ms.App, send: Send) -> None:
    send.enqueue(order_id=7)
    app.close()

    assert send.enqueue(order_id=8).answer == "created"


def test_bad_payload_is_refused_by_field(app: ms.App, send: Send) -> None:
    with pytest.raises(ms.ValidationError, match="order_id: expected int, got str"):
        send.enqueue(order_id="seven")


def test_caller_of_the_application_asks(tasks: ms.Registry, send: Send, database: Database) -> None:
    app = ms.App(tasks, dsn=database.dsn, caller=ms.Caller(org_id="acme"))

    answer = send.enqueue(order_id=7)

    with app.client() as client:
        assert client.get(answer.id).org_id == "acme"
    app.close()


def test_task_in_no_application_says_so(send: Send) -> None:
    with pytest.raises(ConfigurationError, match=r"^task send: its registry 'shop' is in no App: make one"):
        send.enqueue(order_id=7)


def test_task_in_no_registry_says_so() -> None:
    async def alone() -> None: ...

    task: Send = ms.Task(alone, app="shop")

    with pytest.raises(ConfigurationError, match=r"say client.enqueue\(alone.job\(...\)\), because it is in no reg"):
        task.enqueue()


def test_task_in_two_applications_says_so_while_both_live(app: ms.App, tasks: ms.Registry, send: Send) -> None:
    other = ms.App(tasks, dsn=app.dsn)

    with pytest.raises(ConfigurationError, match=r"^task send: is in 2 Apps: say client.enqueue\(send.job\(...\)\)"):
        send.enqueue(order_id=7)

    del other
    assert send.enqueue(order_id=7).answer == "created"


async def test_answer_waits_for_the_result_in_its_own_colour(in_loop: ms.App, tasks: ms.Registry) -> None:
    @tasks.task
    async def add(*, a: int, b: int) -> int:
        return a + b

    async with in_loop.async_client() as client:
        answers = [await add.enqueue(a=1, b=2), await client.enqueue(add.job(a=2, b=3))]
        answers += await client.enqueue_many([add.job(a=3, b=4)])
        await in_loop.worker().drain()
        assert [await answer.result(timeout="5s") for answer in answers] == [3, 5, 7]
    with in_loop.client() as sync:
        late = sync.enqueue(add.job(a=4, b=5))
        with pytest.raises(ResultUnavailable, match="has not ended, it is ready"):
            late.result(timeout=0)
        await in_loop.worker().drain()
        assert late.result() == 9
    with pytest.raises(ConfigurationError, match=r"ask one, client.result\(answer.id\)$"):
        ms.Enqueued(late.id, "created", "ready").result()


@pytest.mark.parametrize("colour", ["async", "plain"])
def test_handler_is_told_of_its_context(colour: str, app: ms.App, tasks: ms.Registry, send: Send) -> None:
    if colour == "async":

        @tasks.task
        async def welcome() -> None:
            await send.enqueue(order_id=7)
    else:

        @tasks.task(name="welcome")
        def plain() -> None:
            send.enqueue(order_id=7)

    with Harness(app.dsn, app) as harness:
        harness.client.enqueue(tasks.get("welcome").job())
        with pytest.raises(ConfigurationError, match=r"in a handler say ctx.enqueue\(send.job\(...\)\)"):
            harness.drain()


def test_handler_may_join_its_own_transaction(app: ms.App, tasks: ms.Registry, send: Send) -> None:
    @tasks.task
    async def welcome(ctx: ms.Context) -> None:
        async with ctx.complete() as conn:
            await send.enqueue(order_id=7, conn=conn)

    with Harness(app.dsn, app) as harness:
        parent = harness.client.enqueue(welcome.job())
        harness.drain()
        (job,) = harness.jobs(send)
        assert (job.parent_id, job.state) == (parent.id, "succeeded")


@pytest.mark.parametrize("verb", ["enqueue", "enqueue_many", "batch", "ctx"])
async def test_what_is_no_job_is_told_what_would_be(verb: str, in_loop: ms.App, tasks: ms.Registry, send: Send) -> None:
    def forgotten() -> None: ...

    given: list[Any] = []

    @tasks.task
    async def follow(ctx: ms.Context) -> None:
        await ctx.enqueue(*given)

    async def enqueue(what: Any) -> None:
        if verb == "ctx":
            given[:] = [what]
            with Harness(in_loop.dsn, in_loop) as harness:
                harness.client.enqueue(follow.job())
                await harness.adrain()
        async with in_loop.async_client() as client:
            if verb == "enqueue":
                await client.enqueue(what)
            elif verb == "enqueue_many":
                await client.enqueue_many([what])
            else:
                await client.enqueue(ms.batch("all", [what]))

    with pytest.raises(ms.ValidationError, match=r"^jobs: send is a task: pass send.job\(...\), or call send.enqueue"):
        await enqueue(send)
    with pytest.raises(ms.ValidationError, match=r"^jobs: send\(...\) runs the function here: pass send.job"):
        await enqueue(send(order_id=7))
    with pytest.raises(ms.ValidationError, match=r"^jobs: forgotten is a function and no task: declare it with @tasks"):
        await enqueue(forgotten)
    with pytest.raises(ms.ValidationError, match=r"^jobs: dict is no job: build one with task.job"):
        await enqueue({"order_id": 7})


def test_payload_has_no_field_conn(tasks: ms.Registry) -> None:
    with pytest.raises(DeclarationError, match=r"^task send: parameter conn: is the connection in send\.enqueue"):

        @tasks.task
        async def send(*, conn: int) -> None: ...
