"""Payment pages, disputes and refunds made elsewhere: as the block asks Stripe about them."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import pytest
from tests.contrib.stripe.till import START, Till

from mainspring import Permanent
from mainspring.contrib.stripe import CheckoutSession, Money, OutcomeUnknown, RequestRefused, StripeEvent
from mainspring.errors import ValidationError
from mainspring_sandbox.faults import Fault

pytestmark = pytest.mark.anyio

PRICE = Money(12_300, "EUR")


async def opened(till: Till, key: str = "booking-7", **more: Any) -> CheckoutSession:
    return await till.stripe.checkout(
        PRICE, title="Digger", success_url="https://example.com/", key=key, since=till.now, **more
    )


def events(till: Till) -> list[StripeEvent]:
    """What Stripe told, the oldest first, as a webhook's body says it."""
    return [StripeEvent.read(json.dumps(entry.body)) for entry in till.made("event")]


async def test_page_says_what_it_is_for_and_until_when(till: Till) -> None:
    until = till.now + timedelta(minutes=60)

    session = await opened(
        till, reference="7", expires_at=until, email="jo@example.com", locale="pt", metadata={"booking": "7"}
    )

    assert (session.status, session.paid, session.amount) == ("open", False, PRICE)
    assert (session.reference, session.expires_at, session.email) == ("7", until, "jo@example.com")
    assert session.metadata["booking"] == "7"
    assert session.url is not None
    assert await till.stripe.session(session.id) == session
    assert await till.stripe.session("cs_test_none") is None
    till.sandbox.stripe.settle(session.id, "succeeded")
    paid = till.stripe.sync.session(session.id)
    assert paid is not None
    assert (paid.paid, paid.url) == (True, None)
    (intent,) = [one for one in await till.stripe.charges(START) if one.id == paid.intent]
    assert (intent.status, intent.amount, intent.metadata) == ("succeeded", PRICE, {"booking": "7"})


async def test_lost_answer_opens_one_page_under_its_key_also_after_a_day(till: Till) -> None:
    till.sandbox.faults.set(Fault(provider="stripe", kind="drop", method="POST", times=1))

    with pytest.raises(OutcomeUnknown):
        await opened(till)
    session = await opened(till)
    till.sandbox.stripe.keys.forget()
    again = await till.stripe.checkout(PRICE, title="Digger", success_url="https://example.com/", key="booking-7")

    assert (again.id, len(till.made("checkout.session"))) == (session.id, 1)
    with pytest.raises(Permanent) as reused:
        await till.stripe.checkout(Money(1, "EUR"), title="Digger", success_url="https://example.com/", key="booking-7")
    assert reused.value.code == "IDEMPOTENCY_KEY_REUSED"


async def test_page_that_is_closed_is_paid_by_nobody_and_one_that_was_paid_says_so(till: Till) -> None:
    first, second = await opened(till, "first"), await opened(till, "second")
    till.sandbox.stripe.settle(second.id, "succeeded")

    assert (await till.stripe.expire_session(first.id, key="x")).status == "expired"
    assert (await till.stripe.expire_session(second.id, key="y")).paid
    with pytest.raises(RequestRefused):
        await till.stripe.expire_session("cs_test_none", key="z")
    with pytest.raises(ValidationError):
        await till.stripe.expire_session("../refunds", key="z")


async def test_events_of_a_voucher_carry_the_session(till: Till) -> None:
    session = await opened(till, methods=["card", "multibanco"])
    till.sandbox.stripe.settle(session.id, "succeeded", method="multibanco")
    till.sandbox.stripe.settle(session.id, "succeeded")

    told = [(event.type, event.checkout) for event in events(till) if event.checkout is not None]

    assert [(type.removeprefix("checkout.session."), one.paid, one.waits) for type, one in told] == [
        ("completed", False, True),
        ("async_payment_succeeded", True, False),
    ]
    assert {one.id for _, one in told} == {session.id}


async def test_paid_pages_are_found_without_a_webhook(till: Till) -> None:
    paid = await opened(till, "paid")
    till.sandbox.stripe.settle(paid.id, "succeeded")
    till.later(hours=2)
    await opened(till, "open")

    found = await till.stripe.sessions(START, status="complete")

    assert [one.id for one in found] == [paid.id]
    assert [one.id for one in await till.stripe.sessions(START, intent=found[0].intent)] == [paid.id]
    assert [one.id for one in await till.stripe.sessions(till.now + timedelta(hours=3))] == []


async def test_dispute_has_a_day_until_which_evidence_is_taken_and_an_end(till: Till) -> None:
    paid = await opened(till)
    intent = till.sandbox.stripe.settle(paid.id, "succeeded")["payment_intent"]
    charge = (await till.stripe.intent(intent)).charge  # type: ignore[union-attr] # it was paid
    assert charge is not None
    made = till.sandbox.stripe.dispute(charge)

    (found,) = await till.stripe.disputes(START, intent=intent)

    assert (found.id, found.open, found.inquiry, found.amount, found.intent) == (made["id"], True, False, PRICE, intent)
    assert found.due_by is not None
    assert found.due_by > till.now
    till.sandbox.stripe.close_dispute(made["id"], "lost")
    assert till.stripe.sync.dispute(made["id"]).status == "lost"  # type: ignore[union-attr] # it is there
    assert await till.stripe.dispute("dp_none") is None
    told = [event.dispute.status for event in events(till) if event.dispute is not None]
    assert told == ["needs_response", "needs_response", "lost"]


async def test_refund_of_the_dashboard_is_listed_without_a_key(till: Till) -> None:
    intent = till.sandbox.stripe.settle((await opened(till)).id, "succeeded")["payment_intent"]
    ours = await till.stripe.refund(intent=intent, amount=Money(300, "EUR"), key="refund-1", since=till.now)
    theirs = till.sandbox.stripe.refund(intent, 1_000)

    found = await till.stripe.refunds(START, intent=intent)

    assert [(one.id, one.key) for one in found] == [(theirs["id"], None), (ours.id, "refund-1")]
