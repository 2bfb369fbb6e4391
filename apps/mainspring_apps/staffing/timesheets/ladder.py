"""The notification ladder: who should verify a timesheet is told at once, after an hour, and an hour before the end."""

from __future__ import annotations

from datetime import datetime

import mainspring as ms
from mainspring_apps.staffing import registry, store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.locking import LockedShift
from mainspring_apps.staffing.people import people, worker_name
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import ladder as rules
from mainspring_apps.staffing.rules.ladder import Sheet
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.timesheets.approval import auto_approve

_AT_0, _AT_60M, _AT_3H = timers.LADDER_TIMERS


@tasks.task(queue=registry.TIMESHEET_NOTIFICATIONS, subject="time_log_id")
def ladder_0(desk: Desk, ctx: ms.SyncContext, sheet: Sheet) -> None:
    """Ask the supervisor to verify, with a link."""
    _step(desk, ctx, rules.T0, sheet, sheet.notification_0_time, rest=(_AT_60M, _AT_3H, timers.AUTO_APPROVAL_TIMER))


@tasks.task(queue=registry.TIMESHEET_NOTIFICATIONS, subject="time_log_id")
def ladder_60m(desk: Desk, ctx: ms.SyncContext, sheet: Sheet) -> None:
    """Ask again, and the borrower's admin too."""
    _step(desk, ctx, rules.T60, sheet, sheet.notification_60m_time, rest=(_AT_3H, timers.AUTO_APPROVAL_TIMER))


@tasks.task(queue=registry.TIMESHEET_NOTIFICATIONS, subject="time_log_id")
def ladder_3h(desk: Desk, ctx: ms.SyncContext, sheet: Sheet) -> None:
    """Say that the timesheet approves itself in an hour."""
    _step(desk, ctx, rules.T3H, sheet, sheet.notification_3h_time, rest=(timers.AUTO_APPROVAL_TIMER,))


def begin(desk: Desk, conn: Conn, sheet: Sheet) -> None:
    """Set the four timers of a submitted timesheet; what cannot be set stops nobody (STAFF-9.32)."""
    for timer, job in (
        (_AT_0, ladder_0.job(sheet).at(sheet.notification_0_time)),
        (_AT_60M, ladder_60m.job(sheet).at(sheet.notification_60m_time)),
        (_AT_3H, ladder_3h.job(sheet).at(sheet.notification_3h_time)),
    ):
        timers.try_start(desk, conn, timer, sheet.time_log_id, job)
    extend(desk, conn, sheet)


def extend(desk: Desk, conn: Conn, sheet: Sheet) -> None:
    """Let the timesheet approve itself at its deadline, which may have moved."""
    job = auto_approve.job(sheet).at(sheet.auto_approval_time)
    timers.try_start(desk, conn, timers.AUTO_APPROVAL_TIMER, sheet.time_log_id, job)


def end(desk: Desk, conn: Conn, time_log_id: int, *, reason: str) -> None:
    """Cancel what is left of the four timers; if that fails, they look at the row and do nothing."""
    timers.cancel(desk, conn, time_log_id, *timers.LADDER_TIMERS, timers.AUTO_APPROVAL_TIMER, reason=reason)


def _step(
    desk: Desk, ctx: ms.SyncContext, step: rules.LadderStep, sheet: Sheet, at: datetime, *, rest: tuple[str, ...]
) -> None:
    with ctx.complete() as conn:
        shift = store.needed(conn, LockedShift, "shift", time_log_id=sheet.time_log_id)
        if not rules.pending(status=shift.status, disputed=shift.dispute_id is not None):
            timers.cancel(desk, conn, shift.id, *rest, reason=f"the timesheet is {shift.status}")
            return
        deadline = shift.auto_approval_time or sheet.auto_approval_time
        if rules.tells(now=desk.now(conn), deadline=deadline):
            about = {
                "Worker": worker_name(conn, shift.worker_id),
                "Link": f"{desk.settings.app_url}/timesheets/{shift.id}/verify",
                "time_log_id": shift.id,
                "booking_id": shift.booking_id,
            }
            desk.tell(conn, step.kind, people(conn, shift.booking_id, *step.to), about, occurrence=at)
