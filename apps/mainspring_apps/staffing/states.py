"""The statuses of business rows, and which may follow which; the database holds everybody to it (verbs/guard.sql)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

import mainspring as ms

BookingStatus = Literal[
    "Pending_Payment", "Active", "Payment_Paused_Dispute", "Suspended_Insurance", "Cancelled", "Completed", "Disputed",
]  # fmt: skip
MovementStatus = Literal["Pending", "Succeeded", "Failed", "Reversed"]

#: Where a worker may clock in, besides funded shifts of a released booking (G-07, G-16).
WORKABLE: Final = frozenset({"Active", "Payment_Paused_Dispute"})
#: A dispute in one of these stops no payment any more (G-46).
CLOSED_DISPUTES: Final = frozenset({"Settled", "Resolved", "Legal_Hold"})

TRANSITIONS: Final[Mapping[str, Mapping[str, frozenset[str]]]] = {
    "bookings": {
        "Pending_Payment": frozenset({"Active", "Cancelled"}),
        "Active": frozenset({"Payment_Paused_Dispute", "Suspended_Insurance", "Completed", "Cancelled"}),
        "Payment_Paused_Dispute": frozenset({"Active", "Suspended_Insurance", "Cancelled"}),
        "Suspended_Insurance": frozenset({"Active", "Payment_Paused_Dispute", "Completed", "Cancelled"}),
        "Disputed": frozenset({"Suspended_Insurance", "Cancelled"}),
        "Completed": frozenset({"Suspended_Insurance"}),
        "Cancelled": frozenset(),
    },
    "time_log": {
        "Scheduled": frozenset({"Working", "Cancelled"}),
        "Working": frozenset({"Pending_Verification"}),
        "Pending_Verification": frozenset({"Verified", "Disputed"}),
        "Verified": frozenset({"Disputed"}),
        "Disputed": frozenset({"Verified"}),
        "Cancelled": frozenset(),
    },
    "disputes": {
        "Open": frozenset({"Settled", "Resolved", "Legal_Hold"}),
        "Legal_Hold": frozenset({"Settled", "Resolved"}),
        "Settled": frozenset(),
        "Resolved": frozenset(),
    },
    "incident_reports": {"Pending": frozenset({"Closed"}), "Closed": frozenset()},
    "pending_payments": {
        "Pending": frozenset({"Succeeded", "Failed", "Canceled"}),
        "Failed": frozenset({"Succeeded"}),
        "Succeeded": frozenset(),
        "Canceled": frozenset(),
        "Not_Required": frozenset(),
    },
    "escrow_holds": {
        "Held": frozenset({"Released", "Refunded", "Frozen", "ChargedBack"}),
        "Frozen": frozenset({"Released", "Refunded", "ChargedBack"}),
        "Released": frozenset({"Held"}),
        "Refunded": frozenset(),
        "ChargedBack": frozenset({"Held"}),
    },
    "chargebacks": {
        "Inquiry": frozenset({"Open", "Won", "Lost"}),
        "Open": frozenset({"Won", "Lost"}),
        "Lost": frozenset({"Won"}),
        "Won": frozenset(),
    },
    "transfers": {
        "Pending": frozenset({"Succeeded", "Failed"}),
        "Failed": frozenset({"Succeeded"}),
        "Succeeded": frozenset({"Reversed"}),
        "Reversed": frozenset(),
    },
    "reversals": {
        "Pending": frozenset({"Succeeded", "Failed"}),
        "Failed": frozenset({"Succeeded"}),
        "Succeeded": frozenset(),
    },
    "refunds": {
        "Pending": frozenset({"Succeeded", "Failed"}),
        "Failed": frozenset({"Succeeded"}),
        "Succeeded": frozenset(),
    },
}


class Refused(ms.ValidationError):
    """A business event that the rules do not allow now; its text says why, its field what it is about."""


class NotAllowed(Refused):
    """A business event that is for others to cause."""


def check(entity: str, before: str, after: str) -> None:
    """Raise unless the one status may follow the other.

    >>> check("bookings", "Active", "Completed")
    >>> check("bookings", "Completed", "Active")
    Traceback (most recent call last):
    mainspring_apps.staffing.states.Refused: status: bookings cannot go from Completed to Active
    """
    if after not in TRANSITIONS[entity].get(before, frozenset()):
        raise Refused(f"status: {entity} cannot go from {before} to {after}", field="status")
