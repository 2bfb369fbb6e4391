"""When a client tells that a job was created: after the commit, and only where somebody says that there was one."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
import sqlalchemy as sa
from sqlalchemy import orm
from sqlalchemy.ext.asyncio import AsyncSession, create_async_engine
from tests.client.frameworks.joins import django_connection, engine, url
from tests.databases import Database
from tests.observe.conftest import Heard

from mainspring import AsyncClient, Client, Registry
from mainspring.events import JobEnqueued, QueuePaused, QueueResumed

pytestmark = pytest.mark.anyio
tasks = Registry("observed")


@tasks.task(subject="n")
async def greet(*, n: int) -> None: ...


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def client(database: Database, heard: Heard) -> Iterator[Client]:
    with Client(database.dsn, observers=[heard]) as client:
        yield client


@pytest.fixture
async def aclient(database: Database, heard: Heard) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(database.dsn, observers=[heard]) as client:
        yield client


def told(heard: Heard) -> list[int]:
    return [event.subject["n"] for event in heard.of(JobEnqueued)]


class Broken(Exception):
    """What makes a transaction roll back."""


@pytest.mark.rule("ENG-22.01")
def test_what_is_created_is_told_and_what_exists_already_is_not(client: Client, heard: Heard) -> None:
    for _ in range(2):
        answer = client.enqueue(greet.job(n=1).with_key("k").for_org("acme"))
    client.enqueue_many([greet.job(n=2), greet.job(n=3)])

    assert answer.answer == "existing"
    assert told(heard) == [1, 2, 3]
    assert [len(batch) for batch in heard.batches] == [1, 2]
    first, second = heard.of(JobEnqueued)[:2]
    assert (first.org_id, first.request_id, first.state) == ("acme", str(answer.id), "ready")
    assert second.org_id == "default"


async def test_the_async_client_tells_as_well(aclient: AsyncClient, heard: Heard) -> None:
    await aclient.enqueue(greet.job(n=1).after(60))
    await aclient.enqueue_many([greet.job(n=2)])

    assert told(heard) == [1, 2]
    assert heard.of(JobEnqueued)[0].state == "scheduled"


def test_a_refused_enqueue_tells_nothing(client: Client, heard: Heard) -> None:
    with suppress(Exception):
        client.enqueue(greet.job(n=1).with_key(""))

    assert heard.events == []


@pytest.mark.rule("ENG-22.10")
def test_on_a_drivers_connection_only_what_commits_by_itself_is_told(
    client: Client, heard: Heard, database: Database
) -> None:
    with database.connect() as conn:  # autocommit
        client.enqueue(greet.job(n=1), conn=conn)
        with conn.transaction():
            client.enqueue(greet.job(n=2), conn=conn)
        with suppress(Broken), conn.transaction():
            client.enqueue(greet.job(n=3), conn=conn)
            raise Broken

    assert told(heard) == [1]


@pytest.mark.rule("ENG-22.10")
def test_a_session_tells_after_its_commit_and_never_after_a_rollback(
    client: Client, heard: Heard, database: Database
) -> None:
    with engine(database.dsn, "psycopg") as bind, orm.Session(bind) as session:
        client.enqueue(greet.job(n=1), conn=session)
        assert told(heard) == []
        session.commit()
        assert told(heard) == [1]
        client.enqueue(greet.job(n=2), conn=session)
        session.rollback()
        client.enqueue(greet.job(n=3), conn=session)
        with session.begin_nested():
            client.enqueue(greet.job(n=4), conn=session)
        assert told(heard) == [1]
        session.commit()

    assert told(heard) == [1, 3, 4]


def test_a_session_inside_an_outer_transaction_does_not_know_its_end_and_tells_nothing(
    client: Client, heard: Heard, database: Database
) -> None:
    with engine(database.dsn, "psycopg") as bind, bind.connect() as conn:
        with suppress(Broken), conn.begin():
            session = orm.Session(conn, join_transaction_mode="create_savepoint")
            client.enqueue(greet.job(n=1), conn=session)
            session.commit()
            raise Broken
        session.execute(sa.text("select 1"))
        session.commit()

    assert told(heard) == []


@pytest.mark.rule("ENG-22.10")
def test_a_session_that_is_closed_without_a_commit_tells_nothing_later(
    client: Client, heard: Heard, database: Database
) -> None:
    with engine(database.dsn, "psycopg") as bind, bind.connect() as conn:
        session = orm.Session(conn)  # its own transactions, on a connection that outlives it
        client.enqueue(greet.job(n=1), conn=session)
        session.close()  # a rollback that SQLAlchemy does not call one
        client.enqueue(greet.job(n=2), conn=session)
        session.commit()
        client.enqueue(greet.job(n=3), conn=session)
        session.close()

    assert told(heard) == [2]
    assert session.info["mainspring_committed"] == []  # and nothing is kept for a long-lived one


async def test_an_async_session_tells_after_its_commit(aclient: AsyncClient, heard: Heard, database: Database) -> None:
    made = create_async_engine(url(database.dsn, "psycopg"), poolclass=sa.NullPool)
    async with AsyncSession(made) as session:
        await aclient.enqueue(greet.job(n=1), conn=session)
        assert told(heard) == []
        await session.commit()
        await aclient.enqueue(greet.job(n=2), conn=session)
        await session.rollback()
    await made.dispose()

    assert told(heard) == [1]


@pytest.mark.rule("ENG-22.10")
def test_django_tells_after_its_commit_and_forgets_a_savepoint_that_was_rolled_back(
    database: Database, heard: Heard
) -> None:
    def view() -> None:
        from django.db import transaction

        with django_connection(database.dsn) as connection, Client(database.dsn, observers=[heard]) as client:
            client.enqueue(greet.job(n=0), conn=connection)
            with transaction.atomic():
                client.enqueue(greet.job(n=1), conn=connection)
                with suppress(Broken), transaction.atomic():
                    client.enqueue(greet.job(n=2), conn=connection)
                    raise Broken
                assert told(heard) == [0]
            with suppress(Broken), transaction.atomic():
                client.enqueue(greet.job(n=3), conn=connection)
                raise Broken

    with ThreadPoolExecutor(1) as thread:
        thread.submit(view).result()

    assert told(heard) == [0, 1]


def test_django_without_autocommit_does_not_say_when_and_nothing_is_told(database: Database, heard: Heard) -> None:
    def view() -> None:
        from django.db import transaction

        with django_connection(database.dsn) as connection, Client(database.dsn, observers=[heard]) as client:
            connection.set_autocommit(False)
            client.enqueue(greet.job(n=0), conn=connection)
            transaction.commit()
            assert len(client.jobs()) == 1

    with ThreadPoolExecutor(1) as thread:
        thread.submit(view).result()

    assert told(heard) == []


def test_pauses_and_resumes_are_told_with_who_did_it(client: Client, heard: Heard) -> None:
    client.pause("q:exports", reason="month end")
    assert client.resume("q:exports")
    assert not client.resume("q:exports")

    assert heard.of(QueuePaused) == [QueuePaused("q:exports", "SYSTEM", "month end")]
    assert heard.of(QueueResumed) == [QueueResumed("q:exports", "SYSTEM")]
