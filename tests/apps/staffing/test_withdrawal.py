"""Shifts and bookings that a borrower, or the platform, calls off: what is owed, what goes back, who is told."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Literal

import psycopg
import pytest
from tests.apps.staffing import quarrels, wednesday
from tests.apps.staffing.quarrels import moved
from tests.apps.staffing.sheets import at, timers, told
from tests.apps.staffing.test_settling import charged
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, W10, Booking, Town

from mainspring_apps.staffing import shifts, withdrawal
from mainspring_apps.staffing.states import NotAllowed, Refused
from mainspring_apps.staffing.store import Conn

HOUR, DAY, SECOND = timedelta(hours=1), timedelta(days=1), timedelta(seconds=1)


def call_off(town: Town, what: Booking | int, *, by: int, conn: Conn | None = None) -> None:
    conn = conn or town.conn
    with conn.transaction():
        if isinstance(what, Booking):
            withdrawal.cancel_booking(town.desk, conn, what.id, by=by)
        else:
            withdrawal.cancel_shift(town.desk, conn, what, by=by)


def everybody(booking: Booking) -> set[int]:
    return {
        booking.worker_user, booking.supervisor or 0, booking.borrowing_admin, booking.borrowing_manager,
        booking.lending_admin, booking.lending_manager,
    }  # fmt: skip


@pytest.mark.rule("STAFF-20.08")
def test_a_booking_that_is_called_off_pays_what_has_begun_owes_what_is_near_and_gives_the_rest_back(town: Town) -> None:
    booking = town.booking(shifts=4)
    begun, near, far, last = booking.shifts
    charged(town, booking)
    town.mainspring.advance(to=W10 + HOUR)
    town.mainspring.clock.set(at("09:00", NEXT_MONDAY))
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, begun, by=booking.worker_user)
    assert all("no-show" in timers(town, shift) for shift in (near, far, last))

    town.mainspring.clock.set(at("10:00", NEXT_MONDAY))
    with ThreadPoolExecutor(2) as pool, psycopg.connect(town.mainspring.dsn, autocommit=True) as other:
        both = [pool.submit(call_off, town, booking, by=booking.borrowing_admin, conn=conn)
                for conn in (town.conn, other)]  # fmt: skip
        (refused,) = [why for one in both if (why := one.exception()) is not None]
    assert isinstance(refused, Refused)
    assert str(refused) == "status: the booking is Cancelled"
    for shift in (near, far, last):
        row = town.row("time_log", shift)
        assert (row["status"], row["cancel_reason"], timers(town, shift).get("no-show")) == (
            "Cancelled",
            "Cancelled_By_Borrower",
            None,
        )
    assert (town.status(booking), town.shift_status(begun)) == ("Cancelled", "Working")
    town.mainspring.drain()
    assert (moved(town, "transfer"), moved(town, "refund")) == ([24000], [24000, 24000])  # what begins in 23 h is owed
    penalty = "select time_log_id, status, dispute_id from staffing.escrow_holds where kind = 'Penalty'"
    assert town.rows(penalty) == [(near, "Released", None)]
    assert town.texts("booking_cancelled") == {
        f"Booking {booking.id} has been cancelled. Shifts that have not started will not take place."
    }
    assert {who for who, *_ in told(town, "booking_cancelled")} == everybody(booking)
    assert len(told(town, "booking_cancelled")) == 12
    (act,) = town.audit("cancel_booking")
    assert act == (str(booking.borrowing_admin), "booking", booking.id, "Cancelled_By_Borrower", None)

    town.mainspring.clock.set(at("17:00", NEXT_MONDAY))
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, begun, by=booking.worker_user)
        shifts.verify_timesheet(town.desk, town.conn, begun, by=booking.supervisor or 0)
    town.mainspring.drain()
    assert town.ledger(booking) == (96000, 0, 0, 48000, 48000)

    town.only("weekly-payments", at=at("10:00", NEXT_MONDAY + 2 * DAY) - SECOND)
    town.mainspring.advance(to=town.now + HOUR)
    assert town.value("select count(*) from staffing.pending_payments where booking_id = %s", booking.id) == 1


@pytest.mark.rule("STAFF-20.08")
@pytest.mark.parametrize("who", ["borrower", "platform"])
@pytest.mark.parametrize("money", ["held", "on its way"])
def test_a_shift_that_is_called_off_costs_the_borrower_formula_p_and_nobody_else(
    town: Town, who: Literal["borrower", "platform"], money: Literal["held", "on its way"]
) -> None:
    booking = town.booking(shifts=[MONDAY, NEXT_MONDAY], payment_type="Upfront")
    soon, later = booking.shifts
    intent = ""
    if money == "held":
        town.funded(booking)
    else:
        intent = wednesday.charged(town, booking, "pm_card_processing")
        wednesday.tried(town, booking, "Pending", provider_intent_id=intent)  # for the first shift
    by = booking.borrowing_admin if who == "borrower" else town.operator
    for nobody in (booking.worker_user, booking.supervisor or 0, booking.borrowing_manager, booking.lending_admin):
        for what in (soon, booking):
            with pytest.raises(NotAllowed):
                call_off(town, what, by=nobody)

    town.mainspring.clock.set(at("09:00") - DAY + SECOND)  # less than a day before
    call_off(town, soon, by=by)
    town.mainspring.clock.set(at("09:00", NEXT_MONDAY) - DAY)  # a day is not less than a day
    call_off(town, later, by=by)
    with pytest.raises(Refused, match="the shift is Cancelled, not Scheduled"):
        call_off(town, later, by=by)
    if intent:
        assert town.ledger(booking) == (0, 0, 0, 0, 0)
        town.mainspring.clock.set(town.now + 3 * DAY)
        town.sandbox.stripe.settle(intent, "succeeded")
    town.mainspring.advance(timedelta(minutes=1))

    owed, whole = 12000 if who == "borrower" else 0, 24000 if money == "on its way" else 48000
    assert moved(town, "transfer") == [owed][: owed > 0]
    assert moved(town, "refund") == [24000 - owed, 24000][: whole // 24000]
    assert town.ledger(booking) == (whole, 0, 0, owed, whole - owed)
    assert town.status(booking) == "Active"
    assert town.texts("shift_cancelled") == {
        f"The shift on {day} (booking {booking.id}) has been cancelled. It will not take place."
        for day in (MONDAY, NEXT_MONDAY)
    }
    assert {one for one, *_ in told(town, "shift_cancelled")} == everybody(booking)


@pytest.mark.rule("STAFF-20.08")
def test_what_has_begun_is_over_or_is_disputed_is_not_called_off_and_a_released_booking_only_by_the_shift(
    town: Town,
) -> None:
    booking, disputed = quarrels.submitted(town, funded=False)
    missed = town.shift(booking, MONDAY)
    ahead = town.shift(booking, NEXT_MONDAY)
    town.funded(booking)
    dispute = quarrels.filed(town, disputed, by=booking.borrowing_admin)
    with pytest.raises(Refused, match="the shift is over; if nobody began it, it is refunded by itself"):
        call_off(town, missed, by=booking.borrowing_admin)
    with pytest.raises(Refused, match="the shift is Disputed, not Scheduled"):
        call_off(town, disputed, by=booking.borrowing_admin)

    call_off(town, booking, by=booking.borrowing_admin)
    assert [town.shift_status(shift) for shift in booking.shifts] == ["Disputed", "Scheduled", "Cancelled"]
    assert town.ledger(booking) == (72000, 24000, 24000, 0, 24000)
    quarrels.resolved(town, dispute, lender_minor=24000, borrower_minor=0)
    quarrels.at(town, town.now + 4 * HOUR)  # nothing times out, nothing is charged
    assert town.ledger(booking) == (72000, 24000, 0, 24000, 24000)
    assert (town.status(booking), town.shift_status(ahead)) == ("Cancelled", "Cancelled")

    released = town.booking(shifts=[NEXT_MONDAY], status="Completed", end_date=NEXT_MONDAY)
    town.funded(released)
    with pytest.raises(Refused, match="the booking is Completed"):
        call_off(town, released, by=released.borrowing_admin)
    call_off(town, released.shifts[0], by=released.borrowing_admin)
    assert town.ledger(released) == (24000, 0, 0, 0, 24000)
