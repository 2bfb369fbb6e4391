"""What becomes of a payment intent when its money is tried: taken, declined, or decided later."""

from __future__ import annotations

from typing import Any

from mainspring_sandbox.stripe.call import Call, Thing, shown
from mainspring_sandbox.stripe.cards import DECLINE_TEXTS, DECLINED, Card
from mainspring_sandbox.stripe.charges import charge, failed, taken
from mainspring_sandbox.stripe.errors import ErrorAnswer
from mainspring_sandbox.stripe.methods import attached, card_of


def confirmed(call: Call, intent: Thing) -> Thing:
    """Try the payment method that it has."""
    if intent["payment_method"] is None:
        message = "You cannot confirm this PaymentIntent because it's missing a payment method."
        raise ErrorAnswer(400, message, code="payment_intent_unexpected_state", payment_intent=shown(intent))
    method = call.get("payment_method", intent["payment_method"], param="payment_method")
    card, off_session = card_of(method), bool(call.params.flag("off_session"))
    call.save(intent, last_payment_error=None, next_action=None)
    if _asks_customer(card, method, off_session=off_session):
        if off_session or call.params.flag("error_on_requires_action"):
            raise _declined(call, intent, method, "authentication_required", "authentication_required")
        step = {"type": "use_stripe_sdk", "use_stripe_sdk": {"type": "three_d_secure_redirect"}}
        call.emit("payment_intent.requires_action", call.save(intent, status="requires_action", next_action=step))
        return intent
    if card.code is not None:
        raise _declined(call, intent, method, card.code, card.decline_code)
    if card.processing:
        pending = charge(call, intent, method, status="pending")
        call.emit("payment_intent.processing", call.save(intent, status="processing", latest_charge=pending["id"]))
        return intent
    return _charged(call, intent, method)


def _charged(call: Call, intent: Thing, method: Thing, pending: Thing | None = None) -> Thing:
    made = pending or charge(call, intent, method, status="succeeded")
    call.save(intent, latest_charge=made["id"])
    if intent["setup_future_usage"] == "off_session":
        call.save(method, _saved=True)
        if intent["customer"] is not None:
            attached(call, method, intent["customer"])
    if intent["capture_method"] == "manual":
        call.save(made, status="succeeded", paid=True)
        call.save(intent, status="requires_capture", amount_capturable=intent["amount"])
        call.emit("payment_intent.amount_capturable_updated", intent)
        return intent
    return succeeded(call, intent, made, intent["amount"])


def succeeded(call: Call, intent: Thing, made: Thing, amount: int) -> Thing:
    """The money is taken."""
    call.save(intent, status="succeeded", amount_received=amount, amount_capturable=0, next_action=None)
    taken(call, made, amount)
    call.emit("payment_intent.succeeded", intent)
    return intent


def _declined(
    call: Call, intent: Thing, method: Thing, code: str, decline_code: str | None, pending: Thing | None = None
) -> ErrorAnswer:
    """Write down that a try failed; the error that says so to who asked."""
    made = pending or charge(call, intent, method, status="failed")
    error: Thing = {"code": code, "decline_code": decline_code, "charge": made["id"]}
    error |= {"message": DECLINE_TEXTS.get(decline_code or code, DECLINED), "payment_method": shown(method)}
    failed(call, made, error)
    call.save(intent, status="requires_payment_method", payment_method=None, latest_charge=made["id"], next_action=None)
    call.save(intent, last_payment_error={"type": "card_error", **error})
    call.emit("payment_intent.payment_failed", intent)
    fields = {name: value for name, value in error.items() if name != "message"}
    return ErrorAnswer(402, error["message"], type="card_error", payment_intent=shown(intent), **fields)


def _asks_customer(card: Card, method: Thing, *, off_session: bool) -> bool:
    if card.authenticate == "unless saved":
        return not (off_session and method["_saved"])
    return card.authenticate == "always"


def settle(call: Call, outcome: str, decline_code: str = "generic_decline") -> Thing:
    """What a customer or a bank decides later: `succeeded` or `failed`, of one that waits for it."""
    intent = call.get("payment_intent")
    in_state(intent, ("processing", "requires_action"), "settle")
    method = call.get("payment_method", intent["payment_method"])
    pending = call.get("charge", intent["latest_charge"]) if intent["status"] == "processing" else None
    card = card_of(method)
    if intent["status"] == "requires_action" and outcome == "failed":
        code = decline = "payment_intent_authentication_failure"
    else:
        code, decline = card.code or "card_declined", card.decline_code or decline_code
    call.save(intent, next_action=None)
    if outcome == "failed" or (pending is None and card.code is not None):
        _declined(call, intent, method, code, decline, pending)
        return intent
    return _charged(call, intent, method, pending)


def in_state(intent: Thing, states: tuple[str, ...], verb: str) -> None:
    """Refuse what its state does not allow."""
    if intent["status"] not in states:
        message = f"You cannot {verb} this PaymentIntent because it has a status of {intent['status']}."
        fields: dict[str, Any] = {"code": "payment_intent_unexpected_state", "payment_intent": shown(intent)}
        raise ErrorAnswer(400, message, **fields)
