"""Disputes: until when one can be filed, what a timeout does, and who is told."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final, Literal

from mainspring_apps.staffing.rules.penalty import half_up

if TYPE_CHECKING:
    from mainspring_apps.staffing.rules.parts import Part

Option = Literal["A", "B"]  # "Dispute Shift Only", "End Booking & Dispute"
Ending = Literal["Settled", "Resolved", "Legal_Hold"]

#: Who hears of a timeout (STAFF-10.19).
TIMEOUT_TOLD: Final[tuple[Part, ...]] = ("Borrowing Admin", "Lending Admin", "Worker")
#: Who hears that there is a dispute, and that it is over; and who can agree how its money is divided (STAFF-20.11).
PARTIES: Final[tuple[Part, ...]] = ("Worker", "Supervisor", "Borrowing Admin", "Lending Admin")
DIVIDERS: Final[tuple[Part, ...]] = ("Borrowing Admin", "Lending Admin")
#: These endings divide the frozen money; a legal hold keeps it (G-46).
PAYING: Final[frozenset[Ending]] = frozenset({"Settled", "Resolved"})
#: Why the future shifts of a booking are cancelled.
TIMEOUT_REASON: Final = "Dispute_Timeout"
OPTION_B: Final = "Dispute_Option_B"
INCIDENT_B: Final = "Incident_Option_B"


def refusal(
    *, status: str, verified_by: str | None, deadline: datetime | None, now: datetime, paid: bool, disputed: bool
) -> str | None:
    """Why a shift in this state cannot be disputed now, or None: it can.

    Up to its auto-approval, that instant included: an approval by SYSTEM at the same instant is turned back while the
    money has not left (G-36). `paid`: it has; `disputed`: there was a dispute about it already.

    >>> at = datetime(2026, 6, 3, 21)
    >>> refusal(status="Verified", verified_by="SYSTEM", deadline=at, now=at, paid=False, disputed=False)
    >>> refusal(status="Verified", verified_by="7", deadline=at, now=at, paid=False, disputed=False)
    'the shift was verified by a person'
    """
    if disputed:
        return "there was a dispute about the shift already"
    if status not in {"Pending_Verification", "Verified"} or deadline is None:
        return f"the shift is {status}, not submitted for verification"
    if status == "Verified" and verified_by != "SYSTEM":
        return "the shift was verified by a person"
    if now > deadline:
        return "the time for disputes has ended"
    if paid:
        return "the lender was paid"
    return None


def divide(lender_minor: int, *, frozen: int) -> tuple[int, int]:
    """The lender's part, of what is frozen and of what nobody has paid yet: what is there already goes first.

    >>> divide(6000, frozen=0), divide(6000, frozen=4000), divide(6000, frozen=24000)
    ((0, 6000), (4000, 2000), (6000, 0))
    """
    there = min(lender_minor, frozen)
    return there, lender_minor - there


def share(late_minor: int, lender_minor: int | None, borrower_minor: int | None) -> int:
    """The lender's part of a penalty that comes when its dispute is over: as what there was then was divided.

    >>> share(1001, 6000, 18000), share(1001, 0, 24000), share(1001, 24000, 0), share(1001, None, None)
    (250, 0, 1001, 1001)
    """
    to_lender, back = lender_minor or 0, borrower_minor or 0
    return half_up(late_minor * to_lender, to_lender + back) if to_lender + back else late_minor


def times_out(
    *,
    option: str,
    status: str,
    booking: str,
    filed_at: datetime,
    timed_out_at: datetime | None,
    now: datetime,
    timeout: timedelta,
) -> bool:
    """Whether the future shifts of the booking are to be cancelled now for this dispute.

    Option B has ended its booking when it was filed, and with the booking what other disputes would cancel (G-41).
    """
    return (
        option == "A"
        and status == "Open"
        and booking != "Cancelled"
        and timed_out_at is None
        and now >= filed_at + timeout
    )
