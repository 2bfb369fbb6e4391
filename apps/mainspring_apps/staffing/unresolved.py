"""What of a booking is unresolved: open disputes and incidents, which its next payment waits for."""

from __future__ import annotations

import msgspec

from mainspring_apps.staffing import store
from mainspring_apps.staffing.states import CLOSED_DISPUTES
from mainspring_apps.staffing.store import Conn


class Unresolved(msgspec.Struct, frozen=True, kw_only=True):
    """What stands between a booking and its next payment."""

    disputes_a: int
    disputes_b: int
    incidents_a: int
    incidents_b: int

    @property
    def option_a(self) -> bool:
        """Whether an option A dispute or incident is open: weekly payment pauses."""
        return bool(self.disputes_a or self.incidents_a)

    @property
    def option_b(self) -> bool:
        """Whether somebody has ended the booking by a dispute or an incident."""
        return bool(self.disputes_b or self.incidents_b)


def of_booking(conn: Conn, booking_id: int) -> Unresolved:
    """What is open: `Disputed` shifts whose dispute is `Open`, and `Pending` incidents."""
    return store.needed(conn, Unresolved, "unresolved", booking_id=booking_id, closed=list(CLOSED_DISPUTES))
