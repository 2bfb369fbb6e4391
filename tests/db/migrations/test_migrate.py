"""The runner of migrations: once each, in order, by many at once, and what a version refuses to work with."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier

import psycopg
import pytest
from tests.databases import Database

from mainspring.db.schema.line import Line, Migration, engine_line
from mainspring.db.schema.migrate import migrate, migrate_all
from mainspring.db.schema.status import check, status
from mainspring.errors import DeclarationError, SchemaChanged, SchemaMissing, SchemaOutdated, SchemaTooNew

ALL = [migration.number for migration in engine_line().tables]


def lines(folder: Path, **files: str) -> Line:
    (folder / "tables").mkdir(exist_ok=True)
    for name, text in files.items():
        (folder / "tables" / f"{name.removeprefix('m')}.sql").write_text(text)
    return Line.read("shop", folder)


@pytest.mark.rule("ENG-27.06")
def test_migrations_are_applied_in_order_and_a_second_run_changes_nothing(empty: Database) -> None:
    with empty.connect() as conn:
        assert migrate(conn).tables == ALL
        tables = "select number, name, applied_at, xmin from mainspring.migration order by applied_at, number"
        before = conn.execute(tables).fetchall()
        assert [row[0] for row in before] == ALL
        verbs = conn.execute(query := "select key, applied_at, xmin from mainspring.verb order by key").fetchall()
        assert not migrate(conn)
        assert conn.execute(tables).fetchall() == before
        assert conn.execute(query).fetchall() == verbs


@pytest.mark.rule("ENG-27.06")
def test_twenty_that_start_at_once_apply_each_migration_once(empty: Database) -> None:
    together = Barrier(20)

    def start(_: int) -> list[int]:
        with empty.connect() as conn:
            together.wait()
            return migrate(conn).tables

    with ThreadPoolExecutor(20) as threads:
        applied = [number for numbers in threads.map(start, range(20)) for number in numbers]
    assert sorted(applied) == ALL
    with empty.connect() as conn:
        check(status(conn))


def test_migration_that_fails_leaves_nothing_and_is_tried_again(empty: Database, tmp_path: Path) -> None:
    line = lines(tmp_path, m0001_a="create table {schema}.a ();", m0002_b="create table {schema}.b (); select 1 / 0;")
    with empty.connect() as conn:
        with pytest.raises(psycopg.errors.DivisionByZero):
            migrate(conn, line=line)
        left = "select to_regclass('mainspring.a') is not null, to_regclass('mainspring.b') is not null"
        assert conn.execute(left).fetchone() == (False, False)
        line = lines(tmp_path, m0002_b="create table {schema}.b ();")
        assert migrate(conn, line=line).tables == [1, 2]


def test_migration_that_changed_after_it_was_applied_is_refused(empty: Database, tmp_path: Path) -> None:
    line = lines(tmp_path, m0001_a="create table {schema}.a ();")
    with empty.connect() as conn:
        migrate(conn, line=line)
        line = lines(tmp_path, m0001_a="create table {schema}.a (n integer);")
        with pytest.raises(SchemaChanged, match="migration 1 of shop was applied in another form"):
            migrate(conn, line=line)


def test_application_brings_its_own_line_through_the_same_runner(empty: Database, tmp_path: Path) -> None:
    line = lines(
        tmp_path,
        m0001_orders="create table {schema}.shop_order (org_id text not null);",
        m0002_cents="alter table {schema}.shop_order add cents integer;",
        mreadme="not a migration",
    )
    with empty.connect() as conn:
        assert migrate(conn).tables == ALL
        assert migrate(conn, line=line).tables == [1, 2]
        assert not migrate(conn, line=line)
        conn.execute("insert into mainspring.shop_order values ('default', 100)")
        assert [s.name for s in status(conn, line=line).tables] == ["orders", "cents"]
        check(status(conn))


def test_lines_of_applications_come_after_the_engine_s_tables_and_verbs(empty: Database, tmp_path: Path) -> None:
    line = lines(tmp_path, m0001_lanes="create table {schema}.shop_lane (like {schema}.queue);")
    with empty.connect() as conn:
        assert list(migrate_all(conn, [line])) == ["mainspring", "shop"]


@pytest.mark.parametrize("names", [("m0001_a", "m0003_c"), ("m0002_b",), ("m0001_a", "m0001_b")])
def test_line_with_a_gap_or_a_number_twice_is_refused(tmp_path: Path, names: tuple[str, ...]) -> None:
    with pytest.raises(DeclarationError, match="shop are not numbered from 0001 on"):
        lines(tmp_path, **dict.fromkeys(names, "select 1;"))


def test_breaking_is_said_in_the_first_comment_only() -> None:
    assert Migration(1, "a", "-- Why.\n-- breaking\nselect 1;").breaking
    assert not Migration(1, "a", "-- Why.\nselect 1;\n-- breaking\n").breaking


def test_missing_schema_is_refused(empty: Database) -> None:
    with empty.connect() as conn, pytest.raises(SchemaMissing, match="schema migrate"):
        check(status(conn))


def test_partly_applied_schema_is_refused_until_it_is_complete(empty: Database) -> None:
    with empty.connect() as conn:
        line = engine_line()
        assert migrate(conn, line=replace(line, tables=line.tables[:2], verbs=())).tables == [1, 2]
        with pytest.raises(SchemaOutdated, match="schema migrate"):
            check(status(conn))
        assert migrate(conn).tables == ALL[2:]
        check(status(conn))


@pytest.mark.parametrize("breaking", [True, False])
def test_newer_schema_is_refused_only_if_it_broke_something(empty: Database, breaking: bool) -> None:
    with empty.connect() as conn:
        migrate(conn)
        conn.execute(
            "insert into mainspring.migration (line, number, name, breaking) values ('mainspring', 999, 'new', %s)",
            [breaking],
        )
        found = status(conn)
        assert [s.number for s in found.tables if not s.known] == [999]
        if breaking:
            with pytest.raises(SchemaTooNew, match="upgrade Mainspring"):
                check(found)
        else:
            check(found)
