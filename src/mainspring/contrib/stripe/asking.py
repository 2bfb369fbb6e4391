"""What every verb is made of: one request as a value, a look by key, a list page by page, an object by its id.

What moves money is sent once: under its key, and after a look when Stripe may have forgotten the key.
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

from mainspring.contrib.money import Money
from mainspring.contrib.stripe.errors import OutcomeUnknown, RequestRefused
from mainspring.contrib.stripe.keys import METADATA, fit, recall
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
EXPANDED_INTENT: Final = ["latest_charge.balance_transaction"]
INTENTS: Final = "/v1/payment_intents"
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


def once(
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
    if look and (found := (yield from find(path, sent, since, narrow))) is not None:
        return same(found, params)
    try:
        return (yield StripeRequest("post", path, params, sent))
    except OutcomeUnknown as unknown:
        # Stripe repeats a stored error for a day, though what was asked for may have been done.
        if unknown.replayed and (found := (yield from find(path, sent, since, narrow))) is not None:
            return same(found, params)
        raise


def same(found: Body, params: Mapping[str, Any]) -> Body:
    """What was found, if it is what is asked for; as Stripe compares while it remembers the key."""
    for name in ("amount", "currency"):
        if name in params and params[name] != found[name]:
            raise reused(str(found["id"]), name)
    return found


def reused(id: str, name: str) -> Permanent:
    """A key was used for something else."""
    words = f"Stripe: {id} was made under this key, with another {name}"
    return Permanent(words, code="IDEMPOTENCY_KEY_REUSED", counts=False)


def find(path: str, key: str, since: datetime | None, narrow: Mapping[str, str]) -> Calls[Body | None]:
    """What was made under a key; None: nothing."""
    found = yield from listed(path, since, narrow, key)
    return found[0] if found else None


def listed(path: str, since: datetime | None, narrow: Mapping[str, str], key: str | None = None) -> Calls[list[Body]]:
    """What a list shows, page by page, newest first; with a key, only the one that has it, and no page behind it."""
    params: dict[str, Any] = {**narrow, "limit": STRIPE_PAGE}
    if path == INTENTS:
        params["expand"] = [f"data.{inside}" for inside in EXPANDED_INTENT]
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


def one(path: str, id: str, read: Callable[[Body], T]) -> Calls[T | None]:
    """An object by its id; None: there is none."""
    try:
        params = {"expand": EXPANDED_INTENT} if path == INTENTS else {}
        return read((yield StripeRequest("get", f"{path}/{stripe_id(id, 'id')}", params)))
    except RequestRefused as refused:
        if refused.reason == "resource_missing" or refused.status == 404:
            return None
        raise


def given(**narrow: str | None) -> dict[str, str]:
    """The parameters that somebody gave."""
    return {name: value for name, value in narrow.items() if value is not None}


def positive(amount: Money) -> int:
    """So many minor units, more than none."""
    if not isinstance(amount, Money):
        raise ValidationError(f"amount: is a {type(amount).__name__}, not Money", field="amount")
    if amount.minor <= 0:
        raise ValidationError(f"amount: {amount} is nothing to move", field="amount")
    return amount.minor


def stripe_id(value: str | None, field: str) -> str:
    """An id of Stripe's; it becomes a part of an address, so nothing else gets there."""
    if not isinstance(value, str) or not _ID.fullmatch(value):
        raise ValidationError(f"{field}: is not an id of Stripe's", field=field)
    return value
