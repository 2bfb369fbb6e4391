from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa
from psycopg.rows import TupleRow
from sqlalchemy import orm
from tests.client.frameworks.joins import engine
from tests.client.frameworks.test_joining import hints, rows
from tests.client.tasks import greet
from tests.databases import Database

from mainspring import Client

Sql = psycopg.Connection[TupleRow]


@pytest.fixture
def bind(database: Database) -> Iterator[sa.Engine]:
    with engine(database.dsn, "psycopg") as made:
        yield made


@pytest.fixture
def client(database: Database) -> Iterator[Client]:
    with Client(database.dsn) as client:
        yield client


def test_a_session_inside_an_outer_transaction_waits_for_that(bind: sa.Engine, client: Client, sql: Sql) -> None:
    with bind.connect() as conn, conn.begin() as outer:
        session = orm.Session(conn, join_transaction_mode="create_savepoint")
        client.enqueue(greet.job(), conn=session)
        session.commit()
        assert rows(sql) == (0, 0)
        outer.commit()

    assert rows(sql) == (0, 1)


def test_a_session_wakes_once_a_transaction_in_each_of_its_transactions(
    bind: sa.Engine, client: Client, database: Database, sql: Sql
) -> None:
    with database.connect() as listener, orm.Session(bind) as session:
        listener.execute("listen mainspring")
        for _ in range(2):
            sql.execute("select setval('mainspring.idle_until', 0), setval('mainspring.woken_at', 0)")
            for _ in range(3):
                client.enqueue(greet.job(), conn=session)
            sql.execute("select mainspring.raise_idle(60000)")
            session.commit()
            assert hints(listener, sql) == 1
            session.execute(sa.text("insert into booking select count(*) from booking"))
            session.commit()
            assert hints(listener, sql) == 0


def test_a_hint_that_fails_does_not_make_the_commit_fail(bind: sa.Engine, client: Client, sql: Sql) -> None:
    with orm.Session(bind) as session:
        client.enqueue(greet.job(), conn=session)
        sql.execute("drop function mainspring.wake cascade")
        session.commit()
        session.execute(sa.text("insert into booking values (1)"))  # and the session is well
        session.commit()

    assert rows(sql) == (1, 1)


def test_the_caller_s_pending_objects_are_not_flushed_into_our_errors(
    bind: sa.Engine, client: Client, sql: Sql
) -> None:
    class Base(orm.DeclarativeBase):
        pass

    class Booking(Base):
        __tablename__ = "booking"
        id: orm.Mapped[int] = orm.mapped_column(primary_key=True)

    sql.execute("insert into booking values (7)")
    with orm.Session(bind) as session:
        session.add(Booking(id=7))
        assert client.enqueue(greet.job(), conn=session).answer == "created"
        with pytest.raises(sa.exc.IntegrityError):
            session.commit()

    assert rows(sql) == (1, 0)
