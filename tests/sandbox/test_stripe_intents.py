"""Payment intents at the sandbox's Stripe: what each test card does, and which states follow which."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import stripe
from tests.sandbox.till import Till, ask, ask_stripe, async_client, paying

from mainspring_sandbox import Sandbox


def test_a_saved_card_is_charged_without_its_owner(sandbox: Sandbox, shop: Till) -> None:
    customer = shop.v1.customers.create({"name": "Ada", "metadata": {"user": "1"}})
    method = shop.v1.payment_methods.attach("pm_card_visa", {"customer": customer.id})
    paid = shop.pay("k1", method.id, customer=customer.id, metadata={"booking": "7"}, expand=["latest_charge"])

    charge = paid.latest_charge
    assert isinstance(charge, stripe.Charge)
    assert (paid.status, paid.amount_received, paid.metadata["booking"]) == ("succeeded", 1250, "7")
    assert (charge.amount, charge.paid, charge.customer) == (1250, True, customer.id)
    [entry] = sandbox.ledger.find("charge")
    shown = {name: entry.body[name] for name in ("amount", "currency", "customer", "metadata", "key", "status")}
    assert shown == {
        "amount": 1250,
        "currency": "eur",
        "customer": customer.id,
        "metadata": {"booking": "7"},
        "key": "k1",
        "status": "succeeded",
    }


def test_the_async_sdk_is_served_as_well(sandbox: Sandbox) -> None:
    async def pay() -> str:
        async with async_client(sandbox) as v1:
            intent = await v1.payment_intents.create_async(paying())
            return str((await v1.payment_intents.retrieve_async(intent.id)).status)

    assert asyncio.run(pay()) == "succeeded"


@pytest.mark.parametrize(
    ("method", "code", "decline_code"),
    [
        ("pm_card_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_visa_chargeDeclined", "card_declined", "generic_decline"),
        ("pm_card_chargeDeclinedInsufficientFunds", "card_declined", "insufficient_funds"),
        ("pm_card_visa_chargeDeclinedLostCard", "card_declined", "lost_card"),
        ("pm_card_chargeDeclinedExpiredCard", "expired_card", "expired_card"),
        ("pm_card_chargeDeclinedIncorrectCvc", "incorrect_cvc", "incorrect_cvc"),
        ("pm_card_chargeDeclinedProcessingError", "processing_error", "processing_error"),
        ("pm_card_authenticationRequired", "authentication_required", "authentication_required"),
    ],
)
def test_a_declined_card_says_why(sandbox: Sandbox, shop: Till, method: str, code: str, decline_code: str) -> None:
    with pytest.raises(stripe.CardError) as declined:
        shop.pay("k1", method, metadata={"booking": "7"})

    error = declined.value.error
    assert error is not None
    assert error.payment_intent is not None
    assert (declined.value.http_status, error.type, error.code, error.decline_code) == (
        402,
        "card_error",
        code,
        decline_code,
    )
    kept = shop.v1.payment_intents.retrieve(error.payment_intent.id)
    assert kept.status == "requires_payment_method"
    assert kept.last_payment_error is not None
    assert kept.last_payment_error.decline_code == decline_code
    assert shop.v1.charges.retrieve(str(kept.latest_charge)).status == "failed"
    assert sandbox.ledger.count("charge") == 0
    assert [entry.body["decline_code"] for entry in sandbox.ledger.find("decline")] == [decline_code]


@pytest.mark.parametrize(
    ("number", "decline_code"),
    [("4242424242424242", None), ("4000000000009995", "insufficient_funds"), ("4000000000000002", "generic_decline")],
)
def test_card_numbers_do_what_the_names_do(shop: Till, number: str, decline_code: str | None) -> None:
    card = {"number": number, "exp_month": 1, "exp_year": 2030, "cvc": "123"}
    method = shop.v1.payment_methods.create({"type": "card", "card": card})
    if decline_code is None:
        assert shop.pay(method=method.id).status == "succeeded"
        return
    with pytest.raises(stripe.CardError) as declined:
        shop.pay(method=method.id)
    assert declined.value.error is not None
    assert declined.value.error.decline_code == decline_code


def test_tokens_make_cards_and_a_wrong_number_makes_none(shop: Till) -> None:
    method = shop.v1.payment_methods.create({"type": "card", "card": {"token": "tok_visa"}})
    with pytest.raises(stripe.CardError) as refused:
        shop.v1.payment_methods.create({"type": "card", "card": {"number": "4242424242424241"}})

    assert method.card is not None
    assert method.card.last4 == "4242"
    assert refused.value.code == "incorrect_number"


def test_a_customer_who_is_there_is_asked_and_then_pays(sandbox: Sandbox, shop: Till) -> None:
    asked = shop.pay("k1", "pm_card_authenticationRequired", off_session=False)
    assert (asked.status, sandbox.ledger.count("charge")) == ("requires_action", 0)

    done = ask(sandbox, "POST", "/sandbox/stripe/settle", {"id": asked.id, "outcome": "succeeded"}).json()
    assert done["status"] == "succeeded"
    assert [entry.body["key"] for entry in sandbox.ledger.find("charge")] == ["k1"]


def test_a_card_that_was_saved_is_not_asked_again(shop: Till) -> None:
    customer = shop.v1.customers.create({})
    unsaved = shop.v1.payment_methods.attach("pm_card_authenticationRequiredOnSetup", {"customer": customer.id})
    with pytest.raises(stripe.CardError):
        shop.pay(method=unsaved.id, customer=customer.id)
    setup = shop.v1.setup_intents.create(
        {"customer": customer.id, "payment_method": "pm_card_authenticationRequiredOnSetup", "confirm": True}
    )

    assert shop.pay(method=str(setup.payment_method), customer=customer.id).status == "succeeded"


@pytest.mark.parametrize(("outcome", "charges"), [("succeeded", 1), ("failed", 0)])
def test_a_payment_stays_processing_until_it_is_settled(
    sandbox: Sandbox, shop: Till, outcome: str, charges: int
) -> None:
    waiting = shop.pay("k1", "pm_card_processing")
    assert (waiting.status, sandbox.ledger.count("charge")) == ("processing", 0)

    sandbox.stripe.settle(waiting.id, outcome, "insufficient_funds")  # type: ignore[arg-type] # one of both

    after = shop.v1.payment_intents.retrieve(waiting.id)
    assert after.status == ("succeeded" if charges else "requires_payment_method")
    assert sandbox.ledger.count("charge") == charges
    assert ask(sandbox, "POST", "/sandbox/stripe/settle", {"id": waiting.id, "outcome": outcome}).status_code == 400


def test_made_now_confirmed_later(sandbox: Sandbox, shop: Till) -> None:
    empty = shop.v1.payment_intents.create({"amount": 1250, "currency": "usd"})
    full = shop.v1.payment_intents.create({"amount": 1250, "currency": "usd", "payment_method": "pm_card_visa"})
    assert (empty.status, full.status) == ("requires_payment_method", "requires_confirmation")
    assert sandbox.ledger.count("charge") == 0

    assert shop.v1.payment_intents.confirm(full.id).status == "succeeded"
    assert shop.v1.payment_intents.confirm(empty.id, {"payment_method": "pm_card_visa"}).status == "succeeded"
    with pytest.raises(stripe.InvalidRequestError) as refused:
        shop.v1.payment_intents.confirm(full.id)
    assert refused.value.code == "payment_intent_unexpected_state"
    assert sandbox.ledger.count("charge") == 2


def test_held_money_is_taken_when_captured(sandbox: Sandbox, shop: Till) -> None:
    held = shop.pay(capture_method="manual")
    assert (held.status, held.amount_capturable, sandbox.ledger.count("charge")) == ("requires_capture", 1250, 0)

    taken = shop.v1.payment_intents.capture(held.id, {"amount_to_capture": 1000})

    assert (taken.status, taken.amount_received) == ("succeeded", 1000)
    assert [entry.body["amount"] for entry in sandbox.ledger.find("charge")] == [1000]


def test_canceled_is_the_end(sandbox: Sandbox, shop: Till) -> None:
    for method, capture in (("pm_card_processing", "automatic"), ("pm_card_visa", "manual")):
        waiting = shop.pay(method=method, capture_method=capture)
        gone = shop.v1.payment_intents.cancel(waiting.id, {"cancellation_reason": "abandoned"})
        assert (gone.status, gone.cancellation_reason) == ("canceled", "abandoned")
        for verb in (shop.v1.payment_intents.confirm, shop.v1.payment_intents.cancel, shop.v1.payment_intents.capture):
            with pytest.raises(stripe.InvalidRequestError):
                verb(waiting.id)
    paid = shop.pay()
    with pytest.raises(stripe.InvalidRequestError):
        shop.v1.payment_intents.cancel(paid.id)
    assert sandbox.ledger.count("charge") == 1


def test_a_declined_intent_may_be_paid_by_another_card(sandbox: Sandbox, shop: Till) -> None:
    with pytest.raises(stripe.CardError) as declined:
        shop.pay(method="pm_card_chargeDeclined")
    assert declined.value.error is not None
    intent = declined.value.error.payment_intent
    assert intent is not None

    paid = shop.v1.payment_intents.confirm(intent.id, {"payment_method": "pm_card_visa"})

    assert (paid.status, paid.last_payment_error) == ("succeeded", None)
    assert (sandbox.ledger.count("charge"), sandbox.ledger.count("decline")) == (1, 1)


@pytest.mark.parametrize(
    ("params", "param"),
    [
        ({"amount": 0}, "amount"),
        ({"amount": -5}, "amount"),
        ({"amount": "12.50"}, "amount"),
        ({"amount": 49}, "amount"),
        ({"amount": 100_000_000}, "amount"),
        ({"currency": "euro"}, "currency"),
        ({"currency": ""}, "currency"),
        ({"confirm": "yes"}, "confirm"),
        ({"confirm": False}, "off_session"),
        ({"customer": "cus_nobody"}, "customer"),
        ({"payment_method": "pm_nobody"}, "payment_method"),
        ({"payment_method": "pm_card_nobody"}, "payment_method"),
        ({"on_behalf_of": "acct_nobody"}, "on_behalf_of"),
        ({"metadata": {"a" * 41: "1"}}, f"metadata[{'a' * 41}]"),
        ({"metadata": {"a": "1" * 501}}, "metadata[a]"),
        ({"metadata": {str(n): "1" for n in range(51)}}, "metadata"),
        ({"amuont": 5}, "amuont"),
        ({"capture_method": "later"}, "capture_method"),
        ({"payment_method_types": []}, "return_url"),
    ],
)
def test_bad_input_is_refused_by_name_and_nothing_is_written(
    sandbox: Sandbox, shop: Till, params: dict[str, Any], param: str
) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        shop.pay("k1", **params)

    assert refused.value.param == param
    assert [entry.kind for entry in sandbox.ledger.find()] == ["stripe.request"]


def test_a_card_of_another_customer_is_refused(sandbox: Sandbox, shop: Till) -> None:
    ada, bob = (shop.v1.customers.create({"name": name}) for name in ("Ada", "Bob"))
    method = shop.v1.payment_methods.attach("pm_card_visa", {"customer": ada.id})
    for customer in ({"customer": bob.id}, {}):
        with pytest.raises(stripe.InvalidRequestError):
            shop.pay(method=method.id, **customer)

    assert sandbox.ledger.count("stripe.payment_intent") == 0


def test_numbers_are_keys_of_metadata_too(shop: Till) -> None:
    assert shop.pay(metadata={"7": "a", "12": "b"}).metadata.to_dict() == {"7": "a", "12": "b"}


@pytest.mark.parametrize("authorization", ["", "Bearer", "Bearer pk_test_1", "Basic !!", "Basic cGtfdGVzdF8xOg=="])
def test_without_a_secret_key_nobody_gets_in(sandbox: Sandbox, authorization: str) -> None:
    answer = ask_stripe(sandbox, "GET", "/v1/charges", Authorization=authorization)

    assert answer.status_code == 401
    assert answer.json()["error"]["type"] == "invalid_request_error"


def test_a_secret_key_may_come_as_a_user_name(sandbox: Sandbox) -> None:
    assert ask_stripe(sandbox, "GET", "/v1/charges", Authorization="Basic c2tfdGVzdF8xOg==").status_code == 200


def test_what_was_asked_is_written_down(sandbox: Sandbox, shop: Till) -> None:
    account = shop.v1.accounts.create({})
    options = {"stripe_account": account.id, "stripe_version": "2024-06-20", "idempotency_key": "k1"}
    paid = shop.v1.payment_intents.create(paying(), options)

    seen = sandbox.ledger.find("stripe.request", limit=1)[0]
    wanted = {"method": "POST", "path": "/v1/payment_intents", "account": account.id, "version": "2024-06-20"}
    assert seen.body == {**wanted, "key": "k1", "status": 200, "replayed": False}
    assert paid.last_response is not None
    assert paid.last_response.request_id == seen.id


def test_an_account_nobody_knows_is_refused(shop: Till) -> None:
    with pytest.raises(stripe.PermissionError):
        shop.v1.payment_intents.create(paying(), {"stripe_account": "acct_nobody"})


def test_accounts_do_not_see_each_other(shop: Till) -> None:
    account = shop.v1.accounts.create({})
    ours = shop.pay()

    with pytest.raises(stripe.InvalidRequestError) as refused:
        shop.v1.payment_intents.retrieve(ours.id, {}, {"stripe_account": account.id})
    assert (refused.value.http_status, refused.value.code) == (404, "resource_missing")
    assert shop.v1.payment_intents.list({}, {"stripe_account": account.id}).data == []


@pytest.mark.parametrize(
    ("method", "path", "form", "status"),
    [
        ("GET", "/v1/nothing", "", 404),
        ("DELETE", "/v1/payment_intents", "", 404),
        ("POST", "/v1/customers", "metadata=1&metadata[a]=2", 400),
        ("POST", "/v1/customers", "metadata[a]=2&metadata=1", 400),
        ("POST", "/v1/customers", "[a]=2", 400),
        ("POST", "/v1/customers", "a[b][c][d][e][f][g][h]=2", 400),
        ("POST", "/v1/customers", "name[first]=Ada", 400),
        ("POST", "/v1/customers", "metadata[a][b]=2", 400),
        ("POST", "/v1/customers", "name=%ff%fe", 400),
        ("POST", "/v1/customers", "&".join(f"a{n}=1" for n in range(2000)), 400),
        ("POST", "/v1/customers", "expand=customer", 400),
        ("GET", "/v1/charges?limit=0", "", 400),
        ("GET", "/v1/charges?limit=101", "", 400),
        ("GET", "/v1/charges?limit=ten", "", 400),
        ("GET", "/v1/charges?starting_after=ch_nobody", "", 400),
        ("GET", "/v1/charges?created[since]=1", "", 400),
        ("GET", "/v1/payment_intents/pi_nobody", "", 404),
        ("GET", "/v1/payment_intents/search", "", 400),
        ("GET", "/v1/payment_intents/search?query=metadata", "", 400),
        ("GET", "/v1/payment_intents/search?query=secret:'1'", "", 400),
    ],
)
def test_what_stripe_refuses_is_refused_in_its_form(
    sandbox: Sandbox, method: str, path: str, form: str, status: int
) -> None:
    answer = ask_stripe(sandbox, method, path, form)

    assert answer.status_code == status
    assert answer.json()["error"]["message"]
    assert answer.headers["Request-Id"]
