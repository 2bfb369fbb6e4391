"""What a client does when the connection or the database is lost."""

from __future__ import annotations

import asyncio
import time
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo
from psycopg.rows import TupleRow
from tests.client.conftest import Connect, count
from tests.client.proxy import proxied
from tests.client.tasks import greet
from tests.databases import Database

from mainspring import AsyncClient, Enqueued
from mainspring.errors import DatabaseUnavailable, JobExists
from mainspring.uuid7 import uuid7

pytestmark = pytest.mark.anyio
Sql = psycopg.Connection[TupleRow]
ENQUEUE = b"ticketed as"  # what the statement of a single enqueue says


def ids(sql: Sql) -> set[UUID]:
    return {row[0] for row in sql.execute("select id from mainspring.job")}


async def test_an_enqueue_whose_answer_is_lost_makes_exactly_one_job(
    connect: Connect, database: Database, sql: Sql
) -> None:
    with proxied(database.dsn) as proxy:
        client = connect(proxy.dsn)
        await client.now()
        proxy.fatal = [ENQUEUE] * 3

        answer = await client.enqueue(greet.job())

        assert proxy.cuts == 1  # after the first one the client asks before it enqueues again
        assert answer.answer == "created"
        assert ids(sql) == {answer.id}


async def test_a_batch_whose_commit_is_lost_is_there_once_with_its_answers(
    connect: Connect, database: Database, sql: Sql
) -> None:
    with proxied(database.dsn) as proxy:
        client = connect(proxy.dsn)
        taken = await client.enqueue(greet.job().with_key("taken"))
        jobs = [greet.job(name=str(n)).with_id(uuid7()) for n in range(1100)]
        jobs[3], jobs[1050] = greet.job().with_key("taken"), greet.job(name="keyed").with_key("mine")
        proxy.fatal = [b"COMMIT"]

        answers = await client.enqueue_many(jobs)

        assert proxy.cuts == 1
        assert answers[3] == Enqueued(taken.id, "existing", "ready")
        assert {answer.answer for answer in answers[:3] + answers[4:]} == {"created"}
        assert [answer.id for answer in answers[4:1050]] == [job.id for job in jobs[4:1050]]
        assert count(sql) == 1100
        assert ids(sql) == {answer.id for answer in answers}


async def test_a_repetition_that_meets_its_first_try_still_under_way_waits_for_it(
    connect: Connect, database: Database, sql: Sql
) -> None:
    with proxied(database.dsn) as proxy, database.connect() as holder:
        await (client := connect(proxy.dsn)).now()
        with holder.transaction():
            holder.execute("lock table mainspring.job in exclusive mode")  # the server is slow
            job = greet.job()
            own = client.own
            enqueue = asyncio.ensure_future(
                own.enqueue(job) if isinstance(own, AsyncClient) else asyncio.to_thread(own.enqueue, job)
            )
            await _until(sql, "select count(*) = 1 from pg_stat_activity where wait_event_type = 'Lock'")
            proxy.cut()
            await _until(sql, "select count(*) = 2 from pg_stat_activity where wait_event_type = 'Lock'")

        answer = await enqueue

        assert ids(sql) == {answer.id}


async def _until(sql: Sql, question: str) -> None:
    deadline = time.monotonic() + 20
    while sql.execute(question).fetchone() != (True,):
        assert time.monotonic() < deadline, question
        await asyncio.sleep(0.01)


async def test_connections_lost_again_and_again_make_one_job(connect: Connect, database: Database, sql: Sql) -> None:
    with proxied(database.dsn) as proxy:
        client = connect(proxy.dsn)
        proxy.fatal = [ENQUEUE, b"unnest", b"unnest"]  # the enqueue, then the question what became of it

        answer = await client.enqueue(greet.job())

        assert proxy.cuts == 3
        assert ids(sql) == {answer.id}


async def test_an_id_that_was_taken_before_is_refused_as_ever(connect: Connect) -> None:
    client = connect()
    job = greet.job().with_id(uuid7())
    await client.enqueue(job)

    with pytest.raises(JobExists):
        await client.enqueue(job)


async def test_a_database_that_is_down_is_reported_in_bounded_time_with_the_reason(connect: Connect) -> None:
    client = connect("host=127.0.0.1 port=1 dbname=shop", timeout=0.2)
    for verb, given in ((client.enqueue, [greet.job()]), (client.now, [])):
        began = time.monotonic()

        with pytest.raises(DatabaseUnavailable, match=r"the database is unavailable: .*port 1.*refused") as caught:
            await verb(*given)

        assert caught.value.sent is False
        assert caught.value.code == "DB_UNAVAILABLE"
        assert time.monotonic() - began < 60


async def test_a_wrong_name_or_password_is_said_not_hidden_behind_a_time_out(
    connect: Connect, database: Database
) -> None:
    client = connect(make_conninfo(database.dsn, dbname="no_such_database"), timeout=0.2)

    with pytest.raises(DatabaseUnavailable, match='database "no_such_database" does not exist'):
        await client.now()


async def test_when_the_database_stays_away_the_outcome_is_said_to_be_unknown(
    connect: Connect, database: Database, sql: Sql
) -> None:
    with proxied(database.dsn) as proxy:
        client = connect(proxy.dsn, timeout=0.3)
        await client.now()
        proxy.fatal, proxy.down = [ENQUEUE], True

        with pytest.raises(DatabaseUnavailable) as caught:
            await client.enqueue(greet.job())

        assert caught.value.sent is True
        assert count(sql) == 1  # it did commit, which nobody here could know


async def test_lost_connections_of_the_pool_are_replaced(connect: Connect, database: Database, sql: Sql) -> None:
    client = connect(timeout=5)
    for _ in range(3):  # fill the pool
        await client.now()
    sql.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )

    with pytest.raises(DatabaseUnavailable) as caught:
        await client.now()
    assert caught.value.sent is True
    await client.now()  # and from then on all is well

    sql.execute(
        "select pg_terminate_backend(pid) from pg_stat_activity"
        " where datname = current_database() and pid <> pg_backend_pid()"
    )
    answer = await client.enqueue(greet.job())  # an enqueue is repeated by itself
    assert ids(sql) == {answer.id}
