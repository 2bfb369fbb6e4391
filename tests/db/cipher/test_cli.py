"""Keys from the terminal, and what `job show` says of a job that is encrypted."""

from __future__ import annotations

import json

import pytest
from tests.cli.conftest import Cli, cli, command
from tests.databases import Database

import mainspring as ms
from mainspring import Cipher, Registry

__all__ = ["app", "cli"]

MASTER = Cipher(b"m" * 32)
tasks = Registry("cipher")
app = ms.App(tasks, cipher=MASTER)
APP = ("--app", "tests.db.cipher.test_cli:app")


@tasks.task
async def greet(*, name: str) -> None: ...


def payload(answer: str) -> object:
    return json.loads(answer)["payload"]


def test_job_show_reads_with_the_cipher_and_says_encrypted_or_erased_without(database: Database, cli: Cli) -> None:
    with ms.Client(database.dsn, cipher=MASTER) as client:
        job = client.enqueue(greet.job(name="Ada").for_org("acme")).id

    assert payload(cli("job", "show", job, "--json", *APP).out) == {"name": "Ada"}
    assert payload(cli("job", "show", job, "--json").out) == {"$mainspring": "encrypted"}
    erased = cli("org", "erase", "acme", "--reason", "asked", "--yes", "--as", "jo")
    assert (erased.code, erased.out) == (0, "acme: 1 key erased\n")
    assert "erased" in cli("job", "show", job, *APP).out
    assert payload(cli("job", "show", job, "--json").out) == {"$mainspring": "erased"}
    with database.connect() as conn:
        row = conn.execute("select actor_id, detail ->> 'reason' from mainspring.audit where event = 'cipher.erased'")
        assert row.fetchone() == ("jo", "asked")


def test_worker_of_the_command_line_reads_what_the_application_encrypts(database: Database) -> None:
    with ms.Client(database.dsn, cipher=MASTER) as client:
        job = client.enqueue(greet.job(name="Ada").for_org("acme")).id
        worker = command("worker", "run", *APP, "--dsn", database.dsn)
        try:
            assert client.result(job, timeout=30) is None
        finally:
            worker.terminate()
            worker.communicate(timeout=30)


def test_erase_wants_to_be_meant_and_a_reason(cli: Cli, database: Database) -> None:
    with ms.Client(database.dsn, cipher=MASTER) as client:
        client.enqueue(greet.job(name="Ada").for_org("acme"))

    unsure = cli("org", "erase", "acme", "--reason", "asked")
    assert (unsure.code, unsure.out) == (2, "")
    assert "say --yes" in unsure.err
    assert cli("org", "erase", "acme", "--yes").code == 2
    assert cli("org", "erase", "acme", "--yes", "--reason", " ").code == 2
    with database.connect() as conn:
        assert conn.execute("select count(*) from mainspring.cipher_key").fetchone() == (1,)


@pytest.mark.parametrize("known", [True, False])
def test_rotate_needs_the_application_which_has_the_master_key(cli: Cli, known: bool) -> None:
    answer = cli("org", "rotate", "acme", "--reason", "yearly", *(APP if known else ()))

    if known:
        assert (answer.code, answer.out) == (0, "acme has a new key\n")
    else:
        assert (answer.code, answer.out) == (2, "")
        assert "give --app" in answer.err
