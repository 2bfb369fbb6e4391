"""Completion: a booking whose last day is over and whose shifts are settled ends by itself (STAFF-20.09)."""

from __future__ import annotations

from datetime import timedelta

import mainspring as ms
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import reserve
from mainspring_apps.staffing.registry import COMPLETION, tasks
from mainspring_apps.staffing.settings import RETRY, SCAN_ROWS, TASK_TIMEOUT


@tasks.task(queue=COMPLETION, retry=RETRY, timeout=TASK_TIMEOUT, subject="booking_id")
def complete_booking(desk: Desk, ctx: ms.SyncContext, *, booking_id: int) -> None:
    """Complete a booking that is over, unless work was done that nobody has paid for: then it can still be charged."""
    with ctx.complete() as conn:
        booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
        if reserve.owes(conn, booking):
            return
        if store.do(conn, "complete_booking", booking_id=booking_id):
            before, after = {"status": booking.status}, {"status": "Completed"}
            desk.record(conn, "booking_completed", "booking", booking_id, before=before, after=after)


tasks.sweep(
    "finished-bookings",
    every=timedelta(hours=1),
    query=store.sql["finished_bookings"],
    job=lambda row: complete_booking.job(booking_id=row.id).with_key(f"complete:{row.id}"),
    limit=SCAN_ROWS,
    retry=RETRY,
    timeout=TASK_TIMEOUT,
)
