"""Disputes: a customer asks the bank for the money, which takes it at once, and decides later whose it is."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mainspring.contrib.money import Money
from mainspring.contrib.stripe.asking import Calls, given, listed, one

_DISPUTES: Final = "/v1/disputes"


class Dispute(msgspec.Struct, frozen=True, kw_only=True):
    """A complaint about a charge, and where it stands."""

    id: str  # dp_…
    status: str  # needs_response, under_review, won, lost; of a bank that only asks: warning_…
    amount: Money
    charge: str
    intent: str | None
    reason: str
    due_by: datetime | None  # until when evidence is taken
    created: datetime

    @property
    def open(self) -> bool:
        """Whether nobody has decided yet."""
        return self.status not in ("won", "lost", "warning_closed", "prevented")

    @property
    def inquiry(self) -> bool:
        """Whether the bank only asks, and has taken nothing."""
        return self.status.startswith("warning_")

    @classmethod
    def read(cls, body: Mapping[str, Any]) -> Dispute:
        """From a Dispute."""
        due = (body.get("evidence_details") or {}).get("due_by")
        return cls(
            id=body["id"],
            status=body["status"],
            amount=Money(body["amount"], body["currency"]),
            charge=_id(body["charge"]) or "",
            intent=_id(body.get("payment_intent")),
            reason=str(body.get("reason") or ""),
            due_by=None if due is None else datetime.fromtimestamp(due, UTC),
            created=datetime.fromtimestamp(body["created"], UTC),
        )


def dispute(id: str) -> Calls[Dispute | None]:
    """A dispute by its id, as it stands; None: there is none."""
    return (yield from one(_DISPUTES, id, Dispute.read))


def disputes(since: datetime, *, intent: str | None = None, charge: str | None = None) -> Calls[list[Dispute]]:
    """Every dispute since then, newest first."""
    found = yield from listed(_DISPUTES, since, given(payment_intent=intent, charge=charge))
    return [Dispute.read(body) for body in found]


def _id(value: Any) -> str | None:
    return value.get("id") if isinstance(value, Mapping) else value
