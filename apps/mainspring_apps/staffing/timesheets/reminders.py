"""Clock-out reminders: two timers of a working shift, which follow its planned end (STAFF-8)."""

from __future__ import annotations

from datetime import datetime

import msgspec

import mainspring as ms
from mainspring_apps.staffing import registry, store, timers
from mainspring_apps.staffing.desk import Desk, log
from mainspring_apps.staffing.locking import LockedBooking, LockedShift
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import reminders as rules
from mainspring_apps.staffing.store import Conn


class Reminding(msgspec.Struct, frozen=True, kw_only=True):
    """What both reminders of a shift carry (STAFF-8.05)."""

    time_log_id: int
    booking_id: int
    worker_id: int
    supervisor_id: int | None
    scheduled_end_time: datetime
    reminder_5m_time: datetime
    reminder_30m_time: datetime


@tasks.task(queue=registry.REMINDERS_QUEUE, subject="time_log_id")
def remind_5m(desk: Desk, ctx: ms.SyncContext, shift: Reminding) -> None:
    """Ask whether somebody still works."""
    _remind(desk, ctx, rules.A, shift, at=shift.reminder_5m_time)


@tasks.task(queue=registry.REMINDERS_QUEUE, subject="time_log_id")
def remind_30m(desk: Desk, ctx: ms.SyncContext, shift: Reminding) -> None:
    """Tell somebody urgently to clock out."""
    _remind(desk, ctx, rules.B, shift, at=shift.reminder_30m_time)


def follow(
    desk: Desk, conn: Conn, booking: LockedBooking, shift: LockedShift, end: datetime | None, *, now: datetime
) -> None:
    """Make the reminders of a working shift those of its planned end; the shift goes on without them if need be."""
    due = rules.instants(end, now, desk.settings)
    if end is None or due is None:
        log.warning("shift %s has no reminders: its planned end is %s", shift.id, "past" if end else "unknown")
        drop(desk, conn, shift.id, now=now, reason="the planned end is past" if end else "there is no planned end")
        return
    about = Reminding(
        time_log_id=shift.id,
        booking_id=booking.id,
        worker_id=shift.worker_id,
        supervisor_id=booking.supervisor_id,
        scheduled_end_time=end,
        reminder_5m_time=due[0],
        reminder_30m_time=due[1],
    )
    jobs = (remind_5m.job(about).at(due[0]), remind_30m.job(about).at(due[1]))
    five, thirty = (
        timers.try_start(desk, conn, timer, shift.id, job)
        for timer, job in zip(timers.REMINDER_TIMERS, jobs, strict=True)
    )
    store.do(conn, "set_reminders", time_log_id=shift.id, five=five and five.id, thirty=thirty and thirty.id)


def drop(desk: Desk, conn: Conn, time_log_id: int, *, now: datetime, reason: str) -> None:
    """Cancel both reminders and say so on the row; if that fails, they look at the row and stay silent (STAFF-8.27)."""
    if timers.cancel(desk, conn, time_log_id, *timers.REMINDER_TIMERS, reason=reason):
        store.do(conn, "unset_reminders", time_log_id=time_log_id, at=now)


def _remind(desk: Desk, ctx: ms.SyncContext, reminder: rules.Reminder, due: Reminding, *, at: datetime) -> None:
    with ctx.complete() as conn:
        shift = store.needed(conn, LockedShift, "shift", time_log_id=due.time_log_id)
        if rules.asks(status=shift.status, planned=shift.scheduled_end_time, reminded_of=due.scheduled_end_time):
            ids = {"time_log_id": shift.id, "booking_id": shift.booking_id}
            about = {**ids, "scheduled_end_time": due.scheduled_end_time.isoformat()}
            desk.tell(conn, reminder.kind, people(conn, shift.booking_id, *reminder.to), about, occurrence=at)
