"""Withdrawal: a borrower, or the platform, calls off a shift or a booking.

What has begun goes on and is paid. What a borrower calls off too late costs them the penalty, which the lender gets at
once, as nobody is there to dispute it; the rest goes back.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from mainspring_apps.staffing import cancellation, insurance, store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.locking import LockedBooking, lock_booking, lock_shift
from mainspring_apps.staffing.payments import arrears, escrow
from mainspring_apps.staffing.people import EVERYBODY, By, parts_of, people
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.rules import withdrawal as rules
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn


@event
def cancel_shift(desk: Desk, conn: Conn, time_log_id: int, *, by: By) -> None:
    """Cancel a shift that has not begun; short notice costs the borrower a penalty."""
    booking, shift = lock_shift(conn, time_log_id)
    now = desk.now(conn)
    why = rules.refusal(status=shift.status, planned_end=shift.planned_end, now=now)
    if why is not None:
        raise Refused(why, field=why.partition(":")[0])
    _call_off(desk, conn, booking, [shift.id], now, by)
    day = weeks.local_date(shift.scheduled_start_time, booking.zone)
    about = {"ID": booking.id, "Date": day.isoformat(), "booking_id": booking.id, "time_log_id": shift.id}
    desk.tell(conn, "shift_cancelled", people(conn, booking.id, *EVERYBODY), about, occurrence=now)


@event
def cancel_booking(desk: Desk, conn: Conn, booking_id: int, *, by: By) -> None:
    """Cancel a booking at once, with its shifts that have not begun; short notice costs a penalty."""
    booking = lock_booking(conn, booking_id)
    now = desk.now(conn)
    if not store.do(conn, "end_booking", booking_id=booking.id):
        raise Refused(f"status: the booking is {booking.status}", field="status")
    ahead = store.column(conn, "shifts_ahead", booking_id=booking.id, now=now)
    reason = _call_off(desk, conn, booking, ahead, now, by)
    desk.record(
        conn, "cancel_booking", "booking", booking.id, reason=reason,
        before={"status": booking.status}, after={"status": "Cancelled"},
    )  # fmt: skip
    arrears.of_booking(desk, conn, booking.id)  # no week of it will be charged
    about = {"ID": booking.id, "booking_id": booking.id}
    desk.tell(conn, "booking_cancelled", people(conn, booking.id, *EVERYBODY), about, occurrence=now)


def _call_off(desk: Desk, conn: Conn, booking: LockedBooking, shifts: Sequence[int], now: datetime, by: By) -> str:
    """Cancel shifts with their timers, and answer why.

    Money that is still on its way is divided alike when it comes: `escrow.fund`.
    """
    covered = insurance.lender_covered(desk, conn, booking)
    reason = rules.reason(parts_of(conn, by, "booking_id", booking.id), covered=covered)
    for shift in cancellation.cancel_shifts(desk, conn, booking.id, shifts, reason=reason):
        escrow.split(desk, conn, shift, now, penalised=rules.penalised(reason))
    return reason
