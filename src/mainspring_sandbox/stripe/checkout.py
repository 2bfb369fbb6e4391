"""Checkout sessions: Stripe's own payment page, on which a person pays or does not."""

from __future__ import annotations

from mainspring_sandbox.stripe.call import Call, Thing, shown
from mainspring_sandbox.stripe.errors import ErrorAnswer, invalid, missing
from mainspring_sandbox.stripe.form import FormParams
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.money import amount, currency
from mainspring_sandbox.stripe.pages import page
from mainspring_sandbox.stripe.paying import DELAYED, voucher_lost

_SHORTEST_S, _LONGEST_S = 30 * 60, 24 * 3600
LOCALES = frozenset({
    *("auto", "bg", "cs", "da", "de", "el", "en", "en-GB", "es", "es-419", "et", "fi", "fil", "fr", "fr-CA", "hr"),
    *("hu", "id", "it", "ja", "ko", "lt", "lv", "ms", "mt", "nb", "nl", "pl", "pt", "pt-BR", "ro", "ru", "sk"),
    *("sl", "sv", "th", "tr", "vi", "zh", "zh-HK", "zh-TW"),
})  # fmt: skip
WAYS_TO_PAY = ("card", "mb_way", *DELAYED)
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
    fields |= {"expires_at": _lives_until(call), "payment_intent": None, "locale": params.text("locale")}
    fields |= {"payment_method_types": params.words("payment_method_types") or ["card"]}
    if unknown := set(fields["payment_method_types"]) - set(WAYS_TO_PAY):
        raise invalid(f"The payment method type {unknown.pop()} is invalid.", param="payment_method_types")
    if fields["locale"] is not None and fields["locale"] not in LOCALES:
        raise invalid(f"Invalid locale: must be one of {', '.join(sorted(LOCALES))}", param="locale")
    email = fields["customer_email"]
    fields |= {"customer_details": {"email": email, "name": None, "address": None, "phone": None, "tax_ids": []}}
    fields |= {"status": "open", "payment_status": "unpaid", "_voucher_until": None, "_data": data, "_key": call.key}
    session = call.add("checkout.session", fields)
    call.stripe.deadlines.set(session["expires_at"], session["id"])
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


def retrieve(call: Call) -> Thing:
    """It as it is by now."""
    call.get("checkout.session")
    call.stripe.lapse()
    return shown(call.get("checkout.session"))


def lapse(call: Call) -> bool:
    """End a session whose time is over, or its voucher; False: it had ended before, or goes on."""
    session = call.get("checkout.session")
    if session["status"] == "open" and session["expires_at"] <= call.now():
        call.emit("checkout.session.expired", call.save(session, status="expired", url=None))
        return True
    if (session.get("_voucher_until") or call.now() + 1) <= call.now():
        voucher_lost(call, session)
        return True
    return False


def _lives_until(call: Call) -> int:
    """When the page closes by itself."""
    wanted, now = call.params.integer("expires_at"), call.now()
    if wanted is not None and not now + _SHORTEST_S <= wanted <= now + _LONGEST_S:
        message = "The `expires_at` timestamp must be 30 minutes to 24 hours from Checkout Session creation."
        raise invalid(message, param="expires_at")
    return wanted or now + _LONGEST_S


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
    page("GET", "/v1/checkout/sessions/{id}", retrieve),
    page("POST", "/v1/checkout/sessions/{id}/expire", expire),
]
