"""Idempotency keys at the sandbox's Stripe behave as Stripe documents them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import cast

import pytest
import stripe
from tests.sandbox.till import Clock, Till, ask, ask_stripe, async_client, paying, till

from mainspring_sandbox import Sandbox
from mainspring_sandbox.faults import Fault


def charges(sandbox: Sandbox) -> list[int]:
    return [entry.body["amount"] for entry in sandbox.ledger.find("charge")]


def test_same_key_and_parameters_give_the_very_same_answer(sandbox: Sandbox) -> None:
    form = "currency=eur&amount=1250&payment_method=pm_card_visa&confirm=true&payment_method_types[0]=card"
    turned = "payment_method_types[0]=card&amount=1250&currency=eur&payment_method=pm_card_visa&confirm=true"
    first = ask_stripe(sandbox, "POST", "/v1/payment_intents", form, **{"Idempotency-Key": "k1"})
    second = ask_stripe(sandbox, "POST", "/v1/payment_intents", turned, **{"Idempotency-Key": "k1"})

    assert (first.status_code, first.content) == (second.status_code, second.content)
    assert "Idempotent-Replayed" not in first.headers
    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.headers["Original-Request"] == first.headers["Request-Id"] != second.headers["Request-Id"]
    assert charges(sandbox) == [1250]


def test_same_key_with_other_parameters_is_refused(sandbox: Sandbox, shop: Till) -> None:
    shop.pay("k1")
    with pytest.raises(stripe.IdempotencyError) as refused:
        shop.pay("k1", amount=9900)

    assert refused.value.http_status == 400
    assert charges(sandbox) == [1250]


def test_same_key_at_another_page_is_refused(shop: Till) -> None:
    shop.v1.customers.create({"name": "Ada"}, {"idempotency_key": "k1"})
    with pytest.raises(stripe.IdempotencyError):
        shop.v1.accounts.create({}, {"idempotency_key": "k1"})


def test_a_decline_is_answered_again_without_a_new_try(sandbox: Sandbox, shop: Till) -> None:
    errors = []
    for _ in range(2):
        with pytest.raises(stripe.CardError) as declined:
            shop.pay("k1", "pm_card_chargeDeclined")
        errors.append(declined.value)

    assert errors[0].http_body == errors[1].http_body
    assert errors[1].headers is not None
    assert errors[1].headers["idempotent-replayed"] == "true"
    assert sandbox.ledger.count("decline") == 1
    assert len(shop.v1.payment_intents.list().data) == 1


def test_what_failed_validation_leaves_its_key_free(sandbox: Sandbox, shop: Till) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        shop.v1.payment_intents.create({"currency": "eur"}, {"idempotency_key": "k1"})
    paid = shop.pay("k1")

    assert (refused.value.code, refused.value.param) == ("parameter_missing", "amount")
    assert paid.status == "succeeded"


def test_an_error_before_execution_leaves_its_key_free(sandbox: Sandbox, shop: Till) -> None:
    sandbox.faults.set(Fault(provider="stripe", kind="error", status=503, times=1))
    with pytest.raises(stripe.APIError):
        shop.pay("k1")

    assert charges(sandbox) == []
    assert shop.pay("k1").status == "succeeded"
    assert charges(sandbox) == [1250]


def test_what_was_executed_and_refused_is_kept(sandbox: Sandbox, shop: Till) -> None:
    paid = shop.pay()
    for _ in range(2):
        with pytest.raises(stripe.InvalidRequestError) as refused:
            shop.v1.refunds.create({"payment_intent": paid.id, "amount": 9999}, {"idempotency_key": "k1"})

    assert refused.value.headers is not None
    assert refused.value.headers["idempotent-replayed"] == "true"


def test_twenty_at_once_with_one_key_charge_once(sandbox: Sandbox) -> None:
    async def all_at_once() -> list[str]:
        async with async_client(sandbox) as v1:
            asked = [v1.payment_intents.create_async(paying(), {"idempotency_key": "k1"}) for _ in range(20)]
            return [intent.id for intent in await asyncio.gather(*asked)]

    assert len(set(asyncio.run(all_at_once()))) == 1
    assert charges(sandbox) == [1250]


def test_a_key_whose_request_still_runs_is_in_use(sandbox: Sandbox) -> None:
    ask(sandbox, "POST", "/sandbox/stripe/settings", {"pace": 0.3})

    async def all_at_once() -> list[object]:
        async with async_client(sandbox) as v1:
            asked = [v1.payment_intents.create_async(paying(), {"idempotency_key": "k1"}) for _ in range(20)]
            return list(await asyncio.gather(*asked, return_exceptions=True))

    answers = asyncio.run(all_at_once())
    refused = [answer for answer in answers if isinstance(answer, stripe.APIError)]

    assert len(refused) == 19
    assert {(error.http_status, error.error and error.error.code) for error in refused} == {
        (409, "idempotency_key_in_use")
    }
    assert charges(sandbox) == [1250]


def test_the_sdk_gets_over_a_key_in_use_by_itself(sandbox: Sandbox) -> None:
    sandbox.stripe.settings.pace = 0.3

    async def two_at_once() -> list[str]:
        async with async_client(sandbox, retries=2) as v1:
            asked = [v1.payment_intents.create_async(paying(), {"idempotency_key": "k1"}) for _ in range(2)]
            return [intent.id for intent in await asyncio.gather(*asked)]

    assert len(set(asyncio.run(two_at_once()))) == 1
    assert charges(sandbox) == [1250]


def test_keys_are_forgotten_after_a_day_and_the_money_moves_again(sandbox: Sandbox, clock: Clock, shop: Till) -> None:
    first = shop.pay("k1")
    clock.advance(hours=23, minutes=59)
    again = shop.pay("k1")
    clock.advance(minutes=1)
    after = shop.pay("k1")

    assert first.id == again.id != after.id
    assert charges(sandbox) == [1250, 1250]  # so whoever comes back late must look before it charges


def test_keys_are_forgotten_when_told(sandbox: Sandbox, shop: Till) -> None:
    first = shop.pay("k1")
    assert ask(sandbox, "DELETE", "/sandbox/stripe/keys").status_code == 200

    assert shop.pay("k1").id != first.id


def test_keys_belong_to_an_account(sandbox: Sandbox, shop: Till) -> None:
    account = shop.v1.accounts.create({})
    ours = shop.pay("k1")
    theirs = shop.v1.payment_intents.create(paying(), {"idempotency_key": "k1", "stripe_account": account.id})

    assert ours.id != theirs.id
    assert [entry.body["account"] for entry in sandbox.ledger.find("charge")] == [account.id, None]


@pytest.mark.parametrize("kind", ["drop", "timeout", "error"])
def test_accepted_and_not_answered_charges_once_when_tried_again(sandbox: Sandbox, kind: str) -> None:
    sandbox.faults.set(Fault(provider="stripe", kind=kind, accepted=True, times=1, method="POST"))  # type: ignore[arg-type] # one of them
    with till(sandbox) as shop:
        shop.http._timeout = 0.3
        with pytest.raises((stripe.APIConnectionError, stripe.APIError)):
            shop.pay("k1")
        assert charges(sandbox) == [1250]  # it has happened, and nobody knows

        shop.http._timeout = 10
        again = shop.pay("k1")

    assert again.status == "succeeded"
    assert charges(sandbox) == [1250]


@pytest.mark.parametrize("colour", ["sync", "async"])
def test_the_sdk_tries_again_with_the_same_key_after_a_broken_line(sandbox: Sandbox, colour: str) -> None:
    sandbox.faults.set(Fault(provider="stripe", kind="drop", times=1))

    async def pay() -> stripe.PaymentIntent:
        async with async_client(sandbox, retries=2) as v1:
            return cast(stripe.PaymentIntent, await v1.payment_intents.create_async(paying()))

    if colour == "async":
        paid = asyncio.run(pay())
    else:
        with till(sandbox, retries=2) as shop:
            paid = shop.pay()  # without a key the SDK makes one

    requests = sandbox.ledger.find("stripe.request")
    assert paid.status == "succeeded"
    assert [request.body["replayed"] for request in requests] == [True, False]
    assert len({request.body["key"] for request in requests}) == 1
    assert charges(sandbox) == [1250]


def test_an_error_that_was_kept_is_the_answer_for_a_day(sandbox: Sandbox, clock: Clock, shop: Till) -> None:
    sandbox.stripe.settings.broken = 1
    for _ in range(3):
        with pytest.raises(stripe.APIError) as failed:
            shop.pay("k1", metadata={"booking": "7"})
    assert failed.value.headers is not None
    assert (failed.value.http_status, failed.value.headers["idempotent-replayed"]) == (500, "true")

    assert charges(sandbox) == [1250]  # and yet it happened: whoever asks finds it
    assert [intent.status for intent in shop.v1.payment_intents.list().data] == ["succeeded"]
    assert shop.pay("k2").status == "succeeded"


def test_a_silent_provider_moves_nothing(sandbox: Sandbox) -> None:
    sandbox.faults.set(Fault(provider="stripe", kind="timeout", times=1))
    with till(sandbox) as shop:
        shop.http._timeout = 0.2
        with pytest.raises(stripe.APIConnectionError):
            shop.pay("k1")

    assert charges(sandbox) == []


def test_keys_charges_and_endpoints_outlive_a_restart(tmp_path: Path) -> None:
    file = tmp_path / "sandbox.db"
    with Sandbox(path=file) as sandbox, till(sandbox) as shop:
        first = shop.pay("k1")
        endpoint = shop.v1.webhook_endpoints.create({"url": "http://127.0.0.1:9/", "enabled_events": ["*"]})
    with Sandbox(path=file) as sandbox, till(sandbox) as shop:
        again, another = shop.pay("k1"), shop.pay("k2")

        assert again.id == first.id != another.id
        assert charges(sandbox) == [1250, 1250]
        assert shop.v1.webhook_endpoints.retrieve(endpoint.id).url == "http://127.0.0.1:9/"


def test_a_key_that_is_too_long_is_refused(shop: Till) -> None:
    with pytest.raises(stripe.InvalidRequestError):
        shop.pay("k" * 256)
