"""The keys of timers: each belongs to a business row, and is set and cancelled in the transaction that changes it."""

from __future__ import annotations

from typing import Final
from uuid import UUID

import mainspring as ms
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.store import Conn

REMINDER_TIMERS: Final = ("reminder-5m", "reminder-30m")
LADDER_TIMERS: Final = ("ladder-0", "ladder-60m", "ladder-3h")
AUTO_APPROVAL_TIMER: Final = "auto-approve"
OF_SHIFT: Final = (*REMINDER_TIMERS, *LADDER_TIMERS, AUTO_APPROVAL_TIMER)
DISPUTE_TIMEOUT_TIMER: Final = "dispute-timeout"
RECONCILIATION_TIMER: Final = "reconcile_payment"  # the key of its task, so that a sweep leaves alone what has a timer


def key(timer: str, row_id: int) -> str:
    """The key of a row's timer.

    >>> key("auto-approve", 9)
    'auto-approve:9'
    """
    return f"{timer}:{row_id}"


def set_or_log(desk: Desk, conn: Conn, row_id: int, timer: str, job: ms.NewJob) -> UUID | None:
    """Set or move a row's timer, but never stand in the way; answers its job, or None where a sweep must find the row.

    ::

        timers.set_or_log(conn, 9, timers.AUTO_APPROVAL, auto_approve.job(sheet).at(sheet.auto_approval_time))
    """
    try:
        with conn.transaction():
            return desk.client.timers.set(job.with_key(key(timer, row_id)), conn=conn).id
    except Exception as error:
        log.error("timer %s was not set: %s", key(timer, row_id), type(error).__name__, exc_info=error)
        return None


def cancel(desk: Desk, conn: Conn, row_id: int, *timers: str, reason: str) -> int:
    """Cancel these timers of a row; one that has run, or was never set, is no matter. Answers how many there were."""
    found = 0
    for timer in timers:
        found += desk.client.timers.cancel(key(timer, row_id), reason=reason, conn=conn) == "cancelled"
    return found


def cancel_or_warn(desk: Desk, conn: Conn, row_id: int, *timers: str, reason: str) -> bool:
    """Cancel, but never stand in the way: what fails is rolled back to a savepoint and logged (STAFF-8.27).

    The timers then run, look at their row, and do nothing.
    """
    try:
        with conn.transaction():
            cancel(desk, conn, row_id, *timers, reason=reason)
    except Exception as error:
        log.warning("timers of %s were not cancelled: %s", row_id, type(error).__name__, exc_info=error)
        return False
    return True
