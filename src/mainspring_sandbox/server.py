"""The sandbox's servers: HTTP for the providers and for who looks, SMTP for mail, on loopback alone."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import socket
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, Self, TypeVar

import uvicorn
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Mount
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from mainspring.declare.route import public
from mainspring_sandbox import desk
from mainspring_sandbox.environment import WEBHOOK_SECRET, applied, environment
from mainspring_sandbox.faults import Faults
from mainspring_sandbox.ledger import Ledger, LedgerClock, real_time
from mainspring_sandbox.post import Post
from mainspring_sandbox.providers import PROVIDERS, smtp_server
from mainspring_sandbox.resend import ResendStandIn
from mainspring_sandbox.stripe import StripeStandIn
from mainspring_sandbox.vendus import VendusStandIn
from mainspring_sandbox.world import World

T = TypeVar("T")

SANDBOX_HOST = "127.0.0.1"
SILENT_ANSWER_S = 3600.0  # how long `timeout` stays silent; whoever waits gives up sooner


class Faulty:
    """A provider's pages behind its faults."""

    def __init__(self, provider: str, app: ASGIApp, faults: Faults) -> None:
        self._provider, self._app, self._faults = provider, app, faults

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer, unless a fault strikes."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        fault = self._faults.strike(self._provider, scope["path"], method=scope["method"])
        if fault is None:
            return await self._app(scope, receive, send)
        if fault.kind == "slow":
            await asyncio.sleep(fault.seconds)
            return await self._app(scope, receive, send)
        if fault.kind == "drop" or fault.accepted:
            await self._app(scope, receive, _nobody)
        if fault.kind == "drop":
            return await _break(receive)
        if fault.kind == "timeout":
            return await _silence(receive)
        headers = {} if fault.retry_after is None else {"Retry-After": str(fault.retry_after)}
        error = {"type": "api_error", "message": "a fault of the sandbox", "code": fault.code}
        return await JSONResponse({"error": error}, fault.status, headers)(scope, receive, send)


def _listening(port: int) -> socket.socket:
    """A socket that says it is TCP's: on others asyncio lets the second part of an answer wait, 40 ms."""
    with socket.create_server((SANDBOX_HOST, port)) as made:
        return socket.socket(made.family, made.type, socket.IPPROTO_TCP, made.detach())


async def _closed(server: uvicorn.Server) -> None:
    """Hang up at once; uvicorn's own way takes a fifth of a second, and tests start many sandboxes."""
    for listener in server.servers:
        listener.close()
    for connection in list(server.server_state.connections):
        connection.transport.abort()
    await asyncio.sleep(0)


async def _nobody(message: Message) -> None:
    """Where the answer of a request goes that is accepted and then not answered."""


async def _break(receive: Receive) -> None:
    """Cut the connection before the first byte of an answer, which ASGI has no word for: by the server's transport."""
    receive.__self__.transport.abort()  # type: ignore[attr-defined] # uvicorn's request, h11 or httptools
    await _silence(receive)


async def _silence(receive: Receive) -> None:
    """Say nothing until the caller hangs up."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(SILENT_ANSWER_S):
            while (await receive())["type"] != "http.disconnect":
                pass


def _defect(request: Request, error: Exception) -> Response:
    """A page that fails says so: whoever tests against it must not take it for the provider's word."""
    message = f"a defect of the sandbox: {type(error).__name__}: {error}"
    return JSONResponse({"error": {"type": "api_error", "message": message}}, 500)


def application(world: World) -> Starlette:
    """Everything that the sandbox serves over HTTP; pages of others in a browser neither read nor change it."""
    from mainspring.web.guarded_route import GuardedRoute
    from mainspring.web.origin import AllowedHosts, OriginCheck  # with all that is served, 40 ms

    mounts = [
        Mount(
            f"/{name}",
            app=Faulty(name, Starlette(routes=routes(world), exception_handlers={Exception: _defect}), world.faults),
        )
        for name, routes in PROVIDERS.items()
    ]
    return Starlette(
        routes=[GuardedRoute(public(Mount("/sandbox", routes=desk.routes(world)))), *mounts],
        middleware=[Middleware(OriginCheck, hosts=AllowedHosts())],
        exception_handlers={Exception: _defect},
    )


class Sandbox:
    """The stand-ins, in a thread of their own.

    ::

        with Sandbox() as sandbox:
            stripe = Stripe(key="sk_test_1", base=f"{sandbox.url}/stripe")
            ...
            assert [entry.body["amount"] for entry in sandbox.ledger.find("charge")] == [1250]
    """

    def __init__(
        self,
        *,
        port: int = 0,
        smtp_port: int = 0,
        path: Path | None = None,
        clock: LedgerClock = real_time,
        seed: int = 0,
    ) -> None:
        self.world = World(Ledger(path, clock), Faults(seed))
        self._ports = port, smtp_port
        self._ready = threading.Event()
        self._thread: threading.Thread | None = None
        self._hang_up: Callable[[], object] = lambda: None
        self._loop: asyncio.AbstractEventLoop | None = None
        self.closing: list[Callable[[], object]] = []  # called before it stops or is reset
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

    @property
    def stripe(self) -> StripeStandIn:
        """What makes things happen at Stripe: late outcomes, webhooks in disorder, forgotten keys."""
        return self.world.part(StripeStandIn)

    @property
    def resend(self) -> ResendStandIn:
        """What makes things happen at Resend: mail that bounces, people who complain."""
        return self.world.part(ResendStandIn)

    @property
    def posts(self) -> tuple[Post, ...]:
        """Who carries webhooks."""
        return self.stripe.post, self.resend.post

    @property
    def vendus(self) -> VendusStandIn:
        """What makes things happen at Vendus: a register that is closed, VAT that differs."""
        return self.world.part(VendusStandIn)

    def environment(self, webhook_secret: str = WEBHOOK_SECRET) -> dict[str, str]:
        """The settings by which an application finds it in place of real providers."""
        return environment(self.url, self.smtp_port, webhook_secret)

    def standing_in(self) -> contextlib.AbstractContextManager[None]:
        """Inside the block the environment leads to it: `Stripe.from_env()` and `senders()` find no real provider."""
        return applied(self.environment())

    def reset(self, clock: LedgerClock | None = None) -> None:
        """Forget everything and behave as at the beginning, from now on by this clock; its addresses stay."""
        self._close()
        self.ledger.reset()
        self.ledger.clock = clock or self.ledger.clock
        self.faults.reset()
        self.stripe.reset()
        self.resend.reset()
        self.vendus.reset()

    def run(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine where the sandbox runs, and wait for it, from another thread."""
        if self._loop is None:
            work.close()
            raise RuntimeError("the sandbox does not run: with Sandbox() as sandbox")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

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
        self._close()
        self._hang_up()
        if self._thread is not None:
            self._thread.join(10)
        self.ledger.close()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *error: object) -> None:
        self.stop()

    def _close(self) -> None:
        while self.closing:
            self.closing.pop()()

    def _run(self) -> None:
        try:
            asyncio.run(self.serve())
        except BaseException as error:
            self._failed = error
        finally:
            self._ready.set()

    async def serve(self) -> None:
        """Listen until stopped, in the caller's event loop."""
        server = uvicorn.Server(uvicorn.Config(application(self.world), log_level="critical", lifespan="off"))
        async with self._mailbox(), self._post():
            with _listening(self._ports[0]) as listening:
                self.world.url = f"http://{SANDBOX_HOST}:{listening.getsockname()[1]}"
                task, loop = asyncio.create_task(server.serve(sockets=[listening])), asyncio.get_running_loop()
                while not server.started and not task.done():  # noqa: ASYNC110 (uvicorn has no event for it)
                    await asyncio.sleep(0.005)
                self._hang_up = functools.partial(loop.call_soon_threadsafe, task.cancel)
                self._loop = loop
                self._ready.set()
                try:
                    await asyncio.wait([task])
                finally:
                    self._hang_up, self._loop = lambda: None, None
                    await _closed(server)
                if not task.cancelled():
                    task.result()  # it ended by itself: on a signal, or because it could not start

    @contextlib.asynccontextmanager
    async def _mailbox(self) -> AsyncIterator[None]:
        mailbox: Any = await smtp_server(self.world, SANDBOX_HOST, self._ports[1])
        self.smtp_port = mailbox.sockets[0].getsockname()[1]
        try:
            yield
        finally:
            mailbox.close()

    @contextlib.asynccontextmanager
    async def _post(self) -> AsyncIterator[None]:
        carrying = [asyncio.create_task(post.run()) for post in self.posts]
        try:
            yield
        finally:
            for task in carrying:
                task.cancel()
            await asyncio.gather(*carrying, return_exceptions=True)
