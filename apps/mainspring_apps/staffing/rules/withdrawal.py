"""Calling off what is to come: why, whether a penalty is owed for it, and who is told (STAFF-20.08)."""

from __future__ import annotations

from collections.abc import Collection
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from mainspring_apps.staffing.rules.parts import Part

#: Why a shift was cancelled: by who pays for it,
BY_BORROWER: Final = "Cancelled_By_Borrower"
#: by the same, while the lender had no insurance and nobody could have worked,
UNINSURED: Final = "Cancelled_Lender_Uninsured"
#: or by us, which is nobody's fault of the two.
BY_PLATFORM: Final = "Cancelled_By_Platform"


def reason(parts: Collection[Part], *, covered: bool) -> str:
    """Whose word it is; `covered`: the lender's insurance is valid.

    >>> reason(["Borrowing Admin"], covered=True), reason(["Platform Operator"], covered=True)
    ('Cancelled_By_Borrower', 'Cancelled_By_Platform')
    """
    if "Platform Operator" in parts:
        return BY_PLATFORM
    return BY_BORROWER if covered else UNINSURED


def penalised(reason: str | None) -> bool:
    """Whether the lender is owed the penalty of a shift that was cancelled for this reason."""
    return reason == BY_BORROWER


def refusal(*, status: str, planned_end: datetime, now: datetime) -> str | None:
    """Why a shift cannot be called off now, or None: it can.

    >>> five = datetime(2026, 6, 1, 17)
    >>> refusal(status="Scheduled", planned_end=five, now=five)
    'time_log_id: the shift is over; if nobody began it, it is refunded by itself'
    """
    if status != "Scheduled":
        return f"status: the shift is {status}, not Scheduled"
    if now >= planned_end:
        return "time_log_id: the shift is over; if nobody began it, it is refunded by itself"
    return None
