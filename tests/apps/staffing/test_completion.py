"""Bookings that are over become `Completed` by themselves, and what is still owed keeps them open."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, timedelta
from typing import Any

import pytest
from tests.apps.staffing import quarrels
from tests.apps.staffing.sheets import at, begun, leap, submitted
from tests.apps.staffing.test_settling import told as says
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, Booking, Town

from mainspring_apps.staffing import shifts
from mainspring_apps.staffing.conflicts import incidents
from mainspring_apps.staffing.payments import accounts

HOUR, DAY = timedelta(hours=1), timedelta(days=1)
SECOND = timedelta(seconds=1)
LA = "America/Los_Angeles"
#: Of a shift after the last day, as an overnight one is.
LATER = at("20:00", NEXT_MONDAY)


def worked(town: Town, *, funded: bool = True, **values: Any) -> Booking:
    """A booking whose one shift, of Monday, was verified in the evening."""
    booking, shift = submitted(town, funded=funded, end_date=MONDAY, **values)
    with town.conn.transaction():
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.borrowing_admin)
    town.mainspring.drain()
    return booking


def look(town: Town, booking: Booking) -> str:
    """How it stands after the next look."""
    town.mainspring.advance(HOUR)
    return town.status(booking)


@pytest.mark.rule("STAFF-20.09")
def test_a_booking_is_completed_once_its_last_day_is_over_where_the_project_is(town: Town) -> None:
    booking = worked(town, zone=LA)
    suspended = town.booking(zone=LA, end_date=MONDAY, status="Suspended_Insurance", status_before_suspension="Active")
    released = town.booking(zone=LA, end_date=MONDAY, status="Completed")
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)

    midnight = at("00:00", MONDAY + DAY, LA)
    town.only("finished-bookings", at=midnight - 2 * HOUR)
    town.mainspring.advance(to=midnight - SECOND)  # the day is over in New York and in UTC
    assert [town.status(one) for one in (booking, suspended)] == ["Active", "Suspended_Insurance"]
    town.mainspring.advance(to=midnight + HOUR)
    for one in (booking, suspended, released):
        row = town.row("bookings", one.id)
        assert (row["status"], row["end_date"], row["status_before_suspension"]) == ("Completed", MONDAY, None)
    done = [("SYSTEM", "booking", one.id, None, None) for one in (booking, suspended)]
    assert (town.audit("booking_completed"), town.messages("worker_released")) == (done, [])

    town.only("finished-bookings", "weekly-payments", at=at("09:59", MONDAY + 2 * DAY, LA))
    town.mainspring.advance(timedelta(minutes=2))
    assert town.value("select count(*) from mainspring.jobs where task = 'complete_booking'") == 2  # and no more
    assert town.value("select count(*) from staffing.pending_payments") == 1  # nor is another week charged


def incident(town: Town, booking: Booking) -> Callable[[], None]:
    with town.conn.transaction():
        filed = incidents.file_incident(town.desk, town.conn, booking.id, option="A", by=booking.borrowing_admin)

    def close() -> None:
        with town.conn.transaction():
            incidents.resolve_incident(town.desk, town.conn, filed, by=town.operator)

    return close


def unverified(town: Town, booking: Booking) -> Callable[[], None]:
    town.mainspring.clock.set(LATER)
    sheet: dict[str, Any] = {"clock_out_time": LATER, "work_end_time": LATER, "auto_approval_time": LATER + DAY}
    shift = town.shift(booking, NEXT_MONDAY, status="Pending_Verification", **sheet)
    town.unheard()
    town.funded(booking, shift)

    def verify() -> None:
        with town.conn.transaction():
            shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.borrowing_admin)

    return verify


def disputed(town: Town, booking: Booking) -> Callable[[], None]:
    unverified(town, booking)
    dispute = quarrels.filed(town, booking.shifts[-1], by=booking.borrowing_admin)
    town.conn.execute("update staffing.bookings set status = 'Payment_Paused_Dispute' where id = %s", [booking.id])
    quarrels.resolved(town, dispute, "Legal_Hold")
    return lambda: quarrels.resolved(town, dispute, lender_minor=1, borrower_minor=23999)


def unpaid(town: Town, booking: Booking) -> Callable[[], None]:
    """Money of verified work waits for a lender who has no account."""
    town.conn.execute("update staffing.companies set stripe_account_id = null where id = %s", [booking.lender])
    unverified(town, booking)()
    town.mainspring.drain()

    def connect() -> None:
        account, by = town.account(), booking.lending_admin
        with town.conn.transaction():
            accounts.connect_account(town.desk, town.conn, booking.lender, account=account, by=by)

    return connect


def unbegun(town: Town, booking: Booking) -> Callable[[], None]:
    """Money is held for a shift that nobody began; here somebody says that it was worked."""
    town.mainspring.clock.set(LATER)
    shift = town.shift(booking, NEXT_MONDAY)
    town.unheard()
    town.funded(booking, shift)

    def say() -> None:
        start, end = at("09:00", NEXT_MONDAY), at("17:00", NEXT_MONDAY)
        with town.conn.transaction():
            shifts.was_worked(town.desk, town.conn, shift, start=start, end=end, by=booking.borrowing_admin)

    return say


@pytest.mark.rule("STAFF-20.09")
@pytest.mark.parametrize("unsettled", [incident, unverified, disputed, unpaid, unbegun])
def test_what_is_not_settled_keeps_a_booking_open(
    town: Town, unsettled: Callable[[Town, Booking], Callable[[], None]]
) -> None:
    booking = worked(town)
    settle = unsettled(town, booking)
    town.only("finished-bookings", at=LATER + HOUR)
    assert look(town, booking) != "Completed"
    settle()
    town.mainspring.drain()
    assert look(town, booking) == "Completed"
    assert town.ledger(booking)[1:3] == (0, 0)


@pytest.mark.rule("STAFF-20.09")
def test_work_that_is_still_to_be_paid_for_keeps_a_booking_open_and_its_late_money_is_not_too_late(town: Town) -> None:
    booking = worked(town, funded=False, card="pm_card_processing")
    town.only("finished-bookings", "weekly-payments", at=at("09:00", date(2026, 6, 3)))
    assert look(town, booking) == "Active"
    town.mainspring.advance(to=at("12:30", date(2026, 6, 3)))  # charged with the week after its end, and slowly
    (payment,) = town.rows("select id, period_start, status from staffing.pending_payments")
    assert payment[1:] == (at("00:00", date(2026, 6, 8)), "Pending")
    assert look(town, booking) == "Active"

    town.mainspring.clock.set(at("12:45", date(2026, 6, 11)))
    town.sandbox.stripe.settle(town.row("pending_payments", payment[0])["provider_intent_id"], "succeeded")
    town.mainspring.drain()
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)
    assert look(town, booking) == "Completed"
    says(town, payment[0], "succeeded")  # told again
    town.mainspring.drain()
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)


@pytest.mark.rule("STAFF-15.13", "STAFF-20.14")
def test_work_that_nobody_submitted_and_nobody_has_paid_for_is_told(town: Town) -> None:
    booking, shift = begun(town)
    leap(town, at("17:00", MONDAY + DAY))
    assert town.wrong("money_stands_still") == []
    leap(town, at("17:01", MONDAY + DAY))
    text = f"booking {booking.id}: was to end long ago, nobody has paid for it, and it is still Working"
    assert town.wrong("money_stands_still") == [(f"shift {shift}", text)]
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    assert town.wrong("money_stands_still") == []
