"""Shifts that are planned to be shorter: what is dropped of one is called off, and its money goes accordingly."""

from __future__ import annotations

from datetime import datetime, time, timedelta

import pytest
from tests.apps.staffing import wednesday
from tests.apps.staffing.quarrels import moved
from tests.apps.staffing.sheets import at, begun, leap, told
from tests.apps.staffing.test_withdrawal import call_off, everybody
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, Booking, Town

from mainspring_apps.staffing import shifts

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)


def ends(town: Town, booking: Booking, end: datetime | None, shift: int | None = None) -> None:
    """The borrower's supervisor says when a shift ends."""
    with town.conn.transaction():
        shifts.change_shift_end(
            town.desk, town.conn, shift or booking.shifts[0], end, by=booking.supervisor or booking.borrowing_admin
        )
    town.mainspring.drain()


def worked(town: Town, booking: Booking, until: datetime) -> None:
    """Nobody changes their mind any more: the shift is begun, submitted and verified."""
    shift = booking.shifts[0]
    leap(town, max(town.now, town.row("time_log", shift)["scheduled_start_time"]))
    with town.conn.transaction():
        if town.shift_status(shift) == "Scheduled":
            shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
        leap(town, until)
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.borrowing_admin)
    town.mainspring.drain()


@pytest.mark.rule("STAFF-20.08")
def test_a_minute_is_left_of_a_shift_and_the_rest_costs_what_cancelling_it_would(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY])
    town.funded(booking)
    leap(town, at("09:00") - 5 * MINUTE)
    ends(town, booking, at("09:01"))

    assert (moved(town, "transfer"), moved(town, "refund")) == ([23950], [])
    assert town.rows("select kind, status, amount_minor::int from staffing.escrow_holds order by id") == [
        ("Shift", "Held", 50), ("Penalty", "Released", 23950),
    ]  # fmt: skip
    assert town.row("time_log", booking.shifts[0])["planned_minutes"] == 1
    assert town.texts("shift_shortened") == {
        f"The shift on 2026-06-01 (booking {booking.id}) has been shortened."
        " It now ends at 2026-06-01 09:01 (America/New_York)."
    }
    assert {who for who, *_ in told(town, "shift_shortened")} == everybody(booking)
    ((who, *_),) = town.audit("shorten_shift")
    assert who == str(booking.supervisor)

    worked(town, booking, at("09:01"))
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0), "as much as a cancelled one, and no more"


@pytest.mark.rule("STAFF-20.08")
@pytest.mark.parametrize(
    ("payment_type", "notice", "penalty"),
    [
        ("Weekly_Progress", DAY - MINUTE, 15000),
        ("Weekly_Progress", DAY, 0),
        ("Upfront", DAY - MINUTE, 7500),
        ("Upfront", DAY, 0),
    ],
)
@pytest.mark.parametrize("money", ["held", "on its way"])
def test_what_is_dropped_of_a_shift_is_divided_by_formula_p_whenever_its_money_comes(
    town: Town, payment_type: str, notice: timedelta, penalty: int, money: str
) -> None:
    booking = town.booking(shifts=[NEXT_MONDAY], payment_type=payment_type)
    intent = ""
    if money == "held":
        town.funded(booking)
    else:
        intent = wednesday.charged(town, booking, "pm_card_processing")
        wednesday.tried(town, booking, "Pending", provider_intent_id=intent)
    leap(town, at("09:00", NEXT_MONDAY) - notice)
    ends(town, booking, at("12:00", NEXT_MONDAY))  # three hours are left of eight, and 90.00 of 240.00
    if intent:
        leap(town, town.now + 3 * HOUR)
        town.sandbox.stripe.settle(intent, "succeeded")
        town.mainspring.drain()

    assert moved(town, "transfer") == [penalty][: penalty > 0]
    assert moved(town, "refund") == [15000 - penalty][: penalty < 15000]
    assert town.ledger(booking) == (24000, 9000, 0, penalty, 15000 - penalty)


@pytest.mark.rule("STAFF-20.08")
def test_nobody_pays_twice_for_what_was_dropped_and_the_rest_can_still_be_cancelled(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY])
    town.funded(booking)
    leap(town, at("08:00"))
    ends(town, booking, at("15:00"))
    ends(town, booking, at("13:00"))
    ends(town, booking, at("13:00"))
    assert moved(town, "transfer") == [6000, 6000]
    ends(town, booking, at("18:00"))  # what was dropped is planned again, and is paid; the rest is new time
    assert town.row("time_log", booking.shifts[0])["planned_minutes"] == 480
    assert town.ledger(booking) == (24000, 12000, 0, 12000, 0)
    call_off(town, booking.shifts[0], by=booking.borrowing_admin)
    town.mainspring.drain()
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)


@pytest.mark.rule("STAFF-20.08", "STAFF-8.22")
def test_an_end_that_is_earlier_for_a_whole_booking_is_the_same_for_each_of_its_shifts(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY, NEXT_MONDAY])
    town.funded(booking)
    leap(town, at("08:00"))
    with town.conn.transaction():
        shifts.change_scheduled_end(town.desk, town.conn, booking.id, time(12), by=booking.borrowing_manager)
    town.mainspring.drain()

    assert (moved(town, "transfer"), moved(town, "refund")) == ([15000], [15000])
    assert town.ledger(booking) == (48000, 18000, 0, 15000, 15000)
    assert town.texts("shifts_shortened") == {
        f"From 2026-06-01 on, the shifts of booking {booking.id} have been shortened."
        " They now end at 12:00 (America/New_York)."
    }


@pytest.mark.rule("STAFF-20.08")
@pytest.mark.parametrize("act", ["shorten", "cancel", "cancel the booking"])
def test_a_lender_whose_insurance_is_gone_is_owed_no_penalty(town: Town, act: str) -> None:
    booking = town.booking(shifts=[MONDAY], insured=False)
    policy = town.policy(booking.lender, MONDAY - DAY)
    town.policy(booking.borrower)
    town.funded(booking)
    leap(town, at("08:00"))
    if act == "shorten":
        ends(town, booking, at("09:01"))
    else:
        call_off(town, booking if act == "cancel the booking" else booking.shifts[0], by=booking.borrowing_admin)
    town.mainspring.drain()

    kept = 50 if act == "shorten" else 0
    assert town.ledger(booking) == (24000, kept, 0, 0, 24000 - kept), policy
    assert moved(town, "transfer") == []


@pytest.mark.rule("STAFF-20.01", "STAFF-8.21")
def test_an_end_that_moves_while_somebody_works_takes_nothing_of_the_plan_from_them(town: Town) -> None:
    booking, shift = begun(town)
    town.funded(booking)
    leap(town, at("16:00"))
    ends(town, booking, at("09:03"))
    worked(town, booking, at("17:30"))
    row = town.row("time_log", shift)
    assert (row["paid_minutes"], row["extra_minutes"]) == (480, 30)
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)


@pytest.mark.rule("STAFF-20.08")
def test_everybody_hears_of_each_end_that_changes_and_of_none_that_does_not(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY])
    leap(town, at("08:00"))
    ends(town, booking, at("09:01"))
    ends(town, booking, at("17:00"))
    ends(town, booking, at("17:00"))
    later = f"The shift on 2026-06-01 (booking {booking.id}) now ends at 2026-06-01 17:00 (America/New_York)."
    assert (town.texts("shift_end_changed"), len(town.texts("shift_shortened"))) == ({later}, 1)
    assert {who for who, *_ in told(town, "shift_end_changed")} == everybody(booking)
    assert len(told(town, "shift_end_changed")) == 2 * len(everybody(booking))

    with town.conn.transaction():
        shifts.change_scheduled_end(town.desk, town.conn, booking.id, time(22), by=booking.borrowing_admin)
    town.mainspring.drain()
    assert town.texts("shifts_end_changed") == {
        f"From 2026-06-01 on, the shifts of booking {booking.id} now end at 22:00 (America/New_York)."
    }


@pytest.mark.rule("STAFF-20.08")
@pytest.mark.parametrize("money", ["held", "on its way"])
def test_who_corrects_an_end_pays_once_for_the_hours(town: Town, money: str) -> None:
    booking = town.booking(shifts=[NEXT_MONDAY])
    intent = ""
    if money == "held":
        town.funded(booking)
    else:
        intent = wednesday.charged(town, booking, "pm_card_processing")
        wednesday.tried(town, booking, "Pending", provider_intent_id=intent)
    leap(town, at("05:50", NEXT_MONDAY))
    for hour, planned in ((9, 1), (12, 181), (10, 61), (17, 480)):
        ends(town, booking, at("17:00" if hour == 17 else f"{hour:02}:01", NEXT_MONDAY))
        if money == "held":
            assert town.row("time_log", booking.shifts[0])["planned_minutes"] == planned
    if intent:
        leap(town, town.now + 3 * HOUR)
        town.sandbox.stripe.settle(intent, "succeeded")
        town.mainspring.drain()
    assert town.ledger(booking) == (24000, 50, 0, 23950, 0)
    worked(town, booking, at("17:00", NEXT_MONDAY))
    assert town.row("time_log", booking.shifts[0])["paid_minutes"] == 480
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)
    assert town.rows("select * from staffing.time_log where paid_minutes > planned_minutes") == [], "no time is unpaid"
    assert town.alerts() == []


@pytest.mark.rule("STAFF-20.08", "STAFF-20.02")
def test_what_the_lender_has_beyond_the_hours_that_were_planned_again_is_told_to_operations(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY])
    town.funded(booking)
    leap(town, at("08:50"))
    ends(town, booking, at("09:01"))
    ends(town, booking, at("13:00"))  # 13 to 17 is dropped still, and its penalty stays
    worked(town, booking, at("12:00"))
    assert town.ledger(booking) == (24000, 0, 0, 23950, 50)
    assert "29.50 USD more" in town.value("select text from mainspring.alert")
