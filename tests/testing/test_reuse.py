"""A database that a test has used is given to the next only if it cannot tell: blank, alone and under a new name."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from typing import Any

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.sql import SQL, Identifier

import mainspring as ms
from mainspring.embedded import SUPERUSER, Cluster
from mainspring.virtual.databases import Database, DatabaseServer

tasks = ms.Registry("reuse")

OWN = """
create schema shop;
create table shop.item (
  id bigint generated always as identity primary key, name text, twice text generated always as (name || name) stored
);
create table shop.line (item_id bigint references shop.item (id));
insert into shop.item (name) values ('it''s {a} "seed"'), (null);
create function shop.refuse() returns trigger language plpgsql as $$ begin raise 'never'; end $$;
create trigger stays before delete on shop.item execute function shop.refuse();
"""
ROWS = """
do $$ declare t regclass; rows text; all_rows text := ''; begin
  for t in select oid from pg_class where oid >= 16384 and relkind = 'r' and relpersistence = 'p' order by oid loop
    execute format('select string_agg(t::text, E''\\n'' order by t::text) from %s t', t) into rows;
    all_rows := all_rows || coalesce(t::text || E'\\n' || rows || E'\\n', '');
  end loop;
  perform set_config('test.rows', all_rows, false);
end $$
"""


@tasks.task
def noop() -> None: ...


@pytest.fixture
def server(volatile_cluster: Cluster) -> Iterator[DatabaseServer]:
    with DatabaseServer.of(volatile_cluster).connected() as server:
        yield server


def oid_of(database: Database) -> Any:
    with database.connect() as conn:
        return conn.execute("select oid from pg_database where datname = current_database()").fetchone()


def contents(database: Database) -> Any:
    """All that it holds: rows, sequences, the clock, and what PostgreSQL counts of it."""
    with database.connect() as conn:
        conn.execute(ROWS)
        written = "select sum(n_tup_ins + n_tup_upd + n_tup_del + n_dead_tup + n_live_tup) from pg_stat_user_tables"
        return [
            conn.execute("select current_setting('test.rows')").fetchone(),
            conn.execute("select seqrelid, pg_sequence_last_value(seqrelid) from pg_sequence order by 1").fetchall(),
            conn.execute("select at from mainspring.clock").fetchall(),
            conn.execute(written).fetchone(),
        ]


def superuser(database: Database) -> psycopg.Connection[Any]:
    return psycopg.connect(make_conninfo(database.dsn, user=SUPERUSER), autocommit=True)


def test_the_next_test_has_the_same_database_under_another_name_as_if_it_were_new(server: DatabaseServer) -> None:
    with server.fresh(prepare=[OWN], reuse=False) as database:
        new = contents(database)
    seen = []
    for _ in range(3):
        with server.fresh(prepare=[OWN]) as database:
            seen.append((oid_of(database), database.dsn))
            assert contents(database) == new
            with ms.Client(database.dsn) as client, database.connect() as conn:
                client.enqueue_many([noop.job() for _ in range(3)])
                client.pause("default", reason="lunch")
                conn.execute("update mainspring.clock set at = '2031-01-01'")
                conn.execute("insert into shop.item (name) values ('mine')")
                conn.execute("update shop.item set name = 'yours' where name is null")
                conn.execute("insert into shop.line select max(id) from shop.item")
                conn.execute("create temp table mine as select 1")
                assert contents(database) != new

    assert len({oid for oid, _ in seen}) == 1
    assert len({dsn for _, dsn in seen}) == 3


def test_rows_whose_count_a_test_has_hidden_are_found(server: DatabaseServer) -> None:
    with server.fresh() as database:
        new = contents(database)
    with server.fresh() as database, ms.Client(database.dsn) as client:
        client.enqueue(noop.job())
        client.close()
        with superuser(database) as conn:
            conn.execute("select pg_stat_reset()")
    with server.fresh() as database:
        assert contents(database) == new


UNFIT = {
    "a new table": "create table mainspring.other ()",
    "a dropped index": "drop index mainspring.fire_at",
    "a column": "alter table mainspring.job add column other text",
    "a function": "create or replace function mainspring.speed() returns float8 language sql return 2",
    "a trigger that is off": "alter table mainspring.audit disable trigger user",
    "a grant": "grant select on mainspring.job to public",
    "a grant on a column": "grant select (id) on mainspring.job to public",
    "a grant on the schema": "grant usage on schema mainspring to public",
    "a default grant": "alter default privileges in schema mainspring grant select on tables to public",
    "a policy": "alter table mainspring.job enable row level security",
    "a comment": "comment on table mainspring.job is 'other'",
    "a setting of the database": "alter database {name} set work_mem = '1MB'",
    "a setting of a role": "alter role mainspring in database {name} set work_mem = '1MB'",
    "a right to connect": "revoke connect on database {name} from public",
    "statistics": "analyze mainspring.queue",
    "numbers of the planner": "vacuum mainspring.job",
    "a large object": "select lo_create(0)",
    "a sequence": "create sequence mainspring.other",
    "rows that take long to write anew": "update mainspring.verb set digest = 'other'",
    "rows by the thousand": "insert into mainspring.clock select n::text from generate_series(1, 5000) n",
}  # fmt: skip


@pytest.mark.parametrize("change", UNFIT)
@pytest.mark.parametrize("used_before", [False, True], ids=["the first time", "again"])
def test_what_cannot_be_undone_by_deleting_rows_ends_a_database(
    server: DatabaseServer, change: str, used_before: bool
) -> None:
    if used_before:
        with server.fresh():
            pass
    with server.fresh() as database:
        first = oid_of(database)
        with superuser(database) as conn:
            conn.execute(UNFIT[change].replace("{name}", conn.info.dbname).encode())
    with server.fresh() as database:
        assert oid_of(database) != first
    assert not any(first == (made.oid,) for spares in server.pool.spares.values() for made in spares)


def test_a_worker_that_goes_on_writing_does_not_reach_the_next_test(server: DatabaseServer) -> None:
    stop, writes = threading.Event(), []

    def leak(dsn: str) -> None:
        with suppress(psycopg.Error), psycopg.connect(dsn, autocommit=True) as conn:
            while not stop.is_set():
                conn.execute("insert into mainspring.clock values (gen_random_uuid()::text, null)")
                writes.append(dsn)

    with server.fresh() as database:
        new = contents(database)
        first = oid_of(database)
        worker = threading.Thread(target=leak, args=[database.dsn])
        worker.start()
        while not writes:
            stop.wait(0.01)
    try:
        with server.fresh() as database:
            assert oid_of(database) != first
            assert contents(database) == new
    finally:
        stop.set()
        worker.join()


def test_a_worker_that_comes_back_finds_its_database_gone(server: DatabaseServer) -> None:
    with server.fresh() as database:
        forgotten = database
    with server.fresh() as database:
        with pytest.raises(psycopg.OperationalError, match="does not exist"):
            forgotten.connect()
        assert oid_of(database) is not None


def test_a_database_whose_test_fails_on_its_way_out_is_dropped(server: DatabaseServer) -> None:
    left = server.fresh()
    first = oid_of(left.__enter__())
    assert not left.__exit__(AssertionError, AssertionError("an invariant"), None)
    with server.fresh() as database:
        assert oid_of(database) != first


@pytest.mark.parametrize("session", [False, True], ids=["alone", "with a session that was left"])
def test_what_must_hold_is_checked_before_a_database_is_emptied_or_dropped(
    server: DatabaseServer, session: bool
) -> None:
    def check(conn: psycopg.Connection[Any]) -> None:
        assert conn.execute("select from mainspring.clock where org_id = 'left'").fetchall() == [], "something is left"

    with server.fresh(check=check) as database:
        first = oid_of(database)
    left = server.fresh(check=check)
    database = left.__enter__()
    assert oid_of(database) == first
    with ExitStack() as sessions:
        conn = sessions.enter_context(database.connect())
        conn.execute("insert into mainspring.clock values ('left', null)")
        if not session:
            conn.close()
        with pytest.raises(AssertionError, match="something is left"):
            left.__exit__(None, None, None)
    with server.fresh(check=check) as database:
        assert oid_of(database) != first


def test_only_databases_that_were_made_here_are_emptied(server: DatabaseServer) -> None:
    with server.fresh() as database:
        kept = database
        name = Identifier(str(conninfo_to_dict(database.dsn)["dbname"]))
        with psycopg.connect(server.admin, autocommit=True) as conn:  # another of the same name
            conn.execute(SQL("drop database {} with (force)").format(name))
            conn.execute(SQL("create database {} template {}").format(name, Identifier(server.template())))
        with kept.connect() as conn:
            theirs = oid_of(kept)
    with server.fresh() as database:
        assert oid_of(database) != theirs


def test_materialized_views_are_not_emptied_so_they_are_made_anew(server: DatabaseServer) -> None:
    seen = set()
    for _ in range(2):
        with server.fresh(prepare=["create materialized view few as select count(*) from mainspring.job"]) as database:
            seen.add(oid_of(database))
    assert len(seen) == 2


def test_who_may_not_turn_triggers_off_has_a_copy_each_time(volatile_cluster: Cluster) -> None:
    with psycopg.connect(volatile_cluster.dsn("postgres", user=SUPERUSER), autocommit=True) as conn:
        conn.execute("drop role if exists maker")
        conn.execute("create role maker login createdb")
    seen = set()
    dsn = volatile_cluster.dsn("postgres", user="maker")
    with DatabaseServer(dsn, dsn, run="0abcde0").connected() as server:
        try:
            for _ in range(2):
                with server.fresh() as database:
                    seen.add(oid_of(database))
        finally:
            server._remove(server.template())
    assert len(seen) == 2


def test_all_are_dropped_in_the_end(volatile_cluster: Cluster) -> None:
    with DatabaseServer.of(volatile_cluster).connected() as server, server.fresh() as database:
        name = conninfo_to_dict(database.dsn)["dbname"]
        oid = oid_of(database)
    with psycopg.connect(volatile_cluster.dsn("postgres"), autocommit=True) as conn:
        assert not conn.execute("select from pg_database where datname = %s or oid = %s", [name, oid[0]]).fetchall()
