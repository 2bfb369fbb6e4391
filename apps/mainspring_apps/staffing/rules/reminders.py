"""The Scheduled Bomb: when somebody who should have clocked out is asked, who is asked, and how."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from mainspring_apps.staffing.settings import Settings

if TYPE_CHECKING:
    from mainspring_apps.staffing.rules.parts import Part


@dataclass(frozen=True, slots=True)
class Reminder:
    """One of the two: the kind of its message, and to whom."""

    kind: str
    to: tuple[Part, ...]


A: Final = Reminder("reminder_5m", ("Worker", "Supervisor"))
B: Final = Reminder("reminder_30m", ("Worker", "Supervisor"))


def instants(end: datetime | None, now: datetime, settings: Settings) -> tuple[datetime, datetime] | None:
    """When A and B are due; none without a planned end, or once it has passed (G-33).

    >>> from datetime import timedelta
    >>> five = datetime(2026, 6, 1, 17, tzinfo=UTC)
    >>> [f"{at:%H:%M}" for at in instants(five, five, Settings()) or ()]
    ['17:05', '17:30']
    >>> instants(five, five + timedelta(seconds=1), Settings()) is None
    True
    """
    if end is None or now > end:
        return None
    end = end.astimezone(UTC)  # in a local zone Python would add minutes of the wall
    return end + settings.reminder_a, end + settings.reminder_b


def asks(*, status: str, planned: datetime | None, reminded_of: datetime) -> bool:
    """Whether a reminder that is due still asks: the worker works, and the end is the one that it was set for.

    >>> five = datetime(2026, 6, 1, 17, tzinfo=UTC)
    >>> asks(status="Working", planned=five, reminded_of=five)
    True
    >>> asks(status="Pending_Verification", planned=five, reminded_of=five)
    False
    """
    return status == "Working" and planned == reminded_of
