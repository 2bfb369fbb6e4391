"""Checkout sessions at the stand-in: paid at once or by a voucher, closed by somebody or by time."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
import stripe
from tests.sandbox.till import Clock, Till, ask, until

from mainspring_sandbox import Sandbox
from mainspring_sandbox.stripe.paying import VOUCHER_LIFE_S


def opened(shop: Till, **changes: Any) -> Any:
    line = {"quantity": 1, "price_data": {"currency": "eur", "unit_amount": 12_300}}
    asked = {"mode": "payment", "line_items": [line], "success_url": "https://example.com/", **changes}
    return shop.v1.checkout.sessions.create(asked)


def told(shop: Till) -> list[str]:
    """What was told of sessions, the oldest first."""
    return [event.type for event in shop.v1.events.list({"limit": 100}).data if "checkout" in event.type][::-1]


@pytest.mark.parametrize("outcome", ["succeeded", "failed"])
def test_voucher_is_given_out_first_and_paid_later_or_never(sandbox: Sandbox, shop: Till, outcome: Any) -> None:
    session = opened(shop, payment_method_types=["card", "multibanco"])

    given = sandbox.stripe.settle(session.id, "succeeded", method="multibanco")
    assert (given["status"], given["payment_status"]) == ("complete", "unpaid")
    assert (told(shop), sandbox.ledger.count("charge")) == (["checkout.session.completed"], 0)
    ended = sandbox.stripe.settle(session.id, outcome)

    paid = outcome == "succeeded"
    assert ended["payment_status"] == ("paid" if paid else "unpaid")
    assert told(shop)[-1] == f"checkout.session.async_payment_{outcome}"
    assert sandbox.ledger.count("charge") == (1 if paid else 0)
    intent = shop.v1.payment_intents.retrieve(ended["payment_intent"])
    assert intent.status == ("succeeded" if paid else "requires_payment_method")


def test_voucher_is_paid_by_its_intent_as_well(sandbox: Sandbox, shop: Till) -> None:
    session = opened(shop, payment_method_types=["sepa_debit"])
    given = sandbox.stripe.settle(session.id, "succeeded", method="sepa_debit")

    assert sandbox.stripe.settle(given["payment_intent"], "succeeded")["status"] == "succeeded"

    assert shop.v1.checkout.sessions.retrieve(session.id).payment_status == "paid"


def test_session_expires_by_itself_and_is_told_of_once(sandbox: Sandbox, shop: Till, clock: Clock) -> None:
    session = opened(shop, expires_at=int(clock.at.timestamp()) + 1800)
    paid = opened(shop)
    sandbox.stripe.settle(paid.id, "succeeded")

    clock.advance(seconds=1799)
    assert shop.v1.checkout.sessions.retrieve(session.id).status == "open"
    clock.advance(seconds=1)
    until(lambda: shop.v1.checkout.sessions.retrieve(session.id).status == "expired")
    clock.advance(days=2)
    assert sandbox.stripe.lapse() == 0

    assert told(shop) == ["checkout.session.completed", "checkout.session.expired"]
    with pytest.raises(stripe.InvalidRequestError):
        shop.v1.checkout.sessions.expire(session.id)


def test_voucher_that_nobody_takes_to_the_bank_fails(sandbox: Sandbox, shop: Till, clock: Clock) -> None:
    session = opened(shop, payment_method_types=["multibanco"])
    sandbox.stripe.settle(session.id, "succeeded", method="multibanco")

    clock.advance(seconds=VOUCHER_LIFE_S)
    sandbox.stripe.lapse()

    assert told(shop)[-1] == "checkout.session.async_payment_failed"


def test_declined_card_leaves_the_page_open(sandbox: Sandbox, shop: Till) -> None:
    session = opened(shop)

    assert sandbox.stripe.settle(session.id, "succeeded", method="pm_card_chargeDeclined")["status"] == "open"
    assert sandbox.stripe.settle(session.id, "succeeded", method="pm_card_refundFail")["payment_status"] == "paid"


@pytest.mark.parametrize(
    "wrong",
    [
        {"expires_at": timedelta(minutes=29)},
        {"expires_at": timedelta(hours=24, seconds=1)},
        {"payment_method_types": ["cowries"]},
        {"locale": "pt-PT"},
    ],
)
def test_session_that_stripe_would_not_take_is_refused(shop: Till, clock: Clock, wrong: dict[str, Any]) -> None:
    if "expires_at" in wrong:
        wrong = {"expires_at": int((clock.at + wrong["expires_at"]).timestamp())}
    with pytest.raises(stripe.InvalidRequestError):
        opened(shop, **wrong)


def test_page_offers_the_voucher_and_then_takes_its_money(sandbox: Sandbox, shop: Till) -> None:
    session = opened(shop, payment_method_types=["card", "multibanco"])
    path = session.url.removeprefix(sandbox.url)

    assert "Pay by multibanco" in ask(sandbox, "GET", path).text
    assert sandbox.stripe.settle(session.id, "succeeded", method="multibanco")["url"] is None
    assert "Pay the voucher" in ask(sandbox, "GET", path).text
    assert ask(sandbox, "POST", path).status_code == 303

    assert shop.v1.checkout.sessions.retrieve(session.id).payment_status == "paid"
    assert ask(sandbox, "GET", path).status_code == 404


def test_refund_in_the_dashboard_has_no_key_of_ours(sandbox: Sandbox, shop: Till) -> None:
    paid = sandbox.stripe.settle(opened(shop).id, "succeeded")

    answer = ask(sandbox, "POST", "/sandbox/stripe/refunds", {"id": paid["payment_intent"], "amount": 100})

    (refund,) = shop.v1.refunds.list({"payment_intent": paid["payment_intent"]}).data
    assert (refund.id, refund.amount, refund.to_dict()["metadata"]) == (answer.json()["id"], 100, {})
    assert sandbox.stripe.refund(paid["payment_intent"])["amount"] == 12_200
