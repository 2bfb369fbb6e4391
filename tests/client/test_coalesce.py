from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.client.conftest import count
from tests.client.proxy import proxied
from tests.client.tasks import greet
from tests.databases import Database

from mainspring import AsyncClient, Enqueued, NewJob
from mainspring.client.aio import AsyncClientSeam
from mainspring.client.coalesce import Coalescer
from mainspring.client.enqueue import send
from mainspring.errors import DatabaseUnavailable, KeyReused

pytestmark = pytest.mark.anyio
Sql = psycopg.Connection[TupleRow]


@pytest.fixture
async def client(database: Database) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(database.dsn, timeout=2) as client:
        yield client


@pytest.fixture
def sent(client: AsyncClient) -> list[int]:
    """The sizes of the statements that the client sent."""
    sizes: list[int] = []

    async def counted(jobs: list[NewJob]) -> list[Enqueued]:
        sizes.append(len(jobs))
        return await client.seam.do(send(client.seam, jobs))

    assert isinstance(client.seam, AsyncClientSeam)
    client.seam._coalescer = Coalescer(counted)
    return sizes


async def test_enqueues_that_come_together_become_two_statements(
    client: AsyncClient, sent: list[int], sql: Sql
) -> None:
    answers = await asyncio.gather(*(client.enqueue(greet.job(name=str(n))) for n in range(100)))

    assert sent == [1, 99]  # the first waits for nobody, the others for it
    assert [(await client.get(answer.id)).payload["name"] for answer in answers] == [str(n) for n in range(100)]
    assert count(sql) == 100
    await client.enqueue(greet.job())
    assert sent == [1, 99, 1]


async def test_a_thousand_go_into_one_statement_at_most(client: AsyncClient, sent: list[int], sql: Sql) -> None:
    await asyncio.gather(*(client.enqueue(greet.job()) for _ in range(1500)))

    assert sent == [1, 1000, 499]
    assert count(sql) == 1500


async def test_a_refused_job_fails_alone(client: AsyncClient, sent: list[int], sql: Sql) -> None:
    await client.enqueue(greet.job(name="other").with_key("taken"))
    jobs = [greet.job(name=str(n)) for n in range(64)]
    jobs[17] = greet.job(name="mine").with_key("taken")

    answers = await asyncio.gather(*map(client.enqueue, jobs), return_exceptions=True)

    assert isinstance(answers.pop(17), KeyReused)
    assert all(isinstance(answer, Enqueued) and answer.answer == "created" for answer in answers)
    assert count(sql) == 64
    assert len(sent) < 20  # it is found by halving


@pytest.mark.parametrize("who", [0, 1, 30])
async def test_a_caller_who_gives_up_takes_nobody_along(client: AsyncClient, sql: Sql, who: int) -> None:
    with client_is_slow(sql):
        callers = [asyncio.create_task(client.enqueue(greet.job(name=str(n)))) for n in range(50)]
        await asyncio.sleep(0.05)
        callers[who].cancel()
        await asyncio.sleep(0.05)
    answers = await asyncio.gather(*callers, return_exceptions=True)

    assert isinstance(answers.pop(who), asyncio.CancelledError)
    assert all(isinstance(answer, Enqueued) for answer in answers)
    names = {row[0] for row in sql.execute("select payload ->> 'name' from mainspring.job")}
    assert names == {str(n) for n in range(50)} - {str(who)}
    assert (await client.enqueue(greet.job())).answer == "created"


def client_is_slow(sql: Sql) -> Any:
    """Hold every enqueue back for the time of a block."""
    transaction = sql.transaction()

    class Held:
        def __enter__(self) -> None:
            transaction.__enter__()
            sql.execute("lock table mainspring.job in exclusive mode")

        def __exit__(self, *error: Any) -> None:
            transaction.__exit__(*error)

    return Held()


async def test_every_caller_hears_that_the_database_is_lost(database: Database, sql: Sql) -> None:
    with proxied(database.dsn) as proxy:
        async with AsyncClient(proxy.dsn, timeout=0.3) as client:
            await client.now()
            with client_is_slow(sql):
                callers = [asyncio.create_task(client.enqueue(greet.job())) for _ in range(50)]
                await asyncio.sleep(0.05)
                proxy.down = True
                proxy.cut()
                answers = await asyncio.wait_for(asyncio.gather(*callers, return_exceptions=True), 30)

            assert [type(answer) for answer in answers] == [DatabaseUnavailable] * 50
            proxy.down = False
            assert (await client.enqueue(greet.job())).answer == "created"  # and the next one is well


async def test_an_unexpected_error_reaches_its_callers_and_blocks_nobody() -> None:
    failing = [False, True, False]

    async def send(jobs: list[NewJob]) -> list[Enqueued]:
        await asyncio.sleep(0)
        if failing.pop(0):
            raise RuntimeError("what is this?")
        return [Enqueued(job.id, "created", "ready") for job in jobs]  # type: ignore[arg-type]  # no id is needed here

    coalescer = Coalescer(send)
    answers = await asyncio.gather(*(coalescer.enqueue(greet.job()) for _ in range(3)), return_exceptions=True)

    assert [type(answer) for answer in answers] == [Enqueued, RuntimeError, RuntimeError]
    assert type(await asyncio.wait_for(coalescer.enqueue(greet.job()), 5)) is Enqueued


async def test_close_waits_for_what_was_asked_for(database: Database, sql: Sql) -> None:
    client = AsyncClient(database.dsn)
    callers = [asyncio.create_task(client.enqueue(greet.job())) for _ in range(20)]
    await callers[0]

    await client.close()

    assert [(await caller).answer for caller in callers] == ["created"] * 20
    assert count(sql) == 20
