"""Completion: a booking whose last day is over and whose shifts are settled ends by itself (STAFF-20.09)."""

from __future__ import annotations

import mainspring as ms
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import reserve
from mainspring_apps.staffing.registry import COMPLETION, tasks


@tasks.task(queue=COMPLETION, subject="booking_id")
def complete_booking(desk: Desk, ctx: ms.SyncContext, *, booking_id: int) -> None:
    """Complete a booking that is over, unless work was done that nobody has paid for: then it can still be charged."""
    with ctx.complete() as conn:
        booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
        if reserve.owes(desk, conn, booking):
            return
        if store.do(conn, "complete_booking", booking_id=booking_id):
            before, after = {"status": booking.status}, {"status": "Completed"}
            desk.record(conn, "booking_completed", "booking", booking_id, before=before, after=after)


tasks.sweep(
    "finished-bookings",
    every=lambda desk: desk.settings.sweep_every,
    query=store.sql["finished_bookings"],
    job=lambda _, row: complete_booking.job(booking_id=row.id).with_key(f"complete:{row.id}"),
    limit=lambda desk: desk.settings.scan_rows,
)
