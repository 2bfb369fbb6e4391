"""Checkout sessions: Stripe's own payment page, on which a customer pays at once, by a voucher, or not at all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from math import ceil
from typing import Any, Final, Literal

import msgspec

from mainspring.contrib.money import Money
from mainspring.contrib.stripe.asking import Calls, StripeRequest, given, listed, once, one, positive, reused, stripe_id
from mainspring.contrib.stripe.errors import RequestRefused
from mainspring.contrib.stripe.keys import METADATA, fit

_SESSIONS: Final = "/v1/checkout/sessions"
SessionStatus = Literal["open", "complete", "expired"]


class CheckoutSession(msgspec.Struct, frozen=True, kw_only=True):
    """A payment page, and what became of it.

    `complete` alone is not `paid`: a voucher such as Multibanco's is given out first and paid days later, or never.
    """

    id: str  # cs_…
    status: SessionStatus
    payment_status: str  # paid, unpaid, no_payment_required
    amount: Money
    intent: str | None  # pi_…, once somebody has chosen how to pay
    reference: str | None  # ours: Stripe's client_reference_id
    metadata: Mapping[str, str]
    expires_at: datetime
    created: datetime
    url: str | None = None  # of the page, while it is open
    customer: str | None = None
    email: str | None = None
    key: str | None = None

    @property
    def paid(self) -> bool:
        """Whether the money is there."""
        return self.payment_status == "paid"

    @property
    def waits(self) -> bool:
        """Whether a voucher was given out, or a bank still decides; once that has failed Stripe says so by an event."""
        return self.status == "complete" and self.payment_status == "unpaid"

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> CheckoutSession:
        """From a Checkout Session."""
        intent, metadata = body.get("payment_intent"), dict(body.get("metadata") or {})
        details = body.get("customer_details") or {}
        return cls(
            id=body["id"],
            status=body["status"],
            payment_status=body["payment_status"],
            amount=Money(body["amount_total"] or 0, body["currency"]),
            intent=intent.get("id") if isinstance(intent, Mapping) else intent,
            reference=body.get("client_reference_id"),
            metadata=metadata,
            expires_at=datetime.fromtimestamp(body["expires_at"], UTC),
            created=datetime.fromtimestamp(body["created"], UTC),
            url=body.get("url"),
            customer=body.get("customer"),
            email=body.get("customer_email") or details.get("email"),
            key=metadata.get(METADATA),
        )


def checkout(
    amount: Money,
    *,
    title: str,
    success_url: str,
    key: str,
    cancel_url: str | None = None,
    reference: str | None = None,
    expires_at: datetime | None = None,
    email: str | None = None,
    customer: str | None = None,
    methods: Sequence[str] | None = None,
    locale: str | None = None,
    metadata: Mapping[str, str] | None = None,
    since: datetime | None = None,
) -> Calls[CheckoutSession]:
    """Open a page on which one amount is paid: once for a key.

    ::

        session = await stripe.checkout(
            Money(12_300, "EUR"), title="Digger", reference="7", success_url="https://…", key=ctx.idempotency_key
        )

    The page is at `url` until `expires_at`, 30 minutes to 24 hours from now; Stripe's own choice is 24 hours. `methods`
    are ways to pay, such as `card` and `multibanco`; without them those of your account. The metadata stand on the
    payment as well.
    """
    product = {"currency": amount.currency.lower(), "unit_amount": positive(amount), "product_data": {"name": title}}
    params: dict[str, Any] = {
        "mode": "payment",
        "line_items": [{"quantity": 1, "price_data": product}],
        **given(success_url=success_url, cancel_url=cancel_url, client_reference_id=reference, customer_email=email),
        **given(customer=customer, locale=locale),
    }
    if expires_at is not None:
        params["expires_at"] = ceil(expires_at.timestamp())
    if methods is not None:
        params["payment_method_types"] = list(methods)
    if metadata:
        params["payment_intent_data"] = {"metadata": dict(metadata)}
    body = yield from once(_SESSIONS, params, key, metadata, since, given(customer=customer))
    made = CheckoutSession.read(body)
    if made.amount != amount:
        raise reused(made.id, "amount")
    return made


def session(id: str) -> Calls[CheckoutSession | None]:
    """A payment page by its id, as it is now; None: there is none."""
    return (yield from one(_SESSIONS, id, CheckoutSession.read))


def expire_session(id: str, *, key: str) -> Calls[CheckoutSession]:
    """Close a page, so that nobody pays there any more; if somebody has meanwhile, the answer says so."""
    path = f"{_SESSIONS}/{stripe_id(id, 'id')}"
    try:
        body = yield StripeRequest("post", f"{path}/expire", {}, fit(key))
    except RequestRefused as refused:
        if refused.status != 400:
            raise
        body = yield StripeRequest("get", path)
    return CheckoutSession.read(body)


def sessions(
    since: datetime, *, intent: str | None = None, status: SessionStatus | None = None
) -> Calls[list[CheckoutSession]]:
    """Every payment page since then, newest first: to find what was paid and never told."""
    found = yield from listed(_SESSIONS, since, given(payment_intent=intent, status=status))
    return [CheckoutSession.read(body) for body in found]
