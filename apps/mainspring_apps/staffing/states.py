"""The statuses of business rows, and which may follow which; the database holds everybody to it (verbs/guard.sql)."""

from __future__ import annotations

from typing import Final, Literal

from mainspring_apps.frame.refusal import NotAllowed, Refused, Transitions, check_transition

__all__ = [
    "CLOSED_DISPUTES",
    "TRANSITIONS",
    "WORKABLE",
    "BookingStatus",
    "MovementStatus",
    "NotAllowed",
    "Refused",
    "check",
]

BookingStatus = Literal[
    "Pending_Payment", "Active", "Payment_Paused_Dispute", "Suspended_Insurance", "Cancelled", "Completed", "Disputed",
]  # fmt: skip
MovementStatus = Literal["Pending", "Succeeded", "Failed", "Reversed"]

#: Where a worker may clock in, besides funded shifts of a released booking (G-07, G-16).
WORKABLE: Final = frozenset({"Active", "Payment_Paused_Dispute"})
#: A dispute in one of these stops no payment any more (G-46).
CLOSED_DISPUTES: Final = frozenset({"Settled", "Resolved", "Legal_Hold"})

TRANSITIONS: Final[Transitions] = {
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
        "Failed": frozenset({"Succeeded", "Pending"}),  # asked for once more
        "Succeeded": frozenset(),
    },
    "refunds": {
        "Pending": frozenset({"Succeeded", "Failed"}),
        "Failed": frozenset({"Succeeded", "Pending"}),  # another try is under way
        "Succeeded": frozenset({"Failed"}),  # the bank has sent it back
    },
}


def check(entity: str, before: str, after: str) -> None:
    """Raise unless the one status may follow the other."""
    check_transition(TRANSITIONS, entity, before, after)
