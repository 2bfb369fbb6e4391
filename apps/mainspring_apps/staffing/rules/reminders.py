"""The Scheduled Bomb: when somebody who should have clocked out is asked, who is asked, and how."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final

from mainspring_apps.staffing.settings import REMINDER_A, REMINDER_B

if TYPE_CHECKING:
    from mainspring_apps.staffing.rules.parts import Part


@dataclass(frozen=True, slots=True)
class Reminder:
    """One of the two: the kind of its message, how long after the planned end, and to whom."""

    kind: str
    after: timedelta
    to: tuple[Part, ...]


A: Final = Reminder("reminder_5m", REMINDER_A, ("Worker", "Supervisor"))
B: Final = Reminder("reminder_30m", REMINDER_B, ("Worker", "Supervisor"))


def instants(end: datetime | None, now: datetime) -> tuple[datetime, datetime] | None:
    """When A and B are due; none without a planned end, or once it has passed (G-33).

    >>> five = datetime(2026, 6, 1, 17, tzinfo=UTC)
    >>> [f"{at:%H:%M}" for at in instants(five, five) or ()]
    ['17:05', '17:30']
    >>> instants(five, five + timedelta(seconds=1)) is None
    True
    """
    if end is None or now > end:
        return None
    end = end.astimezone(UTC)  # in a local zone Python would add minutes of the wall
    return end + A.after, end + B.after


def asks(*, status: str, planned: datetime | None, reminded_of: datetime) -> bool:
    """Whether a reminder that is due still asks: the worker works, and the end is the one that it was set for.

    >>> five = datetime(2026, 6, 1, 17, tzinfo=UTC)
    >>> asks(status="Working", planned=five, reminded_of=five)
    True
    >>> asks(status="Pending_Verification", planned=five, reminded_of=five)
    False
    """
    return status == "Working" and planned == reminded_of
