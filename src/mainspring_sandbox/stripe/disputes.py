"""Disputes: a bank takes a charge back for its customer, at once, and decides later whose the money is."""

from __future__ import annotations

from typing import Literal

from mainspring_sandbox.stripe.balance import move
from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.errors import ErrorAnswer
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.pages import page

Verdict = Literal["won", "lost", "warning_closed"]
EVIDENCE_DUE_S = 9 * 24 * 3600  # until evidence is due
#: A bank that only asks takes nothing yet.
INQUIRING = ("warning_needs_response", "warning_under_review", "warning_closed")


def open_one(call: Call, amount: int | None, reason: str, *, inquiry: bool = False) -> Thing:
    """A customer complains at the bank about a charge, or about a part of it."""
    charge = call.get("charge")
    left = charge["amount_captured"] - charge["amount_refunded"]
    if charge["disputed"] or not 0 < (amount or left) <= left:
        raise ErrorAnswer(400, f"Charge {charge['id']} cannot be disputed for {amount or left}: {left} is left of it.")
    fields: Thing = {"amount": amount or left, "currency": charge["currency"], "charge": charge["id"]}
    fields |= {"payment_intent": charge["payment_intent"], "reason": reason, "metadata": {}, "evidence": {}}
    fields |= {"status": INQUIRING[0] if inquiry else "needs_response", "is_charge_refundable": inquiry}
    fields |= {"balance_transactions": [], "network_reason_code": None, "enhanced_eligibility_types": []}
    due = call.now() + EVIDENCE_DUE_S
    fields |= {"evidence_details": {"due_by": due, "has_evidence": False, "past_due": False, "submission_count": 0}}
    dispute = call.add("dispute", fields)
    call.save(charge, disputed=True)
    call.emit("charge.dispute.created", dispute)
    if not inquiry:
        _withdrawn(call, dispute)
    return dispute


def escalate(call: Call) -> Thing:
    """The bank has asked, and now takes the money."""
    dispute = call.get("dispute")
    _open(dispute, INQUIRING[:2])
    call.save(dispute, status="needs_response", is_charge_refundable=False)
    _withdrawn(call, dispute)
    call.emit("charge.dispute.updated", dispute)
    return dispute


def close(call: Call, verdict: Verdict) -> Thing:
    """The bank has decided: what is won comes back."""
    dispute = call.get("dispute")
    _open(dispute, INQUIRING[:2] if verdict == "warning_closed" else ("needs_response", "under_review"))
    call.save(dispute, status=verdict, is_charge_refundable=verdict != "lost")
    call.emit("charge.dispute.closed", dispute)
    if verdict == "won":
        _moved(call, dispute, dispute["amount"])
        call.emit("charge.dispute.funds_reinstated", dispute)
    return dispute


def refundable(call: Call, charge: Thing) -> bool:
    """Whether no bank holds the money of a charge, or has taken it for good."""
    if not charge["disputed"]:
        return True
    found = call.stripe.world.ledger.find("stripe.dispute", charge=charge["id"])
    return all(entry.body["is_charge_refundable"] for entry in found)


def _withdrawn(call: Call, dispute: Thing) -> None:
    _moved(call, dispute, -dispute["amount"])
    call.emit("charge.dispute.funds_withdrawn", dispute)


def _moved(call: Call, dispute: Thing, amount: int) -> None:
    part = {**dispute, "id": f"{dispute['id']}_{len(dispute['balance_transactions'])}"}
    txn = move(call, "adjustment", part, amount, dispute=dispute["id"], charge=dispute["charge"])
    entry = call.get("balance_transaction", txn)
    call.save(dispute, balance_transactions=[*dispute["balance_transactions"], entry])


def _open(dispute: Thing, states: tuple[str, ...]) -> None:
    if dispute["status"] not in states:
        raise ErrorAnswer(400, f"You cannot decide this dispute because it has a status of {dispute['status']}.")


PAGES = [
    page(
        "GET",
        "/v1/disputes",
        lambda call: listed(call, "dispute", "/v1/disputes", "charge", "payment_intent"),
        f"{PAGING} charge payment_intent",
    ),
    page("GET", "/v1/disputes/{id}", lambda call: call.get("dispute")),
]
