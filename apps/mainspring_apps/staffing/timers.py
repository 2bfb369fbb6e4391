"""The keys of timers: each belongs to a business row, and is set and cancelled in the transaction that changes it."""

from __future__ import annotations

from typing import Final

import mainspring as ms
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.store import Conn

REMINDER_TIMERS: Final = ("reminder-5m", "reminder-30m")
LADDER_TIMERS: Final = ("ladder-0", "ladder-60m", "ladder-3h")
AUTO_APPROVAL_TIMER: Final = "auto-approve"
NO_SHOW_TIMER: Final = "no-show"
OF_SHIFT: Final = (*REMINDER_TIMERS, *LADDER_TIMERS, AUTO_APPROVAL_TIMER, NO_SHOW_TIMER)
DISPUTE_TIMEOUT_TIMER: Final = "dispute-timeout"
UPFRONT_TIMER: Final = "upfront"
RECONCILIATION_TIMER: Final = "reconcile_payment"  # the key of its task, so that a sweep leaves alone what has a timer


def key(timer: str, row_id: int | str) -> str:
    """The key of a row's timer.

    >>> key("auto-approve", 9)
    'auto-approve:9'
    """
    return f"{timer}:{row_id}"


def start(desk: Desk, conn: Conn, timer: str, row_id: int | str, job: ms.NewJob) -> None:
    """Set a row's timer, or set it anew."""
    desk.client.timers.set(desk.fitted(job).with_key(key(timer, row_id)), conn=conn)


def try_start(desk: Desk, conn: Conn, timer: str, row_id: int, job: ms.NewJob) -> ms.Enqueued | None:
    """The same, but never in the way of what it is set for: None where that failed (STAFF-9.32)."""
    return desk.client.timers.try_set(desk.fitted(job).with_key(key(timer, row_id)), conn=conn)


def cancel(desk: Desk, conn: Conn, row_id: int, *timers: str, reason: str) -> bool:
    """Cancel these timers of a row, but never stand in the way: False where that failed (STAFF-8.27).

    One that has run, or was never set, is no matter. What was not cancelled runs, looks at its row, and does nothing.
    """
    keys = [key(timer, row_id) for timer in timers]
    return desk.client.timers.try_cancel_many(keys, reason=reason, conn=conn) is not None
