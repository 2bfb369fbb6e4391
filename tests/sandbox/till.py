"""What tests of the sandbox need: Stripe's own SDK pointed at it, a clock, and somebody who receives webhooks."""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import httpx2
import stripe

from mainspring_sandbox import Sandbox


class Clock:
    """Time that a test moves."""

    def __init__(self) -> None:
        self.at = datetime.now(UTC).replace(microsecond=0)

    def __call__(self) -> datetime:
        return self.at

    def advance(self, **span: float) -> None:
        self.at += timedelta(**span)


class Till:
    """The SDK, with what a test asks of it most."""

    def __init__(self, sandbox: Sandbox, retries: int = 0, **options: Any) -> None:
        self.sandbox = sandbox
        self.http = stripe.RequestsClient(timeout=10)
        client = stripe.StripeClient(
            "sk_test_1",
            base_addresses={"api": f"{sandbox.url}/stripe"},
            max_network_retries=retries,
            http_client=self.http,
            **options,
        )
        self.v1: Any = client.v1  # its types ask for TypedDicts, which tests of bad input cannot be

    def pay(self, key: str | None = None, method: str = "pm_card_visa", **params: Any) -> Any:
        """An off-session payment of 12.50, as a job makes it."""
        return self.v1.payment_intents.create(paying(method, **params), {"idempotency_key": key} if key else {})


def paying(method: str = "pm_card_visa", **params: Any) -> Any:
    common = {"amount": 1250, "currency": "eur", "payment_method_types": ["card"], "off_session": True, "confirm": True}
    return {**common, "payment_method": method, **params}


@contextmanager
def till(sandbox: Sandbox, retries: int = 0, **options: Any) -> Iterator[Till]:
    made = Till(sandbox, retries, **options)
    try:
        yield made
    finally:
        made.http.close()  # type: ignore[no-untyped-call] # the SDK's


@asynccontextmanager
async def async_client(sandbox: Sandbox, retries: int = 0) -> AsyncIterator[Any]:
    """The SDK over aiohttp, which it takes when httpx is absent."""
    http = stripe.AIOHTTPClient(timeout=10)
    base = {"api": f"{sandbox.url}/stripe"}
    try:
        client = stripe.StripeClient("sk_test_1", base_addresses=base, max_network_retries=retries, http_client=http)  # type: ignore[arg-type] # a dict is what its documentation shows
        yield client.v1
    finally:
        await http.close_async()  # type: ignore[no-untyped-call] # the SDK's


@dataclass
class Receiver:
    """Takes webhooks on loopback, and answers as told."""

    url: str = ""
    answers: list[int] = field(default_factory=list)  # for the next ones; then 200
    got: list[tuple[str, bytes]] = field(default_factory=list)  # signature and body

    def events(self, secret: str) -> list[Any]:
        """What came, each verified by Stripe's own helper."""
        return [stripe.Webhook.construct_event(body, signed, secret) for signed, body in self.got]


@contextmanager
def receiver() -> Iterator[Receiver]:
    into = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            into.got.append((self.headers["Stripe-Signature"], self.rfile.read(int(self.headers["Content-Length"]))))
            self.send_response(into.answers.pop(0) if into.answers else 200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    into.url = f"http://127.0.0.1:{server.server_port}/hook"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield into
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    """Wait for a fact."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, "it did not happen in time"
        time.sleep(0.005)


def ask(sandbox: Sandbox, method: str, path: str, body: Any = None) -> httpx2.Response:
    """A bare request, as `curl` would send it."""
    return httpx2.request(method, f"{sandbox.url}{path}", json=body, trust_env=False, verify=False, timeout=10)


def ask_stripe(sandbox: Sandbox, method: str, path: str, form: str = "", **headers: str) -> httpx2.Response:
    """A bare request to Stripe, with a key unless another one is given."""
    sent = {"Authorization": "Bearer sk_test_1", "Content-Type": "application/x-www-form-urlencoded", **headers}
    url = f"{sandbox.url}/stripe{path}"
    return httpx2.request(method, url, content=form.encode(), headers=sent, trust_env=False, verify=False, timeout=10)
