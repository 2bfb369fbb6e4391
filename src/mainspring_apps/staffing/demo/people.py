"""What the people of the demo do all day: each act is a job, due when somebody would do it."""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Final

import msgspec

import mainspring as ms
from mainspring_apps.staffing import charging, disputes, escrow, insurance, listings, shifts, store
from mainspring_apps.staffing import people as team
from mainspring_apps.staffing.desk import acting, desk, log
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.rules.dispute import Option
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

people = ms.Registry("people")
QUEUE: Final = "people"
ZONES: Final = "select distinct timezone from staffing.projects order by 1"
YEAR: Final = timedelta(days=365)


class Shift(msgspec.Struct, frozen=True, kw_only=True):
    """A shift, and who belongs to it."""

    id: int
    booking_id: int
    scheduled_start_time: datetime
    scheduled_end_time: datetime
    auto_approval_time: datetime | None
    worker: int
    supervisor: int


def minutes(low: float, high: float) -> timedelta:
    """Some time between, as people are."""
    return timedelta(minutes=round(random.uniform(low, high)))  # noqa: S311 (people, no secrets)


def one_in(many: int) -> bool:
    """So rarely."""
    return random.randrange(many) == 0  # noqa: S311 (people, no secrets)


def act(conn: Conn, who: int | None, event: Callable[[], object]) -> bool:
    """Somebody does something; where the rules refuse it, they shrug. What was written by then is not."""
    try:
        with conn.transaction(), acting(who):
            event()
    except Refused as refused:
        log.info("refused: %s", refused)
        return False
    return True


def later(conn: Conn, job: ms.NewJob, at: datetime) -> None:
    """Somebody will do something."""
    desk().enqueue(conn, job.at(max(at, desk().now(conn))))


@people.task(queue=QUEUE)
def plan_day(ctx: ms.SyncContext, *, zone: str, instant: datetime) -> None:
    """In the morning people of a zone know what the day brings: who works, who pays by hand, who renews a policy."""
    with ctx.transaction() as conn:
        tomorrow = weeks.midnight(weeks.local_date(instant, zone) + weeks.DAY, zone)
        for shift in store.many(conn, Shift, "demo_shifts_of_day", zone=zone, since=instant, until=tomorrow):
            if not one_in(40):  # who does not come
                later(conn, clock_in.job(time_log_id=shift.id), shift.scheduled_start_time + minutes(-5, 15))
        for policy in store.column(conn, "demo_policies_to_renew", zone=zone):
            if one_in(2):
                later(conn, renew.job(policy_id=policy), instant + minutes(8 * 60, 18 * 60))
        for booking in store.column(conn, "demo_bookings_to_pay", zone=zone):
            if one_in(2):
                later(conn, pay.job(booking_id=booking), instant + minutes(15 * 60, 20 * 60))
        for worker in store.column(conn, "demo_workers_to_list", zone=zone):
            if one_in(3):
                later(conn, list_worker.job(worker_id=worker), instant + minutes(6 * 60, 23 * 60))


@people.task(queue=QUEUE)
def clock_in(ctx: ms.SyncContext, *, time_log_id: int) -> None:
    """A worker begins, and leaves when the shift is over, or later."""
    with ctx.transaction() as conn:
        shift = store.needed(conn, Shift, "demo_shift", time_log_id=time_log_id)
        if act(conn, shift.worker, lambda: shifts.clock_in(conn, time_log_id, by=shift.worker)):
            late = minutes(20, 50) if one_in(6) else minutes(-10, 4)
            later(conn, submit.job(time_log_id=time_log_id, forced=one_in(10)), shift.scheduled_end_time + late)


@people.task(queue=QUEUE)
def submit(ctx: ms.SyncContext, *, time_log_id: int, forced: bool) -> None:
    """A worker submits the timesheet, or the supervisor clocks them out; then somebody looks at it, or nobody."""
    with ctx.transaction() as conn:
        shift = store.needed(conn, Shift, "demo_shift", time_log_id=time_log_id)
        who = shift.supervisor if forced else shift.worker
        event = shifts.force_clock_out if forced else shifts.submit_timesheet
        if not act(conn, who, lambda: event(conn, time_log_id, by=who)):
            return
        now = desk().now(conn)
        if one_in(12):
            later(conn, dispute.job(time_log_id=time_log_id, option="B" if one_in(12) else "A"), now + minutes(10, 200))
        elif one_in(12):
            later(conn, edit.job(time_log_id=time_log_id), now + minutes(185, 235))
        elif not one_in(4):  # else nobody looks, and it approves itself
            later(conn, verify.job(time_log_id=time_log_id), now + minutes(5, 220))


@people.task(queue=QUEUE)
def verify(ctx: ms.SyncContext, *, time_log_id: int) -> None:
    """A supervisor verifies a timesheet."""
    with ctx.transaction() as conn:
        shift = store.needed(conn, Shift, "demo_shift", time_log_id=time_log_id)
        act(conn, shift.supervisor, lambda: shifts.verify_timesheet(conn, time_log_id, by=shift.supervisor))


@people.task(queue=QUEUE)
def edit(ctx: ms.SyncContext, *, time_log_id: int) -> None:
    """A supervisor corrects a timesheet in the last hour."""
    with ctx.transaction() as conn:
        shift = store.needed(conn, Shift, "demo_shift", time_log_id=time_log_id)
        end = shift.scheduled_end_time
        act(conn, shift.supervisor, lambda: shifts.edit_timesheet(conn, time_log_id, end=end, by=shift.supervisor))


@people.task(queue=QUEUE)
def dispute(ctx: ms.SyncContext, *, time_log_id: int, option: Option) -> None:
    """A supervisor disputes a timesheet; sooner or later it is settled."""
    filed: list[int] = []
    with ctx.transaction() as conn:
        shift = store.needed(conn, Shift, "demo_shift", time_log_id=time_log_id)
        act(
            conn,
            shift.supervisor,
            lambda: filed.append(disputes.file_dispute(conn, time_log_id, option=option, by=shift.supervisor)),
        )
        for id_ in filed:
            later(conn, resolve.job(dispute_id=id_), desk().now(conn) + minutes(30, 20 * 60))


@people.task(queue=QUEUE)
def resolve(ctx: ms.SyncContext, *, dispute_id: int) -> None:
    """Both sides agree on who gets how much of what is frozen."""
    with ctx.transaction() as conn:
        holds = escrow.frozen(conn, dispute_id=dispute_id)
        frozen = sum(hold.amount_minor for hold in holds)
        lender = frozen * random.choice((0, 1, 2, 3, 4)) // 4  # noqa: S311 (people, no secrets)
        act(
            conn,
            None,
            lambda: disputes.resolve_dispute(
                conn, dispute_id, status="Settled", lender_minor=lender, borrower_minor=frozen - lender
            ),
        )


@people.task(queue=QUEUE)
def renew(ctx: ms.SyncContext, *, policy_id: int) -> None:
    """A company renews its insurance for a year."""
    with ctx.transaction() as conn:
        until = (desk().now(conn) + YEAR).date()
        act(conn, None, lambda: insurance.renew_insurance(conn, policy_id, expiration_date=until))


@people.task(queue=QUEUE)
def pay(ctx: ms.SyncContext, *, booking_id: int) -> None:
    """A borrower whose card was refused gives another one, and pays by hand."""
    with ctx.transaction() as conn:
        store.do(conn, "demo_good_card", booking_id=booking_id)
        admin = team.people(conn, booking_id, "Borrowing Admin")[0]
        act(conn, admin, lambda: charging.pay_by_hand(conn, booking_id, by=admin))


@people.task(queue=QUEUE)
def list_worker(ctx: ms.SyncContext, *, worker_id: int) -> None:
    """A lender lists a worker who is free."""
    with ctx.transaction() as conn:
        act(conn, None, lambda: listings.list_worker(conn, worker_id))


people.schedule("demo-day", ms.daily("00:00"), plan_day, zones=ZONES)
