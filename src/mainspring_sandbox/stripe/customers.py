"""Customers."""

from __future__ import annotations

from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.errors import invalid
from mainspring_sandbox.stripe.lists import PAGING, SEARCHING, listed, searched
from mainspring_sandbox.stripe.methods import attached, chosen
from mainspring_sandbox.stripe.pages import page

CUSTOMER_TEXTS = ("name", "email", "phone", "description")
TAKES = "name email phone description metadata invoice_settings address shipping preferred_locales"


def create(call: Call) -> Thing:
    """Write one."""
    fields: Thing = {name: call.params.text(name) for name in CUSTOMER_TEXTS}
    fields |= {"metadata": call.params.metadata(), "invoice_settings": {"default_payment_method": None}}
    fields |= {"address": call.params.part("address") or None, "balance": 0, "currency": None, "delinquent": False}
    customer = call.add("customer", fields)
    if "payment_method" in call.params:
        attached(call, chosen(call, call.params.required("payment_method")), customer["id"])
    _default(call, customer)
    call.emit("customer.created", customer)
    return customer


def update(call: Call) -> Thing:
    """Change one."""
    customer = call.get("customer")
    changes: Thing = {name: call.params.text(name) for name in CUSTOMER_TEXTS if name in call.params.given}
    call.save(customer, **changes, metadata=call.params.metadata(customer["metadata"]))
    _default(call, customer)
    call.emit("customer.updated", customer)
    return customer


def delete(call: Call) -> Thing:
    """Forget one."""
    customer = call.get("customer")
    call.emit("customer.deleted", call.save(customer, deleted=True))
    return {"id": customer["id"], "object": "customer", "deleted": True}


def _default(call: Call, customer: Thing) -> None:
    wanted = call.params.part("invoice_settings").get("default_payment_method")
    if wanted is None:
        return
    method = call.get("payment_method", str(wanted), param="invoice_settings[default_payment_method]")
    if method["customer"] != customer["id"]:
        raise invalid("The customer does not have that payment method.", param="invoice_settings")
    call.save(customer, invoice_settings={"default_payment_method": method["id"]})


PAGES = [
    page("POST", "/v1/customers", create, f"{TAKES} payment_method"),
    page("GET", "/v1/customers", lambda call: listed(call, "customer", "/v1/customers", "email"), f"{PAGING} email"),
    page("GET", "/v1/customers/search", lambda call: searched(call, "customer", "/v1/customers/search"), SEARCHING),
    page("GET", "/v1/customers/{id}", lambda call: call.get("customer")),
    page("POST", "/v1/customers/{id}", update, TAKES),
    page("DELETE", "/v1/customers/{id}", delete),
]
