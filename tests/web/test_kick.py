"""The kick: after the commit, with the secret, to the address of the settings, and never in the way."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable, Iterator
from email.message import EmailMessage
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import aiosmtplib
import httpx2
import psycopg
import pytest
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from tests.databases import Database
from tests.web.visit import SECRET, Part, Provider, open_to, served
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.errors import ConfigurationError
from mainspring.web import Kick, public
from mainspring.web.target import RunTarget
from mainspring_sandbox import Sandbox

pytestmark = pytest.mark.anyio


class Endpoint(ThreadingHTTPServer):
    """A run endpoint that notes who came, and what was there to be seen."""

    daemon_threads = True

    def __init__(self, look: Callable[[], object] | None = None) -> None:
        self.calls: list[tuple[str, dict[str, str], object]] = []
        self.look = look
        self.open = threading.Event()
        self.open.set()
        self.status = 200
        super().__init__(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Endpoint

    def do_POST(self) -> None:
        headers = {name.lower(): value for name, value in self.headers.items()}
        self.server.calls.append((self.path, headers, self.server.look() if self.server.look else None))
        self.server.open.wait(10)
        body = b'{"ok":true,"processed":1,"remainingPending":0,"asOfUtc":"2026-01-01T00:00:00Z"}'
        self.send_response(self.server.status)
        self.send_header("content-length", str(len(body)))
        self.send_header("location", "http://127.0.0.1:1/elsewhere")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Nothing."""


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    server = Endpoint()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield server
    server.open.set()
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture(autouse=True)
def quiet() -> Iterator[None]:
    """No kick outlives its test."""
    yield
    for thread in threading.enumerate():
        if thread.name == "mainspring kick":
            thread.join(10)


@pytest.fixture
def noop(tasks: ms.Registry) -> ms.Task[..., Any]:
    @tasks.task
    async def noop() -> None:
        """Do nothing."""

    return noop


def app_with(dsn: str, tasks: ms.Registry, *blocks: Any) -> ms.App:
    return ms.App(tasks, dsn=dsn, maintenance=False, blocks=blocks)


@pytest.mark.rule("ENG-15.11")
@pytest.mark.parametrize("colour", ["sync", "async", "session"])
async def test_an_enqueue_sends_a_kick_with_the_secret_that_finds_the_job(
    stage: Stage, tasks: ms.Registry, noop: ms.Task[..., Any], endpoint: Endpoint, database: Database, colour: str
) -> None:
    def look() -> object:
        with database.connect() as conn:
            return conn.execute("select count(*) from mainspring.job").fetchone()

    endpoint.look = look
    app = app_with(stage.dsn, tasks, Kick(endpoint.url, secret=SECRET, path="/api/cron"))
    if colour == "sync":
        with app.client() as client:
            client.enqueue(noop.job())
    elif colour == "async":
        async with app.async_client() as aclient:
            await aclient.enqueue(noop.job())
    else:
        engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(stage.dsn))
        with app.client() as client, Session(engine) as session:
            client.enqueue(noop.job(), conn=session)
            assert endpoint.calls == []  # not before the commit
            session.commit()
        engine.dispose()

    await stage.until(lambda: endpoint.calls)
    ((path, headers, seen),) = endpoint.calls
    assert (path, headers["x-cron-secret"], seen) == ("/api/cron", SECRET, (1,))


async def test_what_is_rolled_back_or_due_later_is_not_kicked(
    stage: Stage, tasks: ms.Registry, noop: ms.Task[..., Any], endpoint: Endpoint
) -> None:
    app = app_with(stage.dsn, tasks, Kick(endpoint.url, secret=SECRET))
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(stage.dsn))
    with app.client() as client, Session(engine) as session:
        client.enqueue(noop.job(), conn=session)
        session.rollback()
        client.enqueue(noop.job().after(60))
    engine.dispose()

    assert not [thread for thread in threading.enumerate() if thread.name == "mainspring kick"]
    assert endpoint.calls == []


def kicking() -> bool:
    return any(thread.name == "mainspring kick" for thread in threading.enumerate())


@pytest.mark.rule("ENG-15.10")
@pytest.mark.parametrize("fault", ["refused", "silent", "500", "redirect"])
async def test_a_kick_that_fails_is_in_nobodys_way(
    stage: Stage, tasks: ms.Registry, noop: ms.Task[..., Any], endpoint: Endpoint, fault: str
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        urls = {"refused": "http://127.0.0.1:1", "silent": f"http://127.0.0.1:{silent.getsockname()[1]}"}
        endpoint.status = {"500": 500, "redirect": 307}.get(fault, 200)
        kick = Kick(urls.get(fault, endpoint.url), secret=SECRET)

        @tasks.task
        async def act(*, event_id: str) -> None:
            """Act."""

        acme = Provider(act)
        app = app_with(stage.dsn, tasks, kick, Part(inbound=[acme]))
        body = b"evt_1:paid"
        async with open_to(app) as visitor:
            answer = await visitor.post("/v1/inbound/acme", content=body, headers=acme.signed(body, stage.clock.now()))
            assert kicking() or fault != "silent"  # answered before it was given up
            await stage.until(lambda: not kicking())
            ran = await visitor.post("/v1/run", headers={"x-cron-secret": SECRET})  # the next call of the schedule

    assert answer.status_code == 200
    assert ran.json()["processed"] == 1
    assert len(endpoint.calls) == (1 if fault in ("500", "redirect") else 0)


async def test_kicks_that_come_together_are_two(endpoint: Endpoint, stage: Stage) -> None:
    kick = Kick(endpoint.url, secret=SECRET)
    endpoint.open.clear()

    kick.soon()
    await stage.until(lambda: endpoint.calls)
    for _ in range(100):
        kick.soon()
    endpoint.open.set()
    await stage.until(lambda: len(endpoint.calls) == 2)
    await stage.until(lambda: not [t for t in threading.enumerate() if t.name == "mainspring kick"])

    assert len(endpoint.calls) == 2


async def test_a_failing_kick_is_said_once_and_never_with_the_secret(
    caplog: pytest.LogCaptureFixture, stage: Stage
) -> None:
    caplog.set_level(logging.DEBUG)
    kick = Kick("http://127.0.0.1:1", secret=SECRET)
    for _ in range(3):
        kick.soon()
        await stage.until(lambda: not [t for t in threading.enumerate() if t.name == "mainspring kick"])

    levels = [record.levelno for record in caplog.records if record.name == "mainspring.kick"]
    assert levels == [logging.WARNING, logging.DEBUG, logging.DEBUG]
    assert SECRET not in caplog.text
    assert SECRET not in repr(vars(kick))


async def test_a_kick_that_breaks_is_not_the_last_one(
    endpoint: Endpoint, stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    kick, call = Kick(endpoint.url, secret=SECRET), RunTarget.call

    async def broken(self: RunTarget, limit: float) -> Any:
        monkeypatch.setattr(RunTarget, "call", call)
        raise ValueError("nobody thought of this")

    monkeypatch.setattr(RunTarget, "call", broken)
    for _ in range(2):
        kick.soon()
        await stage.until(lambda: not [t for t in threading.enumerate() if t.name == "mainspring kick"])

    assert len(endpoint.calls) == 1


@pytest.mark.rule("ENG-15.18")
async def test_a_forged_host_leads_no_kick_astray(
    stage: Stage, tasks: ms.Registry, noop: ms.Task[..., Any], endpoint: Endpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("APP_URL", endpoint.url)
    monkeypatch.setenv("CRON_SECRET", SECRET)
    app: ms.App

    async def order(_: Request) -> Response:
        async with app.async_client() as client:
            await client.enqueue(noop.job())
        return JSONResponse({}, 202)

    routes = [public(Route("/order", order, methods=["POST"]))]
    app = ms.App(tasks, dsn=stage.dsn, maintenance=False, blocks=[Kick()], routes=routes)
    forged = {"host": "evil.test", "x-forwarded-host": "evil.test", "origin": "http://evil.test"}
    async with open_to(app, hosts=["*"]) as visitor:
        assert (await visitor.post("/order", headers=forged)).status_code == 202
        await stage.until(lambda: endpoint.calls)

    assert [(path, headers["host"]) for path, headers, _ in endpoint.calls] == [
        ("/v1/run", endpoint.url.removeprefix("http://"))
    ]


@pytest.mark.parametrize(
    "url",
    ["", "shop.test", "ftp://shop.test", "https://", "https://ada:pw@shop.test", "https://shop.test/?a=1", "http://x:0",
     "https://shop.test/#x", "http://[::1", "https://shop.test/\n"],
)  # fmt: skip
async def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigurationError, match=r"^url: is not of the form"):
        Kick(url, secret=SECRET)


async def test_a_kick_without_settings_says_which_one_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match=r"^APP_URL: is not set"):
        Kick(secret=SECRET)
    monkeypatch.setenv("APP_URL", "http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match=r"^CRON_SECRET: is not set"):
        Kick()


@pytest.mark.rule("ENG-15.13")
async def test_with_a_kick_a_payment_has_its_invoice_and_mail_within_seconds(
    stage: Stage, tasks: ms.Registry, unused_tcp_port: int
) -> None:
    with Sandbox() as sandbox:

        @tasks.task
        async def paid(ctx: ms.Context, *, event_id: str) -> None:
            async with ctx.complete():
                await ctx.enqueue(issue_invoice.job(booking_id=7))
                await ctx.enqueue(send_mail.job(booking_id=7))

        @tasks.task
        async def issue_invoice(*, booking_id: int) -> None:
            document = {"type": "FT", "items": [{"title": "A week", "gross_price": "120"}]}
            auth = httpx2.BasicAuth("key", "")
            async with httpx2.AsyncClient(base_url=sandbox.url, auth=auth) as provider:
                (await provider.post("/vendus/v1.1/documents/", json=document)).raise_for_status()

        @tasks.task
        async def send_mail(*, booking_id: int) -> None:
            message = EmailMessage()
            message["From"], message["To"], message["Subject"] = "shop@example.com", "ada@example.com", "Paid"
            message.set_content("Thank you.")
            await aiosmtplib.send(message, hostname="127.0.0.1", port=sandbox.smtp_port, start_tls=False)

        acme, kick = Provider(paid), Kick(f"http://127.0.0.1:{unused_tcp_port}", secret=SECRET)
        app, body = app_with(stage.dsn, tasks, kick, Part(inbound=[acme])), b"evt_1:payment.succeeded"
        with served(app, port=unused_tcp_port) as url:
            began = time.monotonic()
            async with httpx2.AsyncClient(base_url=url) as visitor:
                answer = await visitor.post(
                    "/v1/inbound/acme", content=body, headers=acme.signed(body, stage.clock.now())
                )
            assert answer.status_code == 200
            await stage.until(lambda: stage.one("select count(*) from mainspring.finished") == 3)
            took = time.monotonic() - began

        assert took < 30
        assert [entry.body["amount_gross"] for entry in sandbox.ledger.find("invoice")] == ["120.00"]
        assert sandbox.ledger.count("mail") == 1


@pytest.fixture
def unused_tcp_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


async def test_a_served_application_kicks_itself(
    stage: Stage, tasks: ms.Registry, noop: ms.Task[..., Any], unused_tcp_port: int
) -> None:
    kick = Kick(f"http://127.0.0.1:{unused_tcp_port}", secret=SECRET)
    app = app_with(stage.dsn, tasks, kick)
    with served(app, port=unused_tcp_port):
        async with app.async_client() as client:
            job = await client.enqueue(noop.job())
            await client.result(job.id, timeout=5)
            assert (await client.get(job.id)).state == "succeeded"
