"""A receiver on loopback that captures what comes, and an application that sends to it, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from tests.worker.stage import SETTINGS, Stage

from mainspring import App, Cipher, WorkerConfig, exponential
from mainspring.contrib.webhooks import Delivery, Policy, Registered, Webhooks
from mainspring.events import Event, Observer
from mainspring.worker import Worker

#: What a test plans for one request: a status, a status with headers and a body, or silence.
Reply = int | tuple[int, dict[str, str], bytes] | None
#: The passport's: 2, 4, 8, 16 s.
FIVE = exponential(base=2, cap=1024, jitter="none", attempts=5)


@dataclass
class Request:
    """One request as it came."""

    path: str
    headers: dict[str, str]
    body: bytes


@dataclass
class Inbox:
    """Where webhooks arrive. `plan` says what each is answered, in order; afterwards `otherwise`."""

    plan: list[Reply] = field(default_factory=list)
    otherwise: Reply = 204
    requests: list[Request] = field(default_factory=list)
    judge: Callable[[Request], Reply] | None = None
    port: int = 0
    before_answer: Callable[[], Any] | None = None
    most: int = 0  # at once
    now: int = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/hooks"

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.now += 1
        self.most = max(self.most, self.now)
        try:
            request = await _read(reader)
            self.requests.append(request)
            reply = self.judge(request) if self.judge else self.plan.pop(0) if self.plan else self.otherwise
            if self.before_answer is not None:
                found = self.before_answer()
                if asyncio.iscoroutine(found):
                    await found
            if reply is None:
                await reader.read()  # until the caller hangs up
                return
            status, headers, body = (reply, {}, b"") if isinstance(reply, int) else reply
            lines = [f"HTTP/1.1 {status} X", *(f"{name}: {value}" for name, value in headers.items())]
            head = "\r\n".join([*lines, f"content-length: {len(body)}", "", ""])
            writer.write(head.encode() + body)
            await writer.drain()
        except (OSError, EOFError):
            pass  # whoever called has seen enough
        finally:
            self.now -= 1
            writer.transport.abort()


async def _read(reader: asyncio.StreamReader) -> Request:
    head = (await reader.readuntil(b"\r\n\r\n")).decode()
    first, *lines = head.split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines if line)}
    body = await reader.readexactly(int(headers["content-length"]))
    return Request(first.split(" ")[1], headers, body)


class World:
    """One test's world: a stage, an inbox, an application with webhooks."""

    def __init__(
        self,
        stage: Stage,
        inbox: Inbox,
        *,
        cipher: Cipher | None = None,
        observers: tuple[Observer, ...] = (),
        **options: Any,
    ) -> None:
        self.stage, self.inbox, self.told = stage, inbox, list[Event]()
        stage.clock.advance(seconds=0)  # it stands still from here on
        defaults: dict[str, Any] = {"policy": Policy.local(), "retry": FIVE}
        self.hooks = Webhooks("X-BPC", **defaults | options)
        observers = (self.told.extend, *observers)
        self.app = App(dsn=stage.dsn, blocks=[self.hooks], maintenance=False, cipher=cipher, observers=observers)
        self.client = self.app.async_client()
        self.endpoints = self.hooks.endpoints(self.client)
        self.deliveries = self.hooks.deliveries(self.client)

    async def close(self) -> None:
        await self.client.close()

    def worker(self, **settings: Any) -> Worker:
        return self.app.worker(WorkerConfig(**(SETTINGS | settings)))

    async def drain(self) -> None:
        """Run everything that is due."""
        async with asyncio.timeout(30):
            await self.worker().drain()

    async def add(self, path: str = "", **about: Any) -> Registered:
        return await self.endpoints.add(self.inbox.url + path, **about)

    async def publish(self, type: str = "order.paid", payload: Any = None, **how: Any) -> list[UUID]:
        """Publish an event, and answer its deliveries."""
        body = {"total": 7} if payload is None else payload
        made = await self.hooks.publish(type, body, ("Order", 42), by=self.client, **how)
        return [each.id for each in made]

    async def delivery(self, id: UUID) -> Delivery:
        return await self.deliveries.get(id)

    async def job(self, delivery: UUID) -> str:
        """The state of a delivery's job."""
        return await self.stage.state((await self.delivery(delivery)).job_id)
