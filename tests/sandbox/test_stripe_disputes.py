"""What happens at the sandbox's Stripe without whoever owns the money: chargebacks, accounts, payouts."""

from __future__ import annotations

import pytest
import stripe
from tests.sandbox.till import Receiver, Till, ask, until

from mainspring_sandbox import Sandbox


def told(sandbox: Sandbox, hook: Receiver, secret: str) -> list[stripe.Event]:
    until(lambda: all(entry.body["state"] == "delivered" for entry in sandbox.ledger.find("webhook")))
    return hook.events(secret)


def test_a_bank_takes_a_charge_back_at_once_and_returns_what_is_won(
    sandbox: Sandbox, shop: Till, hook: Receiver
) -> None:
    secret = sandbox.stripe.register(hook.url, *(f"charge.dispute.{name}" for name in ("created", "closed")))["secret"]
    charge = str(shop.pay().latest_charge)
    dispute = ask(sandbox, "POST", "/sandbox/stripe/disputes", {"charge": charge, "amount": 1000}).json()
    assert shop.v1.balance.retrieve().available[0].amount == 250
    assert (shop.v1.charges.retrieve(charge).disputed, shop.v1.disputes.retrieve(dispute["id"]).amount) == (True, 1000)
    with pytest.raises(stripe.InvalidRequestError) as refused:
        shop.v1.refunds.create({"charge": charge})
    assert refused.value.code == "charge_disputed"

    ask(sandbox, "POST", f"/sandbox/stripe/disputes/{dispute['id']}/close", {"verdict": "won"})

    assert shop.v1.balance.retrieve().available[0].amount == 1250
    created, closed = told(sandbox, hook, secret)
    assert (created.data.object["status"], closed.data.object["status"]) == ("needs_response", "won")
    assert created.data.object["payment_intent"] == shop.v1.charges.retrieve(charge).payment_intent
    assert [txn["amount"] for txn in shop.v1.disputes.list({"charge": charge}).data[0].balance_transactions] == [
        -1000,
        1000,
    ]


def test_an_inquiry_takes_nothing_before_it_is_a_chargeback(sandbox: Sandbox, shop: Till) -> None:
    charge = str(shop.pay().latest_charge)
    asked = sandbox.stripe.dispute(charge, inquiry=True)
    assert (asked["status"], shop.v1.balance.retrieve().available[0].amount) == ("warning_needs_response", 1250)

    ask(sandbox, "POST", f"/sandbox/stripe/disputes/{asked['id']}/escalate", {})
    assert shop.v1.balance.retrieve().available[0].amount == 0
    assert sandbox.stripe.close_dispute(asked["id"], "lost")["status"] == "lost"
    assert shop.v1.balance.retrieve().available[0].amount == 0


def test_accounts_and_payouts_are_told_of_to_who_listens_to_connected_accounts(
    sandbox: Sandbox, shop: Till, hook: Receiver
) -> None:
    sandbox.stripe.register(hook.url, "*", secret="whsec_own")
    sandbox.stripe.register(hook.url, "*", secret="whsec_connect", connect=True)
    account = shop.v1.accounts.create({}).id
    ask(sandbox, "POST", f"/sandbox/stripe/accounts/{account}", {"past_due": ["individual.id_number"]})
    ask(sandbox, "POST", f"/sandbox/stripe/accounts/{account}/payouts/fail", {"amount": 1250, "currency": "eur"})

    restricted, *_, failed = told(sandbox, hook, "whsec_connect")
    assert {restricted.account, failed.account} == {account}
    assert (failed.type, failed.data.object["failure_code"]) == ("payout.failed", "account_closed")
    found = shop.v1.accounts.retrieve(account)
    assert (found.payouts_enabled, found.requirements.past_due) == (False, ["individual.id_number"])
    sandbox.stripe.require(account)
    assert shop.v1.accounts.retrieve(account).payouts_enabled
