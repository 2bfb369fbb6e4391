"""Payment after a dispute or incident is over: at once, on any day (STAFF-11)."""

from __future__ import annotations

from datetime import datetime

import mainspring as ms
from mainspring_apps.staffing import store, unresolved
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import reserve, send
from mainspring_apps.staffing.registry import PAYMENT_RETRY, few_tries, tasks
from mainspring_apps.staffing.rules import charge, weeks
from mainspring_apps.staffing.store import Conn


def after_resolution(desk: Desk, conn: Conn, booking_id: int, *, resolved_at: datetime) -> bool:
    """Enqueue the payment retry of a booking if no option A dispute and no option A incident is open any more.

    Several at the same time are one job: whoever holds the booking's lock last finds nothing open (STAFF-11.09).
    """
    booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
    if unresolved.of_booking(conn, booking_id).option_a:
        return False
    store.do(conn, "resolved_since_renewal", booking_id=booking_id)
    job = retry_payment.job(booking_id=booking_id, dispute_resolved_at=resolved_at, previous_status=booking.status)
    desk.enqueue(conn, job)
    return True


# A job that runs has looked already: a resolution after that look gets a job of its own, which waits behind it.
@tasks.task(
    queue=PAYMENT_RETRY,
    retry=few_tries,
    snooze_limit=None,
    dedupe=ms.dedupe.replacing("{booking_id}"),
)
def retry_payment(
    desk: Desk, ctx: ms.SyncContext, *, booking_id: int, dispute_resolved_at: datetime, previous_status: str
) -> None:
    """Charge the week that the last Wednesday should have funded, now that nothing is open any more."""
    with ctx.transaction() as conn:
        booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
        found = unresolved.of_booking(conn, booking_id)
        act = charge.resume(booking.status, booking.payment_type, open_a=found.option_a, open_b=found.option_b)
        if act == "leave":
            return
        if store.do(conn, "unpause_booking", booking_id=booking_id):  # whatever becomes of the payment (G-50)
            before, after = {"status": booking.status}, {"status": "Active"}
            reason = "no option A dispute or incident is open"
            desk.record(conn, "payment_resumed", "booking", booking_id, reason=reason, before=before, after=after)
        period = weeks.due_week(desk.now(conn), booking.zone, desk.settings)
        payment = (
            reserve.reserve(desk, conn, booking, period, "retry", reserve.job_of(ctx)) if act == "charge" else None
        )
    if payment is not None:
        send.send(desk, ctx, payment)
