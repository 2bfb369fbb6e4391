"""Payouts: what a connected account has goes to its bank, or comes back."""

from __future__ import annotations

from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.pages import page


def fail(call: Call, amount: int, currency: str, code: str) -> Thing:
    """The bank of an account did not take a payout."""
    fields: Thing = {"amount": amount, "currency": currency, "arrival_date": call.now(), "automatic": True}
    fields |= {"status": "failed", "failure_code": code, "failure_message": f"The payout failed: {code}."}
    fields |= {"method": "standard", "type": "bank_account", "source_type": "card", "metadata": {}}
    fields |= {"destination": None, "balance_transaction": None, "failure_balance_transaction": None}
    fields |= {"description": "STRIPE PAYOUT", "statement_descriptor": None, "original_payout": None}
    fields |= {"reversed_by": None, "reconciliation_status": "completed"}
    payout = call.add("payout", fields)
    call.emit("payout.failed", payout)
    return payout


PAGES = [
    page("GET", "/v1/payouts", lambda call: listed(call, "payout", "/v1/payouts", "status"), f"{PAGING} status"),
    page("GET", "/v1/payouts/{id}", lambda call: call.get("payout")),
]
