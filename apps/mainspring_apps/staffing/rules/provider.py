"""What the provider says of chargebacks and accounts, in the words of our tables (STAFF-20.25)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

ChargebackStatus = Literal["Inquiry", "Open", "Won", "Lost"]
_ENDS: Final[Mapping[str, ChargebackStatus]] = {
    "won": "Won", "warning_closed": "Won", "prevented": "Won", "lost": "Lost",
}  # fmt: skip


def chargeback(status: str) -> ChargebackStatus:
    """Where a chargeback stands: a bank that only asks has taken nothing, and one that has not decided has.

    >>> chargeback("warning_needs_response"), chargeback("needs_response"), chargeback("warning_closed")
    ('Inquiry', 'Open', 'Won')
    """
    return _ENDS.get(status, "Inquiry" if status.startswith("warning_") else "Open")


def restrictions(account: Mapping[str, Any]) -> list[str]:
    """Why a lender's account cannot take money or pass it on; nothing: it can.

    One that never asked to take cards need not be able to.

    >>> restrictions({"payouts_enabled": True, "charges_enabled": False, "capabilities": {"transfers": "active"}})
    []
    >>> restrictions({"payouts_enabled": False, "requirements": {"past_due": ["individual.id_number"]}})
    ['payouts are disabled', 'individual.id_number is past due']
    """
    can, wants = account.get("capabilities") or {}, account.get("requirements") or {}
    found = [] if account.get("payouts_enabled") else ["payouts are disabled"]
    if "card_payments" in can and not account.get("charges_enabled"):
        found.append("charges are disabled")
    if can.get("transfers", "active") != "active":
        found.append("transfers are disabled")
    found += [f"{name} is past due" for name in wants.get("past_due") or ()]
    if not found and wants.get("disabled_reason"):
        found.append(str(wants["disabled_reason"]))
    return found
