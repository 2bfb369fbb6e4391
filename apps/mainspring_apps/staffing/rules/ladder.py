"""The four hours of a timesheet: who is told when, when it approves itself, and what a late edit adds."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import msgspec

from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused

if TYPE_CHECKING:
    from mainspring_apps.staffing.rules.parts import Part


@dataclass(frozen=True, slots=True)
class LadderStep:
    """One message: its kind, and to whom."""

    kind: str
    to: tuple[Part, ...]


T0: Final = LadderStep("ladder_0", ("Supervisor",))
T60: Final = LadderStep("ladder_60m", ("Supervisor", "Borrowing Admin"))
T3H: Final = LadderStep("ladder_3h", ("Supervisor", "Borrowing Admin"))

#: Who hears of time beyond the plan: those who would pay for it, and who was there. Each of them may confirm it.
MAY_CONFIRM: Final[tuple[Part, ...]] = ("Supervisor", "Borrowing Admin", "Borrowing Manager")
#: Who hears that it is unpaid until then: who worked it, and their company.
UNPAID_TOLD: Final[tuple[Part, ...]] = ("Worker", "Lending Admin")
#: Who hears of hours that the borrower's side has cut.
CUT_TOLD: Final[tuple[Part, ...]] = ("Worker",)
#: Who hears of an auto-approval.
APPROVED: Final[tuple[Part, ...]] = ("Worker",)


class Sheet(msgspec.Struct, frozen=True, kw_only=True):
    """A submitted timesheet and its instants: what its four timers carry (STAFF-9.04)."""

    time_log_id: int
    booking_id: int
    clock_out_time: datetime
    notification_0_time: datetime
    notification_60m_time: datetime
    notification_3h_time: datetime
    auto_approval_time: datetime


def sheet(
    time_log_id: int, booking_id: int, clock_out: datetime, settings: Settings, *, deadline: datetime | None = None
) -> Sheet:
    """The instants from Submit or Force Clock Out on, in hours of 3600 s whatever clocks on walls do (STAFF-9.06).

    >>> s = sheet(9, 1, datetime(2026, 6, 6, 17, tzinfo=UTC), Settings())
    >>> f"{s.notification_0_time:%H} {s.notification_60m_time:%H} {s.notification_3h_time:%H} {s.auto_approval_time:%H}"
    '17 18 20 21'
    """
    clock_out = clock_out.astimezone(UTC)  # in a local zone Python would add hours of the wall
    first, second, last = settings.ladder
    return Sheet(
        time_log_id=time_log_id,
        booking_id=booking_id,
        clock_out_time=clock_out,
        notification_0_time=clock_out + first,
        notification_60m_time=clock_out + second,
        notification_3h_time=clock_out + last,
        auto_approval_time=deadline or clock_out + settings.auto_approval,
    )


def pending(*, status: str, disputed: bool) -> bool:
    """Whether a timesheet still waits for somebody: else its messages and its approval are off (STAFF-9.16 to 9.23)."""
    return status == "Pending_Verification" and not disputed


def tells(*, now: datetime, deadline: datetime) -> bool:
    """Whether a message still helps: not once the timesheet has approved itself, or is about to (STAFF-9.39)."""
    return now < deadline


def approves(*, status: str, disputed: bool, now: datetime, deadline: datetime) -> bool:
    """Whether a timesheet approves itself now: a dispute comes first, and an extension counts (STAFF-9.21 to 9.24)."""
    return pending(status=status, disputed=disputed) and now >= deadline


def check_worker(end: datetime, capped: datetime | None, zone: str) -> None:
    """Refuse a worker's edit beyond the end that the borrower's side has set: who pays has said it (STAFF-20.03).

    >>> five = datetime(2026, 6, 6, 17, tzinfo=UTC)
    >>> check_worker(five, None, "UTC"), check_worker(five, five, "UTC")
    (None, None)
    """
    if capped is not None and end > capped:
        until = weeks.written(capped, zone)
        text = f"end: the borrower has set it to {until}; if you worked longer, dispute the timesheet"
        raise Refused(text, field="end")


def check_verifier(
    cut_at: datetime | None, deadline: datetime | None, settings: Settings, *, now: datetime, zone: str
) -> None:
    """Refuse to verify before a worker has had an hour to object to a cut, or the timesheet approves itself (G-35)."""
    if cut_at is None:
        return
    first = cut_at.astimezone(UTC) + settings.late_edit
    first = first if deadline is None else min(first, deadline)
    if now < first:
        since = weeks.written(first, zone)
        text = f"time_log_id: its hours were cut, and the worker may object: it can be verified from {since} on"
        raise Refused(text, field="time_log_id")


def after_edit(deadline: datetime, settings: Settings, *, now: datetime, extends: bool, extensions: int) -> datetime:
    """The deadline after an edit: a late one that `extends` gives the worker an hour more to review it.

    Such are a supervisor's edits (STAFF-9.11), and each cut by the borrower's side (STAFF-20.03).

    >>> from datetime import timedelta
    >>> nine = datetime(2026, 6, 6, 21, tzinfo=UTC)
    >>> late = nine - timedelta(minutes=30)
    >>> f"{after_edit(nine, Settings(), now=late, extends=True, extensions=0):%H:%M}"
    '22:00'
    >>> f"{after_edit(nine, Settings(), now=late, extends=False, extensions=0):%H:%M}"
    '21:00'
    """
    now, deadline = now.astimezone(UTC), deadline.astimezone(UTC)
    if now > deadline:
        raise Refused("time_log_id: the time to edit this timesheet is over", field="time_log_id")
    if not extends or deadline - now >= settings.late_edit:
        return deadline
    if extensions >= settings.max_edit_extensions:
        raise Refused(f"time_log_id: was edited late {extensions} times, and no more often", field="time_log_id")
    return deadline + settings.late_edit
