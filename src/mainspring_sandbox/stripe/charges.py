"""Charges: each try of a payment intent to take money."""

from __future__ import annotations

from mainspring_sandbox.stripe.balance import move
from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.lists import PAGING, SEARCHING, listed, searched
from mainspring_sandbox.stripe.pages import page
from mainspring_sandbox.stripe.transfers import transferred

COPIED = ("amount", "currency", "customer", "description", "on_behalf_of", "transfer_group", "transfer_data")


def charge(call: Call, intent: Thing, method: Thing, **fields: object) -> Thing:
    """Write a try."""
    thing: Thing = {name: intent[name] for name in COPIED}
    thing |= {"payment_intent": intent["id"], "payment_method": method["id"], "metadata": dict(intent["metadata"])}
    thing |= {
        "payment_method_details": {"type": method["type"], method["type"]: method["card"] or {}},
        "receipt_email": intent["receipt_email"],
    }
    thing |= {"amount_captured": 0, "amount_refunded": 0, "balance_transaction": None, "disputed": False}
    thing |= {"captured": False, "paid": False, "refunded": False, "failure_code": None, "failure_message": None}
    return call.add("charge", thing | {"_key": call.key or intent["_key"]} | fields)


def failed(call: Call, charge: Thing, error: Thing) -> None:
    """A try was declined: no money moved, and the outbox shows why."""
    call.save(charge, status="failed", failure_code=error["code"], failure_message=error["message"])
    told = {name: charge[name] for name in ("amount", "currency", "customer", "metadata", "payment_intent")}
    told |= {"provider": "stripe", "account": call.account, "key": charge["_key"], "status": "failed"}
    told |= {"code": error["code"], "decline_code": error["decline_code"]}
    call.stripe.world.ledger.add("decline", charge["id"], told)
    call.emit("charge.failed", charge)


def taken(call: Call, charge: Thing, amount: int) -> None:
    """Money moved: the one place where a charge is counted."""
    call.save(charge, status="succeeded", paid=True, captured=True, amount_captured=amount)
    told = {name: charge[name] for name in ("customer", "payment_intent", "on_behalf_of", "transfer_group")}
    call.save(charge, balance_transaction=move(call, "charge", charge, amount, **told, refunded=0))
    call.emit("charge.succeeded", charge)
    if charge["transfer_data"]:
        transferred(call, charge, charge["transfer_data"])


PAGES = [
    page(
        "GET",
        "/v1/charges",
        lambda call: listed(call, "charge", "/v1/charges", "customer", "payment_intent", "transfer_group"),
        f"{PAGING} customer payment_intent transfer_group",
    ),
    page("GET", "/v1/charges/search", lambda call: searched(call, "charge", "/v1/charges/search"), SEARCHING),
    page("GET", "/v1/charges/{id}", lambda call: call.get("charge")),
]
