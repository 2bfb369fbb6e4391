"""What a person does on the page of a checkout session: pay by card, or by a voucher that is paid at a bank later."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from mainspring_sandbox.stripe import attempts
from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.charges import charge, taken
from mainspring_sandbox.stripe.errors import ErrorAnswer
from mainspring_sandbox.stripe.methods import card_of, chosen

#: Ways to pay whose money comes later, and what the intent says until then.
DELAYED: Final = {"multibanco": "requires_action", "sepa_debit": "processing"}
VOUCHER_LIFE_S: Final = 7 * 24 * 3600  # how long one may be paid


def settle(call: Call, outcome: str, method: str = "pm_card_visa") -> Thing:
    """A person pays on the page, or their bank says no and the page stays open; of a voucher: it is paid, or not."""
    session = call.get("checkout.session")
    if session["status"] == "complete" and session["payment_status"] == "unpaid":
        return _voucher_paid(call, session) if outcome == "succeeded" else voucher_lost(call, session)
    if session["status"] != "open" or session["expires_at"] <= call.now():
        raise ErrorAnswer(400, f"You cannot settle this session because it has a status of {session['status']}.")
    if method in DELAYED and method not in session["payment_method_types"]:
        raise ErrorAnswer(400, f"This session does not take {method}.", param="method")
    if outcome == "failed":
        return session
    if method in DELAYED:
        return _voucher_given(call, session, method)
    chosen_one = chosen(call, method)
    if card_of(chosen_one).code is not None:
        return session  # the card is declined, and the page asks for another
    intent = _intent(call, session, chosen_one, status="succeeded", amount_received=session["amount_total"])
    made = charge(call, intent, chosen_one, status="succeeded", _key=session["_key"])
    call.save(intent, latest_charge=made["id"])
    taken(call, made, intent["amount"])
    call.emit("payment_intent.succeeded", intent)
    return _complete(call, session, intent, "paid")


def voucher_lost(call: Call, session: Thing) -> Thing:
    """Nobody has paid it in time."""
    intent = call.get("payment_intent", session["payment_intent"])
    error = {"type": "invalid_request_error", "code": "payment_intent_payment_attempt_expired"}
    call.save(intent, status="requires_payment_method", next_action=None, last_payment_error=error, payment_method=None)
    call.emit("payment_intent.payment_failed", intent)
    call.emit("checkout.session.async_payment_failed", call.save(session, _voucher_until=None))
    return session


def _voucher_given(call: Call, session: Thing, method: str) -> Thing:
    used = call.save(chosen(call, "pm_card_visa"), type=method, card=None)
    intent = _intent(call, session, used, status=DELAYED[method], amount_received=0)
    if method == "multibanco":
        step = {"entity": "12345", "reference": "123456789", "expires_at": call.now() + VOUCHER_LIFE_S}
        call.save(intent, next_action={"type": "multibanco_display_details", "multibanco_display_details": step})
        call.emit("payment_intent.requires_action", intent)
    else:
        pending = charge(call, intent, used, status="pending", _key=session["_key"])
        call.emit("payment_intent.processing", call.save(intent, latest_charge=pending["id"]))
    call.save(session, _voucher_until=call.now() + VOUCHER_LIFE_S)
    call.stripe.deadlines.set(session["_voucher_until"], session["id"])
    return _complete(call, session, intent, "unpaid")


def _voucher_paid(call: Call, session: Thing) -> Thing:
    intent = call.get("payment_intent", session["payment_intent"])
    if intent["status"] not in DELAYED.values():
        raise ErrorAnswer(400, f"You cannot settle this session because its payment is {intent['status']}.")
    attempts.settle(replace(call, path={"id": intent["id"]}), "succeeded")
    call.save(session, payment_status="paid", _voucher_until=None)
    call.emit("checkout.session.async_payment_succeeded", session)
    return session


def _complete(call: Call, session: Thing, intent: Thing, payment_status: str) -> Thing:
    call.save(session, status="complete", payment_status=payment_status, payment_intent=intent["id"], url=None)
    call.emit("checkout.session.completed", session)
    return session


def _intent(call: Call, session: Thing, method: Thing, **fields: Any) -> Thing:
    data: dict[str, Any] = session["_data"]
    common: Thing = {
        "amount": session["amount_total"],
        "currency": session["currency"],
        "customer": session["customer"],
    }
    common |= {name: data.get(name) for name in ("description", "on_behalf_of", "transfer_group", "transfer_data")}
    common |= {"metadata": data.get("metadata", {}), "payment_method": method["id"], "receipt_email": None}
    common |= {"payment_method_types": session["payment_method_types"], "capture_method": "automatic_async"}
    common |= dict.fromkeys(("last_payment_error", "next_action", "latest_charge", "setup_future_usage", "canceled_at"))
    return call.add("payment_intent", common | {"amount_capturable": 0, "_key": session["_key"]} | fields)
