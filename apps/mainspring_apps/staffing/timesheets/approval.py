"""Auto-approval: a timesheet that nobody verified or disputed in time is verified, and its money leaves escrow.

The release is a job of its own, a moment later, which looks again: a dispute that was filed in the same instant wins
(G-36), and a release that fails leaves the approval as it is.
"""

from __future__ import annotations

from datetime import datetime
from typing import Any

import mainspring as ms
from mainspring_apps.staffing import registry, store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.locking import LockedShift, lock_booking, lock_shift
from mainspring_apps.staffing.payments import accounts, arrears, escrow
from mainspring_apps.staffing.people import SYSTEM, people, worker_name
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import ladder as rules
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.rules.ladder import Sheet
from mainspring_apps.staffing.rules.pay import Hours
from mainspring_apps.staffing.rules.release import release as decide
from mainspring_apps.staffing.store import Conn


@tasks.task(queue=registry.TIMESHEET_AUTO_APPROVAL, subject="time_log_id")
def auto_approve(desk: Desk, ctx: ms.SyncContext, sheet: Sheet) -> None:
    """Verify a timesheet whose time is over, unless somebody has verified or disputed it."""
    with ctx.complete() as conn:
        _, shift = lock_shift(conn, sheet.time_log_id)
        now, deadline = desk.now(conn), shift.auto_approval_time or sheet.auto_approval_time
        if not rules.approves(status=shift.status, disputed=shift.dispute_id is not None, now=now, deadline=deadline):
            return
        verify(desk, conn, shift, by=SYSTEM, action="auto_approve", release_at=now + desk.settings.release_delay)
        about = {"time_log_id": shift.id, "booking_id": shift.booking_id}
        told = people(conn, shift.booking_id, *rules.APPROVED)
        desk.tell(conn, "auto_approved", told, about, occurrence=deadline)


def _overdue(desk: Desk, row: Any) -> ms.NewJob:
    sheet = rules.sheet(row.id, row.booking_id, row.clock_out_time, desk.settings, deadline=row.auto_approval_time)
    return auto_approve.job(sheet).with_key(timers.key(timers.AUTO_APPROVAL_TIMER, row.id))


#: Timesheets whose timer could not be set; one with a timer is left to it, and all run the same handler (STAFF-9.32).
tasks.sweep(
    "approval-sweep",
    every=lambda desk: desk.settings.sweep_every,
    query=store.sql["overdue_approvals"],
    job=_overdue,
    limit=lambda desk: desk.settings.scan_rows,
)


def verify(
    desk: Desk, conn: Conn, shift: LockedShift, *, by: str, action: str, release_at: datetime | None = None
) -> None:
    """Make a pending timesheet `Verified`, by SYSTEM or a user's id, and let its money go, at once or at an instant.

    What was worked is fixed now, and what is held beyond its pay goes back to the borrower (STAFF-20.02).
    """
    hours = shift.hours
    store.do(conn, "verify_shift", time_log_id=shift.id, by=by, paid=hours.paid, extra=hours.extra)
    desk.record(
        conn, action, "time_log", shift.id, booking_id=shift.booking_id,
        before={"status": shift.status}, after={"status": "Verified", "paid_minutes": hours.paid},
    )  # fmt: skip
    escrow.give_back_rest(desk, conn, shift.id)
    ask_about_extra_time(desk, conn, shift, hours)
    job = release(shift.id)
    desk.enqueue(conn, job.at(release_at) if release_at is not None else job)


def ask_about_extra_time(desk: Desk, conn: Conn, shift: LockedShift, hours: Hours) -> None:
    """Tell the borrower's side of time that is paid only if they confirm it, and the lender's side that it waits."""
    if not hours.extra:
        return
    booking = lock_booking(conn, shift.booking_id)
    about = {
        "ID": booking.id,
        "Worker": worker_name(conn, shift.worker_id),
        "Date": weeks.local_date(shift.scheduled_start_time, booking.zone).isoformat(),
        "Minutes": hours.extra,
        "time_log_id": shift.id,
        "booking_id": booking.id,
    }
    now, asked = desk.now(conn), about | {"Link": f"{desk.settings.app_url}/timesheets/{shift.id}/extra-time"}
    desk.tell(conn, "extra_time", people(conn, booking.id, *rules.MAY_CONFIRM), asked, occurrence=now)
    desk.tell(conn, "extra_time_unpaid", people(conn, booking.id, *rules.UNPAID_TOLD), about, occurrence=now)


def release(time_log_id: int) -> ms.NewJob:
    """The job that lets the money of a verified shift go, whoever finds that it can: once, however often it runs."""
    return release_shift.job(time_log_id=time_log_id).with_key(f"release-shift:{time_log_id}")


@tasks.task(queue=registry.LENDER_TRANSFERS, subject="time_log_id")
def release_shift(desk: Desk, ctx: ms.SyncContext, *, time_log_id: int) -> None:
    """Release what is held for a verified shift, or tell operations why nothing can be."""
    with ctx.complete() as conn:
        _, shift = lock_shift(conn, time_log_id)
        holds = store.column(conn, "holds_of_shift", time_log_id=time_log_id)
        disputed = shift.dispute_id is not None
        match decide(
            status=shift.status, disputed=disputed, holds=holds, paid_minutes=shift.paid_minutes,
            settled_minor=shift.settled_minor,
        ):  # fmt: skip
            case "release" if accounts.payable(desk, conn, shift.booking_id):
                escrow.release(desk, conn, shift.id)
            case "unfunded":
                text = f"shift {shift.id} of booking {shift.booking_id} is verified, and nobody has paid for it"
                desk.alert(conn, accounts.UNFUNDED, f"time_log {shift.id}", text, booking_id=shift.booking_id)
        if shift.status == "Verified" and not disputed:
            arrears.of_booking(desk, conn, shift.booking_id)  # nobody has paid for it, or not for all of it
