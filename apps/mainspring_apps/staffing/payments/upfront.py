"""Upfront: a booking that is charged whole when it is asked for, and confirmed by the money (STAFF-20.27).

The payment and its key are committed with the booking; a job sends it, and `settle` confirms. After a while without an
answer nobody waits any longer: money that comes then goes back.
"""

from __future__ import annotations

from uuid import UUID

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring_apps.staffing import store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.locking import lock_booking
from mainspring_apps.staffing.payments import confirmation, reconcile, reserve, send
from mainspring_apps.staffing.registry import RECONCILIATION_QUEUE, WEEKLY_PAYMENTS, tasks
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn


def begin(desk: Desk, conn: Conn, booking_id: int, whole: weeks.Period) -> None:
    """Commit to charge a booking, which is new, for all of its shifts; without a card it is refused at once."""
    booking = store.needed(conn, reserve.ChargedBooking, "lock_booking", booking_id=booking_id)
    if (missing := reserve.missing(conn, booking_id)) is not None:
        raise Refused(f"payment_type: Upfront is charged now, and the borrower has {missing}", field="payment_type")
    (job,) = desk.enqueue(conn, charge_upfront.job(booking_id=booking_id))
    payment = reserve.reserve(desk, conn, booking, whole, "upfront", _of(conn, job.id))
    if payment is None:  # nothing of it is to be paid
        confirmation.confirm(desk, conn, booking_id)
        return
    wait = end_wait.job(booking_id=booking_id, payment_id=payment.id).at(desk.now(conn) + desk.settings.upfront_wait)
    timers.start(desk, conn, timers.UPFRONT_TIMER, booking_id, wait)


@tasks.task(
    queue=WEEKLY_PAYMENTS,
    snooze_limit=None,
    subject="booking_id",
)
def charge_upfront(desk: Desk, ctx: ms.SyncContext, *, booking_id: int) -> None:
    """Send the payment of a booking that waits for it."""
    with ctx.transaction() as conn:
        waits = lock_booking(conn, booking_id).status == "Pending_Payment"
        payment = store.one(conn, reserve.PaymentTry, "payment_of_job", job_id=ctx.job.id)
    if waits and payment is not None and payment.to_send:
        send.send(desk, ctx, payment)


# What runs is not cancelled: it may be what finds the end, which cancels the timer.
@tasks.task(
    queue=RECONCILIATION_QUEUE,
    cancellable=False,
    subject="booking_id",
)
def end_wait(desk: Desk, ctx: ms.SyncContext, *, booking_id: int, payment_id: int) -> None:
    """Give up a payment that did not come in time, and with it the booking; what the provider says now still counts."""
    try:
        reconcile.give_up(desk, ctx, payment_id)
    except Exception as error:  # who is away says nothing: it is asked again, and nobody is kept waiting for that
        ctx.log.warning("the provider did not answer: %s", type(error).__name__)
    with ctx.complete() as conn:
        lock_booking(conn, booking_id)
        payment = store.needed(conn, reserve.PaymentTry, "payment", payment_id=payment_id)
        amount = Money(payment.amount_minor, payment.currency)
        confirmation.refuse(desk, conn, booking_id, amount, "no answer in time")


def _of(conn: Conn, job_id: UUID) -> reserve.ChargeJob:
    """A job that is enqueued with this transaction, as a payment remembers it."""
    return reserve.ChargeJob(id=job_id, correlation_id=store.value(conn, "correlation_of_job", job_id=job_id))
