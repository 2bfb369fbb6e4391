"""What all senders have in common."""

from __future__ import annotations

import asyncio
import gc
import logging
import pickle
import socket
import time
from datetime import timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from tests.contrib.senders.kit import ALL, HTTP, PUSH, RESEND, SECRET, SMTP, TWILIO, Kind, answering, fault

from mainspring.contrib.notify.sender import Sender, Undeliverable
from mainspring.contrib.secret import Secret
from mainspring.errors import ConfigurationError
from mainspring.outcome import Failure, Permanent, RetryAfter
from mainspring_sandbox import Sandbox

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ALL, ids=str)
async def test_message_is_delivered_once_with_a_receipt(sandbox: Sandbox, kind: Kind) -> None:
    sender = kind.make(sandbox)

    receipt = await sender.send(kind.message())

    (delivered,) = sandbox.ledger.find(kind.kind)
    assert receipt.provider == sender.name == kind.name
    assert receipt.provider_id in (delivered.id, delivered.body.get("message_id"))
    assert delivered.body["text"] == "Your machine is ready.\n"
    assert delivered.body["to"] in (kind.to, [kind.to])


@pytest.mark.rule("RENT-5.07")
@pytest.mark.parametrize("kind", [RESEND, PUSH], ids=str)
async def test_repeat_after_a_line_that_broke_is_recognised_by_its_key(sandbox: Sandbox, kind: Kind) -> None:
    sender = kind.make(sandbox)
    fault(sandbox, kind, "drop", times=1)

    with pytest.raises(Failure) as lost:
        await sender.send(kind.message())
    receipt = await sender.send(kind.message())

    assert (lost.value.code, lost.value.error_class) == ("HttpException", "retryable")
    (delivered,) = sandbox.ledger.find(kind.kind)
    assert receipt.provider_id == delivered.id
    assert delivered.body["key"] == "booking-7:confirmation"


@pytest.mark.parametrize("kind", [RESEND, PUSH], ids=str)
async def test_another_message_under_the_same_key_is_refused_for_good(sandbox: Sandbox, kind: Kind) -> None:
    sender = kind.make(sandbox)
    await sender.send(kind.message())

    with pytest.raises(Permanent) as refused:
        await sender.send(kind.message(text="Your machine is not ready."))

    assert refused.value.code == "IDEMPOTENCY_KEY_REUSED"
    assert sandbox.ledger.count(kind.kind) == 1


@pytest.mark.rule("PLAN-3.12")
@pytest.mark.parametrize("kind", ALL, ids=str)
async def test_provider_that_hangs_is_given_up_after_the_time_out_and_tried_again(sandbox: Sandbox, kind: Kind) -> None:
    sender = kind.make(sandbox, timeout=0.4)
    fault(sandbox, kind, "timeout", times=1)

    began = time.monotonic()
    with pytest.raises(Failure) as late:
        await sender.send(kind.message())
    waited = time.monotonic() - began
    await sender.send(kind.message())

    assert (late.value.code, late.value.error_class) == ("TIMEOUT", "retryable")
    assert waited >= 0.4
    assert sandbox.ledger.count(kind.kind) == 1


@pytest.mark.rule("PLAN-3.12")
@pytest.mark.parametrize("kind", ALL, ids=str)
def test_time_out_is_ten_seconds_unless_said_otherwise(sandbox: Sandbox, kind: Kind) -> None:
    sender = kind.make(sandbox)

    assert (sender._timeout if kind is SMTP else sender._http.timeout) == 10  # type: ignore[attr-defined] # each its own


async def test_time_out_is_for_the_whole_call_not_for_each_byte(sandbox: Sandbox) -> None:
    """A server that drips keeps every single read alive."""

    async def drip(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 1000\r\n\r\n")
        while not writer.is_closing():
            writer.write(b" ")
            await asyncio.sleep(0.02)

    async with answering(drip) as base:
        with pytest.raises(Failure) as late:
            await RESEND.make(sandbox, base=base, timeout=0.15).send(RESEND.message())

    assert late.value.code == "TIMEOUT"


@pytest.mark.rule("PLAN-3.13", "RENT-5.05")
@pytest.mark.parametrize("status", [500, 502, 503, 408, 409, 301])
@pytest.mark.parametrize("kind", HTTP, ids=str)
async def test_trouble_of_the_provider_is_tried_again(sandbox: Sandbox, kind: Kind, status: int) -> None:
    sender = kind.make(sandbox)
    fault(sandbox, kind, "error", status=status, times=2)

    for _ in range(2):
        with pytest.raises(Failure) as failed:
            await sender.send(kind.message())
        assert (failed.value.code, failed.value.error_class) == ("HttpException", "retryable")
    await sender.send(kind.message())

    assert sandbox.ledger.count(kind.kind) == 1


@pytest.mark.rule("PLAN-3.13")
@pytest.mark.parametrize("kind", HTTP, ids=str)
async def test_hint_of_the_provider_is_followed(sandbox: Sandbox, kind: Kind) -> None:
    fault(sandbox, kind, "error", status=429, retry_after=90, times=1)
    fault(sandbox, kind, "error", status=503, retry_after=30, times=1)
    fault(sandbox, kind, "error", status=429, times=1)
    sender = kind.make(sandbox)

    with pytest.raises(RetryAfter) as limited:
        await sender.send(kind.message())
    with pytest.raises(RetryAfter) as down:
        await sender.send(kind.message())
    with pytest.raises(Failure) as unsaid:
        await sender.send(kind.message())

    assert (limited.value.after, limited.value.code) == (timedelta(seconds=90), "RATE_LIMITED")
    assert (down.value.after, down.value.code) == (timedelta(seconds=30), "HttpException")
    assert (unsaid.value.error_class, unsaid.value.code) == ("retryable", "RATE_LIMITED")


@pytest.mark.parametrize("kind", HTTP, ids=str)
async def test_message_that_is_refused_as_it_is_is_not_tried_again(sandbox: Sandbox, kind: Kind) -> None:
    fault(sandbox, kind, "error", status=413)

    with pytest.raises(Permanent) as refused:
        await kind.make(sandbox).send(kind.message())

    assert (refused.value.code, refused.value.counts) == ("MESSAGE_REFUSED", None)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (SMTP, {"username": "shop", "password": "wrong"}),
        (RESEND, {"key": "re_invalid"}),
        (TWILIO, {"token": "wrong"}),
        (PUSH, {"token": "wrong"}),
    ],
    ids=str,
)
async def test_wrong_key_is_permanent_and_opens_the_breaker(
    sandbox: Sandbox, kind: Kind, options: dict[str, str]
) -> None:
    with pytest.raises(Permanent) as refused:
        await kind.make(sandbox, **options).send(kind.message())

    assert (refused.value.code, refused.value.counts) == ("PROVIDER_CONFIGURATION", True)
    assert sandbox.ledger.count(kind.kind) == 0


@pytest.mark.parametrize("kind", ALL, ids=str)
async def test_provider_that_cannot_be_reached_is_tried_again(kind: Kind) -> None:
    with socket.socket() as deaf:
        deaf.bind(("127.0.0.1", 0))  # and nobody listens
        port = deaf.getsockname()[1]
        nowhere: Any = SimpleNamespace(url=f"http://127.0.0.1:{port}", smtp_port=port)

        with pytest.raises(Failure) as failed:
            await kind.make(nowhere).send(kind.message())

    assert (failed.value.code, failed.value.error_class) == ("HttpException", "retryable")


@pytest.mark.parametrize("kind", ALL, ids=str)
def test_one_sender_serves_one_event_loop_after_another(sandbox: Sandbox, kind: Kind) -> None:
    sender = kind.make(sandbox)

    for key in ("first", "second"):
        asyncio.run(_twice(sender, kind, key))
        gc.collect()  # an unclosed connection would speak up here

    assert len(sandbox.ledger.find(kind.kind)) == 4


async def _twice(sender: Sender, kind: Kind, key: str) -> None:
    for part in ("a", "b"):
        await sender.send(kind.message(f"{key}-{part}"))


@pytest.mark.parametrize("kind", ALL, ids=str)
async def test_sender_can_be_closed_twice_and_used_again(sandbox: Sandbox, kind: Kind) -> None:
    sender = kind.make(sandbox)
    await sender.close()
    await sender.send(kind.message("one"))

    await sender.close()
    await sender.close()
    await sender.send(kind.message("two"))

    assert sandbox.ledger.count(kind.kind) == 2


@pytest.mark.parametrize("kind", ALL, ids=str)
async def test_many_at_once_are_each_delivered_once(sandbox: Sandbox, kind: Kind) -> None:
    sender = kind.make(sandbox)

    await asyncio.gather(*(sender.send(kind.message(str(number), text=f"No {number}")) for number in range(30)))

    assert len({entry.body["text"].strip() for entry in sandbox.ledger.find(kind.kind)}) == 30
    assert sandbox.ledger.count(kind.kind) == 30


@pytest.mark.parametrize("kind", ALL, ids=str)
async def test_secrets_and_addresses_are_not_shown(
    sandbox: Sandbox, kind: Kind, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    sender = kind.make(sandbox, **({"username": "shop", "password": SECRET} if kind is SMTP else {}), timeout=0.5)
    shown = [repr(sender), repr(vars(sender)), repr(kind.message())]
    for what, options in [("error", {"status": 451}), ("drop", {}), ("timeout", {}), ("error", {"status": 554})]:
        fault(sandbox, kind, what, times=1, **options)
        with pytest.raises(Failure) as failed:
            await sender.send(kind.message())
        shown += [str(failed.value), repr(failed.value), repr(failed.value.__cause__)]
    await sender.send(kind.message())

    shown += [f"{record.name} {record.getMessage()}" for record in caplog.records if record.name != "mail.log"]
    assert [text for text in shown if SECRET in text or kind.to in text] == []


def test_secret_is_not_written_down() -> None:
    secret = Secret("hunter2")

    assert "hunter2" not in f"{secret} {secret!r} {[secret]} {secret:}"
    with pytest.raises(TypeError, match="not written down"):
        pickle.dumps(secret)


@pytest.mark.parametrize(
    ("base", "why"),
    [
        ("http://api.example.com", "https"),
        ("http://127.0.0.1.example.com", "https"),
        ("ftp://127.0.0.1", "address"),
        ("https://", "address"),
        ("https://user:pw@example.com", "address"),
        ("https://example.com?key=1", "address"),
        ("api.example.com", "address"),
        ("", "address"),
    ],
)
@pytest.mark.parametrize("kind", [RESEND, TWILIO], ids=str)
def test_base_that_would_show_the_key_to_others_is_refused(sandbox: Sandbox, kind: Kind, base: str, why: str) -> None:
    with pytest.raises(ConfigurationError, match=f"base: .*{why}") as refused:
        kind.make(sandbox, base=base)

    assert "pw" not in str(refused.value)


@pytest.mark.parametrize("secret", ["", " ", "key\n", "schlüssel", "a b"])
@pytest.mark.parametrize(("kind", "field"), [(RESEND, "key"), (TWILIO, "token"), (PUSH, "token")], ids=str)
def test_key_that_is_none_is_refused_at_the_start(sandbox: Sandbox, kind: Kind, field: str, secret: str) -> None:
    with pytest.raises(ConfigurationError, match=rf"{field}: is empty, or"):
        kind.make(sandbox, **{field: secret})


async def test_answers_are_read_to_a_bound(sandbox: Sandbox) -> None:
    async def endless(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 500 Oops\r\ncontent-type: text/plain\r\n\r\n")
        while not writer.is_closing():
            writer.write(b"x" * 65536)
            await writer.drain()

    async with answering(endless) as base:
        with pytest.raises(Failure, match="answered 500"):
            await RESEND.make(sandbox, base=base, timeout=5).send(RESEND.message())


async def test_redirect_is_not_followed(sandbox: Sandbox) -> None:
    async def elsewhere(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        to = f"{sandbox.url}/resend/emails".encode()
        writer.write(b"HTTP/1.1 307 Elsewhere\r\nlocation: " + to + b"\r\ncontent-length: 0\r\n\r\n")

    async with answering(elsewhere) as base:
        with pytest.raises(Failure, match="answered 307"):
            await RESEND.make(sandbox, base=base).send(RESEND.message())

    assert sandbox.ledger.count("mail") == 0


@pytest.mark.parametrize(
    ("hint", "seconds"),
    [
        ("90", 90),
        ("Mon, 16 Nov 2026 06:01:30 GMT", 90),
        ("Mon, 16 Nov 2026 05:00:00 GMT", 0),
        ("soon", None),
        ("-5", None),
    ],
)
async def test_hint_may_be_a_date_which_the_providers_own_clock_reads(
    sandbox: Sandbox, hint: str, seconds: int | None
) -> None:
    async def busy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = f"HTTP/1.1 429 Busy\r\ndate: Mon, 16 Nov 2026 06:00:00 GMT\r\nretry-after: {hint}\r\n"
        writer.write(f"{head}content-length: 0\r\n\r\n".encode())

    async with answering(busy) as base:
        with pytest.raises(Failure) as limited:
            await RESEND.make(sandbox, base=base).send(RESEND.message())

    assert getattr(limited.value, "after", None) == (None if seconds is None else timedelta(seconds=seconds))
    assert limited.value.code == "RATE_LIMITED"


async def test_proxies_of_the_environment_are_ignored(sandbox: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")

    await RESEND.make(sandbox).send(RESEND.message())

    assert sandbox.ledger.count("mail") == 1


@pytest.mark.parametrize("kind", ALL, ids=str)
async def test_only_twilio_must_be_asked_before_a_repeat(sandbox: Sandbox, kind: Kind) -> None:
    sender, since = kind.make(sandbox), sandbox.world.now()
    await sender.send(kind.message())

    found = await sender.find(kind.message(), since)

    assert (found is not None) == (kind is TWILIO)


@pytest.mark.rule("RENT-5.06")
@pytest.mark.parametrize("kind", [SMTP, RESEND], ids=str)
async def test_address_that_is_none_is_refused_before_anybody_is_called(sandbox: Sandbox, kind: Kind) -> None:
    fault(sandbox, kind, "timeout")

    with pytest.raises(Undeliverable) as refused:
        await kind.make(sandbox).send(kind.message(to="a@"))

    assert (refused.value.code, refused.value.error_class) == ("EMAIL_ADDRESS_INVALID", "permanent")
    assert not sandbox.faults.struck


@pytest.mark.parametrize(
    ("field", "value"), [("title", "Hi\r\nBcc: all@example.com"), ("to", "a@example.com\nBcc: b@c.de")]
)
@pytest.mark.parametrize("kind", [SMTP, RESEND], ids=str)
async def test_line_break_in_a_header_is_refused_by_name(sandbox: Sandbox, kind: Kind, field: str, value: str) -> None:
    with pytest.raises(Permanent, match=f"^{field}: ") as refused:
        await kind.make(sandbox).send(kind.message(**{field: value}))

    assert refused.value.code == {"title": "VALIDATION_ERROR", "to": "EMAIL_ADDRESS_INVALID"}[field]
    assert sandbox.ledger.count("mail") == 0
