"""Users, tokens and sessions over HTTP: who may give what to whom, and that nobody gives more than they have."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from tests.databases import Database
from tests.secured import Secured
from tests.web.api.visit import ApiVisitor, problem
from tests.web.visit import visiting

import mainspring as ms
from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.db.jobs import Who
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.web import create

pytestmark = pytest.mark.anyio

OLGA = Who(actor_type="user", actor_id="olga")
ANY = {"if-match": "*"}
#: Who asks: an admin of everything, one who sees no payloads, and admins of an organisation.
GRANTS = {
    "root": Grant(role="admin", reveals=True),
    "plain": Grant(role="admin"),
    "acme": Grant(role="admin", org="acme"),
    "globex": Grant(role="admin", org="globex", reveals=True),
    "ops": Grant(role="operator"),
}


class Doors(ApiVisitor):
    """A visitor who shows real tokens, by the names of those who have them."""

    def __init__(self, http: httpx2.AsyncClient, tokens: dict[str, str]) -> None:
        super().__init__(http)
        self.tokens = tokens

    async def ask(self, who: str | None, method: str, path: str, **how: Any) -> httpx2.Response:
        return await super().ask(self.tokens.get(who or "", who), method, path, **how)

    async def made(self, who: str, path: str, body: dict[str, Any]) -> dict[str, Any]:
        answer = await self.post(who, path, body)
        assert answer.status_code == 201, answer.text
        found: dict[str, Any] = answer.json()
        return found

    async def known(self, token: str) -> int:
        """Whether somebody comes in by a token."""
        return (await self.http.get("/api/v1/me", headers={"authorization": f"Bearer {token}"})).status_code


@asynccontextmanager
async def doors_of(app: ms.App, conn: Any) -> AsyncIterator[Doors]:
    tokens = {
        name: run(psycopg_door(conn), access.create_token(Sql(), name, grant, None, OLGA)).text
        for name, grant in GRANTS.items()
    }
    async with visiting(create(app)) as http:
        yield Doors(http, tokens)


@pytest.fixture
async def doors(database: Database, tasks: ms.Registry) -> AsyncIterator[Doors]:
    with database.connect() as conn:
        async with doors_of(ms.App(tasks, dsn=database.dsn, maintenance=False), conn) as found:
            yield found


@pytest.fixture
async def secured_doors(secured: Secured, tasks: ms.Registry, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Doors]:
    for role in ("api", "operator"):
        monkeypatch.setenv(f"MAINSPRING_{role.upper()}_DSN", secured.dsn(role))
    app = ms.App(tasks, dsn=secured.dsn("worker"), secured=True, maintenance=False)
    with secured.connect("operator", "SYSTEM") as conn:
        async with doors_of(app, conn) as found:
            yield found


async def trail(doors: Doors, org: str) -> list[tuple[str, str]]:
    found = (await doors.get("root", f"/audit?org={org}&limit=200")).json()["items"]
    return [(one["event"], one["by"]) for one in found if one["event"].startswith("access.")]


async def lives_of_a_user(doors: Doors) -> None:
    """A user is let in, signs in by a link, is changed, signed out, kept out and let in again."""
    made = await doors.made("acme", "/users", {"name": "ann/a", "role": "operator", "reason": "new"})
    assert (made["org"], made["reveals"], made["signs_in_by"]) == ("acme", False, "link")
    assert problem(await doors.post("acme", "/users", {"name": "ann/a"})) == (409, "NAME_TAKEN")
    at = "/users/ann%2Fa"
    link = (await doors.post("acme", f"{at}/link", {})).json()["link"]
    async with httpx2.AsyncClient(transport=doors.http._transport, base_url="http://localhost") as browser:
        code = link.partition("#")[2]
        opened = await browser.post("/api/v1/sign-in/link", json={"code": code})
        assert (opened.status_code, opened.json()["role"], opened.json()["org"]) == (200, "operator", "acme")
        (session,) = (await doors.get("acme", f"{at}/sessions")).json()["items"]
        assert (session["how"], session["id"]) == ("link", opened.json()["session"])

        seen = await doors.get("acme", at)
        rule = {"role": "viewer", "org": "acme", "reveals": False, "reason": "too much"}
        changed = await doors.ask("acme", "PUT", at, json=rule, headers={"if-match": seen.headers["etag"]})
        assert (changed.json()["role"], changed.json()["sessions"]) == ("viewer", 0)
        late = await doors.ask("acme", "PUT", at, json=rule, headers={"if-match": seen.headers["etag"]})
        assert problem(late) == (412, "CHANGED_MEANWHILE")
        assert (await browser.get("/api/v1/me")).status_code == 401  # they come in anew as who they are now
        again = (await doors.post("acme", f"{at}/link", {})).json()["link"].partition("#")[2]
        opened = await browser.post("/api/v1/sign-in/link", json={"code": again})
        (session,) = (await doors.get("acme", f"{at}/sessions")).json()["items"]
        assert opened.json()["role"] == "viewer"

        assert (await doors.post("acme", f"{at}/sessions/end", {"id": session["id"]})).json() == {"ended": 1}
        assert (await doors.post("acme", f"{at}/sessions/end", {})).json() == {"ended": 0}
        assert (await browser.get("/api/v1/me")).status_code == 401
        for act in ("disable", "disable"):
            assert (await doors.post("acme", f"{at}/{act}", {"reason": "left"})).json()["disabled_at"]
        assert problem(await doors.post("acme", f"{at}/link", {})) == (404, "NOT_FOUND")
        assert (await doors.post("acme", f"{at}/enable", {})).json()["disabled_at"] is None
        assert (await browser.post("/api/v1/sign-in/link", json={"code": code})).status_code == 401
    events = await trail(doors, "acme")
    assert events[::-1][-9:] == [
        ("access.user_created", "acme"), ("access.link_created", "acme"), ("access.signed_in", "ann/a"),
        ("access.user_changed", "acme"), ("access.link_created", "acme"), ("access.signed_in", "ann/a"),
        ("access.signed_out", "acme"), ("access.user_disabled", "acme"), ("access.user_enabled", "acme"),
    ]  # fmt: skip
    assert code not in (await doors.get("root", "/audit?org=acme&limit=200")).text


async def lives_of_a_token(doors: Doors) -> None:
    """A token is made, shown once, listed without its secret, and revoked."""
    made = await doors.made("acme", "/tokens", {"name": "deploys", "role": "operator", "expires": "12h"})
    assert await doors.known(made["token"]) == 200
    listed = await doors.get("acme", "/tokens?limit=1")
    (row,) = listed.json()["items"]
    assert (row["id"], row["name"], row["org"], row["created_by"]) == (made["id"], "deploys", "acme", "acme")
    assert made["token"].partition(".")[2] not in listed.text
    seen: list[str] = []
    cursor: str | None = ""
    while cursor is not None:
        page = (await doors.get("root", f"/tokens?limit=2{cursor and '&cursor=' + cursor}")).json()
        seen += [one["name"] for one in page["items"]]
        cursor = page["next"]
    assert seen[0] == "deploys"
    assert sorted(seen[1:]) == sorted(GRANTS)
    for revoked in (True, False):
        answer = await doors.post("acme", f"/tokens/{made['id']}/revoke", {"reason": "lost"})
        assert answer.json() == {"id": made["id"], "revoked": revoked}
    assert await doors.known(made["token"]) == 401
    kept = await doors.post("acme", "/tokens", {"name": "x"}, headers={"idempotency-key": "k"})
    assert problem(kept) == (400, "VALIDATION_ERROR")  # a secret is kept nowhere


async def nobody_gives_more_than_they_have(doors: Doors) -> None:
    """By no way at all: role, organisation and the right to see payloads."""
    for org, name in ((None, "boss"), ("acme", "secretive")):
        grant = {"name": name, "role": "admin", "org": org, "reveals": True}
        await doors.made("root", "/users", grant)
    more: dict[str, list[dict[str, Any]]] = {
        "plain": [{"reveals": True}],
        "acme": [{"org": "globex"}, {"org": "nobody"}, {"reveals": True}],
        "globex": [{"org": "acme"}],
    }
    for who, tries in more.items():
        for some in tries:
            for path in ("/tokens", "/users"):
                refused = await doors.post(who, path, {"name": "more", "role": "viewer"} | some)
                assert problem(refused) == (403, "FORBIDDEN"), (who, path, some)
    own = {"role": "admin", "org": "acme", "reveals": False}
    await doors.made("acme", "/users", {"name": "ada"} | own)
    for some in ({"org": None}, {"org": "globex"}, {"reveals": True}):
        raised = await doors.ask("acme", "PUT", "/users/ada", json=own | some, headers=ANY)
        assert problem(raised) == (403, "FORBIDDEN"), some
    # Whoever comes in as another would have what they have: a link of theirs is theirs to make who have it.
    assert problem(await doors.post("plain", "/users/boss/link", {"reset": True})) == (403, "FORBIDDEN")
    assert problem(await doors.post("acme", "/users/secretive/link", {})) == (403, "FORBIDDEN")
    lowered = own | {"reveals": False}
    assert problem(await doors.ask("acme", "PUT", "/users/secretive", json=lowered, headers=ANY))[0] == 403
    # To take away is everybody's who may see them: no harm is done by it that cannot be undone.
    assert (await doors.post("acme", "/users/secretive/disable", {})).status_code == 200
    assert problem(await doors.post("acme", "/users/secretive/enable", {})) == (403, "FORBIDDEN")
    assert problem(await doors.post("ops", "/tokens", {"name": "x"})) == (403, "FORBIDDEN")


async def a_key_is_a_persons_and_not_a_names(doors: Doors) -> None:
    """Tokens of one name do not answer for each other: neither is given what the other did, nor kept from doing it."""
    body, key = {"name": "kim", "role": "viewer", "org": "default"}, {"idempotency-key": "once"}
    for who, org in (("all", None), ("all too", None), ("one", "default")):
        made = await doors.made("root", "/tokens", {"name": "deploys", "role": "admin", "org": org})
        doors.tokens[who] = made["token"]
    first = await doors.post("all", "/users", body, headers=key)
    again = await doors.post("all", "/users", body, headers=key)
    assert (first.status_code, again.status_code, again.headers["idempotent-replayed"]) == (201, 201, "true")
    for who in ("all too", "one"):
        assert problem(await doors.post(who, "/users", body, headers=key)) == (409, "NAME_TAKEN"), who


async def others_do_not_exist(doors: Doors) -> None:
    """What is bound to another organisation, or to none, is missing."""
    await doors.made("root", "/users", {"name": "gus", "org": "globex"})
    token = await doors.made("root", "/tokens", {"name": "theirs", "org": "globex"})
    rule = {"role": "viewer", "org": "acme", "reveals": False}
    assert problem(await doors.post("acme", "/users", {"name": "gus"})) == (409, "NAME_TAKEN")  # which it tells
    seen = {await missing(doors, "acme", name, token["id"], rule) for name in ("gus", "boss", "nobody-at-all")}
    assert len(seen) == 1
    for path in ("/users", "/tokens"):
        assert {one["org"] for one in (await doors.get("acme", path)).json()["items"]} == {"acme"}
        assert {one["org"] for one in (await doors.get("root", f"{path}?org=globex")).json()["items"]} == {"globex"}
        assert (await doors.get("acme", f"{path}?org=globex")).json()["items"] == []
    assert (await doors.get("root", "/users/gus")).json()["org"] == "globex"
    assert await doors.known(token["token"]) == 200


async def missing(doors: Doors, who: str, name: str, token: str, rule: dict[str, Any]) -> tuple[str, ...]:
    answers = [
        await doors.get(who, f"/users/{name}"),
        await doors.get(who, f"/users/{name}/sessions"),
        await doors.ask(who, "PUT", f"/users/{name}", json=rule, headers=ANY),
        *[await doors.post(who, f"/users/{name}/{act}", {}) for act in ("disable", "enable", "link", "sessions/end")],
        await doors.post(who, f"/tokens/{token}/revoke", {}),
    ]
    assert {problem(answer) for answer in answers} == {(404, "NOT_FOUND")}
    return tuple(answer.text for answer in answers)


async def test_admins_let_people_and_programs_in_and_out_and_give_no_more_than_they_have(doors: Doors) -> None:
    await lives_of_a_user(doors)
    await lives_of_a_token(doors)
    await nobody_gives_more_than_they_have(doors)
    await a_key_is_a_persons_and_not_a_names(doors)
    await others_do_not_exist(doors)
    reset = await doors.post("root", "/users/ada/link", {"reset": True})
    assert reset.json()["link"].startswith("/sign-in#")
    assert problem(await doors.post("root", "/tokens", {"name": "x", "expires": "soon"})) == (400, "VALIDATION_ERROR")


async def test_the_same_on_a_secured_schema_by_the_operators_login(secured_doors: Doors) -> None:
    await lives_of_a_user(secured_doors)
    await lives_of_a_token(secured_doors)
    await nobody_gives_more_than_they_have(secured_doors)
    await a_key_is_a_persons_and_not_a_names(secured_doors)
    await others_do_not_exist(secured_doors)
