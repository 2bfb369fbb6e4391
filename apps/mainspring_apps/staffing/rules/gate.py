"""The clock-in gate: may this worker begin this shift now, and if not, why not; and whose hand may do what."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date
from typing import TYPE_CHECKING, Final, Literal

from mainspring_apps.staffing import settings
from mainspring_apps.staffing.states import WORKABLE, Refused

if TYPE_CHECKING:
    from mainspring_apps.staffing.people import Part

ShiftAct = Literal["clock_in", "save_draft", "submit_timesheet", "force_clock_out", "edit_timesheet",
                   "verify_timesheet", "change_scheduled_end", "pay_by_hand"]  # fmt: skip

_BORROWER: Final[frozenset[Part]] = frozenset({"Supervisor", "Borrowing Admin", "Borrowing Manager"})
_WORKER: Final[frozenset[Part]] = frozenset({"Worker"})

#: Nobody clocks in, submits or verifies for somebody else: money follows from it.
HANDS: Final[Mapping[ShiftAct, frozenset[Part]]] = {
    "clock_in": _WORKER,
    "save_draft": _WORKER,
    "submit_timesheet": _WORKER,
    "force_clock_out": _BORROWER,
    "edit_timesheet": _BORROWER | _WORKER,
    "verify_timesheet": _BORROWER,
    "change_scheduled_end": _BORROWER,
    "pay_by_hand": frozenset({"Borrowing Admin", "Borrowing Manager"}),
}


def check_hand(act: ShiftAct, part: Part | None) -> None:
    """Refuse who plays another part in the booking, or none.

    >>> check_hand("verify_timesheet", "Supervisor")
    >>> check_hand("verify_timesheet", "Worker")
    Traceback (most recent call last):
    mainspring_apps.staffing.states.Refused: by: a Worker may not verify_timesheet
    """
    if part not in HANDS[act]:
        raise Refused(f"by: {'a ' + part if part else 'nobody of this booking'} may not {act}", field="by")


def closed(*, booking: str, shift: str, starts_on: date, end_date: date, uncovered: str | None) -> str | None:
    """Why a shift cannot be begun, or None: the gate is open.

    Of a booking only its insurance and its end close the gate; a dispute does not (G-07, G-23). A released booking
    has shifts that are paid for, up to its end (G-16).

    >>> day = date(2026, 6, 6)
    >>> closed(booking="Active", shift="Scheduled", starts_on=day, end_date=day, uncovered=None)
    >>> closed(booking="Suspended_Insurance", shift="Scheduled", starts_on=day, end_date=day, uncovered=None)
    'status: the booking is Suspended_Insurance'
    """
    if shift != "Scheduled":
        return f"status: the shift is {shift}"
    released = booking == "Completed" and starts_on <= end_date
    if booking not in WORKABLE and not released:
        return f"status: the booking is {booking}"
    if settings.CLOCK_IN_NEEDS_NO_DISPUTE_AFTER_RENEWAL and booking == "Payment_Paused_Dispute":
        return f"status: the booking is {booking}"
    if uncovered is not None:
        return f"insurance: {uncovered}"
    return None
