"""Reserve: commit to charge a booking for a week, under its lock, before anybody is asked for money.

A job that dies after it, or hears no answer, goes on with the same row and the same key: the card is charged once
(STAFF-1.28). `send` comes next.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TypeAlias
from uuid import UUID

import msgspec

import mainspring as ms
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import reconcile, settle
from mainspring_apps.staffing.rules import charge, weeks
from mainspring_apps.staffing.store import Conn

#: What a payment pays, with its price: a shift as it was planned, or time that was added to it.
Parts: TypeAlias = "Mapping[tuple[int, str], int]"


class ChargedBooking(msgspec.Struct, frozen=True, kw_only=True):
    """A booking, as far as a charge must know it."""

    id: int
    status: str
    payment_type: str
    rate_minor: int
    currency: str
    funded_period_end: datetime | None
    cutoff_at: datetime | None
    zone: str


class PaymentTry(msgspec.Struct, frozen=True, kw_only=True):
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


class ChargeJob(msgspec.Struct, frozen=True, kw_only=True):
    """The job that a payment is a try of."""

    id: UUID
    correlation_id: str


def job_of(ctx: ms.SyncContext) -> ChargeJob:
    """The job of this context, as a payment remembers it."""
    return ChargeJob(id=ctx.job.id, correlation_id=ctx.job.correlation_id)


def reserve(
    desk: Desk, conn: Conn, booking: ChargedBooking, period: weeks.Period, source: charge.Source, job: ChargeJob
) -> PaymentTry | None:
    """Commit to charge a week: the payment to send, or None where there is nothing to send.

    The caller holds the booking's lock, and has decided to charge. What another job has begun is left to it.
    """
    begun = store.one(conn, PaymentTry, "payment_of_job", job_id=job.id)
    if begun is not None:
        return begun if begun.to_send else None
    if charge.funded(booking.funded_period_end, period) or live(conn, booking.id, period):
        return None
    owed = charge.amounts(
        _unfunded(conn, booking), booking.rate_minor, period, desk.settings.platform_fee_bps, now=desk.now(conn)
    )
    return _commit(desk, conn, booking, period, source, job, _with_added(desk, conn, booking, owed))


def reserve_arrears(
    desk: Desk, conn: Conn, booking: ChargedBooking, job: ChargeJob, *, taken: bool = False
) -> PaymentTry | None:
    """Commit to charge what is verified and unpaid, of whatever weeks: as `reserve`, and no week is funded by it.

    With what was `taken` back of shifts, where the borrower has asked for that.
    """
    begun = store.one(conn, PaymentTry, "payment_of_job", job_id=job.id)
    if begun is not None:
        return begun if begun.to_send else None
    parts = dict(taken_back(desk, conn, booking)) if taken else {}
    if charge.pays_arrears(booking.status, booking.payment_type):
        parts |= _in_arrears(desk, conn, booking)
    if not parts:
        return None
    starts = store.column(conn, "starts_of_shifts", ids=[shift for shift, _ in parts])
    first, last = (weeks.week(weeks.monday(at, booking.zone), booking.zone) for at in (min(starts), max(starts)))
    return _commit(desk, conn, booking, weeks.Period(first.start, last.end), "arrears", job, parts)


def owes(desk: Desk, conn: Conn, booking: ChargedBooking) -> bool:
    """Whether a booking owes for verified work."""
    return bool(_in_arrears(desk, conn, booking))


def taken_back(desk: Desk, conn: Conn, booking: ChargedBooking, *, coming: bool = True) -> Parts:
    """What is missing for shifts whose money was taken back at the provider, and is not `coming` (STAFF-20.25)."""
    shifts = store.many(conn, charge.TakenShift, "taken_shifts", booking_id=booking.id)
    fee, now = desk.settings.platform_fee_bps, desk.now(conn)
    missing = charge.taken(shifts, booking.rate_minor, fee, now=now, coming=coming)
    return {(shift, "Shift"): price for shift, price in missing.items()}


def _in_arrears(desk: Desk, conn: Conn, booking: ChargedBooking) -> Parts:
    owed = charge.arrears(_unfunded(conn, booking), booking.rate_minor, desk.settings.platform_fee_bps)
    return _with_added(desk, conn, booking, owed)


def _unfunded(conn: Conn, booking: ChargedBooking) -> list[charge.UnpaidShift]:
    return store.many(conn, charge.UnpaidShift, "unfunded_shifts", booking_id=booking.id)


def _with_added(desk: Desk, conn: Conn, booking: ChargedBooking, owed: Mapping[int, int]) -> Parts:
    """The prices of shifts, and of the time that verified ones have on top of what was planned (STAFF-20.04)."""
    times = store.many(conn, charge.AddedTime, "unpaid_added_time", booking_id=booking.id)
    more = charge.added(times, booking.rate_minor, desk.settings.platform_fee_bps)
    return {(shift, "Shift"): price for shift, price in owed.items()} | more


def _commit(
    desk: Desk, conn: Conn, booking: ChargedBooking, period: weeks.Period, source: charge.Source, job: ChargeJob,
    parts: Parts,
) -> PaymentTry | None:  # fmt: skip
    """Write the payment of these shifts under its key; the one to send, if it can be sent."""
    payer = store.needed(conn, _Payer, "payer", booking_id=booking.id)
    number = 1 + int(store.value(conn, "tries", booking_id=booking.id, period_start=period.start))
    status = "Not_Required" if not parts else "Pending" if payer.missing is None else "Failed"
    payment = store.one(
        conn, PaymentTry, "create_payment", booking_id=booking.id, period_start=period.start, period_end=period.end,
        amount=sum(parts.values()), currency=booking.currency, status=status, source=source, job_id=job.id,
        key=charge.key(booking.id, period.start, number), payment_method=payer.card, customer=payer.customer,
        failure_code=payer.missing if status == "Failed" else None, correlation_id=job.correlation_id,
        shifts=[shift for shift, _ in parts], kinds=[kind for _, kind in parts], amounts=list(parts.values()),
        **{"try": number},
    )  # fmt: skip
    if payment is None:
        return None  # somebody was faster, past the lock
    about = {"status": status, "amount_minor": payment.amount_minor, "currency": payment.currency, "source": source}
    desk.record(conn, "payment_created", "payment", payment.id, booking_id=booking.id, after=about)
    if status == "Not_Required":
        store.do(conn, "fund_booking", booking_id=booking.id, period_end=period.end)
    elif status == "Failed":
        settle.not_tried(desk, conn, payment.id)
    else:
        reconcile.watch_over(desk, conn, payment.id)
    return payment if payment.to_send else None


def live(conn: Conn, booking_id: int, period: weeks.Period) -> bool:
    """Whether a week is paid, or being paid."""
    return store.value(conn, "live_payment", booking_id=booking_id, period_start=period.start) is not None


def missing(conn: Conn, booking_id: int) -> str | None:
    """What the borrower of a booking lacks to be charged, in words."""
    code = store.needed(conn, _Payer, "payer", booking_id=booking_id).missing
    return code and code.replace("_", " ")


class _Payer(msgspec.Struct, frozen=True, kw_only=True):
    customer: str | None
    card: str | None

    @property
    def missing(self) -> str | None:
        """What it lacks to be charged, as a failure's code (STAFF-1.41)."""
        return "no_customer" if not self.customer else "no_card" if not self.card else None
