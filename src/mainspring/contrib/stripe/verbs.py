"""What is asked of Stripe: each verb is a generator that yields calls and receives what Stripe says.

The calls are made in the colour of whoever asks (`mainspring.client.colour`), so that every verb is written once.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mainspring.contrib.money import Money
from mainspring.contrib.stripe.asking import (
    EXPANDED_INTENT,
    INTENTS,
    Calls,
    StripeRequest,
    find,
    given,
    listed,
    once,
    one,
    positive,
    stripe_id,
)
from mainspring.contrib.stripe.errors import RequestRefused, settled
from mainspring.contrib.stripe.keys import METADATA, fit
from mainspring.contrib.stripe.movement import Charge, Refund, Reversal, Transfer
from mainspring.errors import ValidationError

_TRANSFERS, _REFUNDS = "/v1/transfers", "/v1/refunds"


def charge(
    amount: Money,
    *,
    customer: str,
    payment_method: str,
    key: str,
    metadata: Mapping[str, str] | None = None,
    description: str | None = None,
    since: datetime | None = None,
) -> Calls[Charge]:
    """Charge a card on file, without its owner: once for a key, however often it is called.

    ::

        paid = await stripe.charge(Money(1250, "EUR"), customer="cus_1", payment_method="pm_1", key=ctx.idempotency_key)

    `Declined` and `ActionRequired` end the job; what may pass is tried again. The charge may still be `pending`: the
    webhook, or `reconcile`, tells. With a key of your own say `since` when it exists, else each call looks first.
    """
    params = {
        "amount": positive(amount),
        "currency": amount.currency.lower(),
        "customer": stripe_id(customer, "customer"),
        "payment_method": stripe_id(payment_method, "payment_method"),
        "off_session": True,
        "confirm": True,
        "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},  # nobody is there to be redirected
        "expand": EXPANDED_INTENT,
    }
    if description is not None:
        params["description"] = description
    body = yield from once(INTENTS, params, key, metadata, since, {"customer": customer})
    return settled(Charge.read(body))


def transfer(
    amount: Money,
    *,
    destination: str,
    key: str,
    source: str | None = None,
    group: str | None = None,
    metadata: Mapping[str, str] | None = None,
    since: datetime | None = None,
) -> Calls[Transfer]:
    """Send money to a connected account: once for a key. `source` is the charge (ch_…) that it is paid from."""
    params: dict[str, Any] = {"amount": positive(amount), "currency": amount.currency.lower()}
    params["destination"] = stripe_id(destination, "destination")
    narrow = {"destination": destination}
    if source is not None:
        params["source_transaction"] = stripe_id(source, "source")
    if group is not None:
        params["transfer_group"] = narrow["transfer_group"] = group
    body = yield from once(_TRANSFERS, params, key, metadata, since, narrow)
    return Transfer.read(body)


def reverse(
    transfer: str,
    *,
    amount: Money | None = None,
    key: str,
    metadata: Mapping[str, str] | None = None,
    since: datetime | None = None,
) -> Calls[Reversal]:
    """Take a transfer (tr_…) back from its connected account, all of it or a part: once for a key."""
    params: dict[str, Any] = {} if amount is None else {"amount": positive(amount)}
    body = yield from once(_reversals(transfer), params, key, metadata, since, {})
    return Reversal.read(body)


def refund(
    *,
    intent: str | None = None,
    charge: str | None = None,
    amount: Money | None = None,
    key: str,
    metadata: Mapping[str, str] | None = None,
    since: datetime | None = None,
) -> Calls[Refund]:
    """Give money back, all of it or a part: once for a key. Say which payment, by its intent or by its charge."""
    if (intent is None) == (charge is None):
        raise ValidationError("intent: say an intent or a charge, one of them", field="intent")
    narrow = (
        {"payment_intent": stripe_id(intent, "intent")}
        if intent is not None
        else {"charge": stripe_id(charge, "charge")}
    )
    params: dict[str, Any] = dict(narrow)
    if amount is not None:
        params["amount"] = positive(amount)
    body = yield from once(_REFUNDS, params, key, metadata, since, narrow)
    return Refund.read(body)


def cancel(intent: str, *, key: str) -> Calls[Charge]:
    """Cancel a charge that is not paid yet; if it was paid meanwhile, the answer says `succeeded`."""
    try:
        body = yield StripeRequest("post", f"{INTENTS}/{stripe_id(intent, 'intent')}/cancel", {}, fit(key))
    except RequestRefused as refused:
        if refused.reason != "payment_intent_unexpected_state":
            raise
        body = yield StripeRequest("get", f"{INTENTS}/{intent}", {"expand": EXPANDED_INTENT})
    return Charge.read(body)


def customer(
    *, key: str, name: str | None = None, email: str | None = None, metadata: Mapping[str, str] | None = None
) -> Calls[str]:
    """Make a customer, whom cards belong to, and return the id; under one key it is one customer for a day."""
    params = {"metadata": {**(metadata or {}), METADATA: fit(key)}, **given(name=name, email=email)}
    body = yield StripeRequest("post", "/v1/customers", params, fit(key))
    return str(body["id"])


# -- looking


def intent(id: str) -> Calls[Charge | None]:
    """A charge by the id of its intent; None: there is none."""
    return (yield from one(INTENTS, id, Charge.read))


def get_transfer(id: str) -> Calls[Transfer | None]:
    """A transfer by its id; None: there is none."""
    return (yield from one(_TRANSFERS, id, Transfer.read))


def get_refund(id: str) -> Calls[Refund | None]:
    """A refund by its id; None: there is none."""
    return (yield from one(_REFUNDS, id, Refund.read))


def find_charge(key: str, since: datetime | None = None, *, customer: str | None = None) -> Calls[Charge | None]:
    """The charge that was made under a key, by a list that shows every one at once, unlike Stripe's search."""
    body = yield from find(INTENTS, fit(key), since, given(customer=customer))
    return None if body is None else Charge.read(body)


def find_transfer(
    key: str, since: datetime | None = None, *, destination: str | None = None, group: str | None = None
) -> Calls[Transfer | None]:
    """The transfer that was made under a key."""
    body = yield from find(_TRANSFERS, fit(key), since, given(destination=destination, transfer_group=group))
    return None if body is None else Transfer.read(body)


def find_refund(
    key: str, since: datetime | None = None, *, intent: str | None = None, charge: str | None = None
) -> Calls[Refund | None]:
    """The refund that was made under a key."""
    body = yield from find(_REFUNDS, fit(key), since, given(payment_intent=intent, charge=charge))
    return None if body is None else Refund.read(body)


def find_reversal(key: str, transfer: str) -> Calls[Reversal | None]:
    """The reversal of a transfer that was made under a key."""
    body = yield from find(_reversals(transfer), fit(key), None, {})
    return None if body is None else Reversal.read(body)


def charges(since: datetime, *, customer: str | None = None) -> Calls[list[Charge]]:
    """Every charge since then, newest first: to compare with your own rows."""
    return [Charge.read(body) for body in (yield from listed(INTENTS, since, given(customer=customer)))]


def transfers(since: datetime, *, destination: str | None = None, group: str | None = None) -> Calls[list[Transfer]]:
    """Every transfer since then, newest first."""
    found = yield from listed(_TRANSFERS, since, given(destination=destination, transfer_group=group))
    return [Transfer.read(body) for body in found]


def refunds(since: datetime, *, intent: str | None = None, charge: str | None = None) -> Calls[list[Refund]]:
    """Every refund since then, newest first."""
    found = yield from listed(_REFUNDS, since, given(payment_intent=intent, charge=charge))
    return [Refund.read(body) for body in found]


def _reversals(transfer: str) -> str:
    return f"{_TRANSFERS}/{stripe_id(transfer, 'transfer')}/reversals"
