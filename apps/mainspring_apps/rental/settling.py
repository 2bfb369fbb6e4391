"""Money that confirms nothing: an admin says what becomes of it (RENT-20.11, 20.12)."""

from __future__ import annotations

from datetime import datetime

import msgspec

from mainspring_apps.frame.refusal import Refused
from mainspring_apps.rental import checkout, store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.events import event
from mainspring_apps.rental.people import By
from mainspring_apps.rental.store import Conn


class ToSettle(msgspec.Struct, frozen=True, kw_only=True):
    """A row of `to_settle`."""

    id: int
    payment_intent: str
    booking_id: int | None
    reason: str
    amount_minor: int
    currency: str
    created_at: datetime
    settled_at: datetime | None


@event
def settle(desk: Desk, conn: Conn, to_settle_id: int, *, reason: str, by: By) -> None:
    """Somebody has dealt with money elsewhere, such as given it back by hand: it is not listed any more."""
    row = _open(conn, to_settle_id)
    _end(desk, conn, row)
    desk.record(conn, "settled", "to_settle", row.id, booking_id=row.booking_id, reason=reason)


@event
def accept_payment(desk: Desk, conn: Conn, to_settle_id: int, *, reason: str, by: By) -> None:
    """Take what was paid for the total of a booking that waits: it is confirmed, and invoiced over that amount."""
    row = _open(conn, to_settle_id)
    if row.reason != "PAYMENT_MISMATCH" or row.booking_id is None or row.currency != desk.settings.currency:
        raise Refused("to_settle_id: this money can only be given back", field="to_settle_id")
    facts = desk.bookings.facts(conn, row.booking_id, lock=True)
    if facts is None or facts.status != "PENDING":
        raise Refused("to_settle_id: its booking does not wait for a payment any more", field="to_settle_id")
    desk.bookings.price(conn, facts.id, row.amount_minor)
    checkout.confirm(desk, conn, facts.id, row.payment_intent, row.created_at)
    _end(desk, conn, row)
    desk.record(
        conn, "payment_accepted", "booking", facts.id, booking_id=facts.id, reason=reason,
        before={"total_minor": facts.total_minor}, after={"total_minor": row.amount_minor},
    )  # fmt: skip


def _open(conn: Conn, to_settle_id: int) -> ToSettle:
    row = store.needed(conn, ToSettle, "lock_to_settle", to_settle_id=to_settle_id)
    if row.settled_at is not None:
        raise Refused("to_settle_id: is settled", field="to_settle_id")
    return row


def _end(desk: Desk, conn: Conn, row: ToSettle) -> None:
    store.do(conn, "settled", to_settle_id=row.id)
    desk.calm(conn, row.reason.lower(), row.payment_intent)
