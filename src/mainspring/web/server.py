"""Serving the HTTP application by uvicorn, on loopback unless a secret protects it."""

from __future__ import annotations

import asyncio
import ipaddress
import logging
import os
import resource
import signal
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from datetime import timedelta
from typing import Any, TypedDict, Unpack

import uvicorn
from starlette.applications import Starlette
from uvicorn.protocols.http.h11_impl import H11Protocol

from mainspring.app import App
from mainspring.config import allowed_hosts, trusted_proxies
from mainspring.errors import ConfigurationError
from mainspring.text.span import Span, configured_span
from mainspring.web.application import GRACE, create
from mainspring.web.backend import is_loopback
from mainspring.web.guarded_route import NO_TOKENS
from mainspring.web.inbound import LARGEST_INBOUND_BODY
from mainspring.web.secret import known_secret

log = logging.getLogger("mainspring.web")

HOST, PORT = "127.0.0.1", 8080
OPEN_FILES = 10_000  # each connection is one, and each place of a request may need more
HEAD = 10.0  # seconds for the head of a request: who connects and says nothing would hold a connection for ever
SERVER_STOP_S = 15  # seconds beyond the grace period for runs to be given back and answers to be sent


class Server:
    """One process that serves an application over HTTP until it is stopped.

    ::

        server = Server(app, port=8080)
        print(server.listen())
        asyncio.run(server.run())

    `proxies` are the addresses and networks whose `X-Forwarded-…` headers are believed, beside those of
    MAINSPRING_TRUSTED_PROXIES; nobody's by default.
    `hosts` are the names under which it answers, beside those of loopback and of the address it listens on; with
    `probe_by_ip` health is told under any IP address.
    """

    def __init__(
        self,
        app: App,
        *,
        host: str = HOST,
        port: int = PORT,
        secret: str | None = None,
        tokens: Mapping[str, str] = NO_TOKENS,
        proxies: Sequence[str] = (),
        hosts: Sequence[str] = (),
        probe_by_ip: bool = False,
        largest: int = LARGEST_INBOUND_BODY,
        grace: Span = GRACE,
    ) -> None:
        if not 0 <= port <= 65535:
            raise ConfigurationError("port: is not between 0 and 65535")
        self._host, self._port, self._proxied = host, port, bool([*proxies, *trusted_proxies()])
        self._family, self._address = self._resolved()
        named = [*hosts, *allowed_hosts()]
        self._anonymous = not is_loopback(self._address[0]) and not named
        if not ipaddress.ip_address(self._address[0]).is_unspecified:
            named += [host, self._address[0]]
        self._grace = configured_span("grace", grace)
        self._open = known_secret(secret) is None
        self._socket: socket.socket | None = None
        self.http_app = create(
            app, secret=secret, tokens=tokens, proxies=proxies, hosts=named, probe_by_ip=probe_by_ip, largest=largest,
            grace=self._grace,
        )  # fmt: skip
        self._uvicorn = _Uvicorn(self._config(), self.http_app, self._grace)

    def listen(self) -> str:
        """Take the port, and return the address."""
        host = self._address[0]
        if not is_loopback(host) and self._open:
            raise ConfigurationError(
                f"host: {host} can be reached from elsewhere, and CRON_SECRET is not set: set it first"
            )
        _have_room()
        try:
            self._socket = _listening(self._family, self._address)
        except OSError as error:
            why = os.strerror(error.errno) if error.errno else error
            raise ConfigurationError(f"port: cannot listen on {host}:{self._port}: {why}") from None
        if not is_loopback(host) and not self._proxied:
            log.warning("nothing here encrypts: put a proxy that ends TLS before it, and name it by --proxy-headers")
        if self._anonymous:
            log.warning("only names of this machine are answered: say by --allowed-host what others call it")
        port = self._socket.getsockname()[1]
        return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"

    async def run(self, *, signals: bool = True) -> None:
        """Serve until SIGTERM, SIGINT or `stop`; then finish requests and runs, up to the grace period.

        Without `signals` they stay the caller's, who stops it.
        """
        if self._socket is None:
            log.info("listens on %s", self.listen())
        assert self._socket is not None
        with _signals(self.stop) if signals else nullcontext():
            await self._uvicorn.serve(sockets=[self._socket])

    def stop(self) -> None:
        """Begin to stop; asked again, wait for nobody."""
        self._uvicorn.force_exit = self._uvicorn.should_exit
        self._uvicorn.should_exit = True

    def _resolved(self) -> tuple[socket.AddressFamily, Any]:
        try:
            family, _, _, _, address = socket.getaddrinfo(self._host, self._port, type=socket.SOCK_STREAM)[0]
        except (OSError, UnicodeError):
            raise ConfigurationError("host: is no address of this machine") from None
        return family, address[:2]

    def _config(self) -> uvicorn.Config:
        return uvicorn.Config(
            self.http_app,
            http=_HttpConnection,  # by h11: the stricter parser, and the same one everywhere
            lifespan="on",
            log_config=None,
            log_level="warning",
            access_log=False,  # it would write queries, which may hold secrets: ours does not
            server_header=False,
            proxy_headers=False,  # ours tells whether a named proxy has brought a request, too
            timeout_graceful_shutdown=int(self._grace.total_seconds()) + SERVER_STOP_S,
        )


def _have_room() -> None:
    """Open as many files as we are allowed to, if need be: by default it is often 1024."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = OPEN_FILES if hard == resource.RLIM_INFINITY else min(hard, OPEN_FILES)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def _listening(family: socket.AddressFamily, address: Any) -> socket.socket:
    # With its protocol named, or asyncio leaves Nagle's algorithm on: an answer of two packets would take 40 ms.
    made = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        made.bind(address)
        made.listen()
    except OSError:
        made.close()
        raise
    return made


class _HttpConnection(H11Protocol):
    """One connection, which is closed when the head of a request does not arrive in time."""

    _waiting: asyncio.TimerHandle

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as uvicorn says it
        """Wait for the first request."""
        super().connection_made(transport)
        self._wait()

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._waiting.cancel()
        self._wait()
        super().on_response_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nobody."""
        self._waiting.cancel()
        super().connection_lost(exc)

    def _wait(self) -> None:
        self._waiting = self.loop.call_later(HEAD, self._hang_up)

    def _hang_up(self) -> None:
        if self.cycle is None or self.cycle.response_complete:  # else a request is under way
            self.transport.close()


class _Uvicorn(uvicorn.Server):
    """Uvicorn whose runs stop claiming as soon as it is asked to stop, and which leaves signals to us."""

    def __init__(self, config: uvicorn.Config, http_app: Starlette, grace: timedelta) -> None:
        super().__init__(config)
        self._http_app, self._grace = http_app, grace

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Wait for what is under way; in a hurry, give it back."""
        runs = self._http_app.state.runs
        closing = asyncio.create_task(runs.close(self._grace))
        await super().shutdown(sockets)
        if self.force_exit:
            closing.cancel()
            closing = asyncio.create_task(runs.close(timedelta(0)))
        await closing

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """It would raise them again at its end, so that a stop in good order would look like a death."""
        yield


@contextmanager
def _signals(stop: Any) -> Iterator[None]:
    """Stop by SIGTERM and SIGINT, where this is the main thread's loop."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stop)
    try:
        yield
    finally:
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.remove_signal_handler(number)


class ServeOptions(TypedDict, total=False):
    """How to serve: see `Server`."""

    host: str
    port: int
    secret: str | None
    tokens: Mapping[str, str]
    proxies: Sequence[str]
    hosts: Sequence[str]
    probe_by_ip: bool
    largest: int
    grace: Span


def serve(app: App, **how: Unpack[ServeOptions]) -> None:
    """Serve an application until SIGTERM or SIGINT.

    ::

        mainspring.web.serve(app, port=8080)
    """
    asyncio.run(Server(app, **how).run())
