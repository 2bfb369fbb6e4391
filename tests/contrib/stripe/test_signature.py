"""Webhooks are believed if Stripe signed them a short while ago; what its own SDK believes, we do, and vice versa."""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import stripe as sdk

from mainspring import Registry
from mainspring.contrib.stripe import Stripe, sign
from mainspring.contrib.stripe.inbound import LARGEST_STRIPE_BODY, StripeInbound
from mainspring.contrib.stripe.signature import check
from mainspring.declare.block import SignatureRefused
from mainspring.errors import DeclarationError

NOW = datetime(2026, 6, 3, 14, tzinfo=UTC)
OLD, NEW = "whsec_old_0123456789", "whsec_new_0123456789"
BODY = b'{"id": "evt_1", "object": "event", "type": "payment_intent.succeeded", "data": {"object": {"id": "pi_1"}}}'


def inbound() -> StripeInbound:
    return StripeInbound("stripe", (OLD, NEW))


def verify(header: str | None, body: bytes = BODY, now: datetime = NOW) -> Any:
    return inbound().verify({} if header is None else {"stripe-signature": header}, body, now)


@pytest.mark.rule("STAFF-19.04", "RENT-2.02")
def test_what_was_signed_with_any_of_the_secrets_is_taken() -> None:
    for secret in (OLD, NEW):
        received = verify(sign(BODY, secret, NOW))
        assert (received.event_id, received.type, received.body) == ("evt_1", "payment_intent.succeeded", BODY.decode())
        assert received.org_id is None
    with pytest.raises(SignatureRefused, match="not that of the body"):
        verify(sign(BODY, "whsec_of_somebody_else", NOW))


@pytest.mark.rule("STAFF-19.04")
@pytest.mark.parametrize(("seconds", "taken"), [(0, True), (299, True), (300, True), (301, False), (86400, False)])
def test_a_stamp_is_five_minutes_old_at_most_and_as_much_ahead(seconds: int, taken: bool) -> None:
    for at in (NOW - timedelta(seconds=seconds), NOW + timedelta(seconds=seconds)):
        if taken:
            verify(sign(BODY, OLD, at))
        else:
            with pytest.raises(SignatureRefused, match="five minutes"):
                verify(sign(BODY, OLD, at))


V1 = sign(BODY, OLD, NOW).split(",v1=")[1]
T = int(NOW.timestamp())


@pytest.mark.parametrize(
    "header",
    [
        f"t={T},v1={'0' * 64},v1={V1}",
        f"t={T},v0={'0' * 64},v1={V1}",
        f"v1={V1},t={T}",
        f"t={T}, v1={V1}",
        f"t={T},v1={V1},v1=",
    ],
)
def test_a_signature_is_found_among_others(header: str) -> None:
    assert verify(header).event_id == "evt_1"


@pytest.mark.rule("STAFF-19.04")
@pytest.mark.parametrize(
    "header",
    [
        None,
        "",
        "garbage",
        f"t={T}",
        f"v1={V1}",
        f"t={T},v0={V1}",
        f"t={T},v1={V1[:-1]}",
        f"t={T},v1={V1}0",
        f"t={T},v1={V1.upper()}",
        f"t={T},v1=",
        f"t={T},v1=ü{V1[1:]}",
        f"t={T},v1=\ud800",
        f"t=,v1={V1}",
        f"t={T}.0,v1={V1}",
        f"t=-{T},v1={V1}",
        f"t=٣,v1={V1}",
        f"t={'9' * 400},v1={V1}",
        f"t={T},t={T + 1},v1={V1}",
        f"t={T + 1},v1={V1}",
        f"t={T}," + ",".join([f"v1={V1}"] * 17),
        f"t={T},v1={V1}," + "x" * 4096,
    ],
)
def test_every_other_header_is_refused(header: str | None) -> None:
    with pytest.raises(SignatureRefused):
        verify(header)


@pytest.mark.rule("STAFF-19.04", "RENT-2.02")
def test_a_body_that_was_changed_by_a_byte_is_refused() -> None:
    header = sign(BODY, OLD, NOW)
    for at in range(len(BODY)):
        changed = BODY[:at] + bytes([BODY[at] ^ 1]) + BODY[at + 1 :]
        with pytest.raises(SignatureRefused, match="not that of the body"):
            verify(header, changed)
    for changed in (BODY + b"\n", BODY[:-1], b""):
        with pytest.raises(SignatureRefused):
            verify(header, changed)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"not json",
        b"[]",
        b"null",
        b'{"type": "a"}',
        b'{"id": "evt_1"}',
        b'{"id": 1, "type": "a"}',
        b'{"id": "", "type": "a"}',
        b'{"id": "evt_\\u0000", "type": "a"}',
        b'{"id": "evt_1", "type": "\\ud800"}',
        json.dumps({"id": "e" * 256, "type": "a"}).encode(),
        b'{"id": "evt_1", "type": "a", "deep": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b'{"id": "evt_\xff", "type": "a"}',
        b'{"id": "evt_1", "type": "a", "data": "' + b"x" * LARGEST_STRIPE_BODY + b'"}',
    ],
    ids=range(14),
)
def test_what_is_signed_and_is_no_event_is_refused(body: bytes) -> None:
    with pytest.raises(SignatureRefused):
        verify(sign(body, OLD, NOW), body)


def test_no_secret_and_no_body_is_told_in_a_refusal() -> None:
    said = []
    for header, body in ((sign(BODY, "whsec_x", NOW), BODY), (f"t={T}", BODY), (sign(b"no", OLD, NOW), b"no")):
        with pytest.raises(SignatureRefused) as refused:
            verify(header, body)
        said.append(str(refused.value))
    assert not [text for text in said if "whsec" in text or "pi_1" in text or V1 in text]


# -- the SDK's own helper


def test_the_sdk_takes_what_we_sign() -> None:
    header = sign(BODY, NEW, datetime.now(UTC))

    assert sdk.WebhookSignature.verify_header(BODY.decode(), header, NEW, tolerance=300)
    assert sdk.Webhook.construct_event(BODY, header, NEW).id == "evt_1"
    with pytest.raises(sdk.SignatureVerificationError):
        sdk.Webhook.construct_event(BODY, header, OLD)


def test_we_take_what_the_sdk_signs() -> None:
    now = int(time.time())
    for body in (BODY, '{"id": "evt_ü€𝄞", "type": "a"}'.encode()):
        header = sdk.WebhookSignature.generate_signature_header(body.decode(), NEW, now)
        check(header, body, [OLD, NEW], datetime.fromtimestamp(now, UTC))
        assert header == sign(body, NEW, datetime.fromtimestamp(now, UTC))


# -- who wants which


def test_events_go_to_the_task_that_wants_their_type() -> None:
    tasks = Registry("test")
    stripe = Stripe("sk_test_1", webhook_secrets=[OLD])

    @stripe.on("payment_intent.succeeded", "payment_intent.payment_failed")
    @tasks.task
    async def changed(*, provider: str, event_id: str) -> None: ...

    job = stripe.inbound[0].job(verify(sign(BODY, OLD, NOW)))
    assert job is not None
    assert (job.task, json.loads(bytes(job.payload))) == ("changed", {"provider": "stripe", "event_id": "evt_1"})
    other = BODY.replace(b"payment_intent.succeeded", b"charge.updated")
    assert stripe.inbound[0].job(verify(sign(other, OLD, NOW), other)) is None


def test_a_task_that_cannot_take_events_is_refused_when_declared() -> None:
    tasks = Registry("test")
    stripe = Stripe("sk_test_1", webhook_secrets=[OLD])

    @tasks.task
    async def other(*, order_id: int) -> None: ...

    @tasks.task
    async def one(*, provider: str, event_id: str) -> None: ...

    @tasks.task
    async def two(*, provider: str, event_id: str) -> None: ...

    with pytest.raises(DeclarationError, match="task other takes provider and event_id"):
        stripe.on("charge.refunded")(other)
    stripe.on("refund.updated")(one)
    with pytest.raises(DeclarationError, match=r"refund\.updated is wanted by one already"):
        stripe.on("refund.updated")(two)
    with pytest.raises(DeclarationError, match="no type"):
        stripe.on("")(one)


def test_without_a_secret_nothing_is_received() -> None:
    assert Stripe("sk_test_1").inbound == ()
