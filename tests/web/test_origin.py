"""Foreign names and pages of foreign origins reach no route, whatever kind of request they make."""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Any

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route, WebSocketRoute
from starlette.websockets import WebSocket
from tests.databases import Database
from tests.web.test_guard import shop
from tests.web.visit import SECRET, open_to, served

import mainspring as ms
from mainspring.cli import main
from mainspring.errors import ConfigurationError
from mainspring.web import create
from mainspring.web.origin import AllowedHosts

pytestmark = pytest.mark.anyio

PLACES = ["/v1/health/live", "/v1/health/ready", "/metrics", "/v1/run", "/v1/inbound/acme", "/account", "/nowhere"]
SAME = {"host": "shop.example", "origin": "https://shop.example"}


class Account:
    """A page that can be changed."""

    def __init__(self) -> None:
        self.changes = 0
        self.app = shop(Route("/account", self.change, methods=["GET", "POST", "PUT", "PATCH", "DELETE"]))

    async def change(self, request: Request) -> Response:
        self.changes += request.method != "GET"
        return Response("the account")


@pytest.mark.parametrize("place", PLACES)
async def test_a_name_that_was_rebound_to_us_reads_nothing(place: str) -> None:
    async with open_to(Account().app) as visitor:
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            answer = await visitor.request(method, place, headers={"host": "evil.test:8080"})
            assert answer.status_code == 400
            assert method == "HEAD" or answer.json()["code"] == "HOST_NOT_ALLOWED"
            assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "https://evil.test"},
        {"origin": "null"},
        {"origin": ""},
        {"origin": "http://localhost:3000"},
        {"origin": "http://localhost.evil.test"},
        {"origin": "file://localhost"},
        {"origin": "javascript://localhost"},
        {"origin": "localhost"},
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"sec-fetch-site": "anything"},
        {"sec-fetch-site": "cross-site", "origin": "http://localhost"},
        {"sec-fetch-site": "same-origin", "origin": "https://evil.test"},
    ],
)
async def test_a_page_of_another_origin_changes_nothing(headers: dict[str, str]) -> None:
    account = Account()
    async with open_to(account.app) as visitor:
        for method in ("POST", "PUT", "PATCH", "DELETE"):
            answer = await visitor.request(method, "/account", headers=headers)
            assert (answer.status_code, answer.json()["code"]) == (403, "CROSS_ORIGIN")
        read = await visitor.get("/account", headers=headers)

    assert (account.changes, read.status_code) == (0, 200)  # which no script of that page can see
    assert not any(name.startswith("access-control-") for name in read.headers)
    assert read.headers["cross-origin-resource-policy"] == "same-origin"


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "http://localhost"},
        {"origin": "http://localhost", "sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
        SAME,
        SAME | {"host": "SHOP.example"},
        {"host": "127.0.0.1:8080", "origin": "http://127.0.0.1:8080"},
        {"host": "[::1]:8080"},
        {"host": "eu.shop.example"},
    ],
)
async def test_programs_and_our_own_pages_come_in(headers: dict[str, str]) -> None:
    account = Account()
    async with open_to(account.app, hosts=["shop.example", "*.shop.example"]) as visitor:
        answer = await visitor.post("/account", headers=headers)

    assert (answer.status_code, account.changes) == (200, 1)


@pytest.mark.parametrize(("origin", "status"), [("http://localhost", 403), ("https://localhost", 200)])
async def test_behind_a_proxy_that_says_tls_a_page_without_it_is_a_foreign_one(origin: str, status: int) -> None:
    account = Account()
    async with open_to(account.app, proxies=["127.0.0.1"]) as visitor:
        answer = await visitor.post("/account", headers={"origin": origin, "x-forwarded-proto": "https"})

    assert (answer.status_code, account.changes) == (status, int(status == 200))


def scope_of(kind: str, headers: dict[str, str], **more: Any) -> dict[str, Any]:
    raw = [(name.encode(), value.encode()) for name, value in headers.items()]
    return {"type": kind, "path": "/live", "query_string": b"", "root_path": "", "headers": raw, **more}


@pytest.mark.parametrize("answered", [False, True], ids=["closed", "answered"])
async def test_a_websocket_of_a_foreign_page_or_name_is_not_opened(answered: bool) -> None:
    opened = 0

    async def line(websocket: WebSocket) -> None:
        nonlocal opened
        opened += 1
        await websocket.accept()
        await websocket.close()

    web = create(shop(WebSocketRoute("/live", line)), secret=SECRET)
    more: dict[str, Any] = {"extensions": {"websocket.http.response": {}}} if answered else {}
    for headers, first in (
        ({"host": "localhost"}, "websocket.accept"),
        ({"host": "localhost", "origin": "http://localhost"}, "websocket.accept"),
        ({"host": "localhost", "origin": "https://evil.test"}, None),
        ({"host": "evil.test", "origin": "https://evil.test"}, None),
        ({}, None),
    ):
        sent = list[dict[str, Any]]()

        async def receive() -> dict[str, Any]:
            return {"type": "websocket.connect"}

        async def send(message: MutableMapping[str, Any], sent: list[Any] = sent) -> None:
            sent.append(message)

        await web(scope_of("websocket", headers, **more), receive, send)
        refused = "websocket.http.response.start" if answered else "websocket.close"
        assert sent[0]["type"] == first or (first is None and sent[0]["type"] == refused)
    assert opened == 2


async def test_what_is_no_request_at_all_is_not_passed_on() -> None:
    async def never(*_: Any) -> Any:
        raise AssertionError("nobody should ask")

    with pytest.raises(ValueError, match="scope"):
        await create(shop())({"type": "udp", "headers": []}, never, never)


@pytest.mark.parametrize(
    ("host", "by_ip", "by_default"),
    [("10.1.2.3:8080", 200, 400), ("[fd00::7]:8080", 200, 400), (None, 200, 400), ("evil.test", 400, 400)],
)
async def test_probes_by_address_are_answered_where_the_deployment_says_so(
    host: str | None, by_ip: int, by_default: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    headers = {} if host is None else {"host": host}
    for setting, status in (("off", by_default), ("on", by_ip)):
        monkeypatch.setenv("MAINSPRING_PROBE_BY_IP", setting)
        web = create(shop(), secret=SECRET)
        for path, expected in (("/v1/health/live", status), ("/jobs/v1/health/live", status), ("/metrics", 400)):
            sent = list[dict[str, Any]]()

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(message: MutableMapping[str, Any], sent: list[Any] = sent) -> None:
                sent.append(message)

            root = "/jobs" if path.startswith("/jobs") else ""
            await web(scope_of("http", headers, method="GET") | {"path": path, "root_path": root}, receive, send)
            assert sent[0]["status"] == expected


@pytest.mark.parametrize(
    "name", ["", "a b", "https://shop.example", "shop.example:80", "shop.*", "**", "a/b", "\u00fc"]
)
def test_a_name_that_no_host_can_have_is_refused_at_the_start(name: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^allowed-host: is not a name such as "):
        AllowedHosts([name])


def test_names_come_from_the_command_and_from_the_environment(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MAINSPRING_ALLOWED_HOSTS", "one.example, two.example")
    app = ms.App(ms.Registry("shop"), dsn=database.dsn, maintenance=False)
    with served(app, hosts=["three.example"]) as url, httpx2.Client() as visitor:
        for host in ("one.example", "two.example", "three.example", "four.example"):
            answer = visitor.get(f"{url}/v1/health/live", headers={"host": host})
            assert answer.status_code == (400 if host == "four.example" else 200)
    monkeypatch.setenv("MAINSPRING_DSN", database.dsn)
    assert main(["serve", "--app", "tests.web.shop:app", "--allowed-host", "no name"]) == 2


@pytest.mark.parametrize(("host", "named"), [("0.0.0.0", False), ("127.0.0.2", True)])
def test_the_address_that_it_listens_on_is_a_name_of_it(database: Database, host: str, named: bool) -> None:
    app = ms.App(ms.Registry("shop"), dsn=database.dsn, maintenance=False)
    with served(app, host=host) as url, httpx2.Client() as visitor:
        place = url.replace("0.0.0.0", "127.0.0.1")
        answer = visitor.get(f"{place}/v1/health/live", headers={"host": host})

    assert (answer.status_code == 200) is named  # browsers let pages ask 0.0.0.0, and that is this machine
