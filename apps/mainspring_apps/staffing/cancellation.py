"""Shifts that do not take place: they are cancelled with their timers."""

from __future__ import annotations

from collections.abc import Sequence

from mainspring_apps.staffing import store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.store import Conn


def cancel_shifts(
    desk: Desk, conn: Conn, booking_id: int, shifts: Sequence[int], *, reason: str, dispute_id: int | None = None
) -> list[int]:
    """Cancel these shifts where they are still `Scheduled`, with their timers and a row of audit each; answers which.

    Their money is the caller's matter: see `payments.escrow.split`.
    """
    cancelled = sorted(store.column(conn, "cancel_shifts", booking_id=booking_id, ids=list(shifts), reason=reason))
    keys = [timers.key(timer, shift) for shift in cancelled for timer in timers.OF_SHIFT]
    desk.client.timers.try_cancel_many(keys, reason=reason, conn=conn)
    for shift in cancelled:
        desk.record(
            conn, "cancel_shift", "time_log", shift, booking_id=booking_id, reason=reason, dispute_id=dispute_id,
            before={"status": "Scheduled"}, after={"status": "Cancelled"},
        )  # fmt: skip
    return cancelled
