"""Routes of an application for people who are signed in and programs with a token: who asks, and in which role."""

from __future__ import annotations

from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount, Route, WebSocketRoute
from tests.web.access.conftest import ME, PASSWORD, SQL, House
from tests.web.visit import open_to, visiting

import mainspring as ms
from mainspring.db import access
from mainspring.db.access import Grant
from mainspring.declare.principal import ACCESS_ROLES
from mainspring.errors import ConfigurationError, DeclarationError
from mainspring.web import Principal, by_role, by_token, create, public, who_asks

pytestmark = pytest.mark.anyio

TOKEN = "a token of the shop"
TOKENS = {"SHOP_TOKEN": TOKEN}
tasks = ms.Registry("shop")


@tasks.task
async def send_order(*, number: int) -> None:
    """Send an order."""


async def order(request: Request) -> Response:
    """Who asks, and a job for it."""
    who, number = who_asks(request), request.path_params.get("number", 0)
    async with request.app.state.client() as client:
        job = await client.enqueue(send_order.job(number=number))
    return JSONResponse([who.name, who.role, who.org, who.actor_type, who.program, str(job.id)])


@pytest.fixture
def shop(house: House) -> House:
    """A house with an order that operators of acme may call, one for members of all, and one for a program besides."""
    house.app = ms.App(
        tasks, dsn=house.app.dsn, maintenance=False,
        routes=[
            by_role(Route("/orders/{number:int}", order, methods=["GET", "POST"]), "operator", org="acme"),
            by_role(Mount("/all", routes=[Route("/orders", order)]), "member", org=None),
            by_role(Route("/both", order, methods=["GET", "POST"]), "admin", org="acme", token="SHOP_TOKEN"),
            by_role(WebSocketRoute("/live", order), "viewer", org="acme"),
            by_token(Route("/program", order), "SHOP_TOKEN"),
        ],
    )  # fmt: skip
    return house


async def ask(house: House, shown: str | None, path: str, method: str = "GET", **headers: str) -> httpx2.Response:
    web = create(house.app, tokens=TOKENS)
    web.state.client = house.app.async_client
    about = {} if shown is None else {"authorization": f"Bearer {shown}"}
    async with visiting(web) as visitor:
        return await visitor.request(method, path, headers=about | headers)


async def test_a_route_is_there_for_its_role_and_its_organisation_alone(shop: House) -> None:
    cells = 0
    for org in (None, "acme", "globex"):
        for role in ACCESS_ROLES:
            grant = Grant(role=role, org=org)
            token = shop.do(access.create_token(SQL, f"{role} of {org}", grant, None, ME)).text
            there = org != "globex"
            wanted = {
                "/orders/7": 200 if there and role in ("operator", "admin") else 403 if there else 404,
                "/all/orders": 200 if org is None else 404,
                "/both": 200 if there and role == "admin" else 403 if there else 404,
                "/program": 401,  # its own token alone
            }
            for path, status in wanted.items():
                answer = await ask(shop, token, path)
                assert answer.status_code == status, (org, role, path)
                missing = await ask(shop, token, "/nowhere")
                assert status != 404 or answer.json() == missing.json()
                cells += 1
    for shown in (None, "forged", f"mst_{'0' * 12}.{'A' * 43}"):
        for path in ("/orders/7", "/all/orders", "/all/nowhere", "/both", "/program"):
            assert (await ask(shop, shown, path)).status_code == 401
    assert cells == 48


async def test_a_session_and_a_token_are_asked_alike_and_what_they_enqueue_is_theirs(shop: House) -> None:
    token = shop.do(access.create_token(SQL, "deploys", Grant(role="admin"), None, ME)).text
    found = [(await ask(shop, token, "/orders/1")).json(), (await ask(shop, TOKEN, "/both")).json()]
    web = create(shop.app, tokens=TOKENS)
    web.state.client = shop.app.async_client
    async with visiting(web) as visitor:
        signed = await visitor.post("/api/v1/sign-in", json={"name": "ana", "password": PASSWORD})
        found.append((await visitor.get("/orders/1")).json())
        for headers, status in (
            ({}, 403),  # no token of the session
            ({"x-csrf-token": "x.y"}, 403),
            ({"x-csrf-token": signed.json()["csrf"], "origin": "http://evil.test"}, 403),
            ({"x-csrf-token": signed.json()["csrf"], "content-type": "text/plain"}, 415),
            ({"x-csrf-token": signed.json()["csrf"], "content-type": "application/json"}, 200),
        ):
            answer = await visitor.post("/orders/2", content=b"{}", headers=headers)
            assert answer.status_code == status, headers
        assert (await visitor.get("/both")).status_code == 403  # an operator
        shop.do(access.change_user(SQL, "ana", {"disabled": True}, ME))
        assert (await visitor.get("/orders/1")).status_code == 401

    assert [about[:5] for about in found] == [
        ["deploys", "admin", None, "api_key", None],
        ["SHOP_TOKEN", "admin", "acme", "api_key", "SHOP_TOKEN"],
        ["ana", "operator", "acme", "user", None],
    ]
    of_job = "select org_id, actor_type, actor_id from mainspring.job where id = %s"
    rows = [shop.conn.execute(of_job, [about[5]]).fetchone() for about in found]
    assert rows == [("acme", "api_key", "deploys"), ("acme", "api_key", "SHOP_TOKEN"), ("acme", "user", "ana")]


async def test_nobody_is_asked_for_a_body_before_they_are_known_and_a_websocket_is_closed(shop: House) -> None:
    web, sent = create(shop.app, tokens=TOKENS), list[Any]()

    async def receive() -> Any:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    headers = [(b"host", b"localhost"), (b"content-length", b"9"), (b"content-type", b"application/json")]
    about = {"path": "/orders/1", "query_string": b"", "root_path": "", "headers": headers}
    await web({"type": "http", "method": "POST", **about}, receive, send)
    await web({"type": "websocket", **about, "path": "/live"}, receive, send)

    assert sent[0]["status"] == 401
    assert sent[-1] == {"type": "websocket.close", "code": 1008}


async def test_a_database_that_is_away_is_a_503_and_a_token_of_a_program_that_is_not_set_opens_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("mainspring.web.access.desk.ACCESS_PATIENCE_S", 0.2)
    declared = by_role(Route("/orders", order), "viewer", token="SHOP_TOKEN")
    app = ms.App(tasks, dsn="postgresql://127.0.0.1:1/shop", maintenance=False, routes=[declared])
    async with open_to(app) as visitor:
        answer = await visitor.get("/orders", headers={"authorization": f"Bearer mst_{'0' * 12}.{'A' * 43}"})
        assert (answer.status_code, answer.json()["code"]) == (503, "DB_UNAVAILABLE")
        for shown in ("", "SHOP_TOKEN", TOKEN):
            assert (await visitor.get("/orders", headers={"authorization": f"Bearer {shown}"})).status_code == 401
    with pytest.raises(ConfigurationError, match=r"^SHOP_TOKEN: must have at least 16"):
        create(app, tokens={"SHOP_TOKEN": "short"})


def test_a_declaration_says_a_role_and_a_public_route_knows_nobody() -> None:
    with pytest.raises(DeclarationError, match="role: 'boss' is not one of member, viewer, operator, admin"):
        by_role(Route("/orders", order), "boss")  # type: ignore[arg-type] # it is none
    with pytest.raises(DeclarationError, match="nobody is asked who they are on a public route"):
        who_asks(Request({"type": "http", "headers": []}))
    assert public(Route("/orders", order)).access == "public"
    assert Principal("ana", "viewer").sees("acme")
