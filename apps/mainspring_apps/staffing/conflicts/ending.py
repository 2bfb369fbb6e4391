"""Cancelling what is to come of a booking, with its money: by a dispute's timeout, or by option B at once."""

from __future__ import annotations

from datetime import datetime

from mainspring_apps.staffing import cancellation, store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.locking import LockedBooking
from mainspring_apps.staffing.payments import arrears, escrow
from mainspring_apps.staffing.people import EVERYBODY, people
from mainspring_apps.staffing.store import Conn


def cancel_future(
    desk: Desk, conn: Conn, booking: LockedBooking, now: datetime, *, reason: str, dispute_id: int | None = None,
    incident_id: int | None = None,
) -> list[int]:  # fmt: skip
    """Cancel the shifts that start after now; penalties are frozen, the rest is refunded. Answers which."""
    ahead = store.column(conn, "future_shifts", booking_id=booking.id, now=now)
    cancelled = cancellation.cancel_shifts(desk, conn, booking.id, ahead, reason=reason, dispute_id=dispute_id)
    for shift in cancelled:
        escrow.split(desk, conn, shift, now, dispute_id, incident_id=incident_id)
    return cancelled


def end_booking(
    desk: Desk, conn: Conn, booking: LockedBooking, now: datetime, *, reason: str, dispute_id: int | None = None,
    incident_id: int | None = None,
) -> None:  # fmt: skip
    """End a booking at once: it is `Cancelled`, the worker is free, nothing is to come (STAFF-10.08)."""
    if store.do(conn, "end_booking", booking_id=booking.id):
        desk.record(
            conn, "cancel_booking", "booking", booking.id, reason=reason, dispute_id=dispute_id, before=booking.status,
            after="Cancelled",
        )  # fmt: skip
        about = {"ID": booking.id, "booking_id": booking.id}
        desk.tell(conn, "booking_cancelled", people(conn, booking.id, *EVERYBODY), about, occurrence=now)
    cancel_future(desk, conn, booking, now, reason=reason, dispute_id=dispute_id, incident_id=incident_id)
    arrears.of_booking(desk, conn, booking.id)
