"""What an account holds, and what every movement of money leaves behind."""

from __future__ import annotations

from collections import Counter
from typing import Any

from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.pages import page


def move(call: Call, kind: str, thing: Thing, amount: int, **told: Any) -> str:
    """Money moved, `amount` towards the account: one entry in the outbox, and one in the account's balance."""
    common = {"provider": "stripe", "account": call.account, "amount": abs(amount), "currency": thing["currency"]}
    common |= {"metadata": thing["metadata"], "key": thing.get("_key"), "status": "succeeded"}
    call.stripe.world.ledger.add(kind, thing["id"], common | told)
    fields = {"amount": amount, "net": amount, "fee": 0, "currency": thing["currency"], "type": kind}
    fields |= {"source": thing["id"], "status": "available", "available_on": call.now()}
    return str(call.add("balance_transaction", fields)["id"])


def balance(call: Call) -> Counter[str]:
    """What the account holds, by currency."""
    held: Counter[str] = Counter()
    for entry in call.stripe.world.ledger.find("stripe.balance_transaction", _account=call.account):
        held[entry.body["currency"]] += entry.body["net"]
    return held


def retrieve(call: Call) -> Thing:
    """It as Stripe shows it."""
    held = [{"amount": amount, "currency": currency} for currency, amount in sorted(balance(call).items())]
    return {"object": "balance", "available": held, "pending": [], "livemode": False}


PAGES = [
    page("GET", "/v1/balance", retrieve),
    page(
        "GET",
        "/v1/balance_transactions",
        lambda call: listed(call, "balance_transaction", "/v1/balance_transactions", "source", "type", "currency"),
        f"{PAGING} source type currency",
    ),
    page("GET", "/v1/balance_transactions/{id}", lambda call: call.get("balance_transaction")),
]
