"""What every request meets: limits, ids, headers, one line in the log, and no stack trace."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import unquote, urlsplit

import httpx2
import pytest
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Mount, Route
from tests.databases import Database
from tests.web.visit import SECRET, SHOWN, Part, Provider, open_to, served, visiting
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.declare.caller import Caller, calling
from mainspring.errors import (
    ConfigurationError,
    DatabaseUnavailable,
    JobNotFound,
    NotPermitted,
    QueueFull,
    SchemaOutdated,
    TransitionRefused,
    ValidationError,
)
from mainspring.web import create, public

pytestmark = pytest.mark.anyio

SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; base-uri 'none'; "
        "object-src 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
}
PROBLEM = b'{"type":"about:blank"'
ERRORS: list[tuple[Exception, int, str]] = [
    (ValidationError("name: is empty", field="name"), 400, "VALIDATION_ERROR"),
    (JobNotFound(), 404, "INTERNAL_ERROR"),
    (TransitionRefused(), 409, "INTERNAL_ERROR"),
    (NotPermitted("permission denied for table secrets"), 403, "OWNERSHIP_VIOLATION"),
    (QueueFull(queue="q:default"), 503, "QUEUE_FULL"),
    (SchemaOutdated(), 503, "INTERNAL_ERROR"),
    (DatabaseUnavailable("no route to 10.0.0.7"), 503, "DB_UNAVAILABLE"),
    (ConfigurationError("a mistake in secrets"), 500, "INTERNAL_ERROR"),
    (ZeroDivisionError("secrets"), 500, "INTERNAL_ERROR"),
]


def shop(*routes: Any) -> ms.App:
    """An application that asks no database, with pages for everybody."""
    routes = tuple(public(route, accepts=()) for route in routes)
    return ms.App(ms.Registry("shop"), dsn="postgresql://127.0.0.1:1/shop", maintenance=False, routes=routes)


@pytest.mark.parametrize(
    "place", ["/v1/health/live", "/v1/health/ready", "/metrics", "/v1/run", "/nowhere", "/v1/inbound/x", "/boom", "/ok"]
)
async def test_every_answer_has_the_headers_and_no_name_of_a_server(place: str) -> None:
    async def ok(_: Request) -> Response:
        return JSONResponse({})

    async def boom(_: Request) -> Response:
        raise ZeroDivisionError

    async with open_to(shop(Route("/ok", ok), Route("/boom", boom))) as visitor:
        for method in ("GET", "POST", "DELETE"):
            answer = await visitor.request(method, place)
            assert {name: answer.headers.get(name) for name in SAFE} == SAFE
            assert answer.headers["x-request-id"]
            assert "server" not in answer.headers


async def test_a_route_says_its_own_headers_and_loosens_none_of_ours() -> None:
    loose = "default-src * 'unsafe-inline'; frame-ancestors *"

    async def page(_: Request) -> Response:
        own = {"cache-control": "max-age=60", "content-security-policy": loose, "x-content-type-options": "none"}
        return Response("x", headers=own | {"cross-origin-opener-policy": "unsafe-none"})

    async with open_to(shop(Route("/page", page))) as visitor:
        answer = await visitor.get("/page")

    assert answer.headers["cache-control"] == "max-age=60"
    assert answer.headers.get_list("content-security-policy") == [loose, SAFE["content-security-policy"]]  # both hold
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]
    assert answer.headers.get_list("cross-origin-opener-policy") == ["same-origin"]


@pytest.mark.parametrize(("error", "status", "code"), ERRORS, ids=lambda one: type(one).__name__)
async def test_an_error_is_an_answer_in_json_without_its_inner_life(
    caplog: pytest.LogCaptureFixture, error: Exception, status: int, code: str
) -> None:
    async def route(_: Request) -> Response:
        raise error

    async with open_to(shop(Route("/x", route))) as visitor:
        answer = await visitor.get("/x")

    assert (answer.status_code, answer.json()["status"], answer.json()["code"]) == (status, status, code)
    assert list(answer.json()) == ["type", "title", "status", "code", "detail"]
    assert answer.headers["content-type"] == "application/problem+json"
    assert not any(word in answer.text for word in ("secrets", "10.0.0.7", "Traceback", "test_guard"))
    assert (status == 500) == any(record.exc_info for record in caplog.records)


@pytest.mark.parametrize(("status", "body"), [(204, b""), (304, b""), (410, PROBLEM), (499, PROBLEM), (599, PROBLEM)])
async def test_a_route_may_refuse_by_any_status(status: int, body: bytes) -> None:
    async def route(_: Request) -> Response:
        raise HTTPException(status, "So it is", headers={"etag": "x"})

    async with open_to(shop(Route("/x", route))) as visitor:
        answer = await visitor.get("/x")

    assert (answer.status_code, answer.headers["etag"]) == (status, "x")
    assert answer.content == body or (body and answer.content.startswith(body))


async def test_an_answer_that_breaks_off_is_no_answer() -> None:
    async def half() -> AsyncIterator[bytes]:
        yield b"half"
        raise ZeroDivisionError

    async def route(_: Request) -> Response:
        return StreamingResponse(half())

    async with open_to(shop(Route("/x", route))) as visitor:
        with pytest.raises(ZeroDivisionError):
            await visitor.get("/x")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("req-1", True),
        ("0af7651916cd43dd8448eb211c80319c", True),
        ("a" * 128, True),
        (None, False),
        ("", False),
        ("a" * 129, False),
        ("two words", False),
        ("x\x00y", False),
        ("<script>", False),
        ("\u00fc", False),
    ],
)
async def test_a_request_id_is_taken_over_if_it_is_one_and_made_if_not(given: str | None, kept: bool) -> None:
    headers = [] if given is None else [(b"x-request-id", given.encode())]
    async with open_to(shop()) as visitor:
        answers = [await visitor.get("/v1/health/live", headers=headers) for _ in range(2)]

    ids = [answer.headers["x-request-id"] for answer in answers]
    assert (ids == [given] * 2) is kept
    assert kept or (len(set(ids)) == 2 and all(len(one) == 36 for one in ids))


async def test_jobs_that_a_route_enqueues_carry_the_request(database: Database, stage: Stage) -> None:
    tasks = ms.Registry("shop")

    @tasks.task
    async def noop() -> None:
        """Do nothing."""

    app: ms.App

    async def order(_: Request) -> Response:
        async with app.async_client() as client:
            return JSONResponse({"job": str((await client.enqueue(noop.job())).id)}, 202)

    app = ms.App(
        tasks,
        dsn=database.dsn,
        maintenance=False,
        blocks=[Part(routes=[public(Route("/order", order, methods=["POST"]))])],
    )
    trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    async with open_to(app) as visitor:
        await visitor.post(
            "/order", headers={"x-request-id": "req-1", "x-correlation-id": "cor-1", "traceparent": trace}
        )
        await visitor.post("/order", headers={"x-request-id": "req-2", "traceparent": "nonsense"})

    found = stage.rows("select request_id, correlation_id, traceparent from mainspring.job order by request_id")
    assert found == [("req-1", "cor-1", trace), ("req-2", "req-2", None)]


async def test_a_request_is_one_line_without_its_query(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "mainspring.web")

    async def invite(_: Request) -> Response:
        return Response("hello")

    async with open_to(shop(Route("/invites/{token}", invite))) as visitor:
        await visitor.get("/invites/hunter2?password=hunter3", headers={"authorization": "Bearer hunter4"})
        await visitor.get("/v1/health/live")

    (record,) = [record for record in caplog.records if record.name == "mainspring.web"]
    about = {name: getattr(record, name) for name in ("action", "method", "path", "status", "client")}
    assert about == {
        "action": "request", "method": "GET", "path": "/invites/{token}", "status": 200, "client": "127.0.0.1",
    }  # fmt: skip
    assert record.duration_ms >= 0  # type: ignore[attr-defined] # an extra
    assert "hunter" not in str(record.__dict__)


#: A request inside of the body of another, for a proxy that reads the length where we read the encoding.
SMUGGLED = (
    b"POST /v1/run HTTP/1.1\r\nhost: localhost\r\ncontent-length: 60\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n"
    b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"
)
BAD = [
    ("TRACE", "/v1/health/live", {}, 405),
    ("CONNECT", "/", {}, 405),
    ("PROPFIND", "/", {}, 405),
    ("DELETE", "/v1/health/live", {}, 405),
    ("POST", "/metrics", {}, 405),
    ("GET", "/..%2f..%2fetc/passwd", {}, 404),
    ("GET", "/v1/./health/live", {}, 404),
    ("GET", "/v1/%2e%2e/v1/health/live", {}, 404),
    ("GET", "/v1\\..\\x", {}, 404),
    ("GET", "/v1/health/live%00", {}, 404),
    ("GET", "/v1/health/live%0d%0aset-cookie:x", {}, 404),
    ("GET", "/v1/health/live.", {}, 404),
    ("GET", "/v1/health/live/", {"x-forwarded-host": "evil.test"}, 404),
    ("GET", "/v1/health/live", {"host": "evil.test"}, 400),
    ("GET", "//v1/health/live", {}, 404),
    ("GET", "/V1/HEALTH/LIVE", {}, 404),
    ("GET", "/%ff%fe", {}, 404),
    ("GET", "/" + "a" * 3000, {}, 414),
    ("GET", "/v1/health/live?" + "a" * 9000, {}, 414),
    ("GET", "/v1/health/live", {f"h{n}": "x" for n in range(101)}, 431),
    ("GET", "/v1/health/live", {"h": "x" * 40_000}, 431),
    ("POST", "/v1/run", {"content-length": "9" * 30}, 413),
    ("POST", "/v1/run", {"content-length": "-1"}, 400),
    ("POST", "/v1/run", {"content-length": "\u00b2"}, 400),
    (
        "GET",
        "/v1/health/live",
        {"accept": "../../", "x-forwarded-host": "evil.test", "x-http-method-override": "DELETE"},
        200,
    ),
]


@pytest.mark.parametrize(("method", "place", "headers", "status"), BAD, ids=range(len(BAD)))
async def test_odd_requests_get_plain_answers(method: str, place: str, headers: dict[str, str], status: int) -> None:
    path, _, query = place.partition("?")
    answers = list[dict[str, Any]]()
    async with open_to(shop()) as visitor:
        web = visitor._transport.app  # type: ignore[attr-defined] # a client would tidy the request up before it is sent
        scope = {
            "type": "http",
            "asgi": {"version": "3.0"},
            "http_version": "1.1",
            "method": method,
            "path": unquote(path),  # as the server does
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "root_path": "",
            "scheme": "http",
            "headers": [(name.encode(), value.encode()) for name, value in ({"host": "localhost"} | headers).items()],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 80),
        }

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: dict[str, Any]) -> None:
            answers.append(message)

        await web(scope, receive, send)

    assert answers[0]["status"] == status
    names = dict(answers[0]["headers"])
    assert b"location" not in names
    assert status == 200 or answers[1]["body"].startswith((PROBLEM, b"Unauthorized"))


async def test_over_https_browsers_are_told_to_stay_there() -> None:
    web = create(shop())
    async with visiting(web) as visitor:
        plain = await visitor.get("http://localhost/v1/health/live")
        safe = await visitor.get("https://localhost/v1/health/live")

    assert "strict-transport-security" not in plain.headers
    assert safe.headers["strict-transport-security"] == "max-age=31536000"


@pytest.mark.parametrize("lifespan", [True, False], ids=["started", "never started"])
async def test_it_can_be_mounted_under_a_prefix(
    database: Database, stage: Stage, tasks: ms.Registry, caplog: pytest.LogCaptureFixture, lifespan: bool
) -> None:
    caplog.set_level(logging.INFO, "mainspring.web")

    @tasks.task
    async def noop() -> None:
        """Do nothing."""

    job = await stage.enqueue(noop.job())
    jobs = create(ms.App(tasks, dsn=database.dsn, maintenance=False), secret=SECRET)

    @asynccontextmanager
    async def running(_: Starlette) -> AsyncIterator[None]:
        async with jobs.router.lifespan_context(jobs):
            yield

    outer = Starlette(routes=[Mount("/jobs", jobs)], lifespan=running)

    async with visiting(outer, lifespan=lifespan) as visitor:
        ready = await visitor.get("/jobs/v1/health/ready")
        ran = await visitor.post("/jobs/v1/run", headers=SHOWN)
        lost = await visitor.get("/jobs/nowhere")

    assert [answer.status_code for answer in (ready, ran, lost)] == [200, 200, 404]
    assert await stage.state(job) == "succeeded"
    paths = [getattr(record, "path", None) for record in caplog.records if record.levelno == logging.INFO]
    assert [path for path in paths if path] == ["/jobs/v1/run", "/jobs/nowhere"]


async def test_it_can_be_started_again_after_it_was_stopped(
    database: Database, stage: Stage, tasks: ms.Registry
) -> None:
    @tasks.task
    async def act(*, event_id: str) -> None:
        """Act."""

    acme = Provider(act)
    web = create(
        ms.App(tasks, dsn=database.dsn, maintenance=False, blocks=[Part(inbound=[acme])]), secret=SECRET
    )  # at the top of a module, as test clients and reloading servers find it
    for n in range(2):
        body = b"evt_%d:paid" % n
        async with visiting(web) as visitor:
            headers = acme.signed(body, stage.clock.now())
            kept = await visitor.post("/v1/inbound/acme", content=body, headers=headers)
            ran = await visitor.post("/v1/run", headers=SHOWN)
        assert (kept.status_code, ran.status_code, ran.json().get("processed")) == (200, 200, 1)


async def test_what_an_outer_middleware_says_of_the_caller_stays(database: Database, stage: Stage) -> None:
    tasks = ms.Registry("shop")

    @tasks.task
    async def noop() -> None:
        """Do nothing."""

    app: ms.App

    async def order(_: Request) -> Response:
        async with app.async_client() as client:
            await client.enqueue(noop.job())
        return Response(status_code=202)

    app = ms.App(tasks, dsn=database.dsn, maintenance=False, routes=[public(Route("/order", order, methods=["POST"]))])
    inner = create(app)

    async def outer(scope: Any, receive: Any, send: Any) -> None:
        with calling(Caller(org_id="globex", actor_type="user", actor_id="7", request_id="outer")):
            await inner(scope, receive, send)

    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(outer), base_url="http://localhost") as visitor:
        await visitor.post("/order", headers={"x-request-id": "inner"})

    found = stage.rows("select org_id, actor_id, request_id, correlation_id from mainspring.job")
    assert found == [("globex", "7", "outer", "outer")]


@pytest.mark.parametrize(
    "request_",
    [
        b"POST /v1/run HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\ncontent-length: 5\r\n\r\nhello",
        b"POST /v1/run HTTP/1.1\r\nhost: localhost\r\ncontent-length: 5\r\ntransfer-encoding: gzip\r\n\r\nhello",
        b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\nhost: y\r\n\r\n",
        b"GET /v1/health/live HTTP/1.1\r\nbad header\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
        b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\nhost: localhost\r\n\r\n",
    ],
    ids=["two lengths", "odd encoding", "two hosts", "no colon", "TLS", "endless line"],
)
async def test_what_is_no_http_is_refused_by_the_server(request_: bytes) -> None:
    with served(shop()) as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port), timeout=5) as line:
            line.sendall(request_)
            answer = line.recv(1000)
        async with httpx2.AsyncClient() as visitor:
            after = await visitor.get(f"{url}/v1/health/live")

    assert answer.startswith((b"HTTP/1.1 400", b"HTTP/1.1 501"))
    assert after.status_code == 200
    assert "server" not in after.headers


async def test_a_request_inside_of_another_ones_body_is_not_answered() -> None:
    with served(shop()) as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port), timeout=60) as line:
            line.sendall(SMUGGLED)
            answer = b"".join(iter(lambda: line.recv(1000), b""))  # until it is hung up

    assert answer.startswith(b"HTTP/1.1 400")
    assert answer.count(b"HTTP/1.1") == 1


@pytest.mark.parametrize("said", [b"", b"GET /v1/health/live HTTP/1.1\r\nhost"], ids=["nothing", "half a head"])
@pytest.mark.parametrize("after", [False, True], ids=["first", "after an answer"])
async def test_a_caller_that_says_nothing_is_hung_up_on(
    monkeypatch: pytest.MonkeyPatch, said: bytes, after: bool
) -> None:
    monkeypatch.setattr("mainspring.web.server.HEAD", 0.3)
    with served(shop()) as url:
        place = urlsplit(url)
        with socket.create_connection((place.hostname, place.port), timeout=60) as line:
            if after:
                line.sendall(b"GET /v1/health/live HTTP/1.1\r\nhost: localhost\r\n\r\n")
                answer = b""
                while not answer.endswith(b'{"status":"live"}'):
                    answer += line.recv(1000)
            line.sendall(said)
            assert line.recv(1000) == b""


async def test_a_request_may_take_longer_than_its_head(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("mainspring.web.server.HEAD", 0.1)

    async def slow(request: Request) -> Response:
        await asyncio.sleep(0.4)
        return Response(await request.body())

    with served(shop(Route("/slow", slow, methods=["POST"]))) as url:
        async with httpx2.AsyncClient() as visitor:
            answers = [await visitor.post(f"{url}/slow", content=b"x") for _ in range(2)]

    assert [answer.content for answer in answers] == [b"x", b"x"]
