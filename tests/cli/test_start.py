"""A command starts fast, because it imports only what it needs, and says plainly what was typed wrongly."""

from __future__ import annotations

import json
import subprocess
import sys
from uuid import UUID

import pytest
from tests.cli.conftest import Cli
from tests.databases import Database

from mainspring import __version__
from mainspring.cli.exits import EXITS, exit_code
from mainspring.errors import MainspringError

HEAVY = {"psycopg", "psycopg_pool", "mainspring.client", "mainspring.worker", "mainspring.embedded", "asyncio", "rich"}


def imported(*arguments: str) -> set[str]:
    """Which heavy modules a command imports."""
    code = f"""if True:
        import json, sys
        from mainspring.cli import main
        if {arguments!r}:
            main({arguments!r})
        print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))
    """
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_command_line_itself_imports_nothing_heavy() -> None:
    assert imported() == set()


@pytest.mark.parametrize("arguments", [["--help"], ["job", "--help"], ["worker", "run", "--help"]])
def test_help_needs_neither_driver_nor_worker(arguments: list[str]) -> None:
    assert imported(*arguments) <= {"rich", "asyncio"}  # rich draws the page, asyncio only for `worker run`


def test_listing_for_machines_imports_neither_worker_nor_tables(database: Database) -> None:
    assert imported("job", "list", "--json", "--dsn", database.dsn).isdisjoint(
        {"mainspring.worker", "mainspring.embedded", "rich"}
    )


def test_version_is_told(cli: Cli) -> None:
    assert cli("--version").out.strip() == __version__


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["jbo"], 'Unknown command "jbo". Did you mean "job"?'),
        (["job", "lst"], 'Unknown command "lst". Did you mean "list"?'),
        (["job", "list", "--jsn"], "Unknown option: --jsn. Did you mean --json?"),
        (["job", "list", "--state", "redy"], 'Invalid value "redy" for --state'),
        (["job", "show"], "job: give either a job's id or a key"),
        (["job", "explain"], "job: give either a job's id or a key"),
        (["batch", "show"], "BATCH: is missing. See `mainspring batch show --help`."),
        (["job", "show", "17"], 'JOB: "17" is not an id, such as '),
        (["--dsn", "x", "job", "list"], "--dsn stands in front of a command: options come after it"),
        (["job", "list", "now"], '"now" is one word too many'),
        (["dead", "fix", str(UUID(int=7)), "--reason"], "--reason: needs a value"),
        (["job", "enqueue", "greet", "--delay", "soon"], '--delay: "soon" is not a time span, such as 90s or 2h'),
        (["job", "enqueue", "greet", "--at", "tomorrow"], '--at: "tomorrow" is not an instant, such as '),
    ],
)
def test_what_was_typed_wrongly_is_said_in_one_line(cli: Cli, arguments: list[str], said: str) -> None:
    answer = cli(*arguments)
    assert answer.code == 2
    assert answer.out == ""
    assert said in answer.err
    assert answer.err.startswith("mainspring: ")
    assert answer.err.count("\n") == 1


def subclasses(kind: type[MainspringError]) -> set[type[MainspringError]]:
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


def test_every_error_of_ours_has_an_exit_code_and_only_the_root_has_1() -> None:
    for kind in subclasses(MainspringError) - {MainspringError}:
        if kind.__module__.startswith("mainspring.web."):  # what is answered over HTTP reaches no command
            continue
        error = kind.__new__(kind)
        assert exit_code(error) in {code for _, code in EXITS} - {0, 1}, kind
