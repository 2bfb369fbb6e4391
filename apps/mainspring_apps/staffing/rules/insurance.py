"""When a policy's end is told, whom a stop concerns, and where a booking goes on after renewal (STAFF-4)."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Final, Literal

import msgspec

from mainspring_apps.staffing.states import BookingStatus

if TYPE_CHECKING:
    from mainspring_apps.staffing.rules.parts import Part

#: The event that ends work on a booking.
HARD_STOP: Final = "Insurance_Hard_Stop"
#: Who hears that a policy ends, and that it has ended: of its company, and of the other side of affected bookings.
EXPIRY_WARNED: Final[tuple[Literal["Admin", "Manager"], ...]] = ("Admin",)
ALARMED: Final[tuple[Literal["Admin", "Manager"], ...]] = ("Admin", "Manager")
#: Who must stop work.
STOPPED: Final[tuple[Part, ...]] = (
    "Worker", "Supervisor", "Borrowing Admin", "Borrowing Manager", "Lending Admin", "Lending Manager",
)  # fmt: skip
#: The bookings that a stop suspends; `Completed` ones where shifts are still to be worked (G-16).
STOPPABLE: Final = frozenset({"Active", "Payment_Paused_Dispute", "Disputed"})
#: One that waits for its money: its stop waits as well.
UNCONFIRMED: Final = "Pending_Payment"


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """A policy on record."""

    id: int
    company_id: int
    policy_type: str
    is_active: bool
    expiration_date: date

    def valid(self, on: date) -> bool:
        """Whether it covers a day; it does through its expiration date (G-21)."""
        return self.is_active and not expired(self.expiration_date, on)


def days_left(expires: date, today: date) -> int:
    """How many days a policy has left; 0: today is its last."""
    return (expires - today).days


def expired(expires: date, today: date) -> bool:
    """Whether the expiration date has passed."""
    return expires < today


def ends_at(expires: date) -> datetime:
    """When work must stop at the latest: policies end by the clocks of UTC, wherever a project is (STAFF-0.08).

    >>> ends_at(date(2028, 2, 29)).isoformat()
    '2028-03-01T00:00:00+00:00'
    """
    return datetime.combine(expires + timedelta(days=1), time(), UTC)


def warning_due(expires: date, today: date, thresholds: Iterable[int]) -> int | None:
    """Which warning is due, by its threshold; a missed day loses none (G-20).

    >>> from datetime import timedelta
    >>> today = date(2026, 6, 1)
    >>> [warning_due(today + timedelta(days=left), today, (14, 7)) for left in (15, 14, 8, 7, 0, -1)]
    [None, 14, 14, 7, 7, None]
    """
    left = days_left(expires, today)
    return min((one for one in thresholds if 0 <= left <= one), default=None)


def uncovered(policies: Iterable[Policy], on: date) -> Policy | None:
    """The policy that is missing on a day: one whose company has none of its type that is valid; None: all is covered.

    Only what is on record binds: a company that never had a policy of a type is not asked for one (G-19).
    """
    known = sorted(policies, key=lambda policy: (policy.expiration_date, policy.id), reverse=True)
    covered = {(policy.company_id, policy.policy_type) for policy in known if policy.valid(on)}
    return next((policy for policy in known if (policy.company_id, policy.policy_type) not in covered), None)


def stops(status: str, *, to_be_worked: bool) -> bool:
    """Whether a stop suspends a booking."""
    return status in STOPPABLE or (status == "Completed" and to_be_worked)


def restored(before: str, *, option_a: bool) -> BookingStatus:
    """Where a suspended booking goes on: a released one runs out, an open dispute pauses payment, else it is active."""
    if before == "Completed":
        return "Completed"
    return "Payment_Paused_Dispute" if option_a else "Active"
