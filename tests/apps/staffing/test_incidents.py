from __future__ import annotations

from typing import Any

import pytest
from tests.apps.staffing.quarrels import DAY, MINUTE, TUESDAY, T, filed, moved, resolved, submitted
from tests.apps.staffing.town import NEXT_MONDAY, W10, Booking, Town

from mainspring_apps.staffing.conflicts import incidents
from mainspring_apps.staffing.conflicts.disputes import Option
from mainspring_apps.staffing.states import Refused


def reported(town: Town, booking: Booking, option: Option = "A", *, by: int | None = None) -> int:
    with town.conn.transaction():
        return incidents.file_incident(
            town.desk, town.conn, booking.id, option=option, by=by or booking.borrowing_admin
        )


def closed(town: Town, incident: int, **about: Any) -> None:
    with town.conn.transaction():
        incidents.resolve_incident(town.desk, town.conn, incident, **about, by=town.operator)


@pytest.mark.rule("STAFF-1.18", "STAFF-11.02")
def test_an_incident_pauses_payment_at_the_next_wednesday_until_it_is_closed(town: Town) -> None:
    booking = town.booking(shifts=1)
    incident = reported(town, booking, by=booking.worker_user)
    assert town.status(booking) == "Active"
    assert town.row("incident_reports", incident)["filed_at"] == town.now
    assert town.audit("file_incident") == [(str(booking.worker_user), "incident", incident, "option A", None)]

    town.mainspring.clock.set(W10 - MINUTE)
    town.mainspring.advance(minutes=1)
    assert (town.status(booking), moved(town, "charge")) == ("Payment_Paused_Dispute", [])

    closed(town, incident)
    assert len(town.waiting("retry_payment")) == 1
    town.mainspring.drain()
    assert (town.status(booking), moved(town, "charge")) == ("Active", [24000])
    assert town.row("incident_reports", incident)["closed_at"] == town.now
    with pytest.raises(Refused, match="cannot go from Closed to Closed"):
        closed(town, incident)


@pytest.mark.rule("STAFF-20.11")
def test_operators_hear_of_an_incident_at_once_and_of_what_is_open_and_frozen_for_a_week(town: Town) -> None:
    booking, shift = submitted(town)
    dispute = filed(town, shift, by=booking.borrowing_admin)
    resolved(town, dispute, "Legal_Hold")
    incident = reported(town, booking)
    assert ("incident_reported", f"incident {incident}", "warning") in town.alerts()

    town.mainspring.clock.set(T + 7 * DAY - MINUTE)
    assert town.wrong("conflict_left_open") == []
    town.mainspring.clock.set(T + 7 * DAY)
    since = f"booking {booking.id}: it is"
    assert town.wrong("conflict_left_open") == [
        (f"dispute {dispute}", f"{since} Legal_Hold since 2026-06-01, and keeps 24000 minor units frozen"),
        (f"incident {incident}", f"{since} Pending since 2026-06-01, and keeps 0 minor units frozen"),
    ]
    resolved(town, dispute, lender_minor=24000, borrower_minor=0)
    closed(town, incident)
    assert town.wrong("conflict_left_open") == []
    assert "incident_reported" not in [name for name, *_ in town.alerts()]


@pytest.mark.rule("STAFF-11.02", "STAFF-11.03")
def test_a_dispute_and_an_incident_both_have_to_end(town: Town) -> None:
    booking, shift = submitted(town)
    dispute, incident = filed(town, shift, by=booking.borrowing_admin), reported(town, booking)

    resolved(town, dispute, lender_minor=24000, borrower_minor=0)
    assert town.waiting("retry_payment") == []
    closed(town, incident)
    assert len(town.waiting("retry_payment")) == 1


@pytest.mark.rule("STAFF-10.08", "STAFF-10.15", "STAFF-10.33")
def test_an_incident_with_option_b_ends_the_booking_and_its_penalties_wait_for_its_end(town: Town) -> None:
    booking = town.booking(shifts=[TUESDAY, NEXT_MONDAY], payment_type="Upfront")
    town.funded(booking)
    town.mainspring.clock.set(T)
    assert refused(town, booking, "B", by=booking.worker_user) == "by"
    assert refused(town, booking, "A", by=booking.lending_admin) == "by"

    incident = reported(town, booking, "B")

    assert (town.status(booking), town.ledger(booking)) == ("Cancelled", (48000, 0, 12000, 0, 36000))
    reasons = town.rows("select distinct cancel_reason from staffing.time_log where status = 'Cancelled'")
    assert reasons == [("Incident_Option_B",)]
    with pytest.raises(Refused, match="settlement"):
        closed(town, incident)
    with pytest.raises(Refused, match="settlement"):
        closed(town, incident, lender_minor=12000, borrower_minor=1)
    closed(town, incident, lender_minor=11000, borrower_minor=1000)
    town.mainspring.drain()
    assert town.ledger(booking) == (48000, 0, 0, 11000, 37000)
    assert (moved(town, "transfer"), moved(town, "refund")) == ([11000], [1000, 12000, 24000])
    assert town.waiting("retry_payment") == []


def refused(town: Town, booking: Booking, option: Option, *, by: int) -> str:
    with pytest.raises(Refused) as error:
        reported(town, booking, option, by=by)
    return error.value.field
