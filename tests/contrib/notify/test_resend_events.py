"""What becomes of mail after Resend has taken it: signed events, each heard once by the task that wants it."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import mainspring as ms
from mainspring.contrib.notify import MailEvent, ResendEvents
from mainspring.contrib.standard_webhooks import standard
from mainspring.contrib.webhooks import new_secret
from mainspring.declare.block import SignatureRefused
from mainspring.errors import ConfigurationError, DeclarationError

NOW = datetime(2026, 6, 3, 14, tzinfo=UTC)
OLD, NEW = new_secret(), new_secret()
BODY = json.dumps(
    {
        "type": "email.bounced",
        "created_at": "2026-06-03T14:00:00.000Z",
        "data": {
            "email_id": "56761188-7520-42d8-8898-ff6fc54ce618",
            "created_at": "2026-06-03T13:59:00.000Z",
            "to": ["jo@example.com"],
            "bounce": {"type": "Permanent", "subType": "Suppressed", "message": "jo@example.com does not exist"},
        },
    }
).encode()


def signed(body: bytes = BODY, secret: str = NEW, at: datetime = NOW) -> dict[str, str]:
    """The headers that Resend sends."""
    return {name.replace("webhook-", "svix-"): value for name, value in standard([secret], "msg_1", at, body).items()}


def source() -> Any:
    (inbound,) = ResendEvents([OLD, NEW]).inbound
    return inbound


def test_event_is_taken_by_the_id_of_its_message() -> None:
    received = source().verify(signed(), BODY, NOW)

    assert (received.event_id, received.type) == ("msg_1", "email.bounced")
    event = MailEvent.read(received.event_id, received.body)
    assert (event.email_id[:8], event.to, event.reason, event.detail) == (
        "56761188", ("jo@example.com",), "Permanent", "Suppressed",
    )  # fmt: skip
    assert (event.created, event.undeliverable) == (NOW, True)
    assert "jo@" not in repr(event)
    assert source().verify(signed(secret=OLD), BODY, NOW) == received


@pytest.mark.parametrize(
    ("headers", "body"),
    [
        ({}, BODY),
        (signed() | {"svix-signature": "v1,AAAA"}, BODY),
        (signed() | {"svix-id": "msg_2"}, BODY),
        (signed(secret=new_secret()), BODY),
        (signed(at=NOW - timedelta(minutes=6)), BODY),
        (signed(), BODY.replace(b"Permanent", b"Transient")),
        (signed(b"[]"), b"[]"),
        (signed(b"\xff"), b"\xff"),
        (signed(b'{"type": ""}'), b'{"type": ""}'),
    ],
)
def test_what_resend_did_not_sign_is_refused(headers: dict[str, str], body: bytes) -> None:
    with pytest.raises(SignatureRefused):
        source().verify(headers, body, NOW)


@pytest.mark.parametrize(
    ("type", "bounce", "undeliverable"),
    [
        ("email.delivered", {}, False),
        ("email.complained", {}, True),
        ("email.bounced", {"bounce": {"type": "Transient"}}, False),
        ("email.bounced", {"bounce": {"type": "Undetermined"}}, True),
        ("email.bounced", {}, True),
    ],
)
def test_address_is_given_up_for_what_is_final(type: str, bounce: dict[str, Any], undeliverable: bool) -> None:
    body = json.dumps({"type": type, "data": {"email_id": "1", "to": "jo@example.com", **bounce}})

    assert MailEvent.read("msg_1", body).undeliverable is undeliverable


def test_what_is_wrong_is_said_when_it_is_declared() -> None:
    tasks, events = ms.Registry("shop"), ResendEvents([NEW])

    @tasks.task
    async def deaf(*, order_id: int) -> None: ...

    with pytest.raises(DeclarationError, match="takes provider and event_id"):
        events.on("email.bounced")(deaf)
    with pytest.raises(ConfigurationError):
        ResendEvents(["whsec_short"])
    with pytest.raises(ConfigurationError):
        ResendEvents(NEW)
    assert len(ResendEvents.from_env({"RESEND_WEBHOOK_SECRET": f"{OLD}, {NEW}"}).inbound) == 1
