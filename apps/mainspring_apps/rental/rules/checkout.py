"""What becomes of a paid checkout: the booking is confirmed, or the money is to be settled."""

from __future__ import annotations

from typing import Final, Literal

import msgspec

from mainspring.contrib.money import Money
from mainspring.contrib.stripe import CheckoutSession

#: Money that confirms nothing, as a row to settle names it (RENT-20.11).
Unsettled = Literal["PAYMENT_MISMATCH", "UNKNOWN_BOOKING", "SECOND_PAYMENT", "LATE_PAYMENT"]
Verdict = Literal["unpaid", "confirm", "repeat"] | Unsettled
WHY: Final[dict[Unsettled, str]] = {
    "PAYMENT_MISMATCH": "what was paid is not the total of the booking",
    "UNKNOWN_BOOKING": "somebody paid for a booking that we do not know",
    "SECOND_PAYMENT": "a confirmed booking was paid for once more",
    "LATE_PAYMENT": "a booking was paid for that has expired or was cancelled",
}


class Priced(msgspec.Struct, frozen=True, kw_only=True):
    """What of a booking decides."""

    status: str
    total_minor: int
    currency: str
    stripe_payment_intent_id: str | None


def verdict(booking: Priced | None, session: CheckoutSession) -> Verdict:
    """What to do: only the whole total, paid in its currency, for a booking that waits for it, confirms.

    A page that is complete and not paid waits for a voucher (RENT-2.09).
    """
    if not session.paid or session.intent is None:
        return "unpaid"
    if booking is None:
        return "UNKNOWN_BOOKING"
    if booking.stripe_payment_intent_id == session.intent:
        return "repeat"
    if booking.status == "CONFIRMED":
        return "SECOND_PAYMENT"
    if booking.status != "PENDING":
        return "LATE_PAYMENT"
    if session.amount != Money(booking.total_minor, booking.currency):
        return "PAYMENT_MISMATCH"
    return "confirm"


def booking_of(session: CheckoutSession) -> int | None:
    """The number of the booking that a page was for; None: none of ours."""
    said = session.reference
    return int(said) if said is not None and said.isascii() and said.isdecimal() and len(said) < 19 else None
