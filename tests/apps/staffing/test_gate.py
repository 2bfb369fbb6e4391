from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from tests.apps.staffing.quarrels import resolved
from tests.apps.staffing.sheets import at, begun, booked, leap, live, timers
from tests.apps.staffing.town import MONDAY, Booking, Town

from mainspring_apps.staffing import cancellation, insurance, shifts
from mainspring_apps.staffing.rules import gate
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.timesheets import reminders

SATURDAY = date(2026, 6, 6)
SUNDAY = date(2026, 6, 7)


@pytest.mark.rule("STAFF-1.21", "STAFF-3.12", "STAFF-4.16", "STAFF-4.17", "STAFF-4.24")
@pytest.mark.parametrize(
    ("booking", "shift", "starts_on", "uncovered", "why"),
    [
        ("Active", "Scheduled", SATURDAY, None, None),
        ("Payment_Paused_Dispute", "Scheduled", SATURDAY, None, None),
        ("Completed", "Scheduled", SATURDAY, None, None),
        ("Completed", "Scheduled", SUNDAY, None, None),
        ("Completed", "Scheduled", SUNDAY + timedelta(days=1), None, "status: the booking is Completed"),
        ("Suspended_Insurance", "Scheduled", SATURDAY, None, "status: the booking is Suspended_Insurance"),
        ("Cancelled", "Scheduled", SATURDAY, None, "status: the booking is Cancelled"),
        ("Disputed", "Scheduled", SATURDAY, None, "status: the booking is Disputed"),
        ("Active", "Working", SATURDAY, None, "status: the shift is Working"),
        ("Active", "Cancelled", SATURDAY, None, "status: the shift is Cancelled"),
        ("Active", "Scheduled", SATURDAY, "expired", "insurance: expired"),
        ("Payment_Paused_Dispute", "Scheduled", SATURDAY, "expired", "insurance: expired"),
        ("Completed", "Scheduled", SATURDAY, "expired", "insurance: expired"),
    ],
)
def test_only_insurance_and_the_end_of_a_booking_close_the_gate(
    booking: str, shift: str, starts_on: date, uncovered: str | None, why: str | None
) -> None:
    about: dict[str, Any] = {"shift": shift, "starts_on": starts_on, "end_date": SUNDAY, "uncovered": uncovered}
    about["awaits_resolution"] = False
    assert gate.closed(booking=booking, funded=booking == "Completed", taken=False, **about) == why
    taken = gate.closed(booking=booking, funded=False, taken=True, **about)  # its money was taken back
    assert (taken or "").partition(":")[0] in ("status", "payment")


def test_nobody_clocks_in_or_verifies_for_somebody_else(town: Town) -> None:
    booking, shift = booked(town)
    stranger = town.user(town.company("Borrower"), "Supervisor")
    leap(town, at("09:00"))
    for who, why in (
        (booking.supervisor or 0, "a Supervisor may not"),
        (stranger, None),  # to whom it is not there
    ):
        said = f"by: {why}" if why else f"time_log_id: there is no time log {shift}"
        with pytest.raises(Refused, match=said) as refused:
            shifts.clock_in(town.desk, town.conn, shift, by=who)
        assert refused.value.field == said.partition(":")[0]
    shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    with pytest.raises(Refused, match="a Supervisor may not submit_timesheet"):
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.supervisor or 0)
    with pytest.raises(Refused, match="a Worker may not force_clock_out"):
        shifts.force_clock_out(town.desk, town.conn, shift, by=booking.worker_user)
    for end in (at("08:59"), at("09:01")):
        with pytest.raises(Refused, match="end: work ends between clock-in and now"):
            shifts.submit_timesheet(town.desk, town.conn, shift, end=end, by=booking.worker_user)
    shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    for who in (booking.worker_user, booking.lending_admin):
        with pytest.raises(Refused, match="may not verify_timesheet"):
            shifts.verify_timesheet(town.desk, town.conn, shift, by=who)
    for id, who in ((shift, stranger), (404, booking.worker_user)):
        with pytest.raises(Refused, match=f"time_log_id: there is no time log {id}"):
            shifts.verify_timesheet(town.desk, town.conn, id, by=who)


@pytest.mark.rule("STAFF-1.21", "STAFF-10.23")
def test_while_payment_is_paused_by_a_dispute_work_goes_on(town: Town) -> None:
    tuesday = MONDAY + timedelta(days=1)
    booking, disputed = booked(town, status="Payment_Paused_Dispute", days=[MONDAY, tuesday])
    town.conn.execute("update staffing.time_log set status = 'Working' where id = %(id)s", {"id": disputed})
    leap(town, at("17:00"))
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, disputed, by=booking.worker_user)
        dispute = town.insert(
            "disputes", booking_id=booking.id, time_log_id=disputed, dispute_option="A", dispute_filed_at=town.now
        )
        town.conn.execute("update staffing.time_log set status = 'Disputed' where id = %s", [disputed])
    leap(town, at("09:00", tuesday))
    shift = booking.shifts[1]
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    assert town.shift_status(shift) == "Working"
    assert set(timers(town, shift)) == {"reminder-5m", "reminder-30m"}
    assert town.row("disputes", dispute)["status"] == "Open"


@pytest.mark.rule("STAFF-3.12")
def test_a_released_booking_is_worked_and_paid_up_to_its_sunday(town: Town) -> None:
    booking, shift = booked(town, days=[SATURDAY, SUNDAY + timedelta(days=1)], status="Completed")
    town.conn.execute("update staffing.bookings set end_date = %s where id = %s", [SUNDAY, booking.id])
    town.funded(booking, shift)
    leap(town, at("09:00", SATURDAY))
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    leap(town, at("17:00", SATURDAY))
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    live(town, at("17:00", SATURDAY), at("21:00", SATURDAY), at("21:00:01", SATURDAY))
    assert town.shift_status(shift) == "Verified"
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)
    assert len(town.messages("ladder_0")) == 1

    leap(town, at("09:00", SUNDAY + timedelta(days=1)))
    with pytest.raises(Refused, match="the booking is Completed") as refused, town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, booking.shifts[1], by=booking.worker_user)
    assert refused.value.field == "status"


@pytest.mark.rule("STAFF-4.16", "STAFF-4.20")
def test_a_suspended_booking_lets_nobody_in_and_nobody_out(town: Town) -> None:
    booking, working = begun(town, days=[MONDAY, MONDAY + timedelta(days=1)])
    town.conn.execute(
        "update staffing.bookings set status = 'Suspended_Insurance', status_before_suspension = 'Active'"
        " where id = %s",
        [booking.id],
    )
    with pytest.raises(Refused, match="status: the booking is Suspended_Insurance") as refused:
        shifts.clock_in(town.desk, town.conn, booking.shifts[1], by=booking.worker_user)
    assert refused.value.field == "status"
    assert town.shift_status(booking.shifts[1]) == "Scheduled"
    assert town.shift_status(working) == "Working"
    assert live(town, at("17:05"), at("17:30")) == [("remind_5m", at("17:05")), ("remind_30m", at("17:30"))]
    assert len(town.messages("reminder_5m")) == 2


@pytest.mark.rule("STAFF-4.17")
def test_the_gate_asks_for_cover_on_the_local_date(town: Town) -> None:
    """In Auckland it is the 16th while in UTC it is still the 15th, the policy's last day."""
    booking = town.booking(zone="Pacific/Auckland", shifts=[date(2026, 6, 15), date(2026, 6, 16)], insured=False)
    town.policy(booking.borrower, date(2027, 6, 1))
    town.policy(booking.lender, date(2026, 6, 15))
    leap(town, at("09:00", date(2026, 6, 15), "Pacific/Auckland"))
    shifts.clock_in(town.desk, town.conn, booking.shifts[0], by=booking.worker_user)

    leap(town, datetime(2026, 6, 15, 20, tzinfo=UTC))
    with pytest.raises(Refused, match=r"^insurance: ") as refused:
        shifts.clock_in(town.desk, town.conn, booking.shifts[1], by=booking.worker_user)
    assert refused.value.field == "insurance"
    assert town.status(booking) == "Active"


def disputed(town: Town, booking: Booking, day: date) -> int:
    """A shift of another day, worked as planned."""
    return town.shift(booking, day, status="Disputed", clock_out_time=at("17:00", day), work_end_time=at("17:00", day))


@pytest.mark.rule("STAFF-4.24")
@pytest.mark.rule("STAFF-20.22")
def test_after_renewal_with_an_open_dispute_nobody_clocks_in_until_it_is_resolved(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking, shift = booked(town, status="Suspended_Insurance", status_before_suspension="Payment_Paused_Dispute")
    worked = disputed(town, booking, date(2026, 5, 29))
    dispute = town.insert(
        "disputes", booking_id=booking.id, time_log_id=worked, dispute_option="A", dispute_filed_at=town.now
    )
    policy = town.value("select id from staffing.insurance_policies where company_id = %s", booking.lender)
    town.conn.execute(
        "update staffing.insurance_policies set is_active = false, expiration_date = '2026-05-31' where id = %s",
        [policy],
    )
    leap(town, at("09:00"))
    with pytest.raises(Refused, match="Suspended_Insurance"):
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    with town.conn.transaction():
        insurance.renew_insurance(
            town.desk, town.conn, policy, expiration_date=date(2027, 6, 1), by=booking.lending_admin
        )
    assert town.status(booking) == "Payment_Paused_Dispute"
    with pytest.raises(Refused, match="status: a dispute was open when the insurance was renewed, and is not resolved"):
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    with monkeypatch.context() as choice, town.conn.transaction(force_rollback=True):
        choice.setitem(vars(town.desk), "settings", Settings(clock_in_needs_no_dispute_after_renewal=False))
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    resolved(town, dispute)
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)  # at once, whatever jobs are still to run
    assert town.shift_status(shift) == "Working"


@pytest.mark.rule("STAFF-4.24", "STAFF-20.22", "STAFF-10.23")
def test_a_dispute_that_was_not_open_at_the_renewal_closes_no_gate(town: Town) -> None:
    booking, shift = booked(town, status="Suspended_Insurance", status_before_suspension="Payment_Paused_Dispute")
    shut = {"booking_id": booking.id, "dispute_option": "A", "dispute_filed_at": town.now}
    first, second = (disputed(town, booking, date(2026, 5, day)) for day in (28, 29))
    dispute = town.insert("disputes", time_log_id=first, **shut)
    resolved(town, dispute)  # while nobody is insured
    policy = town.policy(booking.lender, date(2027, 6, 1))
    with town.conn.transaction():
        insurance.renew_insurance(
            town.desk, town.conn, policy, expiration_date=date(2027, 6, 2), by=booking.lending_admin
        )
    town.insert("disputes", time_log_id=second, **shut)
    leap(town, at("09:00"))
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    assert town.shift_status(shift) == "Working"


@pytest.mark.rule("STAFF-3.16", "STAFF-10.37")
def test_only_shifts_that_have_not_begun_are_cancelled_with_their_timers(town: Town) -> None:
    booking, working = begun(town, days=[MONDAY, MONDAY + timedelta(days=1), MONDAY + timedelta(days=2)])
    planned, other = booking.shifts[1:]
    timer = reminders.remind_5m.job(
        reminders.Reminding(
            time_log_id=planned, booking_id=booking.id, worker_id=booking.worker, supervisor_id=None,
            scheduled_end_time=town.now, reminder_5m_time=town.now, reminder_30m_time=town.now,
        )
    )  # fmt: skip
    town.desk.client.timers.set(timer.at(at("17:05")).with_key(f"reminder-5m:{planned}"), conn=town.conn)
    with town.conn.transaction():
        gone = cancellation.cancel_shifts(
            town.desk, town.conn, booking.id, [planned, working], reason="Dispute_Timeout", dispute_id=None
        )

    assert gone == [planned]
    row = town.row("time_log", planned)
    assert (row["status"], row["cancel_reason"], row["cancelled_at"]) == ("Cancelled", "Dispute_Timeout", town.now)
    assert (town.shift_status(working), town.shift_status(other)) == ("Working", "Scheduled")
    assert timers(town, planned) == {}
    assert len(timers(town, working)) == 2
    assert [entry[1:] for entry in town.audit("cancel_shift")] == [("time_log", planned, "Dispute_Timeout", None)]


@pytest.mark.rule("STAFF-20.05", "STAFF-8.29")
@pytest.mark.parametrize(
    ("end", "clock", "why"),
    [
        (time(17), "07:59", "can be begun from 2026-06-01 08:00 (America/New_York) on"),
        (time(17), "08:00", None),
        (time(17), "17:00", None),
        (time(17), "17:01", "could be begun until 2026-06-01 17:00 (America/New_York)"),
        (None, "07:59", "can be begun from 2026-06-01 08:00 (America/New_York) on"),
        (None, "08:00", None),
        (None, "23:59", None),
    ],
)
def test_the_gate_opens_an_hour_before_the_planned_start_and_closes_at_the_planned_end(
    town: Town, end: time | None, clock: str, why: str | None
) -> None:
    booking, shift = booked(town, end=end)  # nobody has paid for it
    leap(town, at(clock))
    assert refused(town, shift, by=booking.worker_user) == (why and f"now: the shift {why}")
    assert town.shift_status(shift) == ("Scheduled" if why else "Working")
    assert town.row("time_log", shift)["clock_in_time"] == at("09:00" if why else clock)
    assert bool(timers(town, shift)) is (why is None and end is not None)


@pytest.mark.rule("STAFF-20.05")
def test_a_shift_of_another_day_of_another_worker_or_that_is_over_is_refused_with_the_reason(town: Town) -> None:
    friday, tuesday = MONDAY + timedelta(days=4), MONDAY + timedelta(days=1)
    booking, shift = booked(town, days=[MONDAY, friday])
    other = town.booking(shifts=[MONDAY], end=None)
    gone = town.shift(booking, MONDAY, status="Cancelled", cancelled_at=town.now)
    over = town.shift(booking, MONDAY, status="Verified")
    leap(town, at("09:00"))
    opens = "now: the shift can be begun from 2026-06-05 08:00 (America/New_York) on"
    for one, by, why in (
        (booking.shifts[1], booking.worker_user, opens),
        (shift, other.worker_user, f"time_log_id: there is no time log {shift}"),
        (gone, booking.worker_user, "status: the shift is Cancelled"),
        (over, booking.worker_user, "status: the shift is Verified"),
    ):
        assert refused(town, one, by=by) == why
    leap(town, at("09:00", tuesday))  # a day after the start of a shift whose end nobody knows
    assert refused(town, other.shifts[0], by=other.worker_user) is None
    later = town.booking(shifts=[MONDAY], end=None)
    leap(town, at("09:01", tuesday))
    assert refused(town, later.shifts[0], by=later.worker_user) == (
        "now: the shift could be begun until 2026-06-02 09:00 (America/New_York)"
    )


@pytest.mark.rule("STAFF-20.05")
def test_how_early_the_gate_opens_is_a_setting(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    few = replace(town.desk.settings, clock_in_early=timedelta(minutes=5), clock_in_open=timedelta(minutes=10))
    monkeypatch.setitem(vars(town.desk), "settings", few)
    booking, shift = booked(town, end=None)
    for clock, why in (("08:54", "now: the shift can be"), ("09:11", "now: the shift could be")):
        leap(town, at(clock))
        assert (refused(town, shift, by=booking.worker_user) or "").startswith(why)


@pytest.mark.rule("STAFF-12.03", "STAFF-20.05")
def test_nobody_is_planned_or_works_in_two_places_at_once(town: Town) -> None:
    booking, shift = booked(town)
    same: dict[str, Any] = {"lender": booking.lender, "worker": booking.worker}
    other = town.booking(**same, shifts=[MONDAY], start=time(18), end=time(22))
    why = "end: the worker is not available for so long"
    with pytest.raises(Refused, match=why), town.conn.transaction():
        shifts.change_shift_end(town.desk, town.conn, shift, at("18:01"), by=booking.supervisor or 0)
    with pytest.raises(Refused, match=why), town.conn.transaction():
        shifts.change_scheduled_end(town.desk, town.conn, booking.id, time(20), by=booking.supervisor or 0)
    assert town.row("time_log", shift)["scheduled_end_time"] == at("17:00")
    with town.conn.transaction():  # up to the other one, and less again
        for end in (at("18:00"), at("17:00")):
            shifts.change_shift_end(town.desk, town.conn, shift, end, by=booking.supervisor or 0)

    leap(town, at("09:00"))
    assert refused(town, shift, by=booking.worker_user) is None
    leap(town, at("18:00"))
    assert refused(town, other.shifts[0], by=booking.worker_user) == (
        f"status: the worker still works on shift {shift}: its timesheet is to be submitted first"
    )
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    assert refused(town, other.shifts[0], by=booking.worker_user) is None


def refused(town: Town, shift: int, *, by: int) -> str | None:
    """Why somebody may not begin a shift, or None: they have."""
    try:
        with town.conn.transaction():
            shifts.clock_in(town.desk, town.conn, shift, by=by)
    except Refused as refusal:
        return str(refusal)
    return None
