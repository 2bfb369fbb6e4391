"""Escrow: money that was received stands in holds, one for each shift, until it is released or refunded.

Every function joins the caller's transaction, which has locked the booking first (STAFF-19.14: booking, shift,
dispute, hold). A hold that is released or refunded gets its transfer or refund row and the job that carries it out, in
the same commit.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from mainspring.contrib.money import Money
from mainspring_apps.staffing import store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.locking import LockedShift
from mainspring_apps.staffing.payments import movements
from mainspring_apps.staffing.payments.movements import MovementKind
from mainspring_apps.staffing.rules import dispute, pay, penalty, withdrawal
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

#: The lender has more than was worked, and it does not come back by itself.
PAID_TOO_MUCH: Final = "paid_beyond_hours"


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Money of one shift."""

    id: int
    booking_id: int
    time_log_id: int
    payment_id: int
    kind: str
    part: int
    amount_minor: int
    currency: str
    status: str
    dispute_id: int | None
    set_aside: bool = False


class Ledger(msgspec.Struct, frozen=True, kw_only=True):
    """Where the money of a booking is: charged = held + frozen + released + refunded + charged back."""

    booking_id: int
    currency: str
    charged: int
    held: int
    frozen: int
    released: int
    refunded: int
    charged_back: int

    @property
    def even(self) -> bool:
        """Whether it adds up."""
        parts = (self.held, self.frozen, self.released, self.refunded, self.charged_back)
        return self.charged == sum(parts) and min(parts) >= 0


def ledger(conn: Conn, booking_id: int) -> Ledger:
    """The money of a booking, now."""
    return store.needed(conn, Ledger, "escrow_of_booking", booking_id=booking_id)


def fund(desk: Desk, conn: Conn, payment_id: int) -> list[Hold]:
    """A payment's money has come: one hold for each shift that it pays; nothing if it was funded before."""
    holds = store.many(conn, Hold, "fund_payment", payment_id=payment_id)
    catch_up(desk, conn, holds)
    return holds


def catch_up(desk: Desk, conn: Conn, holds: Sequence[Hold]) -> None:
    """What happened to a shift while its money was away happens to its money.

    That of disputed ones is frozen (G-64), that of cancelled ones split as if it had been here then, and what verified
    ones have beyond their hours goes back.
    """
    for hold in holds:
        shift = store.needed(conn, _EscrowedShift, "shift_of_hold", hold_id=hold.id)
        if shift.dispute_id is not None:
            freeze(conn, hold.time_log_id, shift.dispute_id)
        elif shift.status == "Cancelled":
            assert shift.cancelled_at is not None
            penalised = withdrawal.penalised(shift.cancel_reason)
            _split_late(desk, conn, hold.time_log_id, shift.cancelled_at, penalised=penalised)
        elif hold.kind == "Shift":
            if shift.shortened_at is not None:
                shorten(desk, conn, hold.time_log_id, shift.shortened_at, penalised=True)
                plan_again(desk, conn, hold.time_log_id)  # its end may be later again
            give_back_rest(desk, conn, hold.time_log_id)


def freeze(conn: Conn, time_log_id: int, dispute_id: int) -> list[Hold]:
    """Freeze what is held for a disputed shift (STAFF-10.04)."""
    return store.many(conn, Hold, "freeze_holds", time_log_id=time_log_id, dispute_id=dispute_id)


def release(desk: Desk, conn: Conn, time_log_id: int) -> list[Hold]:
    """Let the held money of a verified shift go to the lender: transfer rows, `transfer:{hold}`, and their jobs.

    The caller has checked, under the booking's lock, that the shift is not disputed.
    """
    holds = store.many(conn, Hold, "release_holds", time_log_id=time_log_id)
    _send(desk, conn, "transfers", holds)
    return holds


def refund(desk: Desk, conn: Conn, holds: Sequence[int]) -> list[Hold]:
    """Give held or frozen money back to the borrower: refund rows, `refund:{hold}:{kind}`, and their jobs."""
    found = store.many(conn, Hold, "refund_holds", ids=list(holds))
    _send(desk, conn, "refunds", found)
    return found


def give_back_rest(desk: Desk, conn: Conn, time_log_id: int) -> None:
    """Give back what is held for a verified shift beyond the pay of its hours (STAFF-20.02).

    The lender may have it already, where the whole week was sent on (`on_webhook`): that is for a person.
    """
    worked = store.needed(conn, _WorkedShift, "worked_shift", time_log_id=time_log_id)
    if worked.paid_minutes is None:  # not verified, or divided by a settlement
        return
    fee = desk.settings.platform_fee_bps
    owed, too_much = pay.added_pay(0, worked.paid_minutes, worked.rate_minor, fee, worked.settled_minor), 0
    for hold in _planned(conn, time_log_id):
        kept = min(hold.amount_minor, owed)
        owed -= kept
        if hold.status == "Released":
            too_much += hold.amount_minor - kept
        elif kept == 0:
            refund(desk, conn, [hold.id])
        elif kept < hold.amount_minor:
            _split_off(desk, conn, hold, kept)
    _tell_too_much(desk, conn, time_log_id, worked, too_much)


def tell_unearned(desk: Desk, conn: Conn, time_log_id: int) -> None:
    """Nobody came for a shift, and the lender has money for it, which does not come back by itself."""
    worked = store.needed(conn, _WorkedShift, "worked_shift", time_log_id=time_log_id)
    sent = total_of([hold for hold in _planned(conn, time_log_id) if hold.status == "Released"])
    _tell_too_much(desk, conn, time_log_id, worked, sent)


def _tell_too_much(desk: Desk, conn: Conn, time_log_id: int, worked: _WorkedShift, too_much: int) -> None:
    if too_much:
        text = f"shift {time_log_id}: the lender has {Money(too_much, worked.currency)} more than was worked"
        desk.alert(conn, PAID_TOO_MUCH, f"time_log {time_log_id}", text, booking_id=worked.booking_id)


def split(
    desk: Desk,
    conn: Conn,
    time_log_id: int,
    cancelled_at: datetime,
    dispute_id: int | None = None,
    *,
    incident_id: int | None = None,
    penalised: bool = False,
) -> tuple[int, int]:
    """The money of a cancelled shift: the penalty of formula P is frozen for who disputes, the rest refunded.

    Where nobody disputes, nothing stays frozen: the penalty is the lender's at once if the borrower is `penalised`, and
    else all of it goes back. Answers both sums.
    """
    owed = back = 0
    for hold in store.many(conn, Hold, "held_for_shift", time_log_id=time_log_id):
        fee = _penalise(desk, conn, hold, cancelled_at, dispute_id, incident_id, penalised=penalised)
        owed, back = owed + fee, back + hold.amount_minor - fee
    return owed, back


def shorten(desk: Desk, conn: Conn, time_log_id: int, shortened_at: datetime, *, penalised: bool) -> None:
    """The money of a shift that is planned to be shorter: what is held beyond it is split as that of a cancelled one.

    What the lender has already, where the whole week was sent on (`on_webhook`), stays there until the hours are known.
    """
    planned = store.needed(conn, _PlannedHours, "planned_hours", time_log_id=time_log_id)
    price = pay.shift_pay(planned.planned_minutes, planned.rate_minor, desk.settings.platform_fee_bps)
    for hold in sorted(_planned(conn, time_log_id), key=lambda hold: hold.kind == "Penalty"):  # which pays what is left
        kept = min(hold.amount_minor, price)
        price -= kept
        if hold.status == "Held" and not hold.set_aside and kept < hold.amount_minor:
            dropped = store.needed(conn, Hold, "split_hold", hold_id=hold.id, kept=kept) if kept else hold
            _penalise(desk, conn, dropped, shortened_at, penalised=penalised)
        elif hold.kind == "Penalty":
            store.do(conn, "count_penalty", hold_id=hold.id, counted=kept)


def plan_again(desk: Desk, conn: Conn, time_log_id: int) -> None:
    """Hours that are planned again are paid by what they cost when they were dropped: the lender has it (STAFF-20.08).

    What that does not cover is new time, as of an end that was never earlier.
    """
    shift = store.needed(conn, _PlannedHours, "planned_hours", time_log_id=time_log_id)
    fees = store.many(conn, Hold, "penalties_of_shift", time_log_id=time_log_id)
    if not fees or shift.scheduled_end_time is None:
        return
    held = total_of([hold for hold in _planned(conn, time_log_id) if hold.kind == "Shift"])
    rate, fee_bps = shift.rate_minor, desk.settings.platform_fee_bps
    minutes = pay.covered(held + total_of(fees), shift.scheduled_start_time, shift.scheduled_end_time, rate, fee_bps)
    if not store.do(conn, "plan_again", time_log_id=time_log_id, minutes=minutes):
        return
    missing = pay.shift_pay(minutes, rate, fee_bps) - held
    for fee in fees:
        counted = max(0, min(fee.amount_minor, missing))
        missing -= counted
        store.do(conn, "count_penalty", hold_id=fee.id, counted=counted)
    desk.record(
        conn, "plan_again", "time_log", time_log_id, booking_id=fees[0].booking_id,
        before={"planned_minutes": shift.planned_minutes}, after={"planned_minutes": minutes},
    )  # fmt: skip


def frozen(conn: Conn, *, dispute_id: int | None = None, incident_id: int | None = None) -> list[Hold]:
    """Everything that a dispute or an incident has frozen."""
    return store.many(conn, Hold, "frozen_for", dispute_id=dispute_id, incident_id=incident_id)


def price(desk: Desk, conn: Conn, shift: LockedShift) -> int:
    """What the hours of a shift cost, as they are submitted."""
    rate = store.needed(conn, _PlannedHours, "planned_hours", time_log_id=shift.id).rate_minor
    return pay.shift_pay(shift.hours.paid, rate, desk.settings.platform_fee_bps)


def settle(desk: Desk, conn: Conn, holds: Sequence[Hold], *, lender_minor: int, borrower_minor: int) -> None:
    """Divide frozen money: so much to the lender, so much back; together exactly all of it (STAFF-10.33)."""
    check_division(holds, lender_minor, borrower_minor)
    for hold in holds:
        to_lender = min(hold.amount_minor, lender_minor)
        lender_minor -= to_lender
        if to_lender == 0:
            refund(desk, conn, [hold.id])
            continue
        if to_lender < hold.amount_minor:
            _split_off(desk, conn, hold, to_lender)
        _pay(desk, conn, hold)


def check_division(holds: Sequence[Hold], lender_minor: int, borrower_minor: int, *, unpaid: int = 0) -> None:
    """Refuse to divide more or less than what is frozen, and what is owed and unpaid."""
    total = total_of(holds) + unpaid
    if lender_minor < 0 or borrower_minor < 0 or lender_minor + borrower_minor != total:
        raise Refused(
            f"settlement: {lender_minor} to the lender and {borrower_minor} back are not the {total} that are "
            + ("frozen or unpaid" if unpaid else "frozen"),
            field="settlement",
        )


def refund_whole(desk: Desk, conn: Conn, payment_id: int) -> int:
    """Give a whole payment back that came too late: its holds are refunded by one refund of all of it (STAFF-3.24)."""
    store.many(conn, Hold, "fund_payment", payment_id=payment_id)
    store.do(conn, "refund_holds_of_payment", payment_id=payment_id)
    ids = store.column(conn, "refund_payment", payment_id=payment_id)
    _enqueue(desk, conn, "refunds", ids)
    return len(ids)


def release_whole(desk: Desk, conn: Conn, payment_id: int) -> int:
    """Send a whole week to the lender at once, by one transfer: the setting `on_webhook` (G-13).

    What comes back of a week that was sent goes alone.
    """
    holds = store.many(conn, Hold, "release_holds_of_payment", payment_id=payment_id)
    ids = store.column(conn, "transfer_payment", payment_id=payment_id)
    _enqueue(desk, conn, "transfers", ids)
    if not ids:
        _send(desk, conn, "transfers", holds)
    return len(ids)


class _EscrowedShift(msgspec.Struct, frozen=True, kw_only=True):
    status: str
    scheduled_start_time: datetime
    shortened_at: datetime | None
    cancelled_at: datetime | None
    cancel_reason: str | None
    payment_type: str
    dispute_id: int | None


class _PlannedHours(msgspec.Struct, frozen=True, kw_only=True):
    planned_minutes: int
    scheduled_start_time: datetime
    scheduled_end_time: datetime | None
    rate_minor: int


class _WorkedShift(msgspec.Struct, frozen=True, kw_only=True):
    booking_id: int
    paid_minutes: int | None
    settled_minor: int | None
    rate_minor: int
    currency: str


class _Cause(msgspec.Struct, frozen=True, kw_only=True):
    dispute_id: int | None
    incident_id: int | None
    over: bool
    lender_minor: int | None
    borrower_minor: int | None


def _split_late(desk: Desk, conn: Conn, time_log_id: int, cancelled_at: datetime, *, penalised: bool) -> None:
    """Money of a shift that was cancelled before it came; where the dispute is over, its penalty follows that."""
    cause = store.one(conn, _Cause, "cause_of_cancellation", time_log_id=time_log_id)
    if cause is None:
        split(desk, conn, time_log_id, cancelled_at, penalised=penalised)
        return
    owed, _ = split(desk, conn, time_log_id, cancelled_at, cause.dispute_id, incident_id=cause.incident_id)
    if cause.over and owed:
        holds = frozen(conn, dispute_id=cause.dispute_id, incident_id=cause.incident_id)
        total = total_of(holds)
        to_lender = dispute.share(total, cause.lender_minor, cause.borrower_minor)
        settle(desk, conn, holds, lender_minor=to_lender, borrower_minor=total - to_lender)


def _planned(conn: Conn, time_log_id: int) -> list[Hold]:
    return store.many(conn, Hold, "planned_holds", time_log_id=time_log_id)


def _penalise(
    desk: Desk, conn: Conn, hold: Hold, at: datetime, dispute_id: int | None = None, incident_id: int | None = None, *,
    penalised: bool,
) -> int:  # fmt: skip
    """Split held money that was called off at an instant, by formula P; answers the penalty."""
    shift = store.needed(conn, _EscrowedShift, "shift_of_hold", hold_id=hold.id)
    fee = penalty.penalty(
        hold.amount_minor,
        desk.settings,
        notice=shift.scheduled_start_time - at,
        long_term=shift.payment_type == "Weekly_Progress",
    )
    disputed = dispute_id is not None or incident_id is not None
    if not (disputed or penalised):
        fee = 0
    if fee:
        cause = {"dispute_id": dispute_id, "incident_id": incident_id}
        part = {"penalty": fee} if fee < hold.amount_minor else {}
        name = "split_penalty" if part else "freeze_penalty"
        frozen_now = store.needed(conn, Hold, name, hold_id=hold.id, **part, **cause)
        if not disputed:
            _pay(desk, conn, frozen_now)
    if fee < hold.amount_minor:
        refund(desk, conn, [hold.id])
    return fee


def _split_off(desk: Desk, conn: Conn, hold: Hold, kept: int) -> None:
    """Let a hold keep so much, and give the rest back."""
    rest = store.needed(conn, Hold, "split_hold", hold_id=hold.id, kept=kept)
    refund(desk, conn, [rest.id])


def _pay(desk: Desk, conn: Conn, hold: Hold) -> None:
    """Let frozen money go to the lender."""
    if store.value(conn, "release_frozen", hold_id=hold.id) is not None:
        _send(desk, conn, "transfers", [hold])


def total_of(holds: Sequence[Hold]) -> int:
    """Their minor units; currencies are never added together."""
    parts = [Money(hold.amount_minor, hold.currency) for hold in holds]
    return sum(parts[1:], parts[0]).minor if parts else 0


def _send(desk: Desk, conn: Conn, kind: MovementKind, holds: Sequence[Hold]) -> None:
    statement = "transfer_hold" if kind == "transfers" else "refund_hold"
    _enqueue(desk, conn, kind, [id_ for hold in holds for id_ in store.column(conn, statement, hold_id=hold.id)])


def _enqueue(desk: Desk, conn: Conn, kind: MovementKind, ids: Sequence[int]) -> None:
    if ids:
        movements.begin(desk, conn, kind, ids)
