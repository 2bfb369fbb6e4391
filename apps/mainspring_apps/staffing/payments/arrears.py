"""Arrears: what a booking owes for verified work that no week of it will charge (STAFF-20.14).

It was released, ended or suspended before its week was funded, or was paid upfront and more was worked. What was worked
is paid all the same: when a new card comes, when the work is verified or no longer disputed, when more of it is
confirmed, or by hand. No week is funded by it, and nobody works on because of it. By hand alone a borrower pays again
what they have back from the provider without us: nobody charges a card for that who was not asked to (STAFF-20.25).
"""

from __future__ import annotations

import mainspring as ms
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.payments import reserve, send
from mainspring_apps.staffing.people import By
from mainspring_apps.staffing.registry import WEEKLY_PAYMENTS, tasks
from mainspring_apps.staffing.rules import charge
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn


@tasks.task(
    queue=WEEKLY_PAYMENTS,
    snooze_limit=None,
    subject="booking_id",
)
def charge_arrears(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, taken: bool = False) -> None:
    """Charge what a booking owes for verified work, unless its weeks are charged again, or it is paid or in charge."""
    with ctx.transaction() as conn:
        booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
        payment = reserve.reserve_arrears(desk, conn, booking, reserve.job_of(ctx), taken=taken)
    if payment is not None:
        send.send(desk, ctx, payment)


def of_booking(desk: Desk, conn: Conn, booking_id: int) -> bool:
    """Enqueue the charge of what a booking owes, if it owes anything that no week will charge."""
    return _enqueue(desk, conn, booking_id=booking_id, company_id=None)


def of_company(desk: Desk, conn: Conn, company_id: int) -> bool:
    """Enqueue the charge of what each booking of a borrower owes: there is another card to try."""
    return _enqueue(desk, conn, booking_id=None, company_id=company_id)


def taken_back(desk: Desk, conn: Conn, booking_id: int, time_log_id: int) -> bool:
    """Whether money of a shift was taken back at the provider, and not all of it has come again."""
    booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
    return (time_log_id, "Shift") in reserve.taken_back(desk, conn, booking, coming=False)


@event
def pay_arrears(desk: Desk, conn: Conn, booking_id: int, *, by: By) -> None:
    """Pay now for verified work of a booking that has ended unpaid, and again for what was taken back of shifts."""
    booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
    taken, due = reserve.taken_back(desk, conn, booking), charge.pays_arrears(booking.status, booking.payment_type)
    if not (due or taken):
        raise Refused(f"booking: is {booking.status}: its work is charged with its weeks", field="booking")
    if not (taken or reserve.owes(desk, conn, booking)):
        raise Refused("payment: nothing is owed for verified work, or it is being paid", field="payment")
    desk.record(conn, "arrears_by_hand", "booking", booking_id)
    job = charge_arrears.job(booking_id=booking_id, taken=True)
    desk.enqueue(conn, job.with_key(f"charge:by-hand:{booking_id}", "replace"))


def _enqueue(desk: Desk, conn: Conn, *, booking_id: int | None, company_id: int | None) -> bool:
    about = {"booking_id": booking_id, "company_id": company_id, "weekly": charge.PAYMENT_TYPE}
    owing = store.column(conn, "in_arrears", statuses=sorted(charge.UNCHARGED), **about)
    jobs = [charge_arrears.job(booking_id=one).with_key(f"charge:arrears:{one}", "replace") for one in owing]
    desk.enqueue(conn, *jobs)
    return bool(jobs)
