"""What is asked of Stripe: each verb is a generator that yields calls and receives what Stripe says.

The calls are made in the colour of whoever asks (`mainspring.client.colour`), so that every verb is written once.
What moves money is sent once: under its key, and after a look when Stripe may have forgotten the key.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from mainspring.contrib.money import Money
from mainspring.contrib.stripe.errors import OutcomeUnknown, RequestRefused, settled
from mainspring.contrib.stripe.keys import METADATA, fit, recall
from mainspring.contrib.stripe.movement import Charge, Refund, Reversal, Transfer
from mainspring.declare.caller import current_job
from mainspring.errors import ValidationError
from mainspring.outcome import Permanent

if TYPE_CHECKING:
    from mainspring.contrib.stripe.api import Api

T = TypeVar("T")
Body: TypeAlias = Mapping[str, Any]

STRIPE_PAGE: Final = 100  # objects of a list, the most that Stripe gives at once
STRIPE_SKEW: Final = timedelta(hours=1)  # how far Stripe's clock and the database's may be apart
#: Stripe's charge comes along, with what it cost, where that is known already.
_EXPAND: Final = ["latest_charge.balance_transaction"]
_INTENTS, _TRANSFERS, _REFUNDS = "/v1/payment_intents", "/v1/transfers", "/v1/refunds"
_ID: Final = re.compile(r"[A-Za-z0-9_-]{1,255}", re.ASCII)


@dataclass(frozen=True, slots=True)
class StripeRequest:
    """One request, as a value."""

    method: str
    path: str
    params: Mapping[str, Any] = field(default_factory=dict)
    key: str | None = None

    def perform(self, api: Api) -> Body:
        """From a plain function."""
        return api.send(self)

    def perform_async(self, api: Api) -> Awaitable[Body]:
        """In the event loop."""
        return api.send_async(self)


Calls: TypeAlias = Generator[StripeRequest, Body, T]


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
        "amount": _positive(amount),
        "currency": amount.currency.lower(),
        "customer": _id(customer, "customer"),
        "payment_method": _id(payment_method, "payment_method"),
        "off_session": True,
        "confirm": True,
        "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},  # nobody is there to be redirected
        "expand": _EXPAND,
    }
    if description is not None:
        params["description"] = description
    body = yield from _once(_INTENTS, params, key, metadata, since, {"customer": customer})
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
    params: dict[str, Any] = {"amount": _positive(amount), "currency": amount.currency.lower()}
    params["destination"] = _id(destination, "destination")
    narrow = {"destination": destination}
    if source is not None:
        params["source_transaction"] = _id(source, "source")
    if group is not None:
        params["transfer_group"] = narrow["transfer_group"] = group
    body = yield from _once(_TRANSFERS, params, key, metadata, since, narrow)
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
    params: dict[str, Any] = {} if amount is None else {"amount": _positive(amount)}
    body = yield from _once(_reversals(transfer), params, key, metadata, since, {})
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
    narrow = {"payment_intent": _id(intent, "intent")} if intent is not None else {"charge": _id(charge, "charge")}
    params: dict[str, Any] = dict(narrow)
    if amount is not None:
        params["amount"] = _positive(amount)
    body = yield from _once(_REFUNDS, params, key, metadata, since, narrow)
    return Refund.read(body)


def cancel(intent: str, *, key: str) -> Calls[Charge]:
    """Cancel a charge that is not paid yet; if it was paid meanwhile, the answer says `succeeded`."""
    try:
        body = yield StripeRequest("post", f"{_INTENTS}/{_id(intent, 'intent')}/cancel", {}, fit(key))
    except RequestRefused as refused:
        if refused.reason != "payment_intent_unexpected_state":
            raise
        body = yield StripeRequest("get", f"{_INTENTS}/{intent}", {"expand": _EXPAND})
    return Charge.read(body)


def customer(
    *, key: str, name: str | None = None, email: str | None = None, metadata: Mapping[str, str] | None = None
) -> Calls[str]:
    """Make a customer, whom cards belong to, and return the id; under one key it is one customer for a day."""
    params = {"metadata": {**(metadata or {}), METADATA: fit(key)}, **_given(name=name, email=email)}
    body = yield StripeRequest("post", "/v1/customers", params, fit(key))
    return str(body["id"])


# -- looking


def intent(id: str) -> Calls[Charge | None]:
    """A charge by the id of its intent; None: there is none."""
    return (yield from _get(_INTENTS, id, Charge.read))


def get_transfer(id: str) -> Calls[Transfer | None]:
    """A transfer by its id; None: there is none."""
    return (yield from _get(_TRANSFERS, id, Transfer.read))


def get_refund(id: str) -> Calls[Refund | None]:
    """A refund by its id; None: there is none."""
    return (yield from _get(_REFUNDS, id, Refund.read))


def find_charge(key: str, since: datetime | None = None, *, customer: str | None = None) -> Calls[Charge | None]:
    """The charge that was made under a key, by a list that shows every one at once, unlike Stripe's search."""
    body = yield from _find(_INTENTS, fit(key), since, _given(customer=customer))
    return None if body is None else Charge.read(body)


def find_transfer(
    key: str, since: datetime | None = None, *, destination: str | None = None, group: str | None = None
) -> Calls[Transfer | None]:
    """The transfer that was made under a key."""
    body = yield from _find(_TRANSFERS, fit(key), since, _given(destination=destination, transfer_group=group))
    return None if body is None else Transfer.read(body)


def find_refund(
    key: str, since: datetime | None = None, *, intent: str | None = None, charge: str | None = None
) -> Calls[Refund | None]:
    """The refund that was made under a key."""
    body = yield from _find(_REFUNDS, fit(key), since, _given(payment_intent=intent, charge=charge))
    return None if body is None else Refund.read(body)


def find_reversal(key: str, transfer: str) -> Calls[Reversal | None]:
    """The reversal of a transfer that was made under a key."""
    body = yield from _find(_reversals(transfer), fit(key), None, {})
    return None if body is None else Reversal.read(body)


def charges(since: datetime, *, customer: str | None = None) -> Calls[list[Charge]]:
    """Every charge since then, newest first: to compare with your own rows."""
    return [Charge.read(body) for body in (yield from _all(_INTENTS, since, _given(customer=customer)))]


def transfers(since: datetime, *, destination: str | None = None, group: str | None = None) -> Calls[list[Transfer]]:
    """Every transfer since then, newest first."""
    found = yield from _all(_TRANSFERS, since, _given(destination=destination, transfer_group=group))
    return [Transfer.read(body) for body in found]


def refunds(since: datetime, *, intent: str | None = None, charge: str | None = None) -> Calls[list[Refund]]:
    """Every refund since then, newest first."""
    found = yield from _all(_REFUNDS, since, _given(payment_intent=intent, charge=charge))
    return [Refund.read(body) for body in found]


# -- parts


def _once(
    path: str,
    params: dict[str, Any],
    key: str,
    metadata: Mapping[str, str] | None,
    since: datetime | None,
    narrow: Mapping[str, str],
) -> Calls[Body]:
    """Make something under a key, unless it was made already."""
    sent = fit(key)
    if metadata and METADATA in metadata:
        raise ValidationError(f"metadata: {METADATA} is where the key stands", field="metadata")
    params["metadata"] = {**(metadata or {}), METADATA: sent}
    look, since = recall(key, since, current_job())
    if look and (found := (yield from _find(path, sent, since, narrow))) is not None:
        return _same(found, params)
    try:
        return (yield StripeRequest("post", path, params, sent))
    except OutcomeUnknown as unknown:
        # Stripe repeats a stored error for a day, though what was asked for may have been done.
        if unknown.replayed and (found := (yield from _find(path, sent, since, narrow))) is not None:
            return _same(found, params)
        raise


def _same(found: Body, params: Mapping[str, Any]) -> Body:
    """What was found, if it is what is asked for; as Stripe compares while it remembers the key."""
    for name in ("amount", "currency"):
        if params.get(name, found[name]) != found[name]:
            words = f"Stripe: {found['id']} was made under this key, with another {name}"
            raise Permanent(words, code="IDEMPOTENCY_KEY_REUSED", counts=False)
    return found


def _find(path: str, key: str, since: datetime | None, narrow: Mapping[str, str]) -> Calls[Body | None]:
    found = yield from _all(path, since, narrow, key)
    return found[0] if found else None


def _all(path: str, since: datetime | None, narrow: Mapping[str, str], key: str | None = None) -> Calls[list[Body]]:
    """What a list shows, page by page, newest first; with a key, only the one that has it, and no page behind it."""
    params: dict[str, Any] = {**narrow, "limit": STRIPE_PAGE}
    if path == _INTENTS:
        params["expand"] = [f"data.{inside}" for inside in _EXPAND]
    if since is not None and not path.endswith("/reversals"):  # of one transfer there are few: Stripe lists them all
        params["created"] = {"gte": int((since - STRIPE_SKEW).timestamp())}
    found: list[Body] = []
    while True:
        page = yield StripeRequest("get", path, dict(params))
        bodies: list[Body] = page["data"]
        found += [body for body in bodies if key is None or (body.get("metadata") or {}).get(METADATA) == key]
        if not page.get("has_more") or not bodies or (key is not None and found):
            return found
        params["starting_after"] = bodies[-1]["id"]


def _get(path: str, id: str, read: Callable[[Body], T]) -> Calls[T | None]:
    try:
        params = {"expand": _EXPAND} if path == _INTENTS else {}
        return read((yield StripeRequest("get", f"{path}/{_id(id, 'id')}", params)))
    except RequestRefused as refused:
        if refused.reason == "resource_missing" or refused.status == 404:
            return None
        raise


def _reversals(transfer: str) -> str:
    return f"{_TRANSFERS}/{_id(transfer, 'transfer')}/reversals"


def _given(**narrow: str | None) -> dict[str, str]:
    return {name: value for name, value in narrow.items() if value is not None}


def _positive(amount: Money) -> int:
    if not isinstance(amount, Money):
        raise ValidationError(f"amount: is a {type(amount).__name__}, not Money", field="amount")
    if amount.minor <= 0:
        raise ValidationError(f"amount: {amount} is nothing to move", field="amount")
    return amount.minor


def _id(value: str | None, field: str) -> str:
    """An id of Stripe's; it becomes a part of an address, so nothing else gets there."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValidationError(f"{field}: is not an id of Stripe's", field=field)
    return value
