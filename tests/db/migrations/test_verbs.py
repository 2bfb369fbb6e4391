"""Verbs are replaced: what changed and nothing else, by many at once, beside workers, and never by an older edition."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from threading import Barrier
from typing import Any

import psycopg
import pytest
from tests.databases import Database
from tests.db.engine import Engine
from tests.db.migrations.conftest import LIFE, live_through
from tools.dump_schema import dump

import mainspring.db
import mainspring.db.schema.migrate
from mainspring import Client, NewJob
from mainspring.db.schema.line import Line, engine_line
from mainspring.db.schema.migrate import CLOCK, MIGRATION_TABLES, migrate
from mainspring.db.schema.status import check, status
from mainspring.db.schema.verb import Verb
from mainspring.db.wire.sql import render
from mainspring.errors import DeclarationError, SchemaBusy, SchemaChanged, SchemaOutdated
from mainspring.text.document import read_payload
from mainspring.virtual import clock, speed
from mainspring_apps.staffing.market import MIGRATIONS

LINES = (engine_line(), MIGRATIONS)


@pytest.fixture
def migrated(empty: Database) -> Database:
    with empty.connect() as conn:
        migrate(conn)
    return empty


def changed(*names: str, edition: int = 1, mark: str = "another form") -> Line:
    """The engine's line with a comment more inside these verbs."""
    line = engine_line()
    assert names == () or {verb.name for verb in line.verbs} >= {n if " on " in n else f"{{schema}}.{n}" for n in names}

    def form(verb: Verb) -> Verb:
        same = verb.name.removeprefix("{schema}.") not in names
        return verb if same else Verb(re.sub(r"\n", f" -- {mark}\n", verb.text, count=1))

    return replace(line, verbs=tuple(map(form, line.verbs)), edition=edition)


def touched(conn: psycopg.Connection[Any]) -> dict[str, str]:
    """Every function, view and trigger, and the transaction that wrote it last."""
    query = """
        select proname, xmin::text from pg_proc where pronamespace = 'mainspring'::regnamespace
        union all
        select relname, c.xmin::text || (select string_agg(r.xmin::text, '') from pg_rewrite r where ev_class = c.oid)
        from pg_class c where relnamespace = 'mainspring'::regnamespace and relkind = 'v'
        union all select tgname, t.xmin::text from pg_trigger t join pg_class c on c.oid = tgrelid
        where relnamespace = 'mainspring'::regnamespace
    """
    return dict(conn.execute(query).fetchall())


# -- the files -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_no_numbered_file_creates_a_function_a_view_or_a_trigger(line: Line) -> None:
    created = re.compile(
        r"^\s*create (or replace )?(constraint )?(function|procedure|view|trigger)", re.MULTILINE | re.IGNORECASE
    )
    assert [m.name for m in line.tables if created.search(m.text)] == []
    assert line.tables
    assert line.verbs


@pytest.mark.parametrize("line", LINES, ids=lambda line: line.name)
def test_every_view_states_that_its_reader_s_rights_count(line: Line) -> None:
    views = [verb for verb in line.verbs if verb.kind == "view"]
    assert [v.name for v in views if "with (security_invoker = true)" not in v.text] == []
    assert views


def test_no_file_of_verbs_is_longer_than_400_lines() -> None:
    folder = Path(mainspring.db.__file__).parent / "verbs"
    assert {file.name: n for file in folder.iterdir() if (n := len(file.read_text().splitlines())) > 400} == {}


def read(folder: Path, **files: str) -> Line:
    (folder / "verbs").mkdir()
    for name, text in files.items():
        (folder / "verbs" / f"{name}.sql").write_text(text)
    return Line.read("shop", folder)


def test_verbs_are_made_after_what_they_name_outside_quotes(tmp_path: Path, empty: Database) -> None:
    line = read(
        tmp_path,
        a="""
            -- A semicolon in a comment; and a quote's end.
            create or replace view public.a as select public.b() as n, ';' as text; -- c() stands in its body
            create or replace function public.d() returns int language sql as $$ select public.late(';'); $$;
        """,
        b="create or replace function public.b() returns int language sql return public.c(1) + public.c('1');",
        c="""
            create or replace function public.late(n text default 'x') returns int language sql return length(n);
            create or replace function public.c(n int) returns int language sql return n;
            create or replace function public.c(n text) returns int language sql return n::int;
        """,
    )
    names = [verb.key.removeprefix("function public.").removeprefix("view public.") for verb in line.verbs]
    assert names == ["c(n int)", "c(n text)", "b()", "a", "d()", "late(n text default 'x')"]
    with empty.connect() as conn:
        assert migrate(conn, line=line).verbs == [verb.name for verb in line.verbs]
        assert conn.execute("select n, public.d() from public.a").fetchone() == (2, 1)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("create table public.t ();", "create table public.t () … is not one `create or replace`"),
        ("create function public.f() returns int language sql return 1;", "is not one `create or replace`"),
        ("create or replace function public.f() returns int language sql return 1", "has no semicolon at its end"),
        ("create or replace view v as select 1;" * 2, "view v stands twice"),
    ],
)
def test_what_cannot_be_replaced_is_refused_with_the_name_of_its_file(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DeclarationError, match=f"^odd.sql: .*{re.escape(said)}"):
        read(tmp_path, odd=text)


def test_verbs_that_need_each_other_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match=r"view p\.a, view p\.b, view p\.a each need the next"):
        read(
            tmp_path,
            a="create or replace view p.a as select * from p.b;create or replace view p.b as select * from p.a;",
        )


def test_package_without_tables_and_verbs_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DeclarationError, match="shop has neither tables/NNNN_"):
        Line.read("shop", tmp_path)


def test_constraint_trigger_is_replaced_too(tmp_path: Path, empty: Database) -> None:
    """PostgreSQL has no `or replace` for these."""
    line = read(
        tmp_path,
        guard="""
            create or replace function public.no() returns trigger language plpgsql as $$ begin raise 'no'; end $$;
            create constraint trigger t after insert on public.t deferrable for each row execute function public.no();
        """,
    )
    later = Verb(line.verbs[1].text.replace("insert", "update"))
    with empty.connect() as conn:
        conn.execute("create table public.t (n int)")
        assert migrate(conn, line=line).verbs == ["public.no", "t on public.t"]
        assert migrate(conn, line=replace(line, verbs=(line.verbs[0], later))).verbs == ["t on public.t"]
        conn.execute("insert into public.t values (1)")
        with pytest.raises(psycopg.errors.RaiseException):
            conn.execute("update public.t set n = 2")


# -- replacing -------------------------------------------------------------------------------------------------------


def test_only_what_has_changed_is_touched(migrated: Database) -> None:
    with migrated.connect() as conn:
        before = touched(conn)
        line = changed("claim", "dead_letters", "job_guard on {schema}.job")
        assert sorted(migrate(conn, line=line).verbs) == ["claim", "dead_letters", "job_guard on {schema}.job"]
        after = touched(conn)
        assert {name for name in after if after[name] != before[name]} == {"claim", "dead_letters", "job_guard"}
        assert live_through(conn) == LIFE
        assert not migrate(conn, line=line)


def test_function_is_replaced_while_somebody_holds_every_table(migrated: Database) -> None:
    with migrated.connect() as conn, migrated.connect() as holder, holder.transaction():
        tables = (
            "select string_agg(oid::regclass::text, ', ') from pg_class where relkind = 'r' and relname not in "
            "('migration', 'verb') and relnamespace = 'mainspring'::regnamespace"
        )
        (names,) = holder.execute(tables.encode()).fetchone() or ("",)
        holder.execute(f"lock table {names} in access exclusive mode".encode())
        assert migrate(conn, line=changed("claim", "enqueue_many")).verbs == ["claim", "enqueue_many"]


def test_trigger_that_waits_for_its_table_lets_others_pass(migrated: Database) -> None:
    """A lock that is waited for stands in the way of everybody who comes later."""
    waiting = "select 1 from pg_locks where not granted and mode = 'ShareRowExclusiveLock'"
    with (
        migrated.connect() as holder,
        migrated.connect() as conn,
        migrated.connect() as other,
        ThreadPoolExecutor(1) as threads,
    ):
        other.execute("set statement_timeout = '20 s'")
        with holder.transaction():
            holder.execute("lock table mainspring.job in row exclusive mode")
            migration = threads.submit(migrate, conn, line=changed("job_guard on {schema}.job"))
            while other.execute(waiting).fetchone() is None:
                assert not migration.done()
            assert Engine(other).enqueue().answer == "created"
            assert not migration.done()
        assert migration.result(timeout=30).verbs == ["job_guard on {schema}.job"]


def test_migration_that_gets_no_lock_says_so_and_has_changed_nothing(
    migrated: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mainspring.db.schema.migrate, "LOCK_TIMEOUT", "20 ms")
    monkeypatch.setattr(mainspring.db.schema.migrate, "MIGRATE_PAUSE_S", 0.01)
    monkeypatch.setattr(mainspring.db.schema.migrate, "MIGRATE_TRIES", 3)
    with migrated.connect() as conn, migrated.connect() as holder:
        before = touched(conn)
        with holder.transaction():
            holder.execute("lock table mainspring.job in row exclusive mode")
            with pytest.raises(
                SchemaBusy, match=r"mainspring was not migrated, and nothing has changed: .* lock timeout"
            ):
                migrate(conn, line=changed("claim", "job_guard on {schema}.job"))
        assert touched(conn) == before


def test_verbs_that_fail_leave_the_tables_as_they_were(migrated: Database) -> None:
    line = engine_line()
    more = replace(
        line.tables[0], number=len(line.tables) + 1, text="create table {schema}.more (org_id text not null);"
    )
    broken = Verb("create or replace view {schema}.broken as select nothing from {schema}.more")
    with migrated.connect() as conn:
        with pytest.raises(psycopg.errors.UndefinedColumn):
            migrate(conn, line=replace(line, tables=(*line.tables, more), verbs=(*line.verbs, broken)))
        assert conn.execute("select to_regclass('mainspring.more')").fetchone() == (None,)
        check(status(conn))


def test_many_that_start_at_once_replace_each_verb_once(migrated: Database) -> None:
    together, line = Barrier(8), changed("claim", "jobs", "audit_guard on {schema}.audit", edition=2)

    def start(_: int) -> list[str]:
        with migrated.connect() as conn:
            together.wait()
            return migrate(conn, line=line).verbs

    with ThreadPoolExecutor(8) as threads:
        replaced = [name for names in threads.map(start, range(8)) for name in names]
    assert sorted(replaced) == ["audit_guard on {schema}.audit", "claim", "jobs"]


def test_jobs_go_on_while_what_moves_them_is_replaced_again_and_again(migrated: Database) -> None:
    names = (
        "enqueue_many",
        "claim",
        "complete",
        "settle",
        "jobs",
        "job_guard on {schema}.job",
        "finished_guard on {schema}.finished",
    )
    ended = threading.Event()

    def work() -> int:
        done = 0
        with migrated.connect() as conn:
            engine = Engine(conn)
            while not ended.is_set():
                jobs = {job.id for job in engine.enqueue_many([{}] * 5)}
                claims = engine.claim(n=5)
                assert {claim.id for claim in claims} == jobs
                for claim in claims:
                    assert engine.end(claim, "complete")
                done += 5
        return done

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work)
        try:
            with migrated.connect() as conn:
                for edition in range(2, 12):
                    assert len(migrate(conn, line=changed(*names, edition=edition, mark=str(edition))).verbs) == len(
                        names
                    )
        finally:
            ended.set()
        done = working.result(timeout=60)
    with migrated.connect() as conn:
        query = (
            "select count(*), (select count(*) from mainspring.job) from mainspring.finished where state = 'succeeded'"
        )
        assert conn.execute(query).fetchone() == (done, done)
    assert done > 0


# -- editions --------------------------------------------------------------------------------------------------------


def test_older_edition_never_replaces_a_newer_one_and_works_with_it(migrated: Database) -> None:
    with migrated.connect() as conn:
        migrate(conn, line=changed("claim", edition=2))
        before = touched(conn)
        applied = migrate(conn)
        assert (applied.tables, applied.verbs, applied.newer) == ([], [], 2)
        assert touched(conn) == before
        check(status(conn))
        assert live_through(conn) == LIFE


def test_newer_program_refuses_older_verbs_in_one_sentence(migrated: Database) -> None:
    with migrated.connect() as conn:
        found = status(conn, line=changed("claim", "complete", edition=2))
        assert (found.verbs.edition, found.verbs.ours, found.verbs.differ) == (1, 2, ["claim", "complete"])
        with pytest.raises(SchemaOutdated, match=r"^The schema is older than .*: run `mainspring schema migrate`\.$"):
            check(found)


def test_verbs_that_differ_within_an_edition_are_refused_until_they_are_replaced(migrated: Database) -> None:
    line = changed("claim")
    with migrated.connect() as conn:
        with pytest.raises(SchemaOutdated):
            check(status(conn, line=line))
        migrate(conn, line=line)
        check(status(conn, line=line))


def test_edition_counts_even_where_no_verb_differs(migrated: Database) -> None:
    with migrated.connect() as conn:
        assert not migrate(conn, line=changed(edition=2))
        assert status(conn).verbs.edition == 2
        assert migrate(conn, line=changed("claim")).newer == 2


def test_verb_that_went_with_an_edition_is_made_again_when_it_comes_back(migrated: Database) -> None:
    line = engine_line()
    without = tuple(verb for verb in line.verbs if verb.name != "{schema}.cancel")
    with migrated.connect() as conn:
        migrate(conn, line=replace(line, verbs=without, edition=2))
        conn.execute("drop function mainspring.cancel")  # as a numbered file does
        assert migrate(conn, line=replace(line, edition=3)).verbs == ["cancel"]


def test_verb_that_is_not_there_is_one_clear_sentence(migrated: Database) -> None:
    with migrated.connect() as conn:
        conn.execute("drop function mainspring.cancel")
    with Client(migrated.dsn) as client, pytest.raises(SchemaOutdated, match="migrate`, or upgrade Mainspring"):
        client.cancel(client.enqueue(NewJob(task="t", payload=read_payload("{}"))).id)


@pytest.fixture
def of_before(empty: Database) -> Iterator[psycopg.Connection[Any]]:
    """A database of the time when tables and functions stood in 18 numbered files."""
    with empty.connect() as conn:
        conn.execute(render(MIGRATION_TABLES, "mainspring"))
        conn.execute("drop table mainspring.verb")
        conn.execute("""
            insert into mainspring.migration (line, number, name, breaking, digest)
            select 'mainspring', n, 'n' || n, false, md5(n::text) from generate_series(1, 18) n
        """)
        yield conn


def test_database_of_before_the_verbs_is_refused_in_one_sentence(of_before: psycopg.Connection[Any]) -> None:
    text = dump(of_before.info.dsn)
    with pytest.raises(SchemaChanged) as refused:
        migrate(of_before)
    assert str(refused.value).startswith(
        "migration 1 of mainspring was applied in another form, before it was released: "
    )
    assert len(str(refused.value).splitlines()) == 1
    assert dump(of_before.info.dsn) == text
    found = status(of_before)
    assert [(step.name, step.changed) for step in found.tables[:2]] == [("n1", True), ("n2", True)]
    with pytest.raises(SchemaChanged, match="^" + re.escape(str(refused.value)) + "$"):
        check(found)  # not "run `mainspring schema migrate`", which refuses it


# -- the clock -------------------------------------------------------------------------------------------------------

BODIES = b"""
    select 'function {schema}.' || proname || '()', coalesce(pg_get_function_sqlbody(oid), prosrc) from pg_proc
    where proname in ('now', 'instant', 'speed') and pronamespace = 'mainspring'::regnamespace
"""


def test_clock_that_we_ship_is_known_as_ours_and_replaced(migrated: Database) -> None:
    with migrated.connect() as conn:
        bodies: dict[str, str] = dict(conn.execute(BODIES).fetchall())
        assert {name: body in CLOCK[name] for name, body in bodies.items()} == dict.fromkeys(CLOCK, True)
        before = touched(conn)
        migrate(conn, line=changed("now", "instant", "speed"))
        after = touched(conn)
        assert {name for name in after if after[name] != before[name]} == {"now", "instant", "speed"}


@pytest.mark.parametrize("install", [clock.install, lambda conn: speed.begin(conn, 600)], ids=["test", "speed"])
def test_clock_of_somebody_else_stays(migrated: Database, install: Any) -> None:
    with migrated.connect() as conn:
        install(conn)
        before: dict[str, str] = dict(conn.execute(BODIES).fetchall())
        line = changed("now", "instant", "speed", "is_virtual", edition=2)
        assert {"now", "is_virtual"} <= set(migrate(conn, line=line).verbs)
        theirs = {name for name, body in conn.execute(BODIES).fetchall() if body == before[name]}
        assert theirs >= {"function {schema}.now()", "function {schema}.instant()"}
        check(status(conn, line=line))
        assert not migrate(conn, line=line)
