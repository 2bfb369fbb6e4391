"""A task may allow a secret in its payload; who fixes such a job leaves none in the trail, nor on the screen."""

from __future__ import annotations

from uuid import UUID

import pytest
from tests.cli.conftest import Cli, cli
from tests.client.dead.conftest import Kill
from tests.databases import Database
from tests.db.engine import Engine

import mainspring as ms
from mainspring import Client

__all__ = ["cli"]

OLD, NEW, INSIDE = "x7Qz9Lm2Vb4Tn6Ws", "k3Jd8Rf5Hc1Yp0Ga", "b2Nv6Mx4Zs9Kt7Le"
tasks = ms.Registry("vault")
app = ms.App(tasks)


@tasks.task(name="open_vault", allow_secrets=("password", "notes"))
async def open_vault(*, password: str, notes: dict[str, str] | None = None, door: int = 1) -> None:
    """Its payload holds a secret, which its author allowed."""


@pytest.fixture
def job(kill: Kill) -> UUID:
    return kill(task="open_vault", payload={"password": OLD, "door": 1})


def test_neither_the_trail_nor_who_reads_the_answer_learns_it(client: Client, engine: Engine, job: UUID) -> None:
    changed = {"password": NEW, "notes": {"api_key": INSIDE}, "door": 2}

    made = client.dead.fix(job, set=changed, task=open_vault, reason="the lock was changed")

    shown = {change["path"]: (change.get("old"), change.get("value")) for change in made.diff}
    assert shown == {"/password": ("***", "***"), "/notes": (None, {"api_key": "***"}), "/door": (1, 2)}
    assert made.payload["password"] == NEW  # the program that fixes it knows it
    trail = str(engine.rows("select to_jsonb(t) from mainspring.trail t"))
    assert [secret for secret in (OLD, NEW, INSIDE) if secret in trail] == []
    kept = "select payload ->> 'password' from mainspring.job where id = %s"
    assert engine.rows(kept, made.successor) == [(NEW,)]


@pytest.mark.parametrize("how", [[], ["--json"]], ids=["words", "json"])
def test_the_command_shows_that_it_changed_and_no_more(database: Database, cli: Cli, job: UUID, how: list[str]) -> None:
    at = ("--dsn", database.dsn, "--app", "tests.client.dead.test_secrets:app", *how)

    said = cli("dead", "fix", str(job), "--set", f"password={NEW}", "--reason", "x", "--dry-run", *at)
    done = cli("dead", "fix", str(job), "--set", f"password={NEW}", "--reason", "x", *at)

    assert (said.code, done.code) == (0, 0)
    assert "password" in said.out
    assert [secret for secret in (OLD, NEW) if secret in said.out + done.out] == []
