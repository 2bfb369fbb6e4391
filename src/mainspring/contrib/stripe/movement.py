"""What moved, or shall move: charges, transfers, reversals and refunds, as read from what Stripe says."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, ClassVar, Final

import msgspec

from mainspring.contrib.money import Money
from mainspring.contrib.stripe.keys import METADATA
from mainspring.contrib.stripe.status import MovementKind, StripeStatus

#: What the bank wants the customer for.
ACTION: Final = frozenset({"authentication_required", "requires_action_not_handled"})

_INTENT: Final[Mapping[str, StripeStatus]] = {
    "requires_payment_method": "failed",  # confirmed when it was made, so a card was tried
    "requires_confirmation": "pending",
    "requires_action": "action_required",
    "processing": "pending",
    "requires_capture": "pending",
    "succeeded": "succeeded",
    "canceled": "canceled",
}
_REFUND: Final[Mapping[str, StripeStatus]] = {
    "pending": "pending",
    "requires_action": "action_required",
    "succeeded": "succeeded",
    "failed": "failed",
    "canceled": "canceled",
}


class Charge(msgspec.Struct, frozen=True, kw_only=True):
    """A payment of a customer: Stripe's PaymentIntent."""

    kind: ClassVar[MovementKind] = "charge"
    id: str  # pi_…
    status: StripeStatus
    amount: Money
    charge: str | None  # ch_…, once a card was tried: the source of transfers
    customer: str | None
    key: str | None
    created: datetime
    fee: Money | None = None  # Stripe's own, once it is known
    decline_code: str | None = None  # why the last card was refused
    metadata: Mapping[str, str] = {}  # what was written on it, such as which of your rows it pays

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Charge:
        """From a PaymentIntent."""
        error, last = body.get("last_payment_error") or {}, body.get("latest_charge")
        status = _INTENT.get(body["status"], "pending")  # what is new does not end it
        if status == "failed" and {error.get("code"), error.get("decline_code")} & ACTION:
            status = "action_required"
        return cls(
            id=body["id"],
            status=status,
            amount=Money(body["amount"], body["currency"]),
            charge=_id(last),
            customer=_id(body.get("customer")),
            key=_key(body),
            created=_time(body),
            fee=_fee(last),
            decline_code=error.get("decline_code") or error.get("code") if status == "failed" else None,
            metadata=dict(body.get("metadata") or {}),
        )


class Transfer(msgspec.Struct, frozen=True, kw_only=True):
    """Money that went to a connected account; Stripe refuses it, or it is done."""

    kind: ClassVar[MovementKind] = "transfer"
    id: str  # tr_…
    status: StripeStatus
    amount: Money
    destination: str | None
    group: str | None
    key: str | None
    created: datetime
    reversed: Money | None = None  # how much of it came back

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Transfer:
        """From a Transfer."""
        amount = Money(body["amount"], body["currency"])
        back = body.get("amount_reversed") or 0
        return cls(
            id=body["id"],
            status="canceled" if body.get("reversed") else "succeeded",
            amount=amount,
            destination=_id(body.get("destination")),
            group=body.get("transfer_group"),
            key=_key(body),
            created=_time(body),
            reversed=Money(back, amount.currency) if back else None,
        )


class Reversal(msgspec.Struct, frozen=True, kw_only=True):
    """Money of a transfer that came back from a connected account; Stripe refuses it, or it is done."""

    kind: ClassVar[MovementKind] = "reversal"
    id: str  # trr_…
    status: StripeStatus
    amount: Money
    transfer: str | None
    key: str | None
    created: datetime

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Reversal:
        """From a TransferReversal."""
        return cls(
            id=body["id"],
            status="succeeded",
            amount=Money(body["amount"], body["currency"]),
            transfer=_id(body.get("transfer")),
            key=_key(body),
            created=_time(body),
        )


class Refund(msgspec.Struct, frozen=True, kw_only=True):
    """Money that goes back to a customer."""

    kind: ClassVar[MovementKind] = "refund"
    id: str  # re_…
    status: StripeStatus
    amount: Money
    intent: str | None
    charge: str | None
    key: str | None
    created: datetime
    failure: str | None = None

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Refund:
        """From a Refund."""
        return cls(
            id=body["id"],
            status=_REFUND.get(body.get("status") or "", "pending"),
            amount=Money(body["amount"], body["currency"]),
            intent=_id(body.get("payment_intent")),
            charge=_id(body.get("charge")),
            key=_key(body),
            created=_time(body),
            failure=body.get("failure_reason"),
        )


Movement = Charge | Transfer | Reversal | Refund
READERS: Final[Mapping[str, type[Movement]]] = {
    "payment_intent": Charge, "transfer": Transfer, "transfer_reversal": Reversal, "refund": Refund,
}  # fmt: skip


def movement(body: Mapping[str, Any]) -> Movement | None:
    """The movement that an object of Stripe is; None: another kind of object."""
    reader = READERS.get(str(body.get("object")))
    return None if reader is None else reader.read(body)


def _id(value: Any) -> str | None:
    """The id of something that came as its id, or whole."""
    return value.get("id") if isinstance(value, Mapping) else value


def _key(body: Mapping[str, Any]) -> str | None:
    return (body.get("metadata") or {}).get(METADATA)


def _time(body: Mapping[str, Any]) -> datetime:
    return datetime.fromtimestamp(body["created"], UTC)


def _fee(charge: Any) -> Money | None:
    entry = charge.get("balance_transaction") if isinstance(charge, Mapping) else None
    return Money(entry["fee"], entry["currency"]) if isinstance(entry, Mapping) else None
