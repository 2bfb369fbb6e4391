"""Text messages over Twilio."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.contrib.senders.kit import TWILIO, fault

from mainspring.contrib.notify.sender import Undeliverable
from mainspring.contrib.notify.twilio import Twilio
from mainspring.errors import ConfigurationError
from mainspring.outcome import Failure, Permanent
from mainspring_sandbox import Sandbox

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize("kind", ["drop", "timeout"])
async def test_look_before_a_repeat_finds_what_was_taken_and_only_that(sandbox: Sandbox, kind: str) -> None:
    sender, since = TWILIO.make(sandbox, timeout=0.5), sandbox.world.now()
    fault(sandbox, "twilio", kind, times=1)
    with pytest.raises(Failure):
        await sender.send(TWILIO.message())

    found = await sender.find(TWILIO.message(), since)

    taken = sandbox.ledger.find("sms")
    assert (found is not None) == (kind == "drop")
    assert [found.provider_id if found else None for _ in taken] == [entry.id for entry in taken]


async def test_look_finds_neither_other_texts_nor_other_numbers_nor_older_nor_failed_ones(sandbox: Sandbox) -> None:
    sender = TWILIO.make(sandbox)
    before = sandbox.world.now()
    await sender.send(TWILIO.message())
    (sent,) = sandbox.ledger.find("sms")

    assert await sender.find(TWILIO.message(text="Another text."), before) is None
    assert await sender.find(TWILIO.message(to="+49170654321"), before) is None
    assert await sender.find(TWILIO.message(), sent.at + timedelta(seconds=10)) is None
    assert await sender.find(TWILIO.message(), before) is not None
    sandbox.ledger.change("sms", sent.id, status="undelivered")
    assert await sender.find(TWILIO.message(), before) is None


async def test_look_that_is_not_answered_is_tried_again_and_nothing_is_sent(sandbox: Sandbox) -> None:
    fault(sandbox, "twilio", "error", status=503)

    with pytest.raises(Failure) as failed:
        await TWILIO.make(sandbox).find(TWILIO.message(), sandbox.world.now())

    assert failed.value.error_class == "retryable"


@pytest.mark.rule("PLAN-3.13")
@pytest.mark.parametrize(
    ("to", "error", "code"),
    [
        ("+15005550001", Undeliverable, "PHONE_NUMBER_INVALID"),  # 21211
        ("+15005550002", Undeliverable, "PHONE_NUMBER_INVALID"),  # 21612
        ("+15005550003", Permanent, "PROVIDER_CONFIGURATION"),  # 21408, our regions
        ("+15005550004", Undeliverable, "PHONE_NUMBER_INVALID"),  # 21610, opted out
        ("+15005550009", Undeliverable, "PHONE_NUMBER_INVALID"),  # 21614
        ("030 901820", Undeliverable, "PHONE_NUMBER_INVALID"),
    ],
)
async def test_numbers_that_cannot_be_reached(sandbox: Sandbox, to: str, error: type[Permanent], code: str) -> None:
    with pytest.raises(Permanent) as refused:
        await TWILIO.make(sandbox).send(TWILIO.message(to=to))

    assert (type(refused.value), refused.value.code) == (error, code)
    assert to not in str(refused.value)
    assert sandbox.ledger.count("sms") == 0


async def test_sender_that_is_not_ours_is_a_mistake_of_the_settings(sandbox: Sandbox) -> None:
    with pytest.raises(Permanent) as refused:
        await TWILIO.make(sandbox, sender="+15005550007").send(TWILIO.message())

    assert refused.value.code == "PROVIDER_CONFIGURATION"


async def test_text_that_is_too_long_is_refused_for_good(sandbox: Sandbox) -> None:
    with pytest.raises(Permanent) as refused:
        await TWILIO.make(sandbox).send(TWILIO.message(text="x" * 1601))

    assert refused.value.code == "MESSAGE_REFUSED"


async def test_messaging_service_sends_in_place_of_a_number(sandbox: Sandbox) -> None:
    await TWILIO.make(sandbox, sender=f"MG{'0' * 32}").send(TWILIO.message())

    (sent,) = sandbox.ledger.find("sms")
    assert (sent.body["from"], sent.body["messaging_service_sid"]) == (None, f"MG{'0' * 32}")


@pytest.mark.parametrize("field", ["account_sid", "auth_token", "sender"])
def test_what_is_missing_is_named(field: str) -> None:
    given: dict[str, Any] = {"account_sid": "AC1", "auth_token": "t", "sender": "+4930901820"}

    with pytest.raises(ConfigurationError, match=f"^{field}: "):
        Twilio(**(given | {field: ""}))
