"""The hard cutoff: at its time, where the project is, a worker whose next week is unpaid is released.

Each booking is decided alone, under its lock. While the provider may still say that the money came it is asked again,
a few times. A booking that we never tried to charge is charged instead, and has until that time on the next day. Where
the provider was away, the cutoff is put off until some hours after it is back.
"""

from __future__ import annotations

from datetime import datetime, timedelta

import msgspec

import mainspring as ms
from mainspring_apps.staffing import cancellation, store, timers
from mainspring_apps.staffing.desk import Desk, booking_subject, log
from mainspring_apps.staffing.payments import escrow, reconcile, standing, weekly
from mainspring_apps.staffing.payments.standing import Week
from mainspring_apps.staffing.payments.warning import warn_unpaid
from mainspring_apps.staffing.people import people
from mainspring_apps.staffing.registry import HARD_CUTOFF, tasks
from mainspring_apps.staffing.rules import cutoff as rules
from mainspring_apps.staffing.rules import gate, weeks
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.texts import RELEASE_REASON

#: The alert that a week was never charged, through our own fault.
CHARGE_MISSED = "charge_missed"


@tasks.task(queue=HARD_CUTOFF, subject="booking_id")
def cut_off(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, instant: datetime) -> None:
    """Release the worker of a booking that was not paid for by an instant."""
    with ctx.complete() as conn:
        _act(desk, conn, booking_id, instant, asked=0)


@tasks.task(queue=HARD_CUTOFF, snooze_limit=None, subject="booking_id")
def ask_again(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, instant: datetime, asked: int) -> None:
    """Ask the provider about a payment that was under way at the cutoff; after the last time, give it up.

    While the provider is away this waits, and nothing is decided.
    """
    with ctx.transaction() as conn:
        week = standing.look(desk, conn, booking_id, instant, before=instant)
    if week.payment_id is not None and week.standing.payment == "Pending":
        status = reconcile.ask(desk, ctx, week.payment_id)
        if status == "Pending" and asked >= desk.settings.ask_times:
            reconcile.give_up(desk, ctx, week.payment_id)
    with ctx.complete() as conn:
        _act(desk, conn, booking_id, instant, asked=asked + 1)


@tasks.task(queue=HARD_CUTOFF, subject="booking_id")
def cancel_released(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, instant: datetime) -> None:
    """Cancel the shifts of a released booking that could not be cancelled with it (G-18)."""
    with ctx.complete() as conn:
        _cancel_shifts(desk, conn, standing.look(desk, conn, booking_id, instant))


tasks.schedule(
    "weekly-hard-cutoff",
    lambda desk: ms.weekly(desk.settings.cutoff_day, desk.settings.cutoff_at),
    cut_off,
    zones=store.sql["project_zones"],
    entities=store.sql["unpaid_bookings"],
    page=lambda desk: desk.settings.enqueueing_page,
    within=lambda desk: desk.settings.cutoff_within,
)


def _act(desk: Desk, conn: Conn, booking_id: int, instant: datetime, *, asked: int) -> None:
    """Do what the rules say about the week that is due at a cutoff; the provider was `asked` so often."""
    week, s = standing.look(desk, conn, booking_id, instant, before=instant), desk.settings
    match rules.decide(week.standing, week.due, instant, grace=s.answer_grace, asked=asked, ask_times=s.ask_times):
        case "skip":
            if not rules.unpaid(week.standing, week.due):
                desk.calm(conn, CHARGE_MISSED, booking_subject(booking_id))
        case "ask again":
            at = desk.now(conn) + (desk.settings.ask_again if asked else timedelta(0))
            again = ask_again.job(booking_id=booking_id, instant=instant, asked=asked).at(at)
            timers.start(desk, conn, "cutoff-ask", booking_id, again)
        case "give up":  # the provider neither gives the money nor lets go of it
            raise ms.RetryAfter(desk.settings.ask_again.total_seconds())
        case "late charge":
            _charge_late(desk, conn, week)
        case "put off":
            _move(desk, conn, week, rules.put_off(week.standing, desk.now(conn), s.answer_grace))
        case "release":
            _release(desk, conn, week, instant)


def _charge_late(desk: Desk, conn: Conn, week: Week) -> None:
    """Charge what we forgot to charge, and give the borrower a day; the moved cutoff then looks for itself."""
    booking_id = week.booking_id
    if rules.missed(week.confirmed_at, week.due, week.zone, desk.settings):
        text = "the due week was never charged: it is charged now, and nobody is released there for a day"
        desk.alert(conn, CHARGE_MISSED, booking_subject(booking_id), text, critical=True, booking_id=booking_id)
    weekly.enqueue_due(desk, conn, booking_id, source="late")
    _move(desk, conn, week, rules.moved_cutoff(desk.now(conn), week.zone, desk.settings))


def _move(desk: Desk, conn: Conn, week: Week, cutoff: datetime) -> None:
    """Move this week's cutoff of a booking, and with it the final warning."""
    booking_id, warning = week.booking_id, rules.late_warning(desk.now(conn), cutoff, desk.settings)
    store.do(conn, "move_cutoff", booking_id=booking_id, at=cutoff)
    desk.record(conn, "cutoff_moved", "booking", booking_id, after={"cutoff_at": cutoff.isoformat()})
    for timer, job, at in (
        ("late-cutoff", cut_off.job(booking_id=booking_id, instant=cutoff), cutoff),
        ("late-warning", warn_unpaid.job(booking_id=booking_id, instant=warning), warning),
    ):
        timers.start(desk, conn, timer, booking_id, job.at(at))


def _release(desk: Desk, conn: Conn, week: Week, instant: datetime) -> None:
    booking_id, sunday = week.booking_id, rules.last_day(week.due, week.zone, week.end_date)
    if not store.do(conn, "release_booking", booking_id=booking_id, sunday=sunday, due_end=week.due.end):
        return
    after = {"status": "Completed", "end_date": sunday.isoformat()}
    before = {"status": week.standing.status}
    desk.record(conn, "booking_released", "booking", booking_id, reason=RELEASE_REASON, before=before, after=after)
    desk.calm(conn, CHARGE_MISSED, booking_subject(booking_id))
    last = rules.last_day_at_work(_stays(conn, week), sunday, weeks.local_date(instant, week.zone))
    about = {"ID": booking_id, "Sunday date": last.isoformat(), "booking_id": booking_id}
    desk.tell(conn, "worker_released", people(conn, booking_id, *rules.RELEASED), about, occurrence=instant)
    try:
        with conn.transaction():
            _cancel_shifts(desk, conn, week)
    except Exception as error:
        log.error("shifts of booking %s were not cancelled: %s", booking_id, type(error).__name__, exc_info=error)
        desk.enqueue(conn, cancel_released.job(booking_id=booking_id, instant=instant))


def _cancel_shifts(desk: Desk, conn: Conn, week: Week) -> None:
    """Cancel what is planned after the last Sunday.

    Nothing of it is paid, by selection. Where there is money all the same, of an older payment, it goes back as for any
    cancelled shift, and as `escrow.fund` does with money that comes later.
    """
    planned = store.many(conn, _PlannedShift, "planned_shifts", booking_id=week.booking_id)
    ids = [shift.id for shift in planned if not rules.stays(shift.scheduled_start_time, week.due)]
    for shift in cancellation.cancel_shifts(desk, conn, week.booking_id, ids, reason=RELEASE_REASON):
        escrow.split(desk, conn, shift, desk.now(conn))


def _stays(conn: Conn, week: Week) -> list[bool]:
    """Of each shift up to the last Sunday that is still to begin, whether it is paid for, and so can be worked."""
    planned = store.many(conn, _PlannedShift, "planned_shifts", booking_id=week.booking_id)
    stay = [shift.id for shift in planned if rules.stays(shift.scheduled_start_time, week.due)]
    return [not gate.PAID.isdisjoint(store.column(conn, "holds_of_shift", time_log_id=shift)) for shift in stay]


class _PlannedShift(msgspec.Struct, frozen=True, kw_only=True):
    id: int
    scheduled_start_time: datetime
