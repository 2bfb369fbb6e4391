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
    keys = {timers.key(timer, shift): shift for shift in cancelled for timer in timers.OF_SHIFT}
    for shift in {keys[key] for key in store.column(conn, "keys_under_way", keys=list(keys))}:
        timers.cancel_or_warn(desk, conn, shift, *timers.OF_SHIFT, reason=reason)
    for shift in cancelled:
        desk.record(
            conn, "cancel_shift", "time_log", shift, booking_id=booking_id, reason=reason, dispute_id=dispute_id,
            before={"status": "Scheduled"}, after={"status": "Cancelled"},
        )  # fmt: skip
    return cancelled
