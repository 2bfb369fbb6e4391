"""Checkout sessions: Stripe's own payment page, on which a person pays or does not."""

from __future__ import annotations

from typing import Any

from mainspring_sandbox.stripe.call import Call, Thing, shown
from mainspring_sandbox.stripe.charges import charge, taken
from mainspring_sandbox.stripe.errors import ErrorAnswer, invalid, missing
from mainspring_sandbox.stripe.form import FormParams
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.methods import chosen
from mainspring_sandbox.stripe.money import amount, currency
from mainspring_sandbox.stripe.pages import page

_LIVES_S = 24 * 3600
TAKES = (
    "mode line_items success_url cancel_url customer customer_email client_reference_id metadata payment_intent_data "
    "expires_at payment_method_types locale ui_mode return_url allow_promotion_codes customer_creation"
)


def create(call: Call) -> Thing:
    """Open a page for one payment."""
    params = call.params
    if params.required("mode") != "payment":
        raise invalid("The sandbox knows sessions of mode payment only.", param="mode")
    total, money = _total(params)
    data = params.part("payment_intent_data")
    fields: Thing = {name: params.text(name) for name in ("success_url", "cancel_url", "client_reference_id")}
    fields |= {"customer": None, "customer_email": params.text("customer_email"), "metadata": params.metadata()}
    if "customer" in params:
        fields["customer"] = call.get("customer", params.required("customer"), param="customer")["id"]
    fields |= {"mode": "payment", "amount_total": total, "amount_subtotal": total, "currency": money}
    fields |= {"expires_at": params.integer("expires_at") or call.now() + _LIVES_S, "payment_intent": None}
    fields |= {"status": "open", "payment_status": "unpaid", "_data": data, "_key": call.key}
    session = call.add("checkout.session", fields)
    return call.save(session, url=f"{call.stripe.world.url}/stripe/pay/{session['id']}")


def expire(call: Call) -> Thing:
    """Close the page."""
    session = call.get("checkout.session")
    if session["status"] != "open":
        raise ErrorAnswer(
            400, f"Only Checkout Sessions with a status of open can be expired: it is {session['status']}."
        )
    call.emit("checkout.session.expired", call.save(session, status="expired", url=None))
    return session


def settle(call: Call, outcome: str) -> Thing:
    """A person pays on the page, or their bank says no and the page stays open."""
    session = call.get("checkout.session")
    if session["status"] != "open" or session["expires_at"] <= call.now():
        raise ErrorAnswer(400, f"You cannot settle this session because it has a status of {session['status']}.")
    if outcome == "failed":
        return session
    data: dict[str, Any] = session["_data"]
    method = chosen(call, "pm_card_visa")
    fields: Thing = {
        "amount": session["amount_total"],
        "currency": session["currency"],
        "customer": session["customer"],
    }
    fields |= {"amount_received": session["amount_total"], "amount_capturable": 0, "status": "succeeded"}
    fields |= {"metadata": data.get("metadata", {}), "payment_method": method["id"], "receipt_email": None}
    fields |= {name: data.get(name) for name in ("description", "on_behalf_of", "transfer_group", "transfer_data")}
    intent = call.add("payment_intent", fields | {"last_payment_error": None, "_key": session["_key"]})
    made = charge(call, intent, method, status="succeeded", _key=session["_key"])
    call.save(intent, latest_charge=made["id"])
    taken(call, made, intent["amount"])
    call.emit("payment_intent.succeeded", intent)
    call.save(session, status="complete", payment_status="paid", payment_intent=intent["id"], url=None)
    call.emit("checkout.session.completed", session)
    return session


def _total(params: FormParams) -> tuple[int, str]:
    """What the lines come to, in the one currency that they share."""
    lines = params.given.get("line_items")
    if not isinstance(lines, list) or not lines:
        raise missing("line_items")
    total, moneys = 0, set()
    for line in lines:
        given = FormParams(line if isinstance(line, dict) else {})
        price = FormParams(given.part("price_data"))
        if not price.given:
            raise invalid("The sandbox has no prices: give line_items[price_data].", param="line_items")
        total += amount(price, "unit_amount") * (given.integer("quantity") or 1)
        moneys.add(currency(price))
    if len(moneys) > 1:
        raise invalid("All line items must have the same currency.", param="line_items")
    return total, moneys.pop()


PAGES = [
    page("POST", "/v1/checkout/sessions", create, TAKES),
    page(
        "GET",
        "/v1/checkout/sessions",
        lambda call: listed(call, "checkout.session", "/v1/checkout/sessions", "customer", "payment_intent", "status"),
        f"{PAGING} customer payment_intent status",
    ),
    page("GET", "/v1/checkout/sessions/{id}", lambda call: shown(call.get("checkout.session"))),
    page("POST", "/v1/checkout/sessions/{id}/expire", expire),
]
