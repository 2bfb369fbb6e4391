"""Disputes: filed, and ended by a platform operator or by both sides that agree; see `timeouts` for who does neither.

Events of a web application, each in its caller's transaction.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, get_args

import msgspec

from mainspring.contrib.money import Money
from mainspring_apps.staffing import store, timers
from mainspring_apps.staffing.conflicts import ending, timeouts
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.locking import LockedBooking, LockedShift, lock_booking, lock_shift
from mainspring_apps.staffing.payments import escrow, retries
from mainspring_apps.staffing.people import By, parts_of, people
from mainspring_apps.staffing.rules import dispute as rules
from mainspring_apps.staffing.rules import release, weeks
from mainspring_apps.staffing.rules.dispute import Ending, Option
from mainspring_apps.staffing.rules.parts import Part
from mainspring_apps.staffing.states import Refused, check
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.timesheets import approval

__all__ = ["Dispute", "Ending", "Option", "at_stake", "file_dispute", "propose_settlement", "resolve_dispute"]


class Dispute(msgspec.Struct, frozen=True, kw_only=True):
    """A dispute about one shift."""

    id: int
    booking_id: int
    time_log_id: int
    dispute_option: Option
    status: str
    dispute_filed_at: datetime
    timed_out_at: datetime | None


class _Disputable(msgspec.Struct, frozen=True, kw_only=True):
    verified_by: str | None
    paid: bool
    disputed: bool


@event
def file_dispute(desk: Desk, conn: Conn, time_log_id: int, *, option: Option, by: By) -> int:
    """Dispute a timesheet; option B ends the booking at once. Answers the dispute's id."""
    now = desk.now(conn)  # when it came, however long the row was held by others (G-36)
    booking, shift = lock_shift(conn, time_log_id)
    known = store.needed(conn, _Disputable, "disputable", time_log_id=time_log_id)
    why = rules.refusal(
        status=shift.status, verified_by=known.verified_by, deadline=shift.auto_approval_time, now=now, paid=known.paid,
        disputed=known.disputed,
    )  # fmt: skip
    if why is not None:
        raise Refused(f"time_log_id: {why}", field="time_log_id")
    about = {"booking_id": booking.id, "time_log_id": shift.id, "option": option, "at": now, "by": by}
    dispute_id = int(store.value(conn, "file_dispute", **about))
    store.do(conn, "dispute_shift", time_log_id=shift.id, at=now)
    timers.cancel(desk, conn, shift.id, *timers.LADDER_TIMERS, timers.AUTO_APPROVAL_TIMER, reason="disputed")
    frozen = escrow.freeze(conn, shift.id, dispute_id)
    timeouts.watch_over(desk, conn, dispute_id, booking.id, now)
    desk.record(
        conn, "file_dispute", "dispute", dispute_id, booking_id=booking.id, dispute_id=dispute_id,
        before=shift.status, after="Disputed", reason=f"option {option}",
    )  # fmt: skip
    kind = "dispute_filed" if frozen else "unpaid_dispute_filed"
    _tell(desk, conn, kind, dispute_id, booking, shift, rules.PARTIES)
    if option == "B":
        ending.end_booking(desk, conn, booking, now, reason=rules.OPTION_B, dispute_id=dispute_id)
    return dispute_id


@event
def resolve_dispute(
    desk: Desk, conn: Conn, dispute_id: int, *, status: Ending, lender_minor: int | None = None,
    borrower_minor: int | None = None, by: By,
) -> None:  # fmt: skip
    """Decide a dispute, as an operator: its timer is cancelled, frozen money is divided, and payment may go on.

    `Settled` and `Resolved` say how much of what is frozen goes to the lender and how much back; together all of it. Of
    a shift that nobody has paid for they may say how much of its price is owed and how much is not, or leave it to the
    hours.
    `Legal_Hold` says neither: the money stays frozen until one of the others.
    """
    if status not in get_args(Ending):
        raise Refused(f"status: a dispute ends as {', '.join(get_args(Ending))}", field="status")
    dispute, shift = _hold(conn, dispute_id)
    _end(desk, conn, dispute, shift, status, lender_minor, borrower_minor, by)


@event
def propose_settlement(
    desk: Desk, conn: Conn, dispute_id: int, *, lender_minor: int, borrower_minor: int, by: By
) -> bool:  # fmt: skip
    """Propose how to divide what is frozen or unpaid; once both sides say the same, it is. Answers whether it was.

    Whatever a side has proposed before is replaced, so that nobody is held to a number that they have taken back.
    """
    dispute, shift = _hold(conn, dispute_id)
    check("disputes", dispute.status, "Settled")
    holds = escrow.frozen(conn, dispute_id=dispute.id)
    unpaid = _unpaid(desk, conn, shift)
    escrow.check_division(holds, lender_minor, borrower_minor, unpaid=unpaid)
    side = "Borrower" if "Borrowing Admin" in parts_of(conn, by, "dispute_id", dispute_id) else "Lender"
    division = {"lender": lender_minor, "borrower": borrower_minor}
    about = {"dispute_id": dispute_id, "side": side, **division, "by": by, "at": desk.now(conn)}
    agreed = bool(store.value(conn, "propose_settlement", **about))
    desk.record(
        conn, "propose_settlement", "dispute", dispute_id, booking_id=dispute.booking_id, dispute_id=dispute_id,
        reason=f"{lender_minor} to the lender, {borrower_minor} back", after=division,
    )  # fmt: skip
    if agreed:
        _end(desk, conn, dispute, shift, "Settled", lender_minor, borrower_minor, by)
    else:
        booking = lock_booking(conn, dispute.booking_id)
        shares = _shares(conn, booking.id, lender_minor, borrower_minor)
        company = booking.borrower_company_id if side == "Borrower" else booking.lender_company_id
        proposed = {"Company": str(store.value(conn, "company_name", company_id=company)), **shares}
        kind = "unpaid_settlement_proposed" if unpaid else "settlement_proposed"
        _tell(desk, conn, kind, dispute_id, booking, shift, rules.DIVIDERS, proposed)
    return agreed


def _hold(conn: Conn, dispute_id: int) -> tuple[Dispute, LockedShift]:
    """A dispute, held together with its booking and its shift, in the one order."""
    lock_booking(conn, store.needed(conn, Dispute, "dispute", dispute_id=dispute_id).booking_id)
    dispute = store.needed(conn, Dispute, "dispute", dispute_id=dispute_id)
    _, shift = lock_shift(conn, dispute.time_log_id)
    return dispute, shift


def _end(
    desk: Desk, conn: Conn, dispute: Dispute, shift: LockedShift, status: Ending, lender_minor: int | None,
    borrower_minor: int | None, by: By,
) -> None:  # fmt: skip
    now = desk.now(conn)
    check("disputes", dispute.status, status)
    if min(lender_minor or 0, borrower_minor or 0) < 0:
        raise Refused("settlement: a part of it is negative", field="settlement")
    ends = {"status": status, "at": now, "lender": lender_minor, "borrower": borrower_minor}
    store.do(conn, "end_dispute", dispute_id=dispute.id, **ends)
    timers.cancel(desk, conn, dispute.id, timers.DISPUTE_TIMEOUT_TIMER, reason=status)
    unpaid = False
    if status in rules.PAYING:
        unpaid = _divide(desk, conn, dispute, shift, lender_minor, borrower_minor, by)
    elif lender_minor is not None or borrower_minor is not None:
        raise Refused("settlement: a legal hold pays nothing", field="settlement")
    desk.record(
        conn, "resolve_dispute", "dispute", dispute.id, booking_id=dispute.booking_id, dispute_id=dispute.id,
        before=dispute.status, after=status,
    )  # fmt: skip
    _tell_end(desk, conn, dispute, shift, status, lender_minor or 0, borrower_minor or 0, unpaid=unpaid)
    if dispute.dispute_option == "A":
        retries.after_resolution(desk, conn, dispute.booking_id, resolved_at=now)


def at_stake(desk: Desk, conn: Conn, dispute_id: int) -> int:
    """How much there is to divide now, frozen or unpaid; its parts make exactly so much."""
    dispute, shift = _hold(conn, dispute_id)
    return escrow.total_of(escrow.frozen(conn, dispute_id=dispute.id)) + _unpaid(desk, conn, shift)


def _unpaid(desk: Desk, conn: Conn, shift: LockedShift) -> int:
    """The price of disputed hours that nobody has paid for."""
    holds = store.column(conn, "holds_of_shift", time_log_id=shift.id)
    return escrow.price(desk, conn, shift) if release.unpaid(holds) else 0


def _divide(
    desk: Desk, conn: Conn, dispute: Dispute, shift: LockedShift, lender_minor: int | None, borrower_minor: int | None,
    by: By,
) -> bool:  # fmt: skip
    """Divide what is frozen, and what is unpaid: of that the lender's part is owed, the rest is never charged.

    Answers whether anything was unpaid.
    """
    frozen, owed = escrow.frozen(conn, dispute_id=dispute.id), None
    if lender_minor is not None and borrower_minor is not None and (unpaid := _unpaid(desk, conn, shift)):
        escrow.check_division(frozen, lender_minor, borrower_minor, unpaid=unpaid)
        there = escrow.total_of(frozen)
        lender_minor, owed = rules.divide(lender_minor, frozen=there)
        borrower_minor = there - lender_minor
    divided = any(hold.time_log_id == shift.id for hold in frozen)
    _verify(desk, conn, shift, by, divided=divided, settled=owed)
    settle(desk, conn, frozen, lender_minor, borrower_minor)
    return owed is not None


def _tell_end(
    desk: Desk, conn: Conn, dispute: Dispute, shift: LockedShift, status: Ending, lender_minor: int,
    borrower_minor: int, *, unpaid: bool,
) -> None:  # fmt: skip
    """Tell everybody that it is over; only those who divide money hear how it was divided."""
    booking = lock_booking(conn, dispute.booking_id)
    if status not in rules.PAYING:
        _tell(desk, conn, "dispute_on_hold", dispute.id, booking, shift, rules.PARTIES)
        return
    divided = lender_minor + borrower_minor > 0
    told = [part for part in rules.PARTIES if not (divided and part in rules.DIVIDERS)]
    _tell(desk, conn, "dispute_over", dispute.id, booking, shift, told)
    if divided:
        shares = _shares(conn, booking.id, lender_minor, borrower_minor)
        kind = "unpaid_dispute_settled" if unpaid else "dispute_settled"
        _tell(desk, conn, kind, dispute.id, booking, shift, rules.DIVIDERS, shares)


def _tell(
    desk: Desk, conn: Conn, kind: str, dispute_id: int, booking: LockedBooking, shift: LockedShift,
    parts: Iterable[Part], more: Mapping[str, str] | None = None,
) -> None:  # fmt: skip
    day = weeks.local_date(shift.scheduled_start_time, booking.zone)
    about: dict[str, Any] = {"ID": booking.id, "Date": day.isoformat(), "booking_id": booking.id}
    about |= {"dispute_id": dispute_id, **(more or {})}
    desk.tell(conn, kind, people(conn, booking.id, *parts), about, occurrence=desk.now(conn))


def _shares(conn: Conn, booking_id: int, lender_minor: int, borrower_minor: int) -> dict[str, str]:
    currency = escrow.ledger(conn, booking_id).currency
    shares = {"To lender": lender_minor, "To borrower": borrower_minor}
    return {name: str(Money(minor, currency)) for name, minor in shares.items()}


def _verify(desk: Desk, conn: Conn, shift: LockedShift, by: By, *, divided: bool, settled: int | None) -> None:
    """The shift is `Verified`: what is not `divided` is paid as `settled` or by the hours, now or once it comes."""
    hours = None if divided else shift.hours
    fixed = {"paid": hours and hours.paid, "extra": hours and hours.extra}
    store.do(conn, "settle_shift", time_log_id=shift.id, by=str(by), settled=settled, **fixed)
    escrow.give_back_rest(desk, conn, shift.id)
    if hours is not None:
        desk.enqueue(conn, approval.release(shift.id))  # nobody has paid for it yet, and somebody must
        approval.ask_about_extra_time(desk, conn, shift, hours)


def settle(
    desk: Desk, conn: Conn, frozen: list[escrow.Hold], lender_minor: int | None, borrower_minor: int | None
) -> None:
    """Divide what is frozen; who has frozen something says both parts."""
    if frozen and (lender_minor is None or borrower_minor is None):
        raise Refused("settlement: say how much goes to the lender and how much back", field="settlement")
    escrow.settle(desk, conn, frozen, lender_minor=lender_minor or 0, borrower_minor=borrower_minor or 0)
