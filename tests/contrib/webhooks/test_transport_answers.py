"""What a receiver answers is bounded in time, in size and in form, however hostile it is."""

from __future__ import annotations

import asyncio
import gzip
import sys
import time
import tracemalloc
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.contrib.webhooks.raw import Names, Play, raw
from tests.contrib.webhooks.table_answers import BROKEN

from mainspring.contrib.webhooks.addresses import Address
from mainspring.contrib.webhooks.policy import Policy
from mainspring.contrib.webhooks.response import MOST_RESPONSE_BODY, MOST_RESPONSE_HEADERS, Response
from mainspring.contrib.webhooks.transport import WEBHOOK_TIMEOUT_S, Transport
from mainspring.errors import ConfigurationError
from mainspring.outcome import Failure

pytestmark = pytest.mark.anyio
OK = b"HTTP/1.1 200 OK\r\n"


async def answered(play: Play | bytes, *, headers: dict[str, str] | None = None, body: bytes = b"{}") -> Response:
    async with raw(play) as receiver:
        return await Transport(Policy.local()).post(receiver.url(), headers or {}, body, timeout=10)


def flood(piece: bytes, head: bytes) -> Play:
    """An answer that never ends, sent as fast as it is taken."""

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()

    return play


async def test_exactly_the_given_bytes_are_sent_once_with_nothing_negotiated() -> None:
    body = bytes(range(256)) * 40
    async with raw(OK + b"Content-Length: 2\r\nX-Seen: yes\r\n\r\nhi") as receiver:
        answer = await Transport(Policy.local()).post(
            receiver.url(), {"X-BPC-Event-Type": "A", "User-Agent": "me"}, body
        )

        head, _, sent = receiver.requests[0].partition(b"\r\n\r\n")
        assert sent == body
        assert head.split(b"\r\n")[0] == b"POST /in HTTP/1.1"
        assert sorted(line.lower() for line in head.split(b"\r\n")[1:]) == sorted(
            [
                f"host: 127.0.0.1:{receiver.port}".encode(),
                *(b"user-agent: me", b"accept: */*", b"x-bpc-event-type: a", b"accept-encoding: identity"),
                *(b"connection: close", f"content-length: {len(body)}".encode()),
            ]
        )
        assert (answer.status, answer.body, answer.truncated) == (200, b"hi", False)
        assert answer.headers["x-seen"] == "yes"
        assert 0 < answer.seconds < 10


@pytest.mark.parametrize("status", [200, 204, 299, 304, 400, 410, 429, 500, 503, 999])
async def test_every_status_is_an_answer(status: int) -> None:
    assert (await answered(f"HTTP/1.1 {status} X\r\nContent-Length: 0\r\n\r\n".encode())).status == status


@pytest.mark.parametrize(
    ("sent", "body"),
    [
        (OK + b"Content-Length: 3\r\n\r\nabcdef", b"abc"),
        (OK + b"Transfer-Encoding: chunked\r\n\r\n2;x=y\r\nab\r\n1\r\nc\r\n0\r\nTrailer: x\r\n\r\n", b"abc"),
        (OK + b"\r\nabc", b"abc"),  # until the end of the line
        (b"HTTP/1.0 200 OK\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" + OK + b"\r\nabc", b"abc"),
        (b"HTTP/1.1 200\r\nContent-Length: 3\r\n\r\nabc", b"abc"),
        (b"HTTP/1.1 204 No Content\r\n\r\n", b""),
        (OK + b"Content-Encoding: gzip\r\nContent-Length: 4\r\n\r\n\x1f\x8b\x08\x00", b"\x1f\x8b\x08\x00"),
    ],
)
async def test_a_body_is_read_in_every_form_that_http_has(sent: bytes, body: bytes) -> None:
    answer = await answered(sent)

    assert (answer.body, answer.truncated) == (body, False)


@pytest.mark.parametrize(("sent", "problem"), BROKEN.values(), ids=BROKEN)
async def test_a_broken_answer_is_a_failure_that_is_tried_again_and_says_nothing_of_what_came(
    sent: bytes, problem: str
) -> None:
    with pytest.raises(Failure, match=problem) as failed:
        await answered(sent)

    assert (failed.value.code, failed.value.error_class) == ("HttpException", "retryable")
    assert len(str(failed.value)) < 80


async def test_a_line_that_is_torn_is_a_failure_that_is_tried_again() -> None:
    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(OK + b"Content-Length: 100\r\n\r\nabc")
        await writer.drain()
        writer.transport.get_extra_info("socket").setsockopt(
            1, 13, b"\x01\x00\x00\x00\x00\x00\x00\x00"
        )  # SO_LINGER: RST
        writer.transport.abort()

    with pytest.raises(Failure, match=r"the connection (broke|was closed)") as failed:
        await answered(play)
    assert failed.value.code == "HttpException"


@pytest.mark.rule("ENG-24.08", "PASS-7.13")
@pytest.mark.parametrize(
    ("length", "truncated"),
    [
        (MOST_RESPONSE_BODY - 1, False),
        (MOST_RESPONSE_BODY, False),
        (MOST_RESPONSE_BODY + 1, True),
        (2**20, True),
        (10_000_000, True),
    ],
)
@pytest.mark.parametrize("chunked", [False, True])
async def test_of_a_long_body_64_kib_are_kept_and_marked(length: int, truncated: bool, chunked: bool) -> None:
    sent = OK + (
        b"Transfer-Encoding: chunked\r\n\r\n%x\r\n%b\r\n0\r\n\r\n" % (length, b"x" * length)
        if chunked
        else b"Content-Length: %d\r\n\r\n%b" % (length, b"x" * length)
    )
    answer = await answered(sent)

    assert (len(answer.body), answer.truncated) == (min(length, MOST_RESPONSE_BODY), truncated)


@pytest.mark.rule("ENG-24.08")
@pytest.mark.parametrize(
    ("piece", "head", "kept"),
    [
        (b"x" * 65536, OK + b"\r\n", MOST_RESPONSE_BODY),
        (b"x" * 65536, OK + b"Content-Length: 99999999999\r\n\r\n", MOST_RESPONSE_BODY),
        (b"10000\r\n" + b"x" * 65536 + b"\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n", MOST_RESPONSE_BODY),
        (b"1\r\nx\r\n" * 5000, OK + b"Transfer-Encoding: chunked\r\n\r\n", 2000),
        (b"1;" + b"y" * 30_000 + b"\r\nx\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n", 10),
    ],
    ids=["until the end", "of a length", "chunks", "tiny chunks", "long lines between chunks"],
)
async def test_an_endless_body_is_cut_and_memory_stays_flat(piece: bytes, head: bytes, kept: int) -> None:
    play = flood(piece, head)
    await answered(OK + b"\r\n")  # what is imported and made once
    tracemalloc.start()
    spent = time.process_time()
    try:
        answer = await answered(play)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()

    assert answer.truncated
    assert kept // 2 < len(answer.body) <= kept
    assert peak < 2 * 2**20  # of both ends
    assert time.process_time() - spent < 5  # it has no end


@pytest.mark.rule("ENG-24.08", "PASS-7.13")
async def test_of_many_headers_16_kib_are_kept_and_marked() -> None:
    lines = b"".join(b"X-%d: %b\r\n" % (n, b"v" * 1000) for n in range(20))
    answer = await answered(OK + b"X-Huge: " + b"h" * 2000 + b"\r\n" + lines + b"Retry-After: 7\r\n\r\n")

    assert answer.truncated
    assert sum(len(name) + len(value) for name, value in answer.headers.items()) <= MOST_RESPONSE_HEADERS
    assert answer.headers["retry-after"] == "7"  # a small one that comes late still fits


@pytest.mark.rule("ENG-24.08")
async def test_cookies_and_credentials_are_not_kept_and_values_are_printable() -> None:
    answer = await answered(
        OK + b"Set-Cookie: id=7\r\nset-cookie2: x\r\nAuthorization: Basic x\r\nWWW-Authenticate: Basic\r\n"
        b"Proxy-Authenticate: Basic\r\nProxy-Status: x\r\nAuthentication-Info: x\r\nCookie: x\r\n"
        b"X-Odd: a\x1b[31m\xe9\r\nX-Two: 1\r\nx-two: 2\r\nContent-Length: 0\r\n\r\n"
    )

    assert answer.headers == {"x-odd": "a?[31m?", "x-two": "1, 2", "content-length": "0"}
    assert not answer.truncated


async def test_a_cookie_is_not_sent_back() -> None:
    async with raw(OK + b"Set-Cookie: id=7; Path=/\r\nContent-Length: 0\r\n\r\n") as receiver:
        transport = Transport(Policy.local())
        for _ in range(2):
            await transport.post(receiver.url(), {}, b"{}")

        assert len(receiver.requests) == receiver.lines == 2
        assert b"cookie" not in receiver.requests[1].lower()


async def test_a_bomb_is_not_unpacked() -> None:
    bomb = gzip.compress(bytes(10_000_000))

    answer = await answered(OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(bomb) + bomb)

    assert answer.body == bomb[:MOST_RESPONSE_BODY]


async def test_an_answer_that_comes_before_the_request_was_read_counts() -> None:
    async def play(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\nContent-Length: 0\r\n\r\n")
        await writer.drain()
        await asyncio.sleep(10)  # and reads no more

    async with raw(play, reads=False) as receiver:
        answer = await Transport(Policy.local()).post(receiver.url(), {}, b"x" * 20_000_000)

    assert answer.status == 413


async def silent(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await asyncio.sleep(60)


def drip(piece: bytes, head: bytes = b"") -> Play:
    """An answer that comes a piece at a time: no single wait is long, only the whole."""

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(head)
        while True:
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(0.02)

    return play


@pytest.mark.rule("ENG-24.04")
@pytest.mark.parametrize(
    "play",
    [
        silent,
        drip(b"x", OK + b"Content-Length: 100000\r\n\r\n"),
        drip(b"1\r\nx\r\n", OK + b"Transfer-Encoding: chunked\r\n\r\n"),
        drip(b"X: x\r\n", OK),
        drip(b"H"),
        drip(b"HTTP/1.1 100 Continue\r\n", b""),
    ],
    ids=["silent", "slow body", "slow chunks", "slow headers", "slow status", "slow interim answer"],
)
async def test_a_slow_answer_ends_at_the_deadline_of_the_whole_call(play: Play) -> None:
    async with raw(play) as receiver:
        began = time.monotonic()
        with pytest.raises(Failure, match=r"no whole answer within 0\.2 s") as failed:
            await Transport(Policy.local()).post(receiver.url(), {}, b"{}", timeout=0.2)

    assert (failed.value.code, failed.value.error_class) == ("WebhookTimeout", "retryable")
    assert time.monotonic() - began >= 0.2


async def never(*_: object) -> None:
    await asyncio.sleep(60)


@pytest.mark.parametrize(
    ("resolver", "connector"), [(never, None), (None, never)], ids=["a slow name server", "a slow line"]
)
async def test_the_deadline_covers_name_and_line_as_well(
    resolver: Callable[[str, int], Awaitable[Sequence[str]]] | None,
    connector: Callable[[Address, int], Awaitable[object]] | None,
) -> None:
    transport = Transport(Policy.local(), resolver=resolver or Names(["127.0.0.1"]), connector=connector)  # type: ignore[arg-type] # it never gives a socket

    with pytest.raises(Failure) as failed:
        await transport.post("http://hooks.example.com/", {}, b"{}", timeout=0.1)
    assert failed.value.code == "WebhookTimeout"


@pytest.mark.rule("ENG-24.04")
async def test_a_silent_receiver_is_left_after_30_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = asyncio.get_running_loop()
    real, shift = loop.time, 0.0
    monkeypatch.setattr(loop, "time", lambda: real() + shift)
    async with raw(silent) as receiver:
        call = asyncio.create_task(Transport(Policy.local()).post(receiver.url(), {}, b"{}"))
        await receiver.came.wait()

        shift = WEBHOOK_TIMEOUT_S - 1
        await asyncio.sleep(0.05)
        assert not call.done()
        shift = WEBHOOK_TIMEOUT_S + 0.1
        with pytest.raises(Failure, match="within 30 s") as failed:
            await call
    assert failed.value.code == "WebhookTimeout"


async def test_a_cancelled_call_stays_cancelled_and_leaves_no_line() -> None:
    async with raw(silent) as receiver:
        call = asyncio.create_task(Transport(Policy.local()).post(receiver.url(), {}, b"{}"))
        await receiver.came.wait()
        call.cancel()

        with pytest.raises(asyncio.CancelledError):
            await call


async def test_hundreds_are_in_flight_at_once() -> None:
    together = asyncio.Barrier(200)

    async def play(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await together.wait()
        writer.write(OK + b"Content-Length: 2\r\n\r\nok")

    async with raw(play) as receiver:
        transport = Transport(Policy.local())
        answers = await asyncio.gather(*(transport.post(receiver.url(), {}, b"{}") for _ in range(200)))

    assert [answer.body for answer in answers] == [b"ok"] * 200


async def test_a_missing_library_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "mainspring.contrib.webhooks.exchange", raising=False)
    monkeypatch.setitem(sys.modules, "h11", None)

    with pytest.raises(ConfigurationError, match=r"pip install 'mainspring\[webhooks\]"):
        await Transport(Policy.local()).post("http://127.0.0.1:9/", {}, b"{}")
