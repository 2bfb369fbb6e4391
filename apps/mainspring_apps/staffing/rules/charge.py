"""What Wednesday's run charges: which bookings, whether, for which shifts, and what a failure means."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final, Literal

from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.rules.pay import added_pay

Source = Literal["weekly", "retry", "renewal", "late", "manual", "upfront", "arrears", "imported"]
#: Why a shift costs more than was planned: a later end that the borrower has set, or extra time that they confirmed.
Added = Literal["Longer", "Extra"]
ChargeAct = Literal["charge", "pause", "unpause", "leave"]

#: Which bookings are enqueued (STAFF-1.08).
PAYMENT_TYPE: Final = "Weekly_Progress"
STATUS: Final = "Active"
#: Who hears of a failure (STAFF-1.33).
FAILURE_TOLD: Final = "Borrowing Admin"
#: Shifts in these statuses are not paid for now.
UNPAID: Final = frozenset({"Cancelled", "Disputed"})
#: Wednesday's own charge, and what makes up for it, pause a booking; no other does, as its cutoff would be left out.
PAUSING: Final[frozenset[Source]] = frozenset({"weekly", "late"})
#: No week of these is charged any more.
UNCHARGED: Final = frozenset({"Completed", "Cancelled", "Suspended_Insurance"})
#: Payments for shifts of whatever weeks: no week is funded by them.
FOR_SHIFTS: Final[frozenset[Source]] = frozenset({"arrears", "imported"})
#: What the borrower is told of a failure; of one that confirms nothing, `confirmation` tells.
FAILURE_TEXT: Final[Mapping[str, str]] = {"arrears": "arrears_failed"}
#: From these a payment goes on once nothing is open any more (STAFF-11.14).
RESUMABLE: Final = frozenset({"Active", "Payment_Paused_Dispute"})


@dataclass(frozen=True, slots=True)
class UnpaidShift:
    """A shift that no payment has paid or is paying."""

    id: int
    status: str
    scheduled_start_time: datetime
    planned_minutes: int
    scheduled_end_time: datetime | None = None
    paid_minutes: int | None = None
    settled_minor: int | None = None  # by the end of a dispute: what is owed instead

    @property
    def minutes(self) -> int:
        """What is charged as planned: where it is verified already, what was worked of it."""
        return self.planned_minutes if self.paid_minutes is None else min(self.paid_minutes, self.planned_minutes)

    def missed(self, now: datetime) -> bool:
        """Whether nobody began it, and its time is over."""
        end = self.scheduled_end_time or self.scheduled_start_time + timedelta(minutes=self.planned_minutes)
        return self.status == "Scheduled" and end <= now


@dataclass(frozen=True, slots=True)
class TakenShift(UnpaidShift):
    """A shift of which the provider took money without us; so much stands for it all the same, and is being paid."""

    standing_minor: int = 0
    coming_minor: int = 0


@dataclass(frozen=True, slots=True)
class AddedTime:
    """Minutes of a verified shift, since one and until another, that no payment has paid or is paying."""

    time_log_id: int
    kind: Added
    since: int
    until: int
    settled_minor: int | None = None


def decide(status: str, payment_type: str, *, open_a: bool, open_b: bool, source: Source = "weekly") -> ChargeAct:
    """What a charge does with a booking, as it stands under its lock; insurance is no part of it (STAFF-1.24).

    >>> decide("Active", "Weekly_Progress", open_a=True, open_b=False)
    'pause'
    """
    if status != STATUS or payment_type != PAYMENT_TYPE or open_b:  # option B has cancelled the booking, or is about to
        return "leave"
    if open_a:
        return "pause" if source in PAUSING else "leave"
    return "charge"


def resume(status: str, payment_type: str, *, open_a: bool, open_b: bool) -> ChargeAct:
    """What a retry after a resolution does: it charges, or it leaves everything as it is; it never pauses.

    A booking that is not paid by the week may be paused as well, by a renewal; it goes on, and nothing is charged.

    >>> resume("Payment_Paused_Dispute", "Weekly_Progress", open_a=False, open_b=False)
    'charge'
    """
    if status not in RESUMABLE or open_a or open_b:
        return "leave"
    return "charge" if payment_type == PAYMENT_TYPE else "unpause"


def pays_arrears(status: str, payment_type: str) -> bool:
    """Whether no week of a booking will charge what was worked and is unpaid: it is paid as arrears (STAFF-20.14).

    >>> pays_arrears("Completed", "Weekly_Progress"), pays_arrears("Active", "Upfront")
    (True, True)
    """
    return status in UNCHARGED or payment_type != PAYMENT_TYPE


def funded(funded_period_end: datetime | None, period: weeks.Period) -> bool:
    """Whether a week is paid for; a booking that never was is not (G-14)."""
    return funded_period_end is not None and funded_period_end >= period.end


def amounts(
    shifts: Iterable[UnpaidShift], rate_minor: int, period: weeks.Period, fee_bps: int, *, now: datetime
) -> dict[int, int]:
    """What each unfunded shift costs that begins before the end of the period: older ones join in (G-49).

    What is over and nobody began is not charged, by whatever source (STAFF-20.06).
    """
    due = [shift for shift in shifts if shift.status not in UNPAID and shift.scheduled_start_time < period.end]
    return _prices([shift for shift in due if not shift.missed(now)], rate_minor, fee_bps)


def arrears(shifts: Iterable[UnpaidShift], rate_minor: int, fee_bps: int) -> dict[int, int]:
    """What each unfunded shift costs that was worked and verified, whenever; what is disputed waits (STAFF-20.14)."""
    return _prices([shift for shift in shifts if shift.status == "Verified"], rate_minor, fee_bps)


def taken(
    shifts: Iterable[TakenShift], rate_minor: int, fee_bps: int, *, now: datetime, coming: bool
) -> dict[int, int]:
    """What is missing for shifts whose money was taken back; what is `coming` is not, for who would charge it again.

    >>> start = datetime(2026, 6, 1, 9)
    >>> shift = TakenShift(1, "Verified", start, 480, paid_minutes=187, standing_minor=4000)
    >>> taken([shift], 3000, 0, now=start, coming=True)
    {1: 5350}
    """
    known = {shift.id: shift for shift in shifts if shift.status not in UNPAID and not shift.missed(now)}
    prices = _prices(known.values(), rate_minor, fee_bps)
    stands = {shift: one.standing_minor + coming * one.coming_minor for shift, one in known.items()}
    missing = {shift: price - stands[shift] for shift, price in prices.items()}
    return {shift: price for shift, price in missing.items() if price > 0}


def _prices(shifts: Iterable[UnpaidShift], rate_minor: int, fee_bps: int) -> dict[int, int]:
    prices = {shift.id: added_pay(0, shift.minutes, rate_minor, fee_bps, shift.settled_minor) for shift in shifts}
    return {shift: price for shift, price in prices.items() if price}  # what rounds to nothing is not owed


def added(times: Iterable[AddedTime], rate_minor: int, fee_bps: int) -> dict[tuple[int, Added], int]:
    """What more each shift costs than was charged as planned (STAFF-20.04)."""
    prices = {
        (time.time_log_id, time.kind): added_pay(time.since, time.until, rate_minor, fee_bps, time.settled_minor)
        for time in times
    }
    return {part: price for part, price in prices.items() if price}


def key(booking_id: int, period_start: datetime, number: int) -> str:
    """The idempotency key of a charge; the number grows only after a final failure (STAFF-19.01).

    >>> key(17, weeks.midnight(date(2026, 6, 8), "America/New_York"), 1)
    'charge:17:2026-06-08T04:00:00+00:00:1'
    """
    return f"charge:{booking_id}:{period_start.isoformat()}:{number}"


def too_late(status: str, end_date: date, period_start: datetime, zone: str, *, start_date: date | None = None) -> bool:
    """Whether a booking was released before the week that a payment is for: its money goes back (STAFF-3.24).

    One that was released before it began ends on the day that it was to begin.

    >>> too_late("Completed", date(2026, 6, 7), weeks.midnight(date(2026, 6, 8), "UTC"), "UTC")
    True
    """
    first = weeks.local_date(period_start, zone)
    return status == "Completed" and (end_date < first or first <= end_date == start_date)
