"""The sandbox's servers: HTTP for the providers and for who looks, SMTP for mail, on loopback alone."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

import uvicorn
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mainspring.sandbox import desk
from mainspring.sandbox.faults import Faults
from mainspring.sandbox.ledger import Clock, Ledger, real_time
from mainspring.sandbox.providers import PROVIDERS, smtp_server
from mainspring.sandbox.world import World

HOST = "127.0.0.1"
ENDLESS = 3600.0  # how long `timeout` stays silent; whoever waits gives up sooner


class Faulty:
    """A provider's pages behind its faults."""

    def __init__(self, provider: str, app: ASGIApp, faults: Faults) -> None:
        self._provider, self._app, self._faults = provider, app, faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless a fault strikes."""
        fault = self._faults.strike(self._provider, scope["path"]) if scope["type"] == "http" else None
        if fault is None:
            return await self._app(scope, receive, send)
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
            return await self._app(scope, receive, send)
        if fault.kind == "timeout":
            return await _silence(receive)
        if fault.kind == "drop":
            await self._app(scope, receive, _nobody)
            # A body that ends too early: the server closes the line, and the caller sees it break.
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"1000")]})
            return await send({"type": "http.response.body", "body": b"{", "more_body": True})
        headers = [(b"content-type", b"application/json")]
        if fault.retry_after is not None:
            headers.append((b"retry-after", str(fault.retry_after).encode()))
        await send({"type": "http.response.start", "status": fault.status, "headers": headers})
        return await send({"type": "http.response.body", "body": b'{"error": {"type": "api_error"}}'})


async def _nobody(message: Message) -> None:
    """Where the answer of a dropped request goes."""


async def _silence(receive: Receive) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(ENDLESS):
            while (await receive())["type"] != "http.disconnect":
                pass


def application(world: World) -> Starlette:
    """Everything that the sandbox serves over HTTP."""
    mounts = [
        Mount(f"/{name}", app=Faulty(name, Starlette(routes=routes(world)), world.faults))
        for name, routes in PROVIDERS.items()
    ]
    return Starlette(routes=[Mount("/sandbox", routes=desk.routes(world)), *mounts])


class Sandbox:
    """The stand-ins, in a thread of their own.

    ::

        with Sandbox() as sandbox:
            stripe = Stripe(key="sk_test_1", base=f"{sandbox.url}/stripe")
            ...
            assert [entry.body["amount"] for entry in sandbox.ledger.find("charge")] == [1250]
    """

    def __init__(
        self, *, port: int = 0, smtp_port: int = 0, path: Path | None = None, clock: Clock = real_time, seed: int = 0
    ) -> None:
        self.world = World(Ledger(path, clock), Faults(seed))
        self._ports = port, smtp_port
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._server: uvicorn.Server | None = None
        self._failed: BaseException | None = None
        self.smtp_port = smtp_port

    @property
    def url(self) -> str:
        """Where it listens, such as `http://127.0.0.1:8025`."""
        return self.world.url

    @property
    def ledger(self) -> Ledger:
        """What happened."""
        return self.world.ledger

    @property
    def faults(self) -> Faults:
        """What goes wrong."""
        return self.world.faults

    def start(self) -> Self:
        """Listen, in a thread."""
        self._thread = threading.Thread(target=self._run, name="sandbox", daemon=True)
        self._thread.start()
        self._ready.wait(30)
        if self._failed is not None:
            raise self._failed
        return self

    def stop(self) -> None:
        """Hang up."""
        if self._server is not None:
            self._server.should_exit = self._server.force_exit = True
        if self._thread is not None:
            self._thread.join(10)
        self.ledger.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _run(self) -> None:
        try:
            asyncio.run(self.serve())
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()

    async def serve(self) -> None:
        """Listen until stopped, in the caller's event loop."""
        config = uvicorn.Config(
            application(self.world), host=HOST, port=self._ports[0], log_level="critical", lifespan="off"
        )
        self._server = server = uvicorn.Server(config)
        server.install_signal_handlers = lambda: None  # type: ignore[attr-defined] # older versions have it
        async with self._mailbox():
            with config.bind_socket() as listening:
                self.world.url = f"http://{HOST}:{listening.getsockname()[1]}"
                task = asyncio.create_task(server.serve(sockets=[listening]))
                while not server.started and not task.done():  # noqa: ASYNC110 (uvicorn has no event for it)
                    await asyncio.sleep(0.005)
                self._ready.set()
                await task

    @contextlib.asynccontextmanager
    async def _mailbox(self) -> AsyncIterator[None]:
        mailbox: Any = await smtp_server(self.world, HOST, self._ports[1])
        self.smtp_port = mailbox.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            mailbox.close()
