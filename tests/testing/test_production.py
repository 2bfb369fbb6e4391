"""The kit does no harm where it is pointed at a database that works for somebody."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import psycopg
import pytest
from psycopg.rows import dict_row
from tests.databases import Database
from tests.secured import Secured

from mainspring import Client, Registry
from mainspring.db.schema.migrate import migrate
from mainspring.errors import ConfigurationError
from mainspring.testing import Clock, drain, install
from mainspring.virtual import clock as clocks
from mainspring.virtual.run import RunClusters

SCHEMA = "real"
STATE = """
    select (select string_agg(number || name, ',' order by number) from real.migration),
           (select pg_get_functiondef('real.now'::regproc)), to_regclass('real.clock')
"""
HEARTBEAT = """
    insert into {}.worker (id, host, pid, version, queues, concurrency, started_at, seen_at)
    values ('elsewhere:1:a', 'elsewhere', 1, '1', '{{}}', 1, {}.now(), {}.now())
"""
USED = {
    "a job": "select real.enqueue('greet')",
    "a worker": HEARTBEAT.format(SCHEMA, SCHEMA, SCHEMA),
    "a finished job": """
        select real.enqueue('greet');
        select real.cancel((select id from real.job), null, 'user', 'me', null)""",
}


@pytest.fixture
def conn(database: Database) -> Iterator[psycopg.Connection[Any]]:
    """A database with a schema whose clock is real."""
    with database.connect() as conn:
        migrate(conn, schema=SCHEMA)
        yield conn


@pytest.mark.parametrize("used", USED)
def test_virtual_time_is_refused_where_somebody_works(conn: psycopg.Connection[Any], used: str) -> None:
    conn.execute(USED[used].encode())
    conn.execute("delete from real.migration where number = (select max(number) from real.migration)")  # of before
    before = conn.execute(STATE).fetchall()

    for attempt in (install, clocks.install):
        with pytest.raises(ConfigurationError, match=r"schema: real of database .* is in use"):
            attempt(conn, schema=SCHEMA)

    assert conn.execute(STATE).fetchall() == before


def test_virtual_time_is_refused_where_the_schema_is_secured(database: Database) -> None:
    """Its rows are nobody's to see, so an empty answer means nothing."""
    with database.connect() as conn:
        conn.execute("drop table mainspring.clock cascade")
        conn.execute("create or replace function mainspring.now() returns timestamptz return statement_timestamp()")
    with closing(Secured(database)) as secured, secured.connect("owner") as owner:
        owner.row_factory = dict_row  # whatever the caller's rows are
        with pytest.raises(ConfigurationError, match="is in use"):
            install(owner)


def test_a_schema_of_its_own_is_prepared_again(conn: psycopg.Connection[Any]) -> None:
    install(conn, schema=SCHEMA)
    conn.execute("select real.enqueue('greet')")
    install(conn, schema=SCHEMA)

    assert Clock(conn, schema=SCHEMA).advance(hours=1)


def test_a_link_that_a_stranger_left_leads_to_nothing_that_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where everybody may write, somebody may name a link like a run that was killed."""
    home, shared = tmp_path / "home", tmp_path / "shared"
    for folder in (home / "cache" / "tool", home / "memory", shared):
        folder.mkdir(parents=True)
    (home / "cache" / "tool" / "lock").touch()
    (shared / "mainspring-tests-0123456789ab").symlink_to(home)
    monkeypatch.setattr(tempfile, "tempdir", str(shared))

    RunClusters.join("next").leave()

    assert (home / "cache" / "tool" / "lock").exists()
    assert (home / "memory").exists()


def test_jobs_of_a_database_that_a_worker_serves_are_not_run(database: Database) -> None:
    """Their rows would be rolled back, their mails would not."""
    tasks, ran = Registry("production"), list[int]()

    @tasks.task
    async def mail(*, n: int) -> None:
        ran.append(n)

    with Client(database.dsn) as client, database.connect() as outside, psycopg.connect(database.dsn) as conn:
        client.enqueue(mail.job(n=1))
        outside.execute(HEARTBEAT.format(*["mainspring"] * 3).encode())
        with pytest.raises(ConfigurationError, match="conn: worker elsewhere:1:a serves database"):
            drain(conn, tasks)
        conn.rollback()
        assert ran == []
        outside.execute("update mainspring.worker set seen_at = seen_at - interval '1 minute'")
        assert drain(conn, tasks).counts == {"succeeded": 1}
        conn.rollback()
