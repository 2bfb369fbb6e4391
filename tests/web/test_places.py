"""Half-sent bodies hold nobody up: they have no place, are given up in time, and health needs none."""

from __future__ import annotations

import asyncio
import json
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from urllib.parse import urlsplit

import httpx2
import pytest
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route
from tests.web.test_guard import shop
from tests.web.visit import SECRET, open_to, served

import mainspring as ms
from mainspring.web import by_token, guard, places

pytestmark = pytest.mark.anyio

TOKENS = {"SHOP_TOKEN": "a token of the shop"}


async def echo(request: Request) -> Response:
    return Response(await request.body())


def echoing() -> ms.App:
    return shop(Route("/echo", echo, methods=["GET", "POST"]))


@contextmanager
def half_sent(url: str, count: int, path: str = "/echo") -> Iterator[list[socket.socket]]:
    """Callers that announce a body of 100 bytes and send five."""
    place = urlsplit(url)
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\nhello"
    )
    with ExitStack() as stack:
        lines = []
        for _ in range(count):
            line = stack.enter_context(socket.create_connection((place.hostname, place.port), timeout=30))
            line.sendall(head.encode())
            lines.append(line)
        yield lines


def status_of(line: socket.socket) -> int:
    """The status of the answer, after which the line is closed."""
    said = b""
    while part := line.recv(10_000):
        said += part
    return int(said.split()[1])


def test_a_thousand_half_sent_bodies_hold_nobody_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 600.0)  # all of them are there at once
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 3000:
        pytest.skip("a thousand callers and their server need 3,000 open files")
    with served(echoing()) as url, half_sent(url, 1000), httpx2.Client(base_url=url) as visitor:
        began = time.monotonic()
        answers = [visitor.get("/v1/health/live"), visitor.get("/echo"), visitor.post("/echo", json={})]
        took = time.monotonic() - began

    assert [answer.status_code for answer in answers] == [200, 200, 200]
    assert took < 10


def test_a_body_has_a_deadline_however_slowly_it_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.4)
    with served(echoing()) as url, half_sent(url, 2) as (still, dripping):
        for _ in range(6):
            dripping.sendall(b"x")
            time.sleep(0.05)
        assert [status_of(still), status_of(dripping)] == [408, 408]


def test_beyond_so_many_the_one_that_has_taken_longest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MOST_HALF_SENT", 2)
    with served(echoing()) as url, half_sent(url, 1) as (oldest,), half_sent(url, 2) as (older, new):
        assert status_of(oldest) == 408
        for line in (older, new):
            line.sendall(b"x" * 95)
            assert line.recv(10_000).startswith(b"HTTP/1.1 200")


def test_who_does_not_know_the_token_is_answered_before_their_body_comes() -> None:
    app = ms.App(
        ms.Registry("shop"), dsn="postgresql://127.0.0.1:1/shop", maintenance=False,
        routes=[by_token(Route("/echo", echo, methods=["POST"]), "SHOP_TOKEN")],
    )  # fmt: skip
    with served(app, tokens=TOKENS) as url, half_sent(url, 1) as (line,):
        assert line.recv(10_000).startswith(b"HTTP/1.1 401")


async def test_who_finds_no_place_comes_back_and_health_needs_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(places, "MOST_REQUESTS", 2)
    go_on = asyncio.Event()

    async def slow(_: Request) -> Response:
        await go_on.wait()
        return Response("done")

    async with open_to(shop(Route("/slow", slow)), secret=SECRET) as visitor:
        under_way = [asyncio.create_task(visitor.get("/slow")) for _ in range(2)]
        await asyncio.sleep(0)
        while (busy := await visitor.get("/nowhere")).status_code == 404:
            await asyncio.sleep(0)
        live = await visitor.get("/v1/health/live")
        go_on.set()
        done = [answer.status_code for answer in await asyncio.gather(*under_way)]
        after = await visitor.get("/nowhere")

    assert (busy.status_code, json.loads(busy.content)["code"], busy.headers["retry-after"]) == (503, "BUSY", "5")
    assert (live.status_code, done, after.status_code) == (200, [200, 200], 404)


async def test_a_body_that_is_here_is_read_however_late_the_route_asks_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guard, "BODY_S", 0.2)

    async def late(request: Request) -> Response:
        await asyncio.sleep(0.4)
        return Response(await request.body())

    async with open_to(shop(Route("/late", late, methods=["POST"]))) as visitor:
        assert (await visitor.post("/late", content=b"x")).content == b"x"
