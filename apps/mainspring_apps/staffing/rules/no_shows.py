"""Shifts that nobody began: until when somebody can say that they were worked, and who is told (STAFF-20.07)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mainspring_apps.staffing.rules.parts import Part

#: Why such a shift is cancelled.
NO_SHOW: Final = "No_Show"
#: It could not be begun, since its money was taken back: whoever came was turned away.
TAKEN_BACK: Final = "Payment_Taken_Back"
#: Both sides hear of it, and who may not have clocked in.
NO_SHOW_TOLD: Final[tuple[Part, ...]] = ("Worker", "Supervisor", "Borrowing Admin", "Lending Admin")


def reason(holds: Collection[str]) -> str:
    """Why a shift with holds in these statuses was not begun.

    >>> reason({"Held"}), reason({"Taken"}), reason({"Taken", "Held"})
    ('No_Show', 'Payment_Taken_Back', 'No_Show')
    """
    return TAKEN_BACK if "Taken" in holds and "Held" not in holds else NO_SHOW


def given_up_at(planned_end: datetime, after: timedelta) -> datetime:
    """When nobody can begin a shift any more, nor say that it was worked."""
    return planned_end + after


def less(planned_start: datetime, planned_end: datetime, start: datetime, end: datetime) -> bool:
    """Whether hours leave out some of the planned ones, which is a cut (STAFF-20.03)."""
    return start > planned_start or end < planned_end


def refusal(
    *, status: str, planned_start: datetime, planned_end: datetime, until: datetime, start: datetime, end: datetime,
    now: datetime,
) -> str | None:  # fmt: skip
    """Why it cannot be said now that a shift was worked in these hours, or None: it can.

    >>> nine, five = datetime(2026, 6, 1, 9), datetime(2026, 6, 1, 17)
    >>> about = {"status": "Scheduled", "planned_start": nine, "planned_end": five, "start": nine, "end": five}
    >>> refusal(**about, until=five + timedelta(days=1), now=five)
    >>> refusal(**about, until=five + timedelta(days=1), now=five + timedelta(days=1))
    'time_log_id: the time to say that the shift was worked is over'
    """
    if status != "Scheduled":
        return f"status: the shift is {status}, not Scheduled"
    if now >= until:
        return "time_log_id: the time to say that the shift was worked is over"
    if not start < end <= now:
        return "end: work ends after its start, and not after now"
    if start >= planned_end or end <= planned_start:
        return "start: these hours lie outside the planned ones"
    return None
