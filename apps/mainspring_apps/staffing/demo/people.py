"""What the people of the demo do all day: they work, verify, pay, insure and list; see `quarrels` for the rest."""

from __future__ import annotations

from datetime import datetime, time, timedelta
from typing import Final

import msgspec

import mainspring as ms
from mainspring_apps.staffing import bookings, insurance, shifts, store
from mainspring_apps.staffing import people as team
from mainspring_apps.staffing.demo.acts import QUEUE, DemoShift, act, later, minutes, of, one_in, people
from mainspring_apps.staffing.demo.quarrels import dispute, report
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import weekly
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.searches import listings
from mainspring_apps.staffing.store import Conn

ZONES_QUERY: Final = "select distinct timezone from staffing.projects order by 1"
_YEAR: Final = timedelta(days=365)
SHORT: Final = "pm_card_chargeDeclinedInsufficientFunds"  # a card of somebody who is short of money
GOOD: Final = "pm_card_visa"
_AGAIN: Final = timedelta(days=27)  # how long a worker is booked who was booked before


class UnbookedWorker(msgspec.Struct, frozen=True, kw_only=True):
    """A worker whom nobody has booked, and whether others find them."""

    id: int
    state: str


@people.task(queue=QUEUE)
def plan_day(desk: Desk, ctx: ms.SyncContext, *, zone: str, instant: datetime) -> None:
    """In the morning people of a zone know what the day brings."""
    with ctx.complete() as conn:
        tomorrow = weeks.midnight(weeks.local_date(instant, zone) + weeks.DAY, zone)
        for shift in store.many(conn, DemoShift, "demo_shifts_of_day", zone=zone, since=instant, until=tomorrow):
            if not one_in(40):  # who does not come
                later(desk, conn, clock_in.job(**of(shift)), shift.scheduled_start_time + minutes(-5, 15))
        for policy in store.column(conn, "demo_policies_to_renew", zone=zone):
            if one_in(3):
                later(desk, conn, renew.job(policy_id=policy), instant + minutes(8 * 60, 18 * 60))
        for worker in store.many(conn, UnbookedWorker, "demo_workers_to_list", zone=zone):
            if one_in(3):
                news = show.job(worker_id=worker.id, listed=worker.state == "Unlisted")
                later(desk, conn, news, instant + minutes(6 * 60, 23 * 60))
        for booking in store.column(conn, "demo_live_bookings", zone=zone):
            if one_in(60):
                incident = report.job(booking_id=booking, option="B" if one_in(5) else "A")
                later(desk, conn, incident, instant + minutes(0, 1400))
            elif one_in(30):
                later(desk, conn, work_longer.job(booking_id=booking), instant + minutes(9 * 60, 15 * 60))
        for id_ in store.column(conn, "demo_workers_to_book", zone=zone):
            if one_in(3):
                later(desk, conn, book_again.job(worker_id=id_), instant + minutes(8 * 60, 18 * 60))
        if one_in(20):
            store.do(conn, "demo_card", zone=zone, card=SHORT)


@people.task(queue=QUEUE)
def read_warnings(desk: Desk, ctx: ms.SyncContext, *, zone: str, instant: datetime) -> None:
    """Half of those whose card was refused find another one before the day ends."""
    with ctx.complete() as conn:
        for booking in store.column(conn, "demo_bookings_to_pay", zone=zone):
            if one_in(2):
                later(desk, conn, pay.job(booking_id=booking), instant + minutes(5, 8 * 60))


@people.task(queue=QUEUE)
def clock_in(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, time_log_id: int) -> None:
    """A worker begins, and leaves when the shift is over, or later."""
    with ctx.complete() as conn:
        shift = store.needed(conn, DemoShift, "demo_shift", time_log_id=time_log_id)
        if act(conn, lambda: shifts.clock_in(desk, conn, time_log_id, by=shift.worker)):
            late = minutes(20, 50) if one_in(6) else minutes(-10, 4)
            if one_in(8):
                later(desk, conn, draft.job(**of(shift)), shift.scheduled_end_time - minutes(10, 120))
            later(desk, conn, submit.job(**of(shift), forced=one_in(10)), shift.scheduled_end_time + late)


@people.task(queue=QUEUE)
def draft(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, time_log_id: int) -> None:
    """A worker begins to fill the timesheet in, and works on."""
    with ctx.complete() as conn:
        shift = store.needed(conn, DemoShift, "demo_shift", time_log_id=time_log_id)
        end = desk.now(conn)
        act(conn, lambda: shifts.save_draft(desk, conn, time_log_id, end=end, by=shift.worker))


@people.task(queue=QUEUE)
def submit(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, time_log_id: int, forced: bool) -> None:
    """A worker submits the timesheet, or the supervisor clocks them out; then somebody looks at it, or nobody."""
    with ctx.complete() as conn:
        shift = store.needed(conn, DemoShift, "demo_shift", time_log_id=time_log_id)
        who = shift.supervisor if forced else shift.worker
        event = shifts.force_clock_out if forced else shifts.submit_timesheet
        if not act(conn, lambda: event(desk, conn, time_log_id, by=who)):
            return
        now = desk.now(conn)
        if one_in(12):
            later(desk, conn, dispute.job(**of(shift), option="B" if one_in(12) else "A"), now + minutes(10, 200))
        elif one_in(12):
            later(desk, conn, edit.job(**of(shift)), now + minutes(185, 235))
        elif not one_in(4):  # else nobody looks, and it approves itself
            later(desk, conn, verify.job(**of(shift)), now + minutes(5, 220))


@people.task(queue=QUEUE)
def verify(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, time_log_id: int) -> None:
    """A supervisor verifies a timesheet."""
    with ctx.complete() as conn:
        shift = store.needed(conn, DemoShift, "demo_shift", time_log_id=time_log_id)
        act(conn, lambda: shifts.verify_timesheet(desk, conn, time_log_id, by=shift.supervisor))
        if not one_in(3):  # and pays what was worked longer; who worked no longer needs nobody's word
            act(conn, lambda: shifts.confirm_extra_time(desk, conn, time_log_id, by=shift.supervisor))


@people.task(queue=QUEUE)
def edit(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, time_log_id: int) -> None:
    """A supervisor corrects a timesheet in the last hour."""
    with ctx.complete() as conn:
        shift = store.needed(conn, DemoShift, "demo_shift", time_log_id=time_log_id)
        end = shift.scheduled_end_time
        act(conn, lambda: shifts.edit_timesheet(desk, conn, time_log_id, end=end, by=shift.supervisor))


@people.task(queue=QUEUE)
def renew(desk: Desk, ctx: ms.SyncContext, *, policy_id: int) -> None:
    """A company renews its insurance for a year."""
    with ctx.complete() as conn:
        until = (desk.now(conn) + _YEAR).date()
        admin = store.value(conn, "demo_admin_of_policy", policy_id=policy_id)
        act(conn, lambda: insurance.renew_insurance(desk, conn, policy_id, expiration_date=until, by=admin))


@people.task(queue=QUEUE)
def pay(desk: Desk, ctx: ms.SyncContext, *, booking_id: int) -> None:
    """A borrower whose card was refused gives another one, and pays by hand."""
    with ctx.complete() as conn:
        store.do(conn, "demo_good_card", booking_id=booking_id, card=GOOD)
        admin = team.people(conn, booking_id, "Borrowing Admin")[0]
        act(conn, lambda: weekly.pay_by_hand(desk, conn, booking_id, by=admin))


@people.task(queue=QUEUE)
def show(desk: Desk, ctx: ms.SyncContext, *, worker_id: int, listed: bool) -> None:
    """A lender lists a worker who is free, or takes them from the list."""
    event = listings.list_worker if listed else listings.unlist_worker
    with ctx.complete() as conn:
        manager = store.value(conn, "demo_manager_of_worker", worker_id=worker_id)
        act(conn, lambda: event(desk, conn, worker_id, by=manager))


@people.task(queue=QUEUE)
def work_longer(desk: Desk, ctx: ms.SyncContext, *, booking_id: int) -> None:
    """Shifts of a booking end an hour later from now on, or as they used to."""
    with ctx.complete() as conn:
        end = store.value(conn, "demo_end", booking_id=booking_id)
        until = time((end.hour + (1 if end.hour in (6, 16) else -1)) % 24, end.minute)
        manager = team.people(conn, booking_id, "Borrowing Manager")[0]
        act(conn, lambda: shifts.change_scheduled_end(desk, conn, booking_id, until, by=manager))


class Booked(msgspec.Struct, frozen=True, kw_only=True):
    """How somebody was booked before."""

    project_id: int
    worker_id: int
    supervisor_id: int | None
    by: int
    start: time
    end: time
    rate_minor: int
    currency: str


@people.task(queue=QUEUE)
def book_again(desk: Desk, ctx: ms.SyncContext, *, worker_id: int) -> None:
    """A worker who was released, or whose booking is over, is booked anew from tomorrow on."""
    with ctx.complete() as conn:
        old = store.needed(conn, Booked, "demo_booking_before", worker_id=worker_id)
        act(conn, lambda: _book(desk, conn, old))


def _book(desk: Desk, conn: Conn, old: Booked) -> None:
    zone = store.value(conn, "demo_zone", project_id=old.project_id)
    first = weeks.local_date(desk.now(conn), zone) + weeks.DAY
    bookings.confirm_booking(desk, conn, start_date=first, end_date=first + _AGAIN, **msgspec.structs.asdict(old))


people.schedule("demo-day", ms.daily("00:00"), plan_day, zones=ZONES_QUERY)
people.schedule("demo-wednesday", ms.weekly("wed", "15:00"), read_warnings, zones=ZONES_QUERY)
