"""Transfers to connected accounts, and what is taken back of them."""

from __future__ import annotations

from mainspring_sandbox.stripe.balance import balance, move
from mainspring_sandbox.stripe.call import Call, Thing
from mainspring_sandbox.stripe.errors import ErrorAnswer, no_such
from mainspring_sandbox.stripe.lists import PAGING, listed
from mainspring_sandbox.stripe.money import amount, currency
from mainspring_sandbox.stripe.pages import page


def create(call: Call) -> Thing:
    """Send money to a connected account."""
    fields: Thing = {"amount": amount(call.params), "currency": currency(call.params)}
    fields |= {name: call.params.text(name) for name in ("transfer_group", "description", "source_transaction")}
    destination = call.params.required("destination")
    _may_receive(call, destination)
    if fields["source_transaction"] is not None:
        _within_source(call, fields)
    elif call.stripe.settings.strict_balance and balance(call)[fields["currency"]] < fields["amount"]:
        message = "You have insufficient available funds in your Stripe account."
        raise ErrorAnswer(400, message, code="balance_insufficient")
    return sent(call, fields | {"destination": destination, "metadata": call.params.metadata()})


def sent(call: Call, fields: Thing) -> Thing:
    """Money moved: the one place where a transfer is counted."""
    fields |= {"amount_reversed": 0, "reversed": False, "balance_transaction": None, "_key": call.key}
    transfer = call.add("transfer", fields)
    told = {name: transfer[name] for name in ("destination", "source_transaction", "transfer_group")}
    call.save(transfer, balance_transaction=move(call, "transfer", transfer, -transfer["amount"], **told))
    call.emit("transfer.created", transfer)
    return transfer


def transferred(call: Call, charge: Thing, data: Thing) -> Thing:
    """The transfer that a charge with `transfer_data` makes by itself."""
    amount = min(int(data.get("amount") or charge["amount_captured"]), charge["amount_captured"])
    fields: Thing = {"amount": amount, "currency": charge["currency"], "destination": data["destination"]}
    fields |= {"source_transaction": charge["id"], "transfer_group": charge["transfer_group"], "description": None}
    return sent(call, fields | {"metadata": {}})


def update(call: Call) -> Thing:
    """Change what is written on one."""
    transfer = call.get("transfer")
    call.save(transfer, metadata=call.params.metadata(transfer["metadata"]))
    call.emit("transfer.updated", transfer)
    return transfer


def reverse(call: Call) -> Thing:
    """Take some of a transfer back."""
    transfer = call.get("transfer")
    left = transfer["amount"] - transfer["amount_reversed"]
    if left == 0:
        raise ErrorAnswer(400, f"Transfer {transfer['id']} is already reversed.", code="transfer_already_reversed")
    wanted = amount(call.params) if "amount" in call.params else left
    if wanted > left:
        raise ErrorAnswer(400, f"Reversal amount ({wanted}) is greater than unreversed amount ({left})", param="amount")
    fields: Thing = {"amount": wanted, "currency": transfer["currency"], "transfer": transfer["id"]}
    fields |= {"metadata": call.params.metadata(), "balance_transaction": None, "_key": call.key}
    reversal = call.add("transfer_reversal", fields)
    told = {"transfer": transfer["id"], "destination": transfer["destination"]}
    call.save(reversal, balance_transaction=move(call, "reversal", reversal, wanted, **told))
    call.save(transfer, amount_reversed=transfer["amount_reversed"] + wanted, reversed=wanted == left)
    call.stripe.world.ledger.change("transfer", transfer["id"], reversed=transfer["amount_reversed"])
    call.emit("transfer.reversed", transfer)
    return reversal


def _may_receive(call: Call, destination: str) -> None:
    found = call.stripe.world.ledger.get("stripe.account", destination)
    if found is None:
        raise no_such("destination", destination, "destination")
    if found.body["capabilities"].get("transfers") != "active":
        message = "Your destination account needs to have at least one of the following capabilities enabled: transfers"
        raise ErrorAnswer(400, message, code="insufficient_capabilities_for_transfer")


def _within_source(call: Call, fields: Thing) -> None:
    """What goes out of a charge is never more than came in."""
    charge = call.get("charge", fields["source_transaction"], param="source_transaction")
    if charge["currency"] != fields["currency"]:
        raise ErrorAnswer(400, "The currency of source_transaction's charge must be the same.", param="currency")
    before = call.stripe.world.ledger.find("stripe.transfer", _account=call.account, source_transaction=charge["id"])
    gone = sum(entry.body["amount"] - entry.body["amount_reversed"] for entry in before)
    if gone + fields["amount"] > charge["amount_captured"]:
        raise ErrorAnswer(400, "Cannot create transfers whose sum is above the source charge's amount.", param="amount")
    fields["transfer_group"] = (
        fields["transfer_group"] or charge["transfer_group"] or f"group_{charge['payment_intent']}"
    )


PAGES = [
    page(
        "POST",
        "/v1/transfers",
        create,
        "amount currency destination source_transaction transfer_group description metadata source_type",
    ),
    page(
        "GET",
        "/v1/transfers",
        lambda call: listed(call, "transfer", "/v1/transfers", "destination", "transfer_group"),
        f"{PAGING} destination transfer_group",
    ),
    page("GET", "/v1/transfers/{id}", lambda call: call.get("transfer")),
    page("POST", "/v1/transfers/{id}", update, "metadata description"),
    page("POST", "/v1/transfers/{id}/reversals", reverse, "amount metadata description refund_application_fee"),
    page(
        "GET",
        "/v1/transfers/{id}/reversals",
        lambda call: listed(
            call, "transfer_reversal", f"/v1/transfers/{call.path['id']}/reversals", transfer=call.get("transfer")["id"]
        ),
        "limit starting_after ending_before",
    ),
]
