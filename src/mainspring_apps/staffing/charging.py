"""Charging a booking for a week: Wednesday's run, and whoever else finds a week unfunded.

A charge has two halves. `reserve` decides under the booking's lock and commits a row with its key; `pay` sends it. A
job that dies between them, or hears no answer, goes on with the same row and the same key, so that the card is charged
once (STAFF-1.28). Whether it was paid comes by webhook: see `settling`.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring.contrib.stripe import ActionRequired, Declined
from mainspring.contrib.stripe import Refused as RequestRefused
from mainspring_apps.staffing import disputes, settings, settling, store
from mainspring_apps.staffing.desk import acting, desk
from mainspring_apps.staffing.registry import WEEKLY_PAYMENTS, tasks
from mainspring_apps.staffing.rules import charge, gate, weeks
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

#: An outage may last until the cutoff; a later charge is the cutoff's matter (G-04).
CATCH_UP: Final = timedelta(hours=14)


class Booking(msgspec.Struct, frozen=True, kw_only=True):
    """A booking, as far as a charge must know it."""

    id: int
    status: str
    payment_type: str
    rate_minor: int
    currency: str
    funded_period_end: datetime | None
    cutoff_at: datetime | None
    zone: str


class Payment(msgspec.Struct, frozen=True, kw_only=True):
    """A try to charge a week: what the provider is asked for, whoever asks."""

    id: int
    booking_id: int
    amount_minor: int
    currency: str
    status: str
    provider_intent_id: str | None
    idempotency_key: str
    payment_method: str | None
    customer: str | None
    created_at: datetime

    @property
    def to_send(self) -> bool:
        """Whether the provider may not know of it yet."""
        return self.status == "Pending" and self.provider_intent_id is None


class Job(msgspec.Struct, frozen=True, kw_only=True):
    """Whose try a payment is."""

    id: UUID
    correlation_id: str


@tasks.task(queue=WEEKLY_PAYMENTS, retry=settings.RETRY, timeout=settings.TIMEOUT, needs=("stripe",))
def charge_week(
    ctx: ms.SyncContext,
    *,
    booking_id: int,
    period_start: datetime,
    period_end: datetime,
    occurrence: datetime,
    source: charge.Source = "weekly",
) -> None:
    """Charge a booking for a week, unless it is paused, over, or paid for."""
    with ctx.db() as conn:
        booking = store.needed(conn, Booking, "lock_booking", booking_id=booking_id)
        found = disputes.unresolved(conn, booking_id)
        opened = {"open_a": found.option_a, "open_b": option_b(found)}
        act = charge.decide(booking.status, booking.payment_type, **opened, source=source)
        if act == "pause":
            store.do(conn, "pause_booking", booking_id=booking_id)
            before, after = {"status": booking.status}, {"status": "Payment_Paused_Dispute"}
            reason = "an option A dispute or incident is open"
            desk().record(conn, "payment_paused", "booking", booking_id, reason=reason, before=before, after=after)
        period = weeks.Period(period_start, period_end)
        payment = reserve(conn, booking, period, source, job_of(ctx)) if act == "charge" else None
    if payment is not None:
        pay(ctx, payment)


def due_bookings(
    conn: Conn, zone: str, after: int | None, limit: int, *, instant: datetime
) -> list[tuple[int, Mapping[str, Any]]]:
    """One page of the bookings that a Wednesday charges in a zone, and the week that it is about (STAFF-1.13)."""
    period = weeks.due_week(instant, zone)
    about = {"period_start": period.start, "period_end": period.end, "occurrence": instant}
    which = {"payment_type": charge.PAYMENT_TYPE, "status": charge.STATUS}
    found = store.column(conn, "bookings_to_charge", zone=zone, after=after, limit=limit, **which)
    return [(booking_id, {"booking_id": booking_id, **about}) for booking_id in found]


tasks.schedule(
    "weekly-payments",
    ms.weekly(weeks.CHARGE_DAY, weeks.CHARGE_AT),
    charge_week,
    zones=store.sql["project_zones"],
    entities=due_bookings,
    page=settings.PAGE,
    within=CATCH_UP,
)


def enqueue_due(conn: Conn, booking_id: int, *, source: charge.Source) -> bool:
    """Enqueue the charge of the due week (`weeks.due_week`), if it is unfunded and not in charge."""
    booking = store.needed(conn, Booking, "lock_booking", booking_id=booking_id)
    now = desk().now(conn)
    period = weeks.due_week(now, booking.zone)
    if booking.payment_type != charge.PAYMENT_TYPE or charge.funded(booking.funded_period_end, period):
        return False
    if _live(conn, booking_id, period):
        return False
    job = charge_week.job(
        booking_id=booking_id, period_start=period.start, period_end=period.end, occurrence=now, source=source
    )
    desk().enqueue(conn, job.with_key(f"charge:{source}:{booking_id}", "replace"))
    return True


def pay_by_hand(conn: Conn, booking_id: int, *, by: int) -> None:
    """The borrower pays the due week now: after a failure until the cutoff (STAFF-1.36), or before its Wednesday."""
    booking = store.needed(conn, Booking, "lock_booking", booking_id=booking_id)
    gate.check_hand("pay_by_hand", store.value(conn, "part_in_booking", booking_id=booking_id, user_id=by))
    if booking.status != charge.STATUS or booking.payment_type != charge.PAYMENT_TYPE:
        words = f"booking: is {booking.status} and {booking.payment_type}, and no week of it can be paid"
        raise Refused(words, field="booking")
    if disputes.unresolved(conn, booking_id).option_a:
        raise Refused("payment: waits until no dispute and no incident is open", field="payment")
    now = desk().now(conn)
    period = weeks.due_week(now, booking.zone)
    failed_at = store.value(conn, "last_failure", booking_id=booking_id, period_start=period.start)
    if charge.funded(booking.funded_period_end, period) or _live(conn, booking_id, period):
        raise Refused("payment: the week is paid, or being paid", field="payment")
    if failed_at is not None and now >= _cutoff(booking, failed_at):
        raise Refused("payment: the time to pay is over", field="payment")
    with acting(by):
        desk().record(conn, "payment_by_hand", "booking", booking_id)
        enqueue_due(conn, booking_id, source="manual")


def reserve(conn: Conn, booking: Booking, period: weeks.Period, source: charge.Source, job: Job) -> Payment | None:
    """Commit to charge a week: the payment to send, or None where there is nothing to send.

    The caller holds the booking's lock, and has decided to charge. What another job has begun is left to it.
    """
    begun = store.one(conn, Payment, "payment_of_job", job_id=job.id)
    if begun is not None:
        return begun if begun.to_send else None
    if charge.funded(booking.funded_period_end, period) or _live(conn, booking.id, period):
        return None
    owed = charge.amounts(
        store.many(conn, charge.Shift, "unfunded_shifts", booking_id=booking.id), booking.rate_minor, period
    )
    payer = store.needed(conn, _Payer, "payer", booking_id=booking.id)
    number = 1 + int(store.value(conn, "tries", booking_id=booking.id, period_start=period.start))
    status = "Not_Required" if not owed else "Pending" if payer.missing is None else "Failed"
    payment = store.one(
        conn, Payment, "create_payment", booking_id=booking.id, period_start=period.start, period_end=period.end,
        amount=sum(owed.values()), currency=booking.currency, status=status, source=source, job_id=job.id,
        key=charge.key(booking.id, period.start, number), payment_method=payer.card, customer=payer.customer,
        failure_code=payer.missing if status == "Failed" else None, correlation_id=job.correlation_id,
        shifts=list(owed), amounts=list(owed.values()), **{"try": number},
    )  # fmt: skip
    if payment is None:
        return None  # somebody was faster, past the lock
    about = {"status": status, "amount_minor": payment.amount_minor, "currency": payment.currency, "source": source}
    desk().record(conn, "payment_created", "payment", payment.id, booking_id=booking.id, after=about)
    if status == "Not_Required":
        store.do(conn, "fund_booking", booking_id=booking.id, period_end=period.end)
    elif status == "Failed":
        settling.not_tried(conn, payment.id)
    else:
        settling.watch_over(conn, payment.id)
    return payment if payment.to_send else None


def pay(ctx: ms.SyncContext, payment: Payment) -> None:
    """Send a payment that is committed, and end the job; a card that is refused ends the payment as well.

    What may pass is raised, and tried again with the same key. `succeeded` at once changes nothing: the webhook funds.
    """
    try:
        sent = desk().stripe.sync.charge(
            Money(payment.amount_minor, payment.currency),
            customer=payment.customer or "",
            payment_method=payment.payment_method or "",
            key=payment.idempotency_key,
            since=payment.created_at,
            metadata={"booking_id": str(payment.booking_id), "payment_id": str(payment.id)},
        )
    except Declined as declined:
        with ctx.transaction() as conn:
            settling.fail(conn, payment.id, declined.decline_code or "card_declined", intent=declined.intent)
    except ActionRequired as required:
        with ctx.transaction() as conn:
            settling.fail(conn, payment.id, "action_required", intent=required.intent)
    except RequestRefused as refused:
        with ctx.transaction() as conn:
            settling.fail(conn, payment.id, refused.reason or "refused", person=True)
    except ms.ValidationError as error:  # the provider cannot even be asked
        with ctx.transaction() as conn:
            settling.fail(conn, payment.id, error.field or "refused", person=True)
    else:
        with ctx.transaction() as conn:
            store.do(conn, "payment_sent", payment_id=payment.id, intent=sent.id, charge=sent.charge)


def job_of(ctx: ms.SyncContext) -> Job:
    """Who a payment is for."""
    return Job(id=ctx.job.id, correlation_id=ctx.job.correlation_id)


def option_b(found: disputes.Unresolved) -> bool:
    """Whether somebody has ended the booking by a dispute or an incident."""
    return bool(found.disputes_b or found.incidents_b)


class _Payer(msgspec.Struct, frozen=True, kw_only=True):
    customer: str | None
    card: str | None

    @property
    def missing(self) -> str | None:
        """What it lacks to be charged, as a failure's code (STAFF-1.41)."""
        return "no_customer" if not self.customer else "no_card" if not self.card else None


def _cutoff(booking: Booking, failed_at: datetime) -> datetime:
    """Until when what failed may be paid: a cutoff that was moved since then counts (STAFF-3.26)."""
    if booking.cutoff_at is not None and booking.cutoff_at > failed_at:
        return booking.cutoff_at
    return weeks.cutoff(failed_at, booking.zone)


def _live(conn: Conn, booking_id: int, period: weeks.Period) -> bool:
    return store.value(conn, "live_payment", booking_id=booking_id, period_start=period.start) is not None
