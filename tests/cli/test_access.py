"""`mainspring token` and `mainspring user`: whatever is secret is shown once, and all of it is on the trail."""

from __future__ import annotations

import io
import json
import re
from typing import Any

import pytest
from tests.cli.conftest import Cli
from tests.databases import Database
from tests.secured import Secured

from mainspring.cli import main
from mainspring.db import access
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.declare.credential import AccessToken
from mainspring.declare.password import PasswordRecipe

SQL = Sql()
PASSWORD = "correct horse battery"


@pytest.fixture(autouse=True)
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    new = PasswordRecipe.new
    monkeypatch.setattr(PasswordRecipe, "new", lambda: new(4))
    monkeypatch.delenv("APP_URL", raising=False)


def test_a_token_is_shown_once_listed_and_revoked(cli: Cli, database: Database) -> None:
    assert cli("token", "list").out == "There are no tokens.\n"
    made = cli("token", "create", "deploys", "--role", "operator", "--org", "acme", "--as", "olga")
    text, hint = made.out.splitlines()
    token = AccessToken.parse(text)
    assert token is not None
    assert "not shown again" in hint
    with database.connect() as conn:
        found = run(psycopg_door(conn), access.check_token(SQL, token))
        assert found is not None
        assert (found.name, found.role, found.org, found.reveals) == ("deploys", "operator", "acme", False)

        (row,) = cli("token", "list", "--json").json
        assert (row["id"], row["state"], row["created_by"]) == (token.id, "active", "olga")
        assert re.search(rf"{token.id} +active +operator +acme .* deploys\n", cli("token", "list", "--org", "acme").out)
        assert cli("token", "revoke", token.id, "--reason", "lost").out == f"{token.id} is revoked\n"
        assert cli("token", "revoke", token.id).out == f"{token.id} was revoked before\n"
        assert run(psycopg_door(conn), access.check_token(SQL, token)) is None
    assert token.secret not in cli("token", "list", "--json").out + cli("token", "list").out
    assert token.secret not in cli("audit", "list", "--org", "acme", "--json").out

    document = cli("token", "create", "graphs", "--never-expires", "--reveals", "--json").json
    assert AccessToken.parse(document["token"]) is not None
    assert cli("token", "list", "--json").json[0]["expires_at"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "complaint"),
    [
        (["token", "create", "x", "--role", "root"], 2, "root"),
        (["token", "create", "x", "--expires", "0s"], 2, "expires"),
        (["token", "create", "x", "--org", "SYSTEM"], 2, "org: SYSTEM"),
        (["token", "create", " "], 2, "name: is empty"),
        (["token", "revoke", "0123456789ab"], 3, "no token has this id"),
        (["user", "link", "nobody"], 3, "no user is called 'nobody'"),
        (["user", "disable", "nobody"], 3, "no user is called 'nobody'"),
        (["user", "change", "nobody"], 2, "say what is to change"),
        (["user", "change", "nobody", "--org", "a", "--all-orgs"], 2, "give one of --org and --all-orgs"),
    ],
)
@pytest.mark.cases(3)
def test_what_is_wrong_is_one_sentence(cli: Cli, arguments: list[str], code: int, complaint: str) -> None:
    answer = cli(*arguments)
    assert (answer.code, answer.out) == (code, "")
    assert complaint in answer.err


@pytest.mark.rule("ENG-19.08")
def test_a_user_comes_in_is_changed_and_kept_out(cli: Cli, database: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    assert cli("user", "create", "ana", "--role", "operator").out == "ana may sign in: mainspring user link ana\n"
    assert "is taken" in cli("user", "create", "ana").err
    link = cli("user", "link", "ana", "--url", "https://jobs.example/").out.splitlines()[0]
    assert re.fullmatch(r"https://jobs\.example/sign-in#[\w-]{43}", link)
    assert cli("user", "link", "ana", "--json").json["link"].startswith("http://127.0.0.1:8080/sign-in#")

    def session(code: str) -> Any:
        opening = access.Opening(secret="s" * 43, address="::1")
        with database.connect() as conn:
            return run(psycopg_door(conn), access.sign_in_by_link(SQL, code, opening))

    assert session(link.partition("#")[2]) is None  # the second made it void
    code = cli("user", "link", "ana").out.splitlines()[0].partition("#")[2]
    assert session(code).role == "operator"
    assert cli("user", "change", "ana", "--role", "viewer", "--org", "acme").out == "ana is changed\n"
    assert cli("user", "change", "ana", "--role", "viewer").out == "ana was so before\n"
    (row,) = cli("user", "list", "--json").json
    assert (row["role"], row["org"], row["sessions"], row["signs_in_by"]) == ("viewer", "acme", 0, "link")
    monkeypatch.setattr("sys.stdin", io.StringIO(f"{PASSWORD}\n"))
    assert "a new password" in cli("user", "password", "ana").out
    assert cli("user", "disable", "ana", "--reason", "has left").out == "ana is disabled\n"
    assert cli("user", "disable", "ana").out == "ana was disabled\n"
    assert re.search(r"ana +viewer +acme +password .* 0 +disabled\n", cli("user", "list").out)
    assert cli("user", "link", "ana").code == 3
    assert cli("user", "enable", "ana").out == "ana may sign in again\n"
    assert "no password" in cli("user", "password", "ana", "--remove").out

    events = cli("audit", "list", "--org", "acme", "--json").out
    for event in ("user_changed", "password_set", "user_disabled", "user_enabled"):
        assert f'"access.{event}"' in events
    assert PASSWORD not in events
    assert code not in events


def test_on_a_secured_schema_a_dsn_that_names_an_organisation_reaches_nobody_else(
    secured: Secured, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def names(org: str | None, *arguments: str) -> list[str]:
        capsys.readouterr()
        monkeypatch.setenv("MAINSPRING_DSN", secured.dsn("operator", org))
        assert main([*arguments, "--json"]) == 0
        out = json.loads(capsys.readouterr().out)
        return [row["name"] for row in out] if isinstance(out, list) else []

    names(None, "user", "create", "ana", "--org", "acme")
    names("default", "user", "create", "ben")  # as `mainspring up` names it
    names("globex", "token", "create", "deploys", "--org", "globex")
    assert names(None, "user", "list") == names("default", "user", "list") == ["ana", "ben"]
    assert (names("acme", "user", "list"), names("globex", "user", "list")) == (["ana"], [])
    assert (names("globex", "token", "list"), names("acme", "token", "list")) == (["deploys"], [])
