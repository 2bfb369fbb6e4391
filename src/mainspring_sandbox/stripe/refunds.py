"""Refunds: never more than was taken."""

from __future__ import annotations

from mainspring_sandbox.stripe.balance import move
from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.disputes import refundable
from mainspring_sandbox.stripe.errors import ErrorAnswer, invalid, missing
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.methods import card_of
from mainspring_sandbox.stripe.money import amount
from mainspring_sandbox.stripe.pages import page

REFUND_REASONS = ("duplicate", "fraudulent", "requested_by_customer")


def create(call: Call) -> Thing:
    """Give money back, all that is left or a part of it."""
    wanted = amount(call.params) if "amount" in call.params else None
    reason = call.params.text("reason")
    if reason is not None and reason not in REFUND_REASONS:
        raise invalid(f"Invalid reason: must be one of {', '.join(REFUND_REASONS)}", param="reason")
    charge = _charge(call)
    left = charge["amount_captured"] - charge["amount_refunded"]
    if left == 0:
        raise ErrorAnswer(400, f"Charge {charge['id']} has already been refunded.", code="charge_already_refunded")
    if not refundable(call, charge):
        raise ErrorAnswer(400, f"Charge {charge['id']} has been charged back; cannot refund.", code="charge_disputed")
    wanted = left if wanted is None else wanted
    if wanted > left:
        raise ErrorAnswer(
            400, f"Refund amount ({wanted}) is greater than unrefunded amount on charge ({left})", param="amount"
        )
    card = card_of(call.get("payment_method", charge["payment_method"]))
    status = "pending" if card.refund == "pending" else "succeeded"
    fields: Thing = {"amount": wanted, "currency": charge["currency"], "charge": charge["id"], "reason": reason}
    fields |= {"payment_intent": charge["payment_intent"], "metadata": call.params.metadata(), "status": status}
    fields |= {"balance_transaction": None, "failure_reason": None, "_key": call.key}
    refund = call.add("refund", fields)
    told = {"charge": charge["id"], "payment_intent": charge["payment_intent"], "customer": charge["customer"]}
    txn = move(call, "refund", refund, -wanted, **told, reason=reason, status=status)
    call.save(refund, balance_transaction=txn)
    _count(call, charge, wanted)
    call.emit("refund.created", refund)
    call.emit("charge.refunded", charge)
    return refund


def update(call: Call) -> Thing:
    """Change what is written on one."""
    refund = call.get("refund")
    call.save(refund, metadata=call.params.metadata(refund["metadata"]))
    call.emit("refund.updated", refund)
    return refund


def settle(call: Call, outcome: str) -> Thing:
    """What the bank decides later: a pending refund arrives, or one does not and the money comes back."""
    refund = call.get("refund")
    card = card_of(call.get("payment_method", call.get("charge", refund["charge"])["payment_method"]))
    if refund["status"] != "pending" and not (outcome == "failed" and card.refund == "fails later"):
        raise ErrorAnswer(400, f"You cannot settle this refund because it has a status of {refund['status']}.")
    call.save(refund, status=outcome)
    call.stripe.world.ledger.change("refund", refund["id"], status=outcome)
    if outcome == "failed":
        back = {**refund, "id": f"{refund['id']}_failed"}
        call.save(
            refund,
            failure_reason="unknown",
            failure_balance_transaction=move(call, "refund_failure", back, refund["amount"]),
        )
        _count(call, call.get("charge", refund["charge"]), -refund["amount"])
    call.emit("refund.failed" if outcome == "failed" else "refund.updated", refund)
    return refund


def _count(call: Call, charge: Thing, amount: int) -> None:
    back = charge["amount_refunded"] + amount
    call.save(charge, amount_refunded=back, refunded=back == charge["amount_captured"])
    call.stripe.world.ledger.change("charge", charge["id"], refunded=back)


def _charge(call: Call) -> Thing:
    """What is to be refunded."""
    params = call.params
    if "charge" in params:
        charge = call.get("charge", params.required("charge"), param="charge")
    elif "payment_intent" in params:
        intent = call.get("payment_intent", params.required("payment_intent"), param="payment_intent")
        if intent["status"] != "succeeded":
            raise ErrorAnswer(400, f"This PaymentIntent ({intent['id']}) does not have a successful charge to refund.")
        charge = call.get("charge", intent["latest_charge"])
    else:
        raise missing("payment_intent")
    if not (charge["paid"] and charge["captured"]):
        raise ErrorAnswer(400, f"Charge {charge['id']} was not captured: there is nothing to refund.")
    return charge


PAGES = [
    page(
        "POST",
        "/v1/refunds",
        create,
        "amount charge payment_intent reason metadata reverse_transfer refund_application_fee instructions_email",
    ),
    page(
        "GET",
        "/v1/refunds",
        lambda call: listed(call, "refund", "/v1/refunds", "charge", "payment_intent"),
        f"{PAGING} charge payment_intent",
    ),
    page("GET", "/v1/refunds/{id}", lambda call: call.get("refund")),
    page("POST", "/v1/refunds/{id}", update, "metadata"),
]
