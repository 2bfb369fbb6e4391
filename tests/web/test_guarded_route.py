"""Each route says who may come in: what says nothing is not served, and who is refused has nothing read of them."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Mount, Route, WebSocketRoute
from tests.web.visit import SECRET, Part, open_to

import mainspring as ms
from mainspring.errors import ConfigurationError
from mainspring.web import by_token, create, public

pytestmark = pytest.mark.anyio

TOKEN = "a token of the shop"
TOKENS = {"SHOP_TOKEN": TOKEN}
SHOWN = {"authorization": f"Bearer {TOKEN}"}


async def page(request: Request) -> Response:
    return Response(await request.body())


def shop(*routes: Any) -> ms.App:
    return ms.App(ms.Registry("shop"), dsn="postgresql://127.0.0.1:1/shop", maintenance=False, routes=routes)


def orders() -> Any:
    return by_token(Route("/orders/{number:int}", page, methods=["GET", "POST"]), "SHOP_TOKEN")


@pytest.mark.parametrize(
    "route", [Route("/open", page), Mount("/open", routes=[Route("/x", page)]), WebSocketRoute("/open", page)]
)
@pytest.mark.parametrize("in_block", [False, True])
def test_a_route_that_does_not_say_who_may_come_in_stops_the_start(route: Any, in_block: bool) -> None:
    app = shop() if in_block else shop(route)
    if in_block:
        app.blocks = (Part(routes=[route]),)
    with pytest.raises(
        ConfigurationError, match=r"^routes: /open does not say who may come in: public\(route\), by_role\("
    ):
        create(app, secret=SECRET)


@pytest.mark.parametrize("value", [None, "", "fifteen letters", "  spaces around it  "])
def test_a_token_that_is_missing_or_short_stops_the_start(value: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SHOP_TOKEN", raising=False)
    if value is not None:
        monkeypatch.setenv("SHOP_TOKEN", value)
    with pytest.raises(ConfigurationError, match=r"^SHOP_TOKEN: (is not set, and /orders|must )"):
        create(shop(orders()), secret=SECRET)


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"authorization": TOKEN},
        {"authorization": "Bearer"},
        {"authorization": f"Bearer {TOKEN[:-1]}"},
        {"authorization": f"Basic {TOKEN}"},
        {"authorization": f"Bearer {SECRET}"},
        {"x-cron-secret": TOKEN},
        {"cookie": f"token={TOKEN}"},
    ],
)
async def test_without_the_token_nobody_comes_in_and_no_body_is_read(headers: dict[str, str]) -> None:
    web = create(shop(orders()), secret=SECRET, tokens=TOKENS)
    raw = {"host": "localhost", "content-length": "1000000", "content-type": "application/json"} | headers
    sent = list[Any]()

    async def receive() -> Any:
        raise AssertionError("the body was read")

    async def send(message: Any) -> None:
        sent.append(message)

    for method in ("GET", "POST", "DELETE"):
        scope = {
            "type": "http", "method": method, "path": "/orders/1", "query_string": b"token=" + TOKEN.encode(),
            "root_path": "", "headers": [(name.encode(), value.encode()) for name, value in raw.items()],
        }  # fmt: skip
        await web(scope, receive, send)

    starts = [message for message in sent if message["type"] == "http.response.start"]
    assert [message["status"] for message in starts] == [401, 401, 401]
    assert all((b"www-authenticate", b"Bearer") in message["headers"] for message in starts)


async def test_with_the_token_the_route_answers() -> None:
    async with open_to(shop(orders()), tokens=TOKENS) as visitor:
        read = await visitor.get("/orders/7", headers=SHOWN)
        written = await visitor.post("/orders/7", json={}, headers=SHOWN)
        lost = await visitor.delete("/orders/7", headers=SHOWN)

    assert [answer.status_code for answer in (read, written, lost)] == [200, 200, 405]


KINDS = [
    ("application/json", b"{}", 200),
    ("Application/JSON; charset=utf-8", b"{}", 200),
    ("text/plain", b"{}", 415),
    ("application/x-www-form-urlencoded", b"{}", 415),
    ("multipart/form-data; boundary=x", b"{}", 415),
    ("application/jsonp", b"{}", 415),
    ("text/plain; application/json", b"{}", 415),
    (None, b"{}", 415),
    (None, b"", 200),
    ("text/plain", b"", 200),
]


@pytest.mark.parametrize(("kind", "body", "status"), KINDS)
async def test_a_body_is_json_unless_the_route_says_otherwise(kind: str | None, body: bytes, status: int) -> None:
    headers = {} if kind is None else {"content-type": kind}
    routes = [public(Route("/json", page, methods=["POST"])), public(Route("/any", page, methods=["POST"]), accepts=())]
    async with open_to(shop(*routes)) as visitor:
        answer = await visitor.post("/json", content=body, headers=headers)
        other = await visitor.post("/any", content=body, headers=headers)

    assert (answer.status_code, other.status_code) == (status, 200)
    assert status == 200 or answer.json()["code"] == "UNSUPPORTED_MEDIA_TYPE"


async def test_a_mount_is_declared_as_a_whole() -> None:
    mounted = by_token(Mount("/admin", routes=[Route("/users", page), Route("/roles", page)]), "SHOP_TOKEN")
    async with open_to(shop(mounted), tokens=TOKENS) as visitor:
        for path in ("/admin/users", "/admin/roles", "/admin/nothing"):
            assert (await visitor.get(path)).status_code == 401
        assert (await visitor.get("/admin/users", headers=SHOWN)).status_code == 200
