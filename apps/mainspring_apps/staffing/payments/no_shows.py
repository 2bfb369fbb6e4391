"""No-shows: a shift that nobody began is given up a while after its end, and what is held for it goes back.

Its timer is set when its money comes, and follows its planned end; the sweep finds what has none, and shifts that
nobody has paid for.
"""

from __future__ import annotations

import mainspring as ms
from mainspring_apps.staffing import cancellation, store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.locking import LockedShift, lock_shift
from mainspring_apps.staffing.payments import escrow
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import NO_SHOWS, tasks
from mainspring_apps.staffing.rules import no_shows as rules
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.store import Conn


# What runs is not cancelled: it cancels the timers of the shift, and is one of them.
@tasks.task(queue=NO_SHOWS, cancellable=False, subject="time_log_id")
def refund_no_show(desk: Desk, ctx: ms.SyncContext, *, time_log_id: int) -> None:
    """Cancel a shift that nobody began and nobody said was worked; both sides hear that its money goes back."""
    with ctx.complete() as conn:
        booking, shift = lock_shift(conn, time_log_id)
        now, at = desk.now(conn), rules.given_up_at(shift.planned_end, desk.settings.no_show_after)
        if shift.status != "Scheduled":
            return
        if now < at:  # its end has moved
            watch_over(desk, conn, booking.id)
            return
        holds = store.column(conn, "holds_of_shift", time_log_id=shift.id)
        cancellation.cancel_shifts(desk, conn, booking.id, [shift.id], reason=rules.reason(holds))
        _, back = escrow.split(desk, conn, shift.id, now)
        escrow.tell_unearned(desk, conn, shift.id)
        if back:
            day = weeks.local_date(shift.scheduled_start_time, booking.zone)
            about = {"ID": booking.id, "Date": day.isoformat(), "booking_id": booking.id, "time_log_id": shift.id}
            desk.tell(conn, "no_show", people(conn, booking.id, *rules.NO_SHOW_TOLD), about, occurrence=at)


def watch_over(desk: Desk, conn: Conn, booking_id: int) -> None:
    """Set, or move, the timers of those shifts of a booking that money is held for and nobody has begun."""
    shifts = store.many(conn, LockedShift, "unbegun_shifts", booking_id=booking_id)
    after = desk.settings.no_show_after
    desk.enqueue(conn, *(_given_up(shift.id).at(rules.given_up_at(shift.planned_end, after)) for shift in shifts))


def _given_up(time_log_id: int) -> ms.NewJob:
    key = timers.key(timers.NO_SHOW_TIMER, time_log_id)
    return refund_no_show.job(time_log_id=time_log_id).with_key(key, "replace")


tasks.sweep(
    "no-shows",
    every=lambda desk: desk.settings.sweep_every,
    query=store.sql["no_shows"],
    params=lambda desk: {"patience": desk.settings.no_show_after},
    job=lambda _, row: _given_up(row.id),
    limit=lambda desk: desk.settings.scan_rows,
)
