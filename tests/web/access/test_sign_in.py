"""People sign in and out: by a password, a link and a cookie, as an intruder would try it."""

from __future__ import annotations

import logging
from typing import Any

import httpx2
import psycopg
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.web.access.conftest import ME, PASSWORD, SQL, House
from tests.web.visit import visiting

import mainspring as ms
from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.declare.credential import csrf_token
from mainspring.declare.password import PasswordRecipe
from mainspring.errors import ConfigurationError
from mainspring.testing import Clock
from mainspring.web import create, public
from mainspring.web.access.desk import AccessDesk

pytestmark = pytest.mark.anyio

HERE = "http://localhost"
TYPED = {"name": "ana", "password": PASSWORD}
BEHIND = {"x-forwarded-for": "203.0.113.9", "x-forwarded-proto": "https", "host": "jobs.example"}
PROXIED: dict[str, Any] = {"client": "10.0.0.2", "proxies": ["10.0.0.0/8"], "hosts": ["jobs.example"]}


async def sign_in(visitor: httpx2.AsyncClient, **typed: str) -> httpx2.Response:
    return await visitor.post("/api/v1/sign-in", json=TYPED | typed)


async def me(visitor: httpx2.AsyncClient, **headers: str) -> Any:
    answer = await visitor.get("/api/v1/me", headers=headers)
    return answer.json() if answer.status_code == 200 else answer.status_code


async def test_a_password_opens_a_session_and_signing_out_ends_it_for_good(house: House) -> None:
    async with house.visited() as visitor:
        assert await me(visitor) == 401
        for wrong in ({"password": "wrong horse battery"}, {"name": "nobody"}, {"name": ""}, {"password": ""}):
            answer = await sign_in(visitor, **wrong)
            assert (answer.status_code, answer.json()["code"]) == (401, "SIGN_IN_REFUSED")
            assert "set-cookie" not in answer.headers
        answer = await sign_in(visitor)
        assert (answer.status_code, answer.json()["role"], answer.json()["org"]) == (200, "operator", "acme")
        who = await me(visitor)
        assert (who["name"], who["role"], who["org"], who["reveals"]) == ("ana", "operator", "acme", False)

        stolen = dict(visitor.cookies)
        answer = await visitor.post("/api/v1/sign-out", headers={"x-csrf-token": who["csrf"]})
        assert answer.status_code == 204
        assert 'mainspring=""' in answer.headers["set-cookie"]
        assert await me(visitor) == 401
        visitor.cookies.update(stolen)
        assert await me(visitor) == 401
        assert (await visitor.post("/api/v1/sign-out", headers={"x-csrf-token": who["csrf"]})).status_code == 204


async def test_a_cookie_is_out_of_reach_of_scripts_and_of_other_sites(house: House) -> None:
    async with house.visited() as visitor:
        plain = (await sign_in(visitor)).headers["set-cookie"]
    async with house.visited(**PROXIED) as visitor:
        answer = await visitor.post("/api/v1/sign-in", json=TYPED, headers=BEHIND)
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert name.startswith("__Host-mainspring=")
    assert {one.lower() for one in attributes} == {"secure", "httponly", "samesite=strict", "path=/"}
    name, *attributes = plain.split("; ")
    assert name.startswith("mainspring=")  # on this machine, where a browser takes no other
    assert {one.lower() for one in attributes} == {"httponly", "samesite=strict", "path=/"}


@pytest.mark.parametrize(
    ("how", "headers"),
    [
        ({"client": "203.0.113.9", "hosts": ["jobs.example"]}, {"host": "jobs.example"}),
        ({"client": "203.0.113.9", "hosts": ["jobs.example"]}, BEHIND),  # a stranger's word
        (PROXIED, BEHIND | {"x-forwarded-proto": "http"}),
        (PROXIED, BEHIND | {"x-forwarded-proto": "https, http"}),
        ({}, {"x-forwarded-for": "127.0.0.1"}),  # a proxy on this machine that nobody has named
        ({}, {"forwarded": "for=127.0.0.1;proto=https"}),
    ],
)
@pytest.mark.cases(6)
async def test_there_is_no_cookie_beyond_this_machine_without_tls_at_a_named_proxy(
    house: House, how: dict[str, Any], headers: dict[str, str]
) -> None:
    opened = access.Opening(secret="s" * 43, address="::1")
    house.do(access.sign_in_by_link(SQL, house.link(), opened))
    async with house.visited(**how) as visitor:
        for path, body in (("sign-in", TYPED), ("sign-in/link", {"code": house.link()})):
            answer = await visitor.post(f"/api/v1/{path}", json=body, headers=headers)
            assert (answer.status_code, "set-cookie" in answer.headers) == (403, False)
            assert "TLS" in answer.json()["detail"]
        for name in ("mainspring", "__Host-mainspring"):
            assert await me(visitor, cookie=f"{name}={opened.secret}", **headers) == 401


async def test_a_session_that_was_planted_is_nobodys_after_signing_in(house: House) -> None:
    house.do(access.create_user(SQL, "eve", Grant(role="viewer"), None, ME))
    async with house.visited() as visitor:
        await visitor.post("/api/v1/sign-in/link", json={"code": house.link("eve")})
        planted = dict(visitor.cookies)
        assert (await me(visitor))["name"] == "eve"
        await sign_in(visitor)
        assert (await me(visitor))["name"] == "ana"
        assert dict(visitor.cookies) != planted
        first = dict(visitor.cookies)
        await sign_in(visitor)
        assert dict(visitor.cookies) != first  # another one each time
        for old in (planted, first):
            visitor.cookies.clear()
            visitor.cookies.update(old)
            assert await me(visitor) == 401
        visitor.cookies.clear()
        chosen = "A" * 43  # by an intruder: it is never taken
        await visitor.post("/api/v1/sign-in", json=TYPED, headers={"cookie": f"mainspring={chosen}"})
        assert await me(visitor, cookie=f"mainspring={chosen}") == 401


async def test_what_a_cookie_changes_needs_a_token_of_its_session(house: House) -> None:
    async with house.visited() as visitor:
        await sign_in(visitor)
        (secret,) = visitor.cookies.values()
        for given in ("", "x", "x.y", csrf_token("t" * 43), "\xff.\xff", "." * 5000):
            for method, path in (("POST", "sign-out"), ("DELETE", "sessions"), ("DELETE", "sessions/x")):
                headers = {b"x-csrf-token": given.encode("latin-1")} if given else {}
                answer = await visitor.request(method, f"/api/v1/{path}", headers=headers)
                assert answer.status_code == 403, (given, path)
        foreign = {"x-csrf-token": csrf_token(secret), "origin": "http://evil.test"}
        assert (await visitor.post("/api/v1/sign-out", headers=foreign)).status_code == 403
        assert (await me(visitor))["name"] == "ana"
        first, second = (await me(visitor))["csrf"], (await me(visitor))["csrf"]
        assert first != second
        assert (await visitor.delete("/api/v1/sessions", headers={"x-csrf-token": first})).status_code == 204
        assert await me(visitor) == 401


async def test_whoever_is_disabled_or_away_too_long_is_signed_out(house: House) -> None:
    async with house.visited() as visitor:
        await sign_in(visitor)
        Clock(house.conn).advance(minutes=29)
        assert (await me(visitor))["name"] == "ana"
        Clock(house.conn).advance(minutes=30)
        assert await me(visitor) == 401
        await sign_in(visitor)
        house.do(access.change_user(SQL, "ana", {"disabled": True}, ME))
        assert await me(visitor) == 401
        assert (await sign_in(visitor)).status_code == 401


async def test_a_name_that_nobody_has_costs_as_much_as_one_that_somebody_has(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    house.do(access.create_user(SQL, "ben", Grant(role="viewer"), None, ME))  # without a password
    made: list[int] = []
    verifier = PasswordRecipe.verifier

    def count(recipe: PasswordRecipe, typed: str) -> str:
        made.append(recipe.cost)
        return verifier(recipe, typed)

    monkeypatch.setattr(PasswordRecipe, "verifier", count)
    async with house.visited() as visitor:
        answers = [await sign_in(visitor, name=name, password="wrong horse") for name in ("ana", "ben", "nobody")]
    assert made == [4, 4, 4]
    assert len({(answer.status_code, answer.text) for answer in answers}) == 1


async def test_a_link_is_good_once(house: House) -> None:
    code, late = house.link(), None
    async with house.visited() as visitor:
        answers = [await visitor.post("/api/v1/sign-in/link", json={"code": code}) for _ in range(2)]
        assert [answer.status_code for answer in answers] == [200, 401]
        late = house.link()
        Clock(house.conn).advance(minutes=15)
        assert (await visitor.post("/api/v1/sign-in/link", json={"code": late})).status_code == 401
        answer = await visitor.get(f"/api/v1/sign-in/link?code={house.link()}")
        assert answer.status_code == 404  # in no address


async def test_a_thousand_tries_are_held_back_before_a_password_is_looked_at(
    house: House, monkeypatch: pytest.MonkeyPatch
) -> None:
    Clock(house.conn).advance(seconds=0)  # it stands: a try comes back every six seconds
    looked: list[str] = []
    async with house.visited(**PROXIED) as visitor:

        async def tries(count: int, name: str, address: str) -> list[int]:
            headers = BEHIND | {"x-forwarded-for": address}
            body = {"name": name, "password": PASSWORD if name == "ana" else "wrong horse battery"}
            answers = [await visitor.post("/api/v1/sign-in", json=body, headers=headers) for _ in range(count)]
            assert all(int(answer.headers["retry-after"]) >= 1 for answer in answers if answer.status_code == 429)
            looked.extend(address for answer in answers if answer.status_code != 429)
            return sorted({answer.status_code for answer in answers})

        assert await tries(330, "somebody", "203.0.113.9") == [401, 429]
        assert await tries(330, "somebody", "198.51.100.7") == [429]  # from elsewhere
        assert await tries(330, "somebody else", "203.0.113.9") == [429]  # under another name
        assert len(looked) == 10
        assert await tries(5, "ana", "2001:db8::1") == [200]  # nobody else pays for it
        assert await tries(10, "anna", "2001:db8::2") == [401, 429]  # one house is one address
        # Whoever makes an address up before it gets to the proxy has the one that the proxy saw.
        assert await tries(3, "ana", "10.9.9.9, 192.0.2.1, 203.0.113.9") == [429]


async def test_a_stranger_who_forges_headers_is_who_they_are(house: House, caplog: pytest.LogCaptureFixture) -> None:
    seen: list[tuple[str, str]] = []

    async def look(request: Request) -> Response:
        seen.append((request.client.host if request.client else "", request.url.scheme))
        return JSONResponse({})

    app = ms.App(ms.Registry("shop"), dsn=house.app.dsn, maintenance=False, routes=[public(Route("/look", look))])
    forged = {"x-forwarded-for": "127.0.0.1", "x-forwarded-proto": "https", "x-real-ip": "127.0.0.1"}
    chains = [
        ("203.0.113.9", {}, ("203.0.113.9", "http")),
        ("203.0.113.9", forged, ("203.0.113.9", "http")),
        ("10.0.0.2", {"x-forwarded-for": "127.0.0.1, 203.0.113.9"}, ("203.0.113.9", "http")),
        (
            "10.0.0.2",
            {"x-forwarded-for": "203.0.113.9, 10.0.0.7", "x-forwarded-proto": "https"},
            ("203.0.113.9", "https"),
        ),
        ("10.0.0.2", {"x-forwarded-for": "203.0.113.9, rubbish"}, ("10.0.0.2", "http")),
        ("10.0.0.2", {}, ("10.0.0.2", "http")),
        ("::ffff:10.0.0.2", {"x-forwarded-for": "[2001:db8::1]:99"}, ("2001:db8::1", "http")),
    ]
    for peer, headers, wanted in chains:
        web = create(app, proxies=["10.0.0.0/8"])
        async with visiting(web, client=(peer, 5000), lifespan=False) as visitor:
            assert (await visitor.get("/look", headers=headers)).status_code == 200
        assert seen.pop() == wanted, (peer, headers)
    with pytest.raises(ConfigurationError, match="is not a list of addresses and networks"):
        create(app, proxies=["everybody"])


async def test_somebody_sees_and_ends_their_own_sessions_only(house: House) -> None:
    house.do(access.create_user(SQL, "eve", Grant(role="admin"), None, ME))
    async with house.visited() as ana, house.visited() as phone, house.visited() as eve:
        for visitor in (ana, phone):
            await sign_in(visitor)
        await eve.post("/api/v1/sign-in/link", json={"code": house.link("eve")})
        rows = (await ana.get("/api/v1/sessions")).json()["sessions"]
        assert [row["current"] for row in rows] == [False, True]
        assert {row["how"] for row in rows} == {"password"}

        async def end(visitor: httpx2.AsyncClient, id: str) -> int:
            headers = {"x-csrf-token": (await me(visitor))["csrf"]}
            return (await visitor.delete(f"/api/v1/sessions/{id}", headers=headers)).status_code

        assert await end(eve, rows[0]["id"]) == 404  # not hers: it is not there
        assert await end(ana, "no id") == 404
        assert await end(ana, rows[0]["id"]) == 204
        assert await me(phone) == 401
        assert await end(ana, rows[1]["id"]) == 204
        assert await me(ana) == 401
        assert (await me(eve))["name"] == "eve"


async def test_signing_out_ends_the_session_whatever_else_a_proxy_lets_the_browser_show(house: House) -> None:
    beside = {"authorization": "Basic YTpi"}  # as browsers send it on, where a proxy asks for a password of its own
    async with house.visited() as visitor:
        for method, path in (("POST", "sign-out"), ("DELETE", "sessions")):
            visitor.cookies.clear()
            await sign_in(visitor)
            kept, who = dict(visitor.cookies), await me(visitor, **beside)
            assert who["session"] is not None
            headers = beside | {"x-csrf-token": who["csrf"]}
            assert (await visitor.request(method, f"/api/v1/{path}", headers=headers)).status_code == 204
            visitor.cookies.clear()
            visitor.cookies.update(kept)
            assert await me(visitor) == 401


async def test_a_program_comes_in_by_its_token_and_changes_without_a_token_of_a_session(house: House) -> None:
    token = house.do(access.create_token(SQL, "deploys", Grant(role="admin", org="acme", reveals=True), None, ME))
    asked: list[Any] = []
    known = AccessDesk(house.app)

    async def look(request: Request) -> Response:
        asked.append(await known.principal(request))
        return JSONResponse({})

    app = ms.App(
        ms.Registry("shop"), dsn=house.app.dsn, maintenance=False,
        routes=[public(Route("/look", look, methods=["POST"]))],
    )  # fmt: skip
    async with visiting(create(app, hosts=["jobs.example"]), client=("203.0.113.9", 5000)) as visitor:
        bearer = {"authorization": f"Bearer {token.text}", "host": "jobs.example"}
        assert (await visitor.post("/look", headers=bearer)).status_code == 200
        who = asked.pop()
        assert (who.name, who.role, who.org, who.reveals, who.actor_type) == (
            "deploys", "admin", "acme", True, "api_key",
        )  # fmt: skip
        found = await me(visitor, **bearer)
        assert (found["name"], found["csrf"], found["session"]) == ("deploys", None, None)
        assert (await visitor.get("/api/v1/sessions", headers=bearer)).json() == {"sessions": []}
        for wrong in (
            "", "x", token.id, token.secret, f"mst_{token.id}.{'A' * 43}", f"mst_{'0' * 12}.{token.secret}",
            f"{token.text} ", f"{token.text}x", "mst_" + "é" * 10,
        ):  # fmt: skip
            shown = {b"authorization": f"Bearer {wrong}".encode("latin-1"), b"host": b"jobs.example"}
            answer = await visitor.get("/api/v1/me", headers=shown)
            assert answer.status_code == (200 if wrong == f"{token.text} " else 401), wrong
        assert (
            await visitor.get(f"/api/v1/me?token={token.text}", headers={"host": "jobs.example"})
        ).status_code == 401
        house.do(access.revoke_token(SQL, token.id, ME))
        assert await me(visitor, **bearer) == 401
    await known.close()
    async with house.visited() as visitor:
        await sign_in(visitor)
        assert await me(visitor, authorization=f"Bearer {token.text}") == 401  # its cookie does not help it


async def test_what_is_no_sign_in_is_refused_without_a_stack(house: House) -> None:
    async with house.visited() as visitor:
        bodies = b'|x|[]|{}|\xff|{"name":1,"password":"x"}|{"name":"\\ud800","password":"x"}'
        bodies += b'|{"name":"a","password":"b","role":"admin"}'
        for body in bodies.split(b"|"):
            headers = {"content-type": "application/json"}
            answer = await visitor.post("/api/v1/sign-in", content=body, headers=headers)
            assert answer.status_code in (400, 401), body
        for name in ("'; drop table x; --", "%s", "\x00", "a" * 201, "a\nb", "<script>", "‮ana"):
            assert (await sign_in(visitor, name=name)).status_code in (401, 429), name
            Clock(house.conn).advance(minutes=2)
        form = await visitor.post("/api/v1/sign-in", data=TYPED)
        assert form.status_code == 415
        foreign = await visitor.post("/api/v1/sign-in", json=TYPED, headers={"origin": "http://evil.test"})
        assert foreign.status_code == 403


@pytest.mark.rule("ENG-19.07")
async def test_no_secret_is_written_down(house: House, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    token = house.do(access.create_token(SQL, "deploys", Grant(role="admin"), None, ME))
    mistyped = "my password, in the wrong field"
    async with house.visited() as visitor:
        await sign_in(visitor)
        (session,) = visitor.cookies.values()
        who = await me(visitor)
        await visitor.post("/api/v1/sign-in/link", json={"code": (code := house.link())})
        await sign_in(visitor, name=mistyped)
        await sign_in(visitor, password="another wrong one")
        await me(visitor, authorization=f"Bearer {token.text}")
        await visitor.post("/api/v1/sign-out", headers={"x-csrf-token": who["csrf"]})
    said = "\n".join(
        f"{record.getMessage()} {record.__dict__}" for record in caplog.records if "psycopg" not in record.name
    )
    rows = ""
    names = "select relname from pg_class where relnamespace = 'mainspring'::regnamespace and relkind = 'r'"
    for (table,) in house.conn.execute(names).fetchall():
        rows += str(house.conn.execute(f"select to_jsonb(x)::text from mainspring.{table} x").fetchall())
    for secret in (PASSWORD, mistyped, "another wrong one", session, code, token.secret, who["csrf"]):
        assert secret not in said
        assert secret not in rows
    assert "ana signed in from 127.0.0.1" in said
    assert "sign-in of ana from 127.0.0.1 refused" in said
    trail = "select actor_id, detail ->> 'how' from mainspring.audit where event = 'access.signed_in' order by id"
    assert house.conn.execute(trail).fetchall() == [("ana", "password"), ("ana", "link")]


async def test_the_page_has_nothing_inline_and_comes_from_here_alone(house: House) -> None:
    async with house.visited() as visitor:
        page = await visitor.get("/sign-in")
        assert page.headers["content-type"].startswith("text/html")
        assert "script-src 'self'" in page.headers["content-security-policy"]
        assert "://" not in page.text
        for inline in ("onclick", "onload", "style=", "javascript:", "<style"):
            assert inline not in page.text
        assert page.text.count("<script") == page.text.count("<script src=") == 1
        for file, kind in (("sign-in.js", "text/javascript"), ("sign-in.css", "text/css")):
            answer = await visitor.get(f"/sign-in/{file}")
            assert (answer.status_code, answer.headers["content-type"].partition(";")[0]) == (200, kind)
        for file in ("sign-in.html", "..%2faccess.py", "%2e%2e/access.py", "x"):
            assert (await visitor.get(f"/sign-in/{file}")).status_code == 404
        assert (await visitor.get("/api/v1/sign-in")).json() == {"ways": ["password", "link"]}


async def test_a_database_that_is_away_is_a_503(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.web.access.desk.ACCESS_PATIENCE_S", 0.2)
    app = ms.App(ms.Registry("shop"), dsn="postgresql://127.0.0.1:1/shop", maintenance=False)
    async with visiting(create(app)) as visitor:
        for answer in (
            await sign_in(visitor),
            await visitor.get("/api/v1/me", headers={"authorization": f"Bearer mst_{'0' * 12}.{'A' * 43}"}),
        ):
            assert answer.status_code == 503
    assert isinstance(house.conn, psycopg.Connection)


@pytest.mark.parametrize("taken", ["/sign-in", "/console", "/console/jobs"])
def test_a_route_where_people_sign_in_and_the_consoles_are_nobody_elses(taken: str) -> None:
    async def page(_: Request) -> Response:
        return JSONResponse({})

    app = ms.App(
        ms.Registry("shop"), dsn="postgresql://127.0.0.1:1/shop", maintenance=False,
        routes=[public(Route("/consoles", page)), public(Route(taken, page))],
    )  # fmt: skip
    with pytest.raises(ConfigurationError, match=f"routes: {taken} is taken, for signing in"):
        create(app)
