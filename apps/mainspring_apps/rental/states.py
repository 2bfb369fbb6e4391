"""The statuses of bookings, and which may follow which; the database holds everybody to it (verbs/guard.sql)."""

from __future__ import annotations

from typing import Final, Literal

from mainspring_apps.frame.refusal import Transitions

BookingStatus = Literal["PENDING", "CONFIRMED", "CANCELLED", "EXPIRED"]
InvoiceState = Literal["reserved", "issued", "unknown"]
MailState = Literal["reserved", "sent", "skipped", "failed"]

#: What holds its machine.
HOLDING: Final = frozenset({"PENDING", "CONFIRMED"})

TRANSITIONS: Final[Transitions] = {
    "bookings": {
        "PENDING": frozenset({"CONFIRMED", "CANCELLED", "EXPIRED"}),
        "CONFIRMED": frozenset({"CANCELLED"}),  # by an operator alone
        "CANCELLED": frozenset(),
        "EXPIRED": frozenset(),
    },
}
