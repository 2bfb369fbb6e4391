"""Ids as people type them: the first digits are enough where they name one."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.cli.conftest import Cli
from tests.cli.shop import tasks
from tests.databases import Database
from tests.db.engine import Engine
from tests.secured import Secured

import mainspring as ms

FIRST, SECOND = UUID("0199d2f6-7a5b-7c34-9f3e-0a1b2c3d4e5f"), UUID("0199d2f6-7a5b-7c35-9f3e-0a1b2c3d4e5f")
greet = tasks.get("greet")


@pytest.fixture(autouse=True)
def two_jobs(client: ms.Client) -> None:
    for job in (FIRST, SECOND):
        client.enqueue(greet.job(name="Ada").with_id(job))


@pytest.mark.parametrize("typed", ["0199d2f6-7a5b-7c34", "0199D2F67A5B7C34", "0199d2f6-7a5b-7c34-9f3e-0a1b2c3d4e5f"])
def test_first_digits_name_the_one_job_that_has_them(cli: Cli, typed: str) -> None:
    assert cli("job", "show", typed, "--json").json["id"] == str(FIRST)


def test_every_command_for_a_job_takes_them(cli: Cli) -> None:
    typed = "0199d2f6-7a5b-7c34"
    assert cli("job", "explain", typed).code == 0
    assert cli("job", "reschedule", typed, "--delay", "2h").out == f"{FIRST}: scheduled\n"
    assert [job["id"] for job in cli("job", "list", "--before", "0199d2f6-7a5b-7c35", "--json").json] == [str(FIRST)]
    assert cli("job", "cancel", typed, "--reason", "a test").out == f"job {FIRST}: cancelled\n"
    assert "job.cancelled" in cli("audit", "list", "--job", typed).out


def test_every_command_for_a_dead_letter_takes_them(cli: Cli, client: ms.Client, database: Database) -> None:
    client.cancel(SECOND)
    with database.connect() as conn:
        engine = Engine(conn)
        (claim,) = engine.claim(tasks=["greet"])
        assert engine.end(claim, "bury")
    typed = "0199d2f6-7a5b-7c34"

    assert cli("dead", "show", typed).code == 0
    assert cli("dead", "fix", typed, "--set", "name=Bob", "--dry-run", "--reason", "a test").code == 0
    assert cli("dead", "replay", typed, "--reason", "a test").out == f"{FIRST}: replayed\n"
    assert cli("job", "retry", typed, "--reason", "again").err.startswith("mainspring: replay: job")
    assert client.get(FIRST).state == "ready"


def test_digits_of_several_ids_name_them_and_do_nothing(cli: Cli, client: ms.Client) -> None:
    answer = cli("job", "cancel", "0199d2f6")

    assert (answer.code, answer.out) == (2, "")
    assert answer.err == (
        "mainspring: job: 0199d2f6 begins several ids, give more digits: "
        f"{SECOND} (greet, ready); {FIRST} (greet, ready)\n"
    )
    assert {job.state for job in client.jobs()} == {"ready"}
    for last in range(8):
        client.enqueue(greet.job(name="Ada").with_id(UUID(int=FIRST.int + last + 1)))
    assert cli("job", "show", "0199d2f6").err.endswith("(greet, ready); and more\n")


def test_digits_of_no_id_say_so(cli: Cli) -> None:
    answer = cli("job", "show", "0199d2f7")
    assert (answer.code, answer.err) == (3, "mainspring: there is no job 0199d2f7…\n")
    assert cli("batch", "show", "0199d2f7").code == 3


@pytest.mark.parametrize("typed", ["0199d2f", "", "latest", "0199d2f6%", "0199d2f6-7a5b-7c34-9f3e-0a1b2c3d4e5f0"])
def test_what_begins_no_id_is_refused_before_the_database_is_asked(cli: Cli, typed: str) -> None:
    answer = cli("job", "show", typed, "--dsn", "host=nowhere.invalid")

    assert answer.code == 2
    assert f'JOB: "{typed}" is not an id, such as 0199d2f6-7a5b-7c34-9f3e-0a1b2c3d4e5f, or its first 8' in answer.err


def test_batches_are_named_so_as_well(cli: Cli, client: ms.Client) -> None:
    rows = client.enqueue(ms.batch("rows", [greet.job(name="Ada")]))
    typed = str(rows.id)[:23]

    assert cli("batch", "show", typed, "--json").json["id"] == str(rows.id)
    assert cli("batch", "cancel", typed).out == f"batch {rows.id} is finished: 1 cancelled\n"
    assert cli("batch", "retry-failed", typed, "--reason", "a test", "--json").json["batch"] == str(rows.id)


def test_client_lists_by_the_first_digits(client: ms.Client) -> None:
    assert [job.id for job in client.jobs(prefix="0199d2f6-7a5b-7c34")] == [FIRST]
    with pytest.raises(ms.ValidationError, match="prefix: is not the first 8 digits of an id, or more of them"):
        client.jobs(prefix="0199")
    with pytest.raises(ms.ValidationError, match="prefix: is not the first 8 digits of an id, or more of them"):
        client.batches.list(prefix="latest99")


def test_another_organisation_is_not_named(cli: Cli, secured: Secured) -> None:
    with ms.Client(secured.dsn("api"), secured=True) as client:
        client.enqueue(greet.job(name="Ada").with_id(FIRST).for_org("acme"))
        client.enqueue(greet.job(name="Ada").with_id(SECOND).for_org("globex"))
    dsn = ("--dsn", secured.dsn("api"))

    assert cli("job", "show", "0199d2f6", "--org", "acme", "--json", *dsn).json["id"] == str(FIRST)
    assert cli("job", "show", "0199d2f6", "--org", "initech", *dsn).code == 3


def test_ids_that_begin_so_are_found_by_the_primary_key(database: Database, client: ms.Client) -> None:
    client.enqueue_many([greet.job(name="Ada") for _ in range(2000)])
    text = client.seam.sql["list_jobs"]
    about = {"org": None, "state": None, "queue": None, "task": None, "before": None, "limit": 6}
    ends = {"low": "0199d2f6-0000-0000-0000-000000000000", "high": "0199d2f6-ffff-ffff-ffff-ffffffffffff"}
    with database.connect() as conn:
        conn.execute("analyze")
        plan = "\n".join(row[0] for row in conn.execute(f"explain {text}", about | ends))

    assert "Index Cond: ((id >=" in plan
    assert "Seq Scan on job " not in plan
