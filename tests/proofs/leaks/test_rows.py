"""A database repeats rows and parameters in its errors: they are not kept with the job, where others read them."""

from __future__ import annotations

from collections.abc import Iterator

import psycopg
import pytest
import sqlalchemy as sa
from tests.client.frameworks.joins import django_connection
from tests.databases import Database

from mainspring import Client, Context, Registry, SyncContext, fixed
from mainspring.testing import Harness

tasks = Registry("rows")
CANARY = "x7Qz9Lm2Vb4Tn6Ws"
ONCE = fixed(0, attempts=1)
TWICE = "insert into person values (%s, 1)"


@tasks.task(retry=ONCE)
async def by_psycopg(ctx: Context) -> None:
    """Fail in one's own transaction."""
    async with ctx.complete() as tx:
        await tx.execute(TWICE, [CANARY])


@tasks.task(retry=ONCE)
def by_psycopg_in_a_thread(ctx: SyncContext) -> None:
    """Fail in a thread, by a check of the whole row."""
    with ctx.complete() as tx:
        tx.execute("insert into person values (%s, 4711)", [f"{CANARY} 2"])


@tasks.task(retry=ONCE)
def by_sqlalchemy(*, dsn: str) -> None:
    """Fail with statement and parameters in the message."""
    engine = sa.create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=sa.NullPool)
    with engine.connect() as conn:
        conn.execute(sa.text("insert into person values (:a, 1)"), {"a": CANARY})


@tasks.task(retry=ONCE)
def by_django(*, dsn: str) -> None:
    """Fail with Django's own class of errors."""
    with django_connection(dsn) as conn, conn.cursor() as cursor:
        cursor.execute(TWICE, [CANARY])


@tasks.task(retry=ONCE)
async def by_syntax(ctx: Context) -> None:
    """Fail with the statement in the message."""
    async with ctx.complete() as tx:
        await tx.execute(f"insert into person value ('{CANARY}')".encode())


@pytest.fixture
def harness(database: Database) -> Iterator[Harness]:
    with Harness(database.dsn, tasks) as harness:
        harness.conn.execute("create table person (name text primary key, salary integer check (salary < 10))")
        harness.conn.execute("insert into person values (%s, 1)", [CANARY])
        yield harness


@pytest.mark.rule("ENG-8.10")
def test_no_row_and_no_parameter_is_kept_in_an_error(database: Database, harness: Harness) -> None:
    for task in tasks:
        needs = {"dsn": database.dsn} if "dsn" in task.codec.fields else {}
        harness.client.enqueue(task.job(**needs))

    harness.drain(raise_errors=False)

    kept = "select task, error ->> 'message', to_jsonb(j) - 'payload' from mainspring.jobs j"
    rows = harness.conn.execute(kept).fetchall()
    assert {row[0] for row in rows} == set(tasks.names())
    assert [row for row in rows if CANARY in str(row[2])] == []
    said = {row[0]: row[1] for row in rows}
    assert said["by_psycopg"] == 'UniqueViolation: duplicate key value violates unique constraint "person_pkey"'
    assert said["by_sqlalchemy"] == 'IntegrityError: duplicate key value violates unique constraint "person_pkey"'
    trail = harness.conn.execute("select detail from mainspring.trail").fetchall()
    assert CANARY not in str(trail)


def test_what_an_application_says_itself_stays(database: Database) -> None:
    own = Registry("own")

    @own.task(retry=ONCE)
    async def pay() -> None:
        try:
            raise psycopg.errors.UniqueViolation("twice")
        except psycopg.Error as error:
            raise ValueError("invoice 7 is paid already") from error

    with Harness(database.dsn, own) as harness, Client(database.dsn) as client:
        job = client.enqueue(pay.job()).id
        harness.drain(raise_errors=False)
        assert (client.get(job).error or {})["message"] == "ValueError: invoice 7 is paid already"
