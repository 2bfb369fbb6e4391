"""Setup intents: a card is saved, so that it may be charged later without its owner."""

from __future__ import annotations

from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.errors import ErrorAnswer
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.methods import attached, chosen
from mainspring_sandbox.stripe.pages import page

TAKES = "customer payment_method payment_method_types automatic_payment_methods usage confirm metadata description"


def create(call: Call) -> Thing:
    """Write one, and confirm it if asked to."""
    params, confirmed = call.params, call.params.flag("confirm")
    fields: Thing = {"customer": None, "payment_method": None, "status": "requires_payment_method"}
    fields |= {"metadata": params.metadata(), "usage": params.text("usage") or "off_session", "last_setup_error": None}
    if "customer" in params:
        fields["customer"] = call.get("customer", params.required("customer"), param="customer")["id"]
    setup = call.add("setup_intent", fields)
    call.save(setup, client_secret=f"{setup['id']}_secret_sandbox")
    return confirm(call, setup) if confirmed else _chosen(call, setup)


def confirm(call: Call, setup: Thing | None = None) -> Thing:
    """Save the card; the sandbox's customers always agree."""
    setup = _chosen(call, setup or call.get("setup_intent"))
    if setup["payment_method"] is None or setup["status"] in ("succeeded", "canceled"):
        message = f"You cannot confirm this SetupIntent because it has a status of {setup['status']}."
        raise ErrorAnswer(400, message, code="setup_intent_unexpected_state")
    method = call.save(call.get("payment_method", setup["payment_method"]), _saved=True)
    if setup["customer"] is not None:
        attached(call, method, setup["customer"])
    call.emit("setup_intent.succeeded", call.save(setup, status="succeeded"))
    return setup


def _chosen(call: Call, setup: Thing) -> Thing:
    if "payment_method" in call.params:
        method = chosen(call, call.params.required("payment_method"))
        call.save(setup, payment_method=method["id"], status="requires_confirmation")
    return setup


PAGES = [
    page("POST", "/v1/setup_intents", create, TAKES),
    page(
        "GET",
        "/v1/setup_intents",
        lambda call: listed(call, "setup_intent", "/v1/setup_intents", "customer"),
        f"{PAGING} customer",
    ),
    page("GET", "/v1/setup_intents/{id}", lambda call: call.get("setup_intent"), "client_secret"),
    page("POST", "/v1/setup_intents/{id}/confirm", confirm, "payment_method return_url"),
]
