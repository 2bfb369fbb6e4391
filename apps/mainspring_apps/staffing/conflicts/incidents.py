"""Incident reports: they pause payment as a dispute does, until they are closed (G-48)."""

from __future__ import annotations

from typing import Final

import msgspec

from mainspring_apps.staffing import store
from mainspring_apps.staffing.conflicts import ending
from mainspring_apps.staffing.conflicts.disputes import settle
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.locking import lock_booking
from mainspring_apps.staffing.payments import escrow, retries
from mainspring_apps.staffing.people import By
from mainspring_apps.staffing.rules.dispute import INCIDENT_B, Option
from mainspring_apps.staffing.states import check
from mainspring_apps.staffing.store import Conn

#: An incident waits for an operator, as nobody else may close it.
FILED: Final = "incident_reported"


class Incident(msgspec.Struct, frozen=True, kw_only=True):
    """A report about a booking."""

    id: int
    booking_id: int
    dispute_option: Option
    status: str


@event
def file_incident(desk: Desk, conn: Conn, booking_id: int, *, option: Option, by: By) -> int:
    """Report an incident: payment pauses from the next Wednesday; option B ends the booking. Answers its id."""
    booking = lock_booking(conn, booking_id)
    now = desk.now(conn)
    incident_id = int(store.value(conn, "file_incident", booking_id=booking_id, option=option, at=now))
    desk.record(conn, "file_incident", "incident", incident_id, booking_id=booking_id, reason=f"option {option}")
    text = f"booking {booking_id}: an incident is reported, option {option}, and an operator closes it"
    desk.alert(conn, FILED, f"incident {incident_id}", text, booking_id=booking_id)
    if option == "B":
        ending.end_booking(desk, conn, booking, now, reason=INCIDENT_B, incident_id=incident_id)
    return incident_id


@event
def resolve_incident(
    desk: Desk, conn: Conn, incident_id: int, *, lender_minor: int | None = None, borrower_minor: int | None = None,
    by: By,
) -> None:  # fmt: skip
    """Close an incident, as an operator: penalties that it froze are divided, and payment may go on."""
    booking_id = store.needed(conn, Incident, "incident", incident_id=incident_id).booking_id
    lock_booking(conn, booking_id)
    incident = store.needed(conn, Incident, "incident", incident_id=incident_id)
    check("incident_reports", incident.status, "Closed")
    now = desk.now(conn)
    store.do(conn, "close_incident", incident_id=incident_id, at=now)
    settle(desk, conn, escrow.frozen(conn, incident_id=incident_id), lender_minor, borrower_minor)
    desk.calm(conn, FILED, f"incident {incident_id}")
    desk.record(
        conn, "resolve_incident", "incident", incident_id, booking_id=booking_id, before="Pending", after="Closed"
    )
    if incident.dispute_option == "A":
        retries.after_resolution(desk, conn, booking_id, resolved_at=now)
