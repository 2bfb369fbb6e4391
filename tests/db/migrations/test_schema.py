"""What the migrations produce: the same everywhere, under any name, with one plain role and no extension."""

from __future__ import annotations

from dataclasses import replace

import psycopg
import pytest
from tests.databases import Database
from tests.db.migrations.conftest import LIFE, live_through
from tools.schema_page import PAGE, PUBLIC, comments, page

from mainspring import Client, NewJob
from mainspring.db.schema.line import engine_line
from mainspring.db.schema.migrate import migrate
from mainspring.db.schema.script import script
from mainspring.db.schema.status import check, status
from mainspring.errors import ConfigurationError
from mainspring.text.document import read_payload

VERSIONS = ("empty15", "empty16", "empty")


def test_page_of_the_schema_is_what_the_migrations_produce(empty: Database) -> None:
    with empty.connect() as conn:
        migrate(conn)
        assert page(conn) == PAGE.read_text(), "run `make schema`"
        views = conn.execute("select viewname from pg_views where schemaname = 'mainspring'").fetchall()
    assert {name for (name,) in views} | PUBLIC <= comments().keys(), "what is public says what it is for"


@pytest.mark.parametrize("version", VERSIONS)
def test_every_verb_works_on_every_postgresql(request: pytest.FixtureRequest, version: str) -> None:
    database: Database = request.getfixturevalue(version)
    with database.connect() as conn:
        migrate(conn)
        check(status(conn))
        assert live_through(conn) == LIFE


@pytest.mark.parametrize("schema", ["jobs2", "My Jobs", "ünïcode-1", "select"])
def test_every_verb_works_in_a_schema_of_any_name(empty: Database, schema: str) -> None:
    with empty.connect() as conn:
        migrate(conn, schema=schema)
        assert live_through(conn, schema) == LIFE
        assert conn.execute("select 1 from pg_namespace where nspname = 'mainspring'").fetchone() is None


@pytest.mark.parametrize("schema", ["", 'a"b', "a'b", "a{b", "a%b", "x" * 41, "tab\t"])
def test_schema_name_that_cannot_be_quoted_everywhere_is_refused(empty: Database, schema: str) -> None:
    with empty.connect() as conn, pytest.raises(ConfigurationError, match="schema"):
        migrate(conn, schema=schema)


def test_two_schemas_live_side_by_side_without_seeing_each_other(empty: Database) -> None:
    with empty.connect() as conn:
        for schema in ("mainspring", "My Jobs"):
            migrate(conn, schema=schema)
    with Client(empty.dsn) as one, Client(empty.dsn, schema="My Jobs") as other:
        job = NewJob(task="t", payload=read_payload("{}")).with_key("same")
        first, second = one.enqueue(job), other.enqueue(job)
        assert (first.answer, second.answer) == ("created", "created")
        assert [j.id for j in one.jobs()] == [first.id]
        assert [j.id for j in other.jobs()] == [second.id]
        other.pause("q:default")
        assert [q.name for q in one.queues() if q.paused_at] == []
    with empty.connect() as conn:
        conn.execute('drop schema "My Jobs" cascade')
        assert live_through(conn) == LIFE


def test_one_plain_role_installs_it_without_extensions(empty: Database) -> None:
    with empty.connect() as conn:
        rights = "select rolsuper, rolcreaterole, rolbypassrls from pg_roles where rolname = current_user"
        assert conn.execute(rights).fetchone() == (False, False, False)
        migrate(conn)
        assert conn.execute("select extname from pg_extension").fetchall() == [("plpgsql",)]
        assert live_through(conn) == LIFE


def test_every_table_has_an_organisation_from_the_first_migration_on(empty: Database) -> None:
    tables = """
        select t.table_name, c.is_nullable
        from information_schema.tables t
        left join information_schema.columns c using (table_schema, table_name)
        where t.table_schema = 'mainspring' and t.table_type = 'BASE TABLE' and c.column_name = 'org_id'
    """
    every = (
        "select table_name from information_schema.tables where table_schema = 'mainspring' and table_type like 'BASE%'"
    )
    with empty.connect() as conn:
        line = replace(engine_line(), verbs=())
        for number in range(1, len(line.tables) + 1):
            migrate(conn, line=replace(line, tables=line.tables[:number]))
            found: dict[str, str] = dict(conn.execute(tables).fetchall())
            assert found.keys() == {row[0] for row in conn.execute(every).fetchall()}
            assert {"job", "waiting", "running", "finished", "migration"} <= found.keys()
            assert set(found.values()) == {"NO"}


def test_every_unique_key_but_those_of_jobs_starts_with_the_organisation(empty: Database) -> None:
    keys = """
        select i.indexrelid::regclass::text, a.attname
        from pg_index i join pg_attribute a on a.attrelid = i.indrelid and a.attnum = i.indkey[0]
        where i.indisunique and i.indrelid in (select oid from pg_class where relnamespace = 'mainspring'::regnamespace)
    """
    with empty.connect() as conn:
        migrate(conn)
        first: dict[str, str] = dict(conn.execute(keys).fetchall())
    mine = {name for name, column in first.items() if column not in ("org_id", "id", "epoch")}
    assert first
    assert not mine


def test_script_for_administrators_does_what_the_runner_does(empty: Database) -> None:
    with empty.connect() as conn:
        psycopg.ClientCursor(conn).execute(script("by hand").encode())
        check(status(conn, schema="by hand"))
        assert not migrate(conn, schema="by hand")
        assert live_through(conn, "by hand") == LIFE
