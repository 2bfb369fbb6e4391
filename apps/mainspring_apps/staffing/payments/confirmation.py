"""A booking that is paid whole beforehand: confirmed once its money has come, or not at all (STAFF-20.27).

The worker is reserved meanwhile. The caller holds the booking's lock; whoever comes second finds it decided.
"""

from __future__ import annotations

from mainspring.contrib.money import Money
from mainspring_apps.staffing import cancellation, store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.rules import charge
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.texts import NOT_CONFIRMED_REASON

_WAITING = {"status": "Pending_Payment"}


def confirm(desk: Desk, conn: Conn, booking_id: int) -> bool:
    """Whether a booking that waited for its money is confirmed by it just now."""
    if not store.do(conn, "confirm_booking", booking_id=booking_id):
        return False
    timers.cancel(desk, conn, booking_id, timers.UPFRONT_TIMER, reason="paid")
    desk.record(conn, "booking_confirmed", "booking", booking_id, before=_WAITING, after={"status": "Active"})
    return True


def refuse(desk: Desk, conn: Conn, booking_id: int, amount: Money, why: str) -> None:
    """Nobody waits for the money any longer: the worker is free, and the borrower is told, once."""
    if not store.do(conn, "refuse_booking", booking_id=booking_id):
        return
    timers.cancel(desk, conn, booking_id, timers.UPFRONT_TIMER, reason="not confirmed")
    desk.record(
        conn, "booking_not_confirmed", "booking", booking_id, reason=why, before=_WAITING, after={"status": "Cancelled"}
    )
    planned = store.column(conn, "planned_shifts", booking_id=booking_id)
    cancellation.cancel_shifts(desk, conn, booking_id, planned, reason=NOT_CONFIRMED_REASON)
    about = {"ID": booking_id, "Amount": str(amount), "booking_id": booking_id}
    desk.tell(conn, "not_confirmed", people(conn, booking_id, charge.FAILURE_TOLD), about, occurrence=desk.now(conn))
