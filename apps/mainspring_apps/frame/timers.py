"""The keys of timers: each belongs to a business row, and is set and cancelled in the transaction that changes it."""

from __future__ import annotations

import mainspring as ms
from mainspring_apps.frame.desk import BaseDesk
from mainspring_apps.frame.store import Conn


def key(timer: str, row_id: int | str) -> str:
    """The key of a row's timer.

    >>> key("auto-approve", 9)
    'auto-approve:9'
    """
    return f"{timer}:{row_id}"


def start(desk: BaseDesk, conn: Conn, timer: str, row_id: int | str, job: ms.NewJob) -> None:
    """Set a row's timer, or set it anew."""
    desk.client.timers.set(desk.fitted(job).with_key(key(timer, row_id)), conn=conn)


def try_start(desk: BaseDesk, conn: Conn, timer: str, row_id: int, job: ms.NewJob) -> ms.Enqueued | None:
    """The same, but never in the way of what it is set for: None where that failed."""
    return desk.client.timers.try_set(desk.fitted(job).with_key(key(timer, row_id)), conn=conn)


def cancel(desk: BaseDesk, conn: Conn, row_id: int, *timers: str, reason: str) -> bool:
    """Cancel these timers of a row, but never stand in the way: False where that failed.

    One that has run, or was never set, is no matter. What was not cancelled runs, looks at its row, and does nothing.
    """
    keys = [key(timer, row_id) for timer in timers]
    return desk.client.timers.try_cancel_many(keys, reason=reason, conn=conn) is not None
