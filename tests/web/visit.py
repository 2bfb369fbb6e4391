"""Visitors of an HTTP application: in this process by ASGI, or over a real socket."""

from __future__ import annotations

import asyncio
import hmac
import threading
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import datetime, timedelta
from hashlib import sha256
from typing import Any

import httpx2
from starlette.applications import Starlette

import mainspring as ms
from mainspring.declare.block import Block, Check, Received, SignatureRefused
from mainspring.declare.task import Task
from mainspring.job import NewJob
from mainspring.web import Server, create

SECRET = "a secret of the tests, long enough"
SHOWN = {"x-cron-secret": SECRET}


@asynccontextmanager
async def visiting(
    web: Starlette, *, lifespan: bool = True, client: tuple[str, int] = ("127.0.0.1", 5000)
) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application in this process; `lifespan` is False for what nobody starts and stops."""
    transport = httpx2.ASGITransport(web, client=client)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as visitor:
        if not lifespan:
            yield visitor
            return
        async with web.router.lifespan_context(web):
            yield visitor


@asynccontextmanager
async def open_to(app: ms.App, **how: Any) -> AsyncIterator[httpx2.AsyncClient]:
    """A client of an application over HTTP, with the secret known there."""
    async with visiting(create(app, **{"secret": SECRET} | how)) as visitor:
        yield visitor


@contextmanager
def served(app: ms.App, **how: Any) -> Iterator[str]:
    """A real server on loopback in a thread of its own; gives its address."""
    about: dict[str, Any] = {"port": 0, "grace": timedelta(seconds=5), "secret": SECRET}
    server = Server(app, **about | how)
    url = server.listen()
    thread = threading.Thread(target=lambda: asyncio.run(server.run()))
    thread.start()
    try:
        yield url
    finally:
        server.stop()
        thread.join(20)
        assert not thread.is_alive()


class Provider:
    """A provider that signs `<unix time>.<body>`, for the form of a webhook: `evt_1:order.paid`."""

    name = "acme"
    key = b"whsec"

    def __init__(self, task: Task[..., Any] | None = None, org: str | None = None) -> None:
        self.task, self.org = task, org

    def signed(self, body: bytes, at: datetime) -> dict[str, str]:
        stamp = str(int(at.timestamp()))
        digest = hmac.new(self.key, stamp.encode() + b"." + body, sha256).hexdigest()
        return {"Acme-Stamp": stamp, "Acme-Signature": digest}

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Received:
        stamp = headers.get("acme-stamp", "")
        wanted = hmac.new(self.key, stamp.encode() + b"." + body, sha256).hexdigest()
        if not hmac.compare_digest(wanted, headers.get("acme-signature", "")):
            raise SignatureRefused("the signature does not fit")
        if abs(now.timestamp() - int(stamp)) > 300:
            raise SignatureRefused("it is older than 5 minutes")
        event, kind = body.decode().split(":", 1)
        return Received(event, kind, body.decode(), self.org)

    def job(self, received: Received) -> NewJob | None:
        if self.task is None or received.type == "unwanted":
            return None
        return self.task.job(event_id=received.event_id)


class Part(Block):
    """A block of the tests."""

    def __init__(
        self, *, inbound: list[Any] | None = None, checks: list[Check] | None = None, routes: list[Any] | None = None
    ) -> None:
        self.registry = ms.Registry("part")
        self.inbound, self.checks, self._routes = inbound or (), checks or (), routes or []

    def routes(self) -> list[Any]:
        return self._routes
