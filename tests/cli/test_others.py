"""`mainspring queue`, `worker list`, `task` and `schema`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.conftest import APP, Cli
from tests.databases import Database, fresh_database

from mainspring import Client
from mainspring.db.schema.line import engine_line
from mainspring.embedded import Cluster


@pytest.fixture
def empty(volatile_cluster: Cluster) -> Iterator[Database]:
    with fresh_database(volatile_cluster, migrated=False) as database:
        yield database


def test_queue_is_paused_and_resumed_in_the_users_name(cli: Cli, client: Client) -> None:
    assert cli("queue", "pause", "q:critical", "--reason", "printer", "--as", "ada").out == "q:critical is paused\n"
    (paused,) = [queue for queue in client.queues() if queue.paused_at]
    assert (paused.name, paused.paused_by, paused.pause_reason) == ("q:critical", "ada", "printer")
    assert cli("queue", "resume", "q:critical", "--json").json == {
        "queue": "q:critical",
        "paused": False,
        "resumed": True,
    }
    assert cli("queue", "resume", "q:critical").out == "q:critical was not paused\n"
    assert cli("queue", "pause", "q:critic").out.endswith("of this name so far (did you mean 'q:critical'?)\n")
    assert cli("queue", "pause", "q:critical", "--json").json == {"queue": "q:critical", "paused": True}


def test_queues_are_listed_with_what_waits_in_them(cli: Cli) -> None:
    cli("job", "enqueue", "greet", "--queue", "q:mine")
    found = {queue["name"]: queue["ready"] for queue in cli("queue", "list", "--json").json}
    assert (found["q:mine"], found["q:default"]) == (1, 0)
    (line,) = [line for line in cli("queue", "list").out.splitlines() if "q:mine" in line]
    assert line.split()[:2] == ["q:mine", "1"]


def test_workers_are_listed_by_their_heartbeat(cli: Cli, database: Database) -> None:
    assert cli("worker", "list").out == "No worker is running.\n"
    with database.connect() as conn:
        conn.execute(
            """
            insert into mainspring.worker
              (id, host, pid, version, queues, concurrency, started_at, seen_at, stopping)
            select id, 'here', 1, '1', '{q:default}', 7, now(), now() - ago, stopping
            from (values ('w1', interval '0', false), ('w2', interval '1 h', false), ('w3', interval '0', true))
              as seen (id, ago, stopping)
            """
        )
    assert {w["id"]: w["gone"] for w in cli("worker", "list", "--json").json} == {"w1": False, "w2": True, "w3": False}
    lines = [line.split() for line in cli("worker", "list").out.splitlines() if " 0/7 " in line]
    assert {line[0]: line[-3] for line in lines} == {"w1": "working", "w2": "gone", "w3": "stopping"}


def test_tasks_are_shown_with_every_option(cli: Cli) -> None:
    assert "Greet somebody." in cli("task", "list", "--app", APP).out
    about = cli("task", "show", "greet", "--app", APP, "--json").json
    assert (about["queue"], about["runs"], about["doc"]) == ("q:default", "async", "Greet somebody.")
    assert set(about["payload"]["$defs"]["greet"]["properties"]) == {"name", "times"}
    assert "5 attempts" in cli("task", "show", "greet", "--app", APP).out
    answer = cli("task", "show", "gret", "--app", APP)
    assert (answer.code, "did you mean 'greet'?" in answer.err) == (3, True)


def test_schema_is_installed_and_shown(cli: Cli, empty: Database) -> None:
    line = engine_line()
    numbers = [m.number for m in line.tables]
    at = ("--dsn", empty.dsn, "--schema", "My Jobs")
    missing = cli("schema", "status", *at)
    assert (missing.code, missing.out.count("not yet")) == (6, len(numbers))
    assert f"mainspring: {len(line.verbs)} verbs to replace or to create (" in missing.out
    done = cli("schema", "migrate", *at, "--json").json["lines"]["mainspring"]
    assert (done["tables"], len(done["verbs"]), done["newer"]) == (numbers, len(line.verbs), None)
    assert cli("schema", "migrate", *at).out == "schema My Jobs: nothing to do\n"
    assert "mainspring: its verbs are those of this version, edition 1.\n" in cli("schema", "status", *at).out
    shown = cli("schema", "status", *at, "--json").json["lines"]["mainspring"]
    assert [step["number"] for step in shown["tables"] if step["applied_at"]] == numbers
    assert shown["verbs"] == {"edition": 1, "ours": 1, "differ": []}
    assert cli("job", "list", *at, "--json").json == []


def test_tables_of_an_application_are_migrated_after_the_engines(
    cli: Cli, empty: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "guesthouse"
    for folder in ("tables", "verbs"):
        (package / folder).mkdir(parents=True)
    (package / "tables" / "0001_rooms.sql").write_text(
        "create table public.room (id int primary key, at timestamptz default {schema}.now());"
    )
    (package / "verbs" / "views.sql").write_text("create or replace view public.rooms as select id from public.room;")
    (package / "__init__.py").write_text(
        "import mainspring as ms\napp = ms.App(migrations=[ms.Line.of('guesthouse', 'guesthouse')])\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    at = ("--dsn", empty.dsn, "--app", "guesthouse:app")
    assert cli("schema", "migrate", *at).out.endswith("guesthouse: applied tables 1; replaced 1 verb\n")
    assert cli("schema", "migrate", *at).out.endswith("guesthouse: nothing to do\n")
    assert cli("schema", "status", *at, "--json").json["lines"]["guesthouse"]["tables"][0]["name"] == "rooms"
    with empty.connect() as conn:
        assert conn.execute("insert into public.room values (1) returning at is not null").fetchone() == (True,)
    assert "create table public.room" in cli("schema", "print", "--app", "guesthouse:app").out


def test_application_is_found_by_the_name_that_its_package_gives_it(cli: Cli) -> None:
    assert "charge_week" in cli("task", "list", "--app", "staffing").out
    answer = cli("task", "list", "--app", "stafing")
    assert (answer.code, "module:name" in answer.err) == (2, True)


def test_application_brings_commands_of_its_own(cli: Cli, empty: Database) -> None:
    assert "staffing" in cli("--help").out
    assert "show" in cli("staffing", "booking", "--help").out
    answer = cli("staffing", "booking", "show", "7", "--dsn", empty.dsn)
    assert (answer.code, "mainspring schema migrate --app staffing" in answer.err) == (2, True)


def test_printed_schema_can_be_run_by_an_administrator(cli: Cli, empty: Database) -> None:
    text = cli("schema", "print", "--schema", "by hand").out
    assert cli("schema", "print", "--schema", "by hand", "--json").json == {"schema": "by hand", "sql": text[:-1]}
    with empty.connect() as conn:
        conn.execute(text.encode())
    assert cli("schema", "status", "--dsn", empty.dsn, "--schema", "by hand").code == 0
    assert cli("schema", "print", "--schema", 'a"b').code == 2


def test_what_the_database_refuses_is_one_line_too(cli: Cli, empty: Database) -> None:
    with empty.connect() as conn:
        conn.execute("create schema taken; create table taken.migration (wrong int)")
    answer = cli("schema", "migrate", "--dsn", empty.dsn, "--schema", "taken")
    assert answer.code == 5
    assert answer.err.startswith("mainspring: the database refused: ")
    assert answer.err.count("\n") == 1
