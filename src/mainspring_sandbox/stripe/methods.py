"""Payment methods: cards, made from test numbers or tokens, and attached to customers."""

from __future__ import annotations

from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.cards import BY_NUMBER, CARDS_BY_NAME, Card, sums_up
from mainspring_sandbox.stripe.errors import ErrorAnswer, invalid, missing, no_such
from mainspring_sandbox.stripe.form import FormParams
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.pages import page


def create(call: Call) -> Thing:
    """Make one."""
    if call.params.required("type") != "card":
        raise invalid("The sandbox knows payment methods of type card only.", param="type")
    given = FormParams(call.params.part("card"))
    token, number = given.text("token"), given.text("number")
    if token is not None:
        card = CARDS_BY_NAME.get(token.removeprefix("tok_"))
        if card is None:
            raise no_such("token", token, "card[token]")
    elif number is None:
        raise missing("card[number]")
    elif not sums_up(number):
        raise ErrorAnswer(
            402, "Your card number is incorrect.", type="card_error", code="incorrect_number", param="number"
        )
    else:
        card = BY_NUMBER.get(number, BY_NUMBER["4242424242424242"])
    month, year = given.integer("exp_month") or 12, given.integer("exp_year") or 2099
    return made(call, card, number or card.number, month, year)


def made(call: Call, card: Card, number: str, month: int = 12, year: int = 2099) -> Thing:
    """Write a payment method of a test card."""
    details = {"brand": card.brand, "last4": number[-4:], "exp_month": month, "exp_year": year, "funding": "credit"}
    billing = {"address": None, "email": None, "name": None, "phone": None}
    fields = {"type": "card", "card": details, "customer": None, "metadata": call.params.metadata()}
    return call.add("payment_method", fields | {"billing_details": billing, "_card": card.names[0], "_saved": False})


def chosen(call: Call, id: str, param: str = "payment_method") -> Thing:
    """The payment method with this id; `pm_card_visa` and its like are made anew by each use, as at Stripe."""
    if id.startswith("pm_card_"):
        card = CARDS_BY_NAME.get(id.removeprefix("pm_card_"))
        if card is None:
            raise no_such("PaymentMethod", id, param)
        return made(call, card, card.number)
    return call.get("payment_method", id, param=param)


def card_of(method: Thing) -> Card:
    """What a payment method does."""
    return CARDS_BY_NAME[method["_card"]]


def attach(call: Call) -> Thing:
    """Give one to a customer."""
    customer = call.get("customer", call.params.required("customer"), param="customer")
    method = chosen(call, call.path["id"], "id")
    return attached(call, method, customer["id"])


def attached(call: Call, method: Thing, customer: str) -> Thing:
    """Give one to a customer, if nobody else has it."""
    if method["customer"] == customer:
        return method
    if method["customer"] is not None:
        raise ErrorAnswer(400, "The payment method you provided has already been attached to a customer.")
    call.emit("payment_method.attached", call.save(method, customer=customer))
    return method


def detach(call: Call) -> Thing:
    """Take one from its customer."""
    method = call.get("payment_method")
    if method["customer"] is None:
        raise ErrorAnswer(
            400, "The payment method you provided is not attached to a customer so detachment is impossible."
        )
    call.emit("payment_method.detached", call.save(method, customer=None))
    return method


PAGES = [
    page("POST", "/v1/payment_methods", create, "type card metadata billing_details"),
    page(
        "GET",
        "/v1/payment_methods",
        lambda call: listed(call, "payment_method", "/v1/payment_methods", "customer", "type"),
        f"{PAGING} customer type",
    ),
    page("GET", "/v1/payment_methods/{id}", lambda call: call.get("payment_method")),
    page("POST", "/v1/payment_methods/{id}/attach", attach, "customer"),
    page("POST", "/v1/payment_methods/{id}/detach", detach),
    page(
        "GET",
        "/v1/customers/{id}/payment_methods",
        lambda call: listed(
            call,
            "payment_method",
            f"/v1/customers/{call.path['id']}/payment_methods",
            "type",
            customer=call.get("customer")["id"],
        ),
        f"{PAGING} type",
    ),
]
