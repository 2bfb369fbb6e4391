"""Payment intents: from what is wanted to what was taken."""

from __future__ import annotations

from typing import Final

from mainspring_sandbox.stripe.attempts import confirmed, in_state, succeeded
from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.errors import ErrorAnswer, invalid
from mainspring_sandbox.stripe.form import FormParams
from mainspring_sandbox.stripe.lists import PAGING, SEARCHING, listed, searched
from mainspring_sandbox.stripe.methods import chosen
from mainspring_sandbox.stripe.money import LEAST, amount, currency
from mainspring_sandbox.stripe.pages import page

CREATED_WITH: Final = (
    "amount currency customer payment_method payment_method_types payment_method_options automatic_payment_methods "
    "confirm off_session capture_method confirmation_method description metadata on_behalf_of receipt_email return_url "
    "setup_future_usage statement_descriptor statement_descriptor_suffix transfer_data transfer_group shipping "
    "application_fee_amount error_on_requires_action mandate_data use_stripe_sdk"
)
CHANGED_WITH: Final = (
    "amount currency customer payment_method description metadata receipt_email transfer_group setup_future_usage"
)
CONFIRMED_WITH: Final = (
    "payment_method off_session return_url error_on_requires_action receipt_email setup_future_usage use_stripe_sdk "
    "payment_method_options mandate_data capture_method"
)
#: From which states each verb may go.
CONFIRMABLE: Final = ("requires_payment_method", "requires_confirmation", "requires_action")
CANCELABLE: Final = (*CONFIRMABLE, "requires_capture", "processing")


def create(call: Call) -> Thing:
    """Write one, and confirm it if asked to."""
    params = call.params
    confirm = params.flag("confirm")
    for name in ("off_session", "return_url", "error_on_requires_action"):
        if name in params and not confirm:
            raise invalid(f"`{name}` can only be given when `confirm` is true.", param=name)
    fields: Thing = {
        "amount": amount(params),
        "currency": currency(params),
        "amount_received": 0,
        "amount_capturable": 0,
    }
    if fields["amount"] < LEAST.get(fields["currency"], 1):
        raise invalid("Amount is below the least that can be charged.", param="amount", code="amount_too_small")
    texts = ("description", "receipt_email", "transfer_group", "setup_future_usage", "statement_descriptor")
    fields |= {name: params.text(name) for name in texts}
    fields |= {"capture_method": _one_of(params, "capture_method", "automatic_async", "automatic", "manual")}
    fields |= {"confirmation_method": _one_of(params, "confirmation_method", "automatic", "manual")}
    fields |= _ways(params, confirm=bool(confirm)) | _accounts(call) | {"metadata": params.metadata()}
    fields |= {
        "application_fee_amount": params.integer("application_fee_amount"),
        "customer": None,
        "payment_method": None,
    }
    fields |= {
        "status": "requires_payment_method",
        "latest_charge": None,
        "last_payment_error": None,
        "next_action": None,
    }
    fields |= {"canceled_at": None, "cancellation_reason": None, "processing": None, "_key": call.key}
    if "customer" in params:
        fields["customer"] = call.get("customer", params.required("customer"), param="customer")["id"]
    intent = call.add("payment_intent", fields)
    call.save(intent, client_secret=f"{intent['id']}_secret_sandbox")
    _take_method(call, intent)
    call.emit("payment_intent.created", intent)
    return confirmed(call, intent) if confirm else intent


def update(call: Call) -> Thing:
    """Change one that is not under way."""
    intent = call.get("payment_intent")
    params = call.params
    changes: Thing = {
        name: params.text(name) for name in ("description", "receipt_email", "transfer_group") if name in params
    }
    if {"amount", "currency", "payment_method", "customer"} & set(params.given):
        in_state(intent, CONFIRMABLE, "update")
        changes |= {"amount": amount(params)} if "amount" in params else {}
        changes |= {"currency": currency(params)} if "currency" in params else {}
        if "customer" in params:
            changes["customer"] = call.get("customer", params.required("customer"), param="customer")["id"]
    call.save(intent, **changes, metadata=params.metadata(intent["metadata"]))
    _take_method(call, intent)
    return intent


def confirm(call: Call) -> Thing:
    """Try to take the money."""
    intent = call.get("payment_intent")
    in_state(intent, CONFIRMABLE, "confirm")
    _take_method(call, intent)
    return confirmed(call, intent)


def capture(call: Call) -> Thing:
    """Take what was held."""
    intent = call.get("payment_intent")
    in_state(intent, ("requires_capture",), "capture")
    wanted = (
        amount(call.params, "amount_to_capture") if "amount_to_capture" in call.params else intent["amount_capturable"]
    )
    if wanted > intent["amount_capturable"]:
        raise invalid(
            "amount_to_capture is above amount_capturable.", param="amount_to_capture", code="amount_too_large"
        )
    return succeeded(call, intent, call.get("charge", intent["latest_charge"]), wanted)


def cancel(call: Call) -> Thing:
    """Give it up."""
    intent = call.get("payment_intent")
    in_state(intent, CANCELABLE, "cancel")
    reason = _one_of(
        call.params, "cancellation_reason", None, "duplicate", "fraudulent", "requested_by_customer", "abandoned"
    )
    call.save(
        intent,
        status="canceled",
        canceled_at=call.now(),
        cancellation_reason=reason,
        amount_capturable=0,
        next_action=None,
    )
    if intent["latest_charge"] is not None:
        last = call.get("charge", intent["latest_charge"])
        if last["status"] == "pending" or not last["captured"]:
            call.save(last, status="failed" if last["status"] == "pending" else last["status"], refunded=True)
    call.emit("payment_intent.canceled", intent)
    return intent


def _take_method(call: Call, intent: Thing) -> None:
    """The payment method that the request names, if it may be used for this customer."""
    if "payment_method" not in call.params:
        return
    method = chosen(call, call.params.required("payment_method"))
    if method["customer"] not in (None, intent["customer"]):
        message = "The payment method belongs to a customer: give that customer with it, and no other."
        raise ErrorAnswer(400, message, param="payment_method")
    status = "requires_confirmation" if intent["status"] == "requires_payment_method" else intent["status"]
    call.save(intent, payment_method=method["id"], status=status)


def _ways(params: FormParams, *, confirm: bool) -> Thing:
    """How it may be paid. Ways that lead away from the page need an address to come back to, at Stripe and here."""
    automatic = FormParams(params.part("automatic_payment_methods"))
    types, redirects = params.words("payment_method_types"), automatic.text("allow_redirects") or "always"
    if types and automatic.flag("enabled"):
        raise invalid("Give payment_method_types or automatic_payment_methods, not both.", param="payment_method_types")
    if types or automatic.flag("enabled") is False:
        return {"payment_method_types": types or ["card"], "automatic_payment_methods": None}
    if confirm and redirects == "always" and "return_url" not in params:
        raise invalid(
            "This PaymentIntent accepts payment methods that may redirect your customer off of your page: provide a "
            "`return_url`, or set `automatic_payment_methods[allow_redirects]` to `never`, or give "
            "`payment_method_types`.",
            param="return_url",
        )
    return {
        "payment_method_types": ["card"],
        "automatic_payment_methods": {"enabled": True, "allow_redirects": redirects},
    }


def _accounts(call: Call) -> Thing:
    """Connected accounts that take part."""
    behalf, data = call.params.text("on_behalf_of"), call.params.part("transfer_data")
    for param, id in (("on_behalf_of", behalf), ("transfer_data[destination]", data.get("destination"))):
        if id is not None and call.stripe.world.ledger.get("stripe.account", str(id)) is None:
            raise ErrorAnswer(400, f"No such account: '{id}'", param=param, code="resource_missing")
    return {"on_behalf_of": behalf, "transfer_data": data or None}


def _one_of(params: FormParams, name: str, default: str | None, *others: str) -> str | None:
    value = params.text(name) or default
    if value not in (default, *others):
        raise invalid(f"Invalid {name}: must be one of {', '.join(filter(None, (default, *others)))}", param=name)
    return value


PAGES = [
    page("POST", "/v1/payment_intents", create, CREATED_WITH),
    page(
        "GET",
        "/v1/payment_intents",
        lambda call: listed(call, "payment_intent", "/v1/payment_intents", "customer"),
        f"{PAGING} customer",
    ),
    page(
        "GET",
        "/v1/payment_intents/search",
        lambda call: searched(call, "payment_intent", "/v1/payment_intents/search"),
        SEARCHING,
    ),
    page("GET", "/v1/payment_intents/{id}", lambda call: call.get("payment_intent"), "client_secret"),
    page("POST", "/v1/payment_intents/{id}", update, CHANGED_WITH),
    page("POST", "/v1/payment_intents/{id}/confirm", confirm, CONFIRMED_WITH),
    page("POST", "/v1/payment_intents/{id}/capture", capture, "amount_to_capture metadata"),
    page("POST", "/v1/payment_intents/{id}/cancel", cancel, "cancellation_reason"),
]
