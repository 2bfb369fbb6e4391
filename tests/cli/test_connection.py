"""Where a command finds its database and its application."""

from __future__ import annotations

import threading
import time
from pathlib import Path

import pytest
from tests.cli.conftest import APP, Cli
from tests.client.proxy import proxied
from tests.databases import Database

import mainspring as ms
from mainspring.config import DATA
from mainspring.db.schema.migrate import migrate
from mainspring.db.wire import answer
from mainspring.embedded import home


def test_without_a_database_the_command_says_how_to_name_one(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("MAINSPRING_DSN")
    monkeypatch.delenv("DATABASE_URL", raising=False)
    monkeypatch.chdir(tmp_path)
    answer = cli("job", "list")
    assert answer.code == 2
    assert "dsn: give --dsn, or set MAINSPRING_DSN, or run `mainspring up`" in answer.err


def test_option_comes_before_the_environment(cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_DSN", "host=/nowhere")
    assert cli("job", "list", "--dsn", database.dsn, "--json").json == []


def test_embedded_server_of_this_directory_is_found(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    class Running:
        running = True

        def __init__(self, path: Path) -> None:
            assert path == Path(".data/postgres")

        def dsn(self) -> str:
            return database.dsn

    monkeypatch.delenv("MAINSPRING_DSN")
    monkeypatch.setattr(home, "Cluster", Running)
    monkeypatch.chdir(tmp_path)
    (tmp_path / DATA / "postgres").mkdir(parents=True)
    assert cli("job", "list", "--json").json == []
    with ms.App(ms.Registry("shop")).client() as client:
        assert client.jobs() == []


def test_database_that_is_away_is_named_within_seconds(cli: Cli) -> None:
    answer = cli("job", "list", "--dsn", "host=127.0.0.1 port=1 connect_timeout=2")
    assert answer.code == 5
    assert "the database is unavailable" in answer.err
    assert "Traceback" not in answer.err


def test_dsn_that_is_none_is_refused(cli: Cli) -> None:
    answer = cli("job", "list", "--dsn", "nonsense")
    assert answer.code == 2
    assert answer.err.startswith("mainspring: dsn:")


def test_schema_that_is_missing_is_refused_with_its_remedy(cli: Cli) -> None:
    answer = cli("job", "list", "--schema", "jobs2")
    assert answer.code == 6
    assert "run `mainspring schema migrate`" in answer.err


def test_schema_of_another_name_is_used(cli: Cli, database: Database) -> None:
    with database.connect() as conn:
        migrate(conn, schema="jobs2")
    cli("job", "enqueue", "greet", "--schema", "jobs2")
    assert [job["task"] for job in cli("job", "list", "--schema", "jobs2", "--json").json] == ["greet"]
    assert cli("job", "list", "--json").json == []


@pytest.mark.parametrize("running", [("worker", "run", "--no-supervise"), ("run-due",), ("serve", "--port", "0")])
def test_an_application_runs_in_its_own_schema(cli: Cli, database: Database, running: tuple[str, ...]) -> None:
    """Its blocks and its clean-up were made for that one: in another, jobs would read and write in both."""
    answer = cli(*running, "--app", APP, "--schema", "jobs2")
    assert (answer.code, answer.out) == (2, "")
    assert answer.err == "mainspring: schema: the application's is mainspring: say another by App(schema=…)\n"


@pytest.mark.parametrize(
    ("place", "said"),
    [
        ("shop", "app: 'shop' is not of the form module:name"),
        ("nowhere.shop:app", "app: there is no module nowhere.shop, neither in "),
        ("tests.cli.shop:greet", "app: tests.cli.shop: greet is a Task, not an App; use tests.cli.shop:app"),
        ("tests.cli.shop:ap", "app: tests.cli.shop: has no App named ap; use tests.cli.shop:app"),
        ("broken_shop:app", "NameError: name 'nonsense' is not defined"),
    ],
)
def test_application_that_cannot_be_loaded_is_named(
    cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, place: str, said: str
) -> None:
    (tmp_path / "broken_shop.py").write_text("\nnonsense\n")
    monkeypatch.syspath_prepend(tmp_path)
    answer = cli("task", "list", "--app", place)
    assert answer.code == 2
    assert said in answer.err
    if place.startswith("broken"):
        assert "broken_shop.py:2" in answer.err


def test_application_comes_from_the_environment_too(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "app: give --app module:name, or set MAINSPRING_APP" in cli("task", "list").err
    monkeypatch.setenv("MAINSPRING_APP", APP)
    assert {task["name"] for task in cli("task", "list", "--json").json} == {"greet", "fail", "slow", "stuck"}


def test_a_command_at_a_frozen_server_ends_with_one_error(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_ANSWERED_WITHIN_SECONDS", "0.4")
    monkeypatch.setattr(answer, "ASIDE", 1)
    with proxied(database.dsn) as proxy:
        proxy.freeze()
        said = cli("job", "list", "--dsn", f"{proxy.dsn} connect_timeout=2")
    assert said.code == 5
    assert len(said.err.splitlines()) == 1


def test_a_migration_waits_for_its_turn_but_not_for_a_server_that_froze(
    cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_ANSWERED_WITHIN_SECONDS", "0.3")
    monkeypatch.setattr(answer, "ASIDE", 1)
    monkeypatch.setattr(answer, "STRAGGLING", 0.1)
    turn = "select pg_advisory_xact_lock(hashtextextended('mainspring migrate mainspring', 0))"
    with proxied(database.dsn) as proxy, database.connect() as holder, holder.transaction():
        holder.execute(turn)
        waited: list[bool] = []

        def freeze() -> None:
            with database.connect() as watcher:
                while watcher.execute("select 1 from pg_locks where not granted").fetchone() is None:
                    time.sleep(0.01)
                time.sleep(1.0)  # several looks at a server that works
                waited.append(watcher.execute("select 1 from pg_locks where not granted").fetchone() is not None)
            proxy.freeze()

        threading.Thread(target=freeze, daemon=True).start()
        said = cli("schema", "migrate", "--dsn", proxy.dsn)
    assert waited == [True]
    assert said.code == 5
    assert "has not answered within 0.3 s" in said.err
