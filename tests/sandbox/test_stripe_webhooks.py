"""Webhooks of the sandbox's Stripe: signed, tried again, and late, twice, in disorder or never when somebody wishes."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import stripe
from tests.sandbox.till import Clock, Receiver, Till, ask, paying, till, until

from mainspring_sandbox import Sandbox
from mainspring_sandbox.post import local
from mainspring_sandbox.stripe import Manner, StripeSettings


def types(hook: Receiver, secret: str) -> list[str]:
    return [event.type for event in hook.events(secret)]


def settled(sandbox: Sandbox) -> bool:
    return not sandbox.ledger.find("webhook", state="waiting")


def test_events_arrive_signed_and_in_order(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    endpoint = shop.v1.webhook_endpoints.create({"url": hook.url, "enabled_events": ["*"]})
    assert endpoint.secret is not None
    paid = shop.pay("k1", metadata={"booking": "7"})
    shop.v1.refunds.create({"payment_intent": paid.id, "amount": 50})
    until(lambda: settled(sandbox))

    created, charged, succeeded, refund, refunded = hook.events(endpoint.secret)
    assert (created.type, charged.type) == ("payment_intent.created", "charge.succeeded")
    assert (succeeded.type, succeeded.data.object.id, succeeded.data.object.status) == (
        "payment_intent.succeeded",
        paid.id,
        "succeeded",
    )
    assert (succeeded.request.idempotency_key, created.data.object.status) == ("k1", "requires_confirmation")
    assert (refund.type, refunded.type) == ("refund.created", "charge.refunded")
    assert shop.v1.events.retrieve(succeeded.id).type == "payment_intent.succeeded"
    entries = sandbox.ledger.find("webhook")
    assert {(entry.body["state"], entry.body["status"], entry.body["attempts"]) for entry in entries} == {
        ("delivered", 200, 1)
    }


def test_a_signature_of_another_secret_or_time_is_not_accepted(sandbox: Sandbox, clock: Clock, hook: Receiver) -> None:
    clock.advance(minutes=-6)
    secret = sandbox.stripe.register(hook.url, "payment_intent.succeeded")["secret"]
    with till(sandbox) as shop:
        shop.pay()
    until(lambda: settled(sandbox))

    with pytest.raises(stripe.SignatureVerificationError, match="tolerance"):
        hook.events(secret)  # signed by the sandbox's clock, which is six minutes behind
    with pytest.raises(stripe.SignatureVerificationError, match="matching"):
        hook.events("whsec_other")


@pytest.mark.parametrize(
    ("method", "expected"),
    [
        ("pm_card_chargeDeclined", ["payment_intent.created", "charge.failed", "payment_intent.payment_failed"]),
        ("pm_card_processing", ["payment_intent.created", "payment_intent.processing"]),
        ("pm_card_authenticationRequired", ["payment_intent.created", "payment_intent.requires_action"]),
    ],
)
def test_every_state_has_its_event(
    sandbox: Sandbox, shop: Till, hook: Receiver, method: str, expected: list[str]
) -> None:
    secret = sandbox.stripe.register(hook.url)["secret"]
    try:
        waiting = shop.pay(method=method, off_session=False)
    except stripe.CardError:
        pass
    else:
        shop.v1.payment_intents.cancel(waiting.id)
        expected = [*expected, "payment_intent.canceled"]
    until(lambda: settled(sandbox))

    assert types(hook, secret) == expected


def test_an_endpoint_gets_what_it_asked_for(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    body = {"url": hook.url, "events": ["transfer.created"], "secret": "whsec_mine"}
    assert ask(sandbox, "POST", "/sandbox/stripe/webhooks", body).json()["secret"] == "whsec_mine"
    shop.pay()
    shop.v1.transfers.create(
        {"amount": 100, "currency": "eur", "destination": shop.v1.accounts.create({}).id, "metadata": {"hold": "9"}}
    )
    until(lambda: hook.got)
    until(lambda: settled(sandbox))

    assert types(hook, "whsec_mine") == ["transfer.created"]


def test_events_of_connected_accounts_go_to_who_asked_for_them(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    account = shop.v1.accounts.create({})
    sandbox.stripe.register(hook.url, "charge.succeeded", secret="whsec_own")
    sandbox.stripe.register(hook.url, "charge.succeeded", secret="whsec_connect", connect=True)
    shop.v1.payment_intents.create(paying(), {"stripe_account": account.id})
    until(lambda: settled(sandbox))

    [event] = hook.events("whsec_connect")
    assert event.account == account.id


def test_a_failed_delivery_is_tried_again_signed_anew(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    sandbox.stripe.settings.webhook_gaps = (0.01, 0.02)
    secret = sandbox.stripe.register(hook.url, "charge.succeeded")["secret"]
    hook.answers += [500, 302]
    shop.pay()
    until(lambda: settled(sandbox))

    [entry] = sandbox.ledger.find("webhook")
    assert (entry.body["state"], entry.body["status"], entry.body["attempts"]) == ("delivered", 200, 3)
    assert len({event.id for event in hook.events(secret)}) == 1


def test_a_receiver_who_never_says_yes_is_given_up(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    ask(sandbox, "POST", "/sandbox/stripe/settings", {"webhook_gaps": [0.01]})
    sandbox.stripe.register(hook.url, "charge.succeeded")
    hook.answers += [500, 400, 200]
    shop.pay()
    until(lambda: settled(sandbox))

    [entry] = sandbox.ledger.find("webhook")
    assert (entry.body["state"], entry.body["status"], entry.body["attempts"]) == ("failed", 400, 2)


def test_a_receiver_who_is_away_does_not_hold_up_others(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    sandbox.stripe.settings.webhook_gaps = (60.0,)
    sandbox.stripe.register("http://127.0.0.1:9/nobody", "charge.succeeded")
    sandbox.stripe.register(hook.url, "charge.succeeded")
    shop.pay()
    until(lambda: hook.got)
    until(lambda: all(entry.body["attempts"] for entry in sandbox.ledger.find("webhook")))

    away = sandbox.ledger.find("webhook", url="http://127.0.0.1:9/nobody")[0].body
    assert (away["state"], away["status"], away["error"]) == ("waiting", None, "ConnectError")


def test_a_receiver_who_does_not_answer_is_left(sandbox: Sandbox, shop: Till) -> None:
    sandbox.stripe.settings.webhook_timeout, sandbox.stripe.settings.webhook_gaps = 0.05, ()
    with socket.create_server(("127.0.0.1", 0)) as silent:
        sandbox.stripe.register(f"http://127.0.0.1:{silent.getsockname()[1]}/", "charge.succeeded")
        shop.pay()
        until(lambda: settled(sandbox))

    [entry] = sandbox.ledger.find("webhook")
    assert (entry.body["state"], entry.body["status"], entry.body["error"]) == ("failed", None, "TimeoutError")


def test_duplicates_have_one_event_id(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    secret = sandbox.stripe.register(hook.url, "charge.succeeded")["secret"]
    ask(sandbox, "POST", "/sandbox/stripe/manners", {"type": "charge.*", "copies": 3})
    shop.pay()
    until(lambda: settled(sandbox))

    events = hook.events(secret)
    assert (len(events), len({event.id for event in events})) == (3, 1)
    ask(sandbox, "POST", f"/sandbox/stripe/events/{events[0].id}/deliver")  # and once more, later
    until(lambda: len(hook.got) == 4)


def test_held_events_go_in_the_order_that_was_chosen(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    secret = sandbox.stripe.register(hook.url)["secret"]
    ask(sandbox, "POST", "/sandbox/stripe/manners", {"hold": True})
    shop.pay()
    held = ask(sandbox, "GET", "/sandbox/stripe/held").json()
    assert [one["type"] for one in held] == ["payment_intent.created", "charge.succeeded", "payment_intent.succeeded"]
    assert hook.got == []

    ids = [one["id"] for one in held][::-1]
    assert ask(sandbox, "POST", "/sandbox/stripe/release", {"ids": ids}).json() == ids
    until(lambda: settled(sandbox))

    assert types(hook, secret) == ["payment_intent.succeeded", "charge.succeeded", "payment_intent.created"]
    assert ask(sandbox, "POST", "/sandbox/stripe/release").json() == []


def test_dropped_events_are_never_sent_and_can_be_looked_up(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    secret = sandbox.stripe.register(hook.url)["secret"]
    sandbox.stripe.post.manners.append(Manner(type="payment_intent.succeeded", drop=True, times=1))
    paid = shop.pay()
    until(lambda: settled(sandbox))

    assert types(hook, secret) == ["payment_intent.created", "charge.succeeded"]
    assert [entry.body["state"] for entry in sandbox.ledger.find("webhook", type="payment_intent.succeeded")] == [
        "dropped"
    ]
    assert shop.v1.payment_intents.retrieve(paid.id).status == "succeeded"
    kept = shop.v1.events.list({"types": ["payment_intent.succeeded", "charge.succeeded"]}).data
    assert [event.type for event in kept] == ["payment_intent.succeeded", "charge.succeeded"]


def test_late_events_are_overtaken(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    secret = sandbox.stripe.register(hook.url)["secret"]
    sandbox.stripe.post.manners.append(Manner(type="payment_intent.created", delay=0.2))
    shop.pay()
    until(lambda: settled(sandbox))

    assert types(hook, secret)[-1] == "payment_intent.created"


def test_tries_that_break_before_they_arrive_come_again(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    sandbox.stripe.settings.webhook_gaps = (0.01, 0.01, 0.01)
    sandbox.stripe.register(hook.url, "charge.succeeded")
    sandbox.stripe.post.manners.append(Manner(failures=2))
    shop.pay()
    until(lambda: settled(sandbox))

    assert len(hook.got) == 1
    assert sandbox.ledger.find("webhook")[0].body["attempts"] == 3


def test_what_was_not_delivered_goes_on_after_a_restart(tmp_path: Path, hook: Receiver) -> None:
    file = tmp_path / "sandbox.db"
    with Sandbox(path=file) as sandbox, till(sandbox) as shop:
        sandbox.stripe.register(hook.url, "charge.succeeded", secret="whsec_1")
        sandbox.stripe.settings = StripeSettings(webhook_gaps=(60.0,))
        hook.answers.append(503)
        shop.pay()
        until(lambda: hook.got)
        until(lambda: sandbox.ledger.find("webhook")[0].body["attempts"])
    with Sandbox(path=file) as sandbox:
        until(lambda: settled(sandbox))

    assert types(hook, "whsec_1") == ["charge.succeeded"] * 2


@pytest.mark.parametrize(
    "url", ["http://example.com/hook", "http://10.0.0.1/", "ftp://127.0.0.1/", "127.0.0.1", "http://"]
)
def test_nothing_is_delivered_off_this_machine(sandbox: Sandbox, shop: Till, url: str) -> None:
    with pytest.raises(stripe.InvalidRequestError) as refused:
        shop.v1.webhook_endpoints.create({"url": url, "enabled_events": ["*"]})

    assert refused.value.param == "url"
    assert ask(sandbox, "POST", "/sandbox/stripe/webhooks", {"url": url}).status_code == 400
    assert sandbox.ledger.count("stripe.webhook_endpoint") == 0


@pytest.mark.parametrize(
    "url",
    [
        "http://127.0.0.1@example.com/",
        "http://127.0.0.1.example.com/",
        "http://localhost.example.com/",
        "http://[::ffff:10.0.0.1]/",
        "http://0.0.0.0/",
        "http://2130706433/",
        "http://127.0.0.1:99999/",
        "http://[::1",
    ],
)
def test_addresses_that_only_look_local_are_not(url: str) -> None:
    assert not local(url)


def test_endpoints_are_changed_and_deleted(sandbox: Sandbox, shop: Till, hook: Receiver) -> None:
    endpoint = shop.v1.webhook_endpoints.create({"url": hook.url, "enabled_events": ["*"]})
    assert "secret" not in shop.v1.webhook_endpoints.retrieve(endpoint.id).to_dict()
    shop.v1.webhook_endpoints.update(endpoint.id, {"disabled": True})
    shop.pay()
    shop.v1.webhook_endpoints.update(endpoint.id, {"disabled": False, "enabled_events": ["charge.succeeded"]})
    shop.pay()
    shop.v1.webhook_endpoints.delete(endpoint.id)
    shop.pay()
    until(lambda: settled(sandbox))

    assert (sandbox.ledger.count("webhook"), len(hook.got)) == (1, 1)


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("settle", {"id": "pi_1"}),
        ("settle", {"id": "pi_1", "outcome": "perhaps"}),
        ("settings", {"pace": -1}),
        ("settings", {"speed": 1}),
        ("manners", {"copies": "two"}),
        ("manners", {"copies": -1}),
        ("webhooks", {}),
        ("release", {"ids": 7}),
        ("release", []),
    ],
)
def test_what_the_desk_cannot_read_it_refuses(sandbox: Sandbox, path: str, body: Any) -> None:
    answer = ask(sandbox, "POST", f"/sandbox/stripe/{path}", body)

    assert answer.status_code == 422
    assert answer.json()["error"]


def test_the_desk_shows_and_takes_back(sandbox: Sandbox) -> None:
    assert ask(sandbox, "POST", "/sandbox/stripe/manners", {"drop": True}).json()[0]["drop"] is True
    assert ask(sandbox, "DELETE", "/sandbox/stripe/manners").json() == []
    assert ask(sandbox, "GET", "/sandbox/stripe/settings").json()["pace"] == 0
    assert ask(sandbox, "POST", "/sandbox/stripe/settle", {"id": "pi_1", "outcome": "failed"}).status_code == 404
