from __future__ import annotations

import logging
from datetime import UTC, date, datetime, time, timedelta

import pytest
from tests.apps.staffing.sheets import at, begun, booked, leap, live, payload, refusing, timers, told
from tests.apps.staffing.town import MONDAY, Town

from mainspring_apps.staffing import shifts
from mainspring_apps.staffing import timers as keys
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import reminders as rules
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Fault

FIVE = datetime(2026, 6, 1, 21, tzinfo=UTC)


@pytest.mark.rule("STAFF-8.03", "STAFF-8.04", "STAFF-8.21")
@pytest.mark.parametrize(
    ("end", "now", "expected"),
    [
        (FIVE, FIVE - timedelta(hours=8), (5, 30)),
        (FIVE, FIVE, (5, 30)),  # exactly at the end
        (FIVE, FIVE + timedelta(microseconds=1), None),
        (FIVE, FIVE + timedelta(minutes=4), None),  # though A would still be ahead (G-33)
        (None, FIVE, None),
    ],
)
def test_reminders_come_five_and_thirty_minutes_after_an_end_that_has_not_passed(
    end: datetime | None, now: datetime, expected: tuple[int, int] | None
) -> None:
    due = rules.instants(end, now, Settings())
    assert due == (expected and tuple(FIVE + timedelta(minutes=minutes) for minutes in expected))


@pytest.mark.rule("STAFF-8.01", "STAFF-8.03", "STAFF-8.04", "STAFF-8.05", "STAFF-8.06")
def test_clock_in_sets_both_timers_with_what_they_need(town: Town) -> None:
    booking, shift = begun(town)

    assert town.waiting() == [
        ("remind_5m", at("17:05"), f"reminder-5m:{shift}"),
        ("remind_30m", at("17:30"), f"reminder-30m:{shift}"),
    ]
    expected = {
        "time_log_id": shift,
        "booking_id": booking.id,
        "worker_id": booking.worker,
        "supervisor_id": booking.supervisor,
        "scheduled_end_time": "2026-06-01T21:00:00Z",
        "reminder_5m_time": "2026-06-01T21:05:00Z",
        "reminder_30m_time": "2026-06-01T21:30:00Z",
    }
    assert [payload(town, f"{timer}:{shift}") for timer in keys.REMINDER_TIMERS] == [expected, expected]
    ids = dict(town.rows("select idempotency_key, id from mainspring.jobs where idempotency_key like 'reminder%%'"))
    row = town.row("time_log", shift)
    assert row["reminder_5m_job_id"] == ids[f"reminder-5m:{shift}"]
    assert row["reminder_30m_job_id"] == ids[f"reminder-30m:{shift}"]
    assert (row["status"], row["clock_in_time"]) == ("Working", at("09:00"))
    assert {tasks.bound(town.desk).get(name).queue for name in ("remind_5m", "remind_30m")} == {"clock-out-reminders"}
    assert not [one.name for one in tasks.bound(town.desk).schedules() if "remind" in one.name or "remind" in one.task]


@pytest.mark.rule("STAFF-8.02")
def test_a_shift_over_midnight_ends_on_the_next_day(town: Town) -> None:
    _, shift = begun(town, start=time(22), end=time(6))
    end = datetime(2026, 6, 2, 10, tzinfo=UTC)
    assert town.row("time_log", shift)["scheduled_end_time"] == end
    assert timers(town, shift) == {
        "reminder-5m": end + timedelta(minutes=5),
        "reminder-30m": end + timedelta(minutes=30),
    }


@pytest.mark.rule("STAFF-8.07", "STAFF-8.09", "STAFF-8.11", "STAFF-8.12")
def test_who_does_not_clock_out_is_asked_and_then_told(town: Town) -> None:
    booking, _ = begun(town)
    asked = live(town, at("17:05"), at("17:30"))

    assert asked == [("remind_5m", at("17:05")), ("remind_30m", at("17:30"))]
    both = sorted([(booking.worker_user, "sms", "Sent"), (booking.supervisor, "sms", "Sent")])
    assert told(town, "reminder_5m") == both
    assert told(town, "reminder_30m") == both
    assert town.texts("reminder_5m") == {"Are you still working? Please clock out if your shift has ended."}
    assert town.texts("reminder_30m") == {"URGENT: Clock Out. Your scheduled shift ended 30 minutes ago."}
    titles = town.rows("select distinct title from staffing.notification_log order by 1")
    assert titles == [("Are you still working?",), ("Urgent: Clock Out.",)]
    assert len(town.messages()) == len(town.sms()) == 4


@pytest.mark.rule("STAFF-8.08", "STAFF-8.10", "STAFF-8.27")
def test_a_timer_that_could_not_be_cancelled_stops_nobody_and_says_nothing(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    booking, shift = begun(town)
    leap(town, at("17:00"))
    with refusing(town, "delete", "remind_5m", "remind_30m"), town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)

    assert [(line.levelname, line.message) for line in caplog.records if line.levelno >= logging.WARNING] == [
        ("WARNING", f"timers reminder-5m:{shift}, reminder-30m:{shift} were not cancelled: RaiseException")
    ]
    row = town.row("time_log", shift)
    assert (row["status"], row["reminders_cancelled_at"]) == ("Pending_Verification", None)
    ran = live(town, at("17:05"), at("17:30"))
    assert [task for task, _ in ran if task.startswith("remind")] == ["remind_5m", "remind_30m"]
    assert town.messages("reminder_5m") == town.messages("reminder_30m") == []


@pytest.mark.rule("STAFF-8.13", "STAFF-8.14", "STAFF-8.15", "STAFF-8.16", "STAFF-8.17")
@pytest.mark.parametrize(
    ("clock", "asked", "urged"), [("16:00", 0, 0), ("17:03", 0, 0), ("17:20", 2, 0), ("18:00", 2, 2)]
)
def test_clocking_out_cancels_what_has_not_run(town: Town, clock: str, asked: int, urged: int) -> None:
    booking, shift = begun(town)
    due = [at("17:05"), at("17:30")]
    live(town, *(when for when in due if when < at(clock)))
    leap(town, at(clock))
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)

    assert not {"reminder-5m", "reminder-30m"} & set(timers(town, shift))
    assert town.row("time_log", shift)["reminders_cancelled_at"] == at(clock)
    live(town, *(when for when in due if when > at(clock)))
    assert (len(town.messages("reminder_5m")), len(town.messages("reminder_30m"))) == (asked, urged)


@pytest.mark.rule("STAFF-8.18", "STAFF-8.23")
def test_force_clock_out_cancels_too_and_cancelling_again_is_no_error(town: Town) -> None:
    booking, shift = begun(town)
    live(town, at("17:05"))
    leap(town, at("17:10"))
    with town.conn.transaction():
        shifts.force_clock_out(town.desk, town.conn, shift, by=booking.supervisor or 0)
        keys.cancel(town.desk, town.conn, shift, *keys.REMINDER_TIMERS, reason="again")
    assert timers(town, shift).keys() == {"ladder-0", "ladder-60m", "ladder-3h", "auto-approve"}
    assert town.row("time_log", shift)["reminders_cancelled_at"] == at("17:10")
    live(town, at("17:30"))
    assert len(town.messages("reminder_5m")) == 2
    assert town.messages("reminder_30m") == []


@pytest.mark.rule("STAFF-8.19")
def test_without_a_planned_end_clock_in_goes_through_with_a_warning(
    town: Town, caplog: pytest.LogCaptureFixture
) -> None:
    _, shift = begun(town, end=None)

    assert town.shift_status(shift) == "Working"
    assert timers(town, shift) == {}
    assert [line.message for line in caplog.records if line.levelname == "WARNING"] == [
        f"shift {shift} has no reminders: its planned end is unknown"
    ]


@pytest.mark.rule("STAFF-8.20", "STAFF-8.22")
def test_timers_of_every_open_shift_follow_the_last_change_of_the_end(town: Town) -> None:
    tuesday = MONDAY + timedelta(days=1)
    booking, shift = begun(town, days=[MONDAY, tuesday])
    other = town.shift(booking, MONDAY, time(10), time(17), status="Working")
    hands = town.worker(booking.lender)
    town.conn.execute("update staffing.time_log set worker_id = %s where id = %s", [hands, other])
    with town.conn.transaction():
        shifts.change_scheduled_end(town.desk, town.conn, booking.id, time(18), by=booking.supervisor or 0)
        shifts.change_scheduled_end(town.desk, town.conn, booking.id, time(19), by=booking.supervisor or 0)

    for one in (shift, other):
        assert timers(town, one) == {"reminder-5m": at("19:05"), "reminder-30m": at("19:30")}
        assert payload(town, f"reminder-5m:{one}")["scheduled_end_time"] == "2026-06-01T23:00:00Z"
    assert town.row("bookings", booking.id)["scheduled_end_time"] == time(19)
    later = town.row("time_log", booking.shifts[1])
    assert (later["scheduled_end_time"], later["planned_minutes"]) == (at("19:00", tuesday), 480)
    assert timers(town, booking.shifts[1]) == {}
    assert [row[0] for row in town.audit("change_scheduled_end")] == [str(booking.supervisor)] * 2

    assert live(town, at("17:05"), at("17:30"), at("18:05")) == []
    assert [when for _, when in live(town, at("19:05"), at("19:30"))] == [at("19:05")] * 2 + [at("19:30")] * 2
    assert (len(town.messages("reminder_5m")), len(town.messages("reminder_30m"))) == (4, 4)


@pytest.mark.rule("STAFF-8.20", "STAFF-8.27")
def test_a_timer_of_an_end_that_has_moved_says_nothing(town: Town) -> None:
    _, shift = begun(town)
    town.conn.execute("update staffing.time_log set scheduled_end_time = %s where id = %s", [at("19:00"), shift])
    assert len(live(town, at("17:05"), at("17:30"))) == 2
    assert town.messages() == []


@pytest.mark.rule("STAFF-8.21")
@pytest.mark.parametrize(("end", "left"), [("15:58", 0), ("16:00", 2)])
def test_a_new_end_that_is_past_leaves_no_timers(town: Town, end: str, left: int) -> None:
    booking, shift = begun(town)
    leap(town, at("16:00"))
    with town.conn.transaction():
        shifts.change_shift_end(town.desk, town.conn, shift, at(end), by=booking.borrowing_admin)
    assert len(timers(town, shift)) == left
    assert (town.row("time_log", shift)["reminders_cancelled_at"] is None) == bool(left)
    with town.conn.transaction():
        shifts.change_shift_end(town.desk, town.conn, shift, at("19:00"), by=booking.borrowing_admin)
    assert timers(town, shift) == {"reminder-5m": at("19:05"), "reminder-30m": at("19:30")}
    assert town.row("time_log", shift)["reminders_cancelled_at"] is None
    with pytest.raises(Refused, match="end: is not after the start"):
        shifts.change_shift_end(town.desk, town.conn, shift, at("09:00"), by=booking.borrowing_admin)


@pytest.mark.rule("STAFF-8.24", "STAFF-8.25")
def test_a_draft_leaves_the_reminders_alone(town: Town) -> None:
    booking, shift = begun(town)
    leap(town, at("16:55"))
    with town.conn.transaction():
        shifts.save_draft(town.desk, town.conn, shift, end=at("16:50"), by=booking.worker_user)

    row = town.row("time_log", shift)
    assert (row["status"], row["clock_out_time"], row["draft_end_time"]) == ("Working", None, at("16:50"))
    live(town, at("17:05"), at("17:30"))
    assert (len(town.messages("reminder_5m")), len(town.messages("reminder_30m"))) == (2, 2)
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    assert town.row("time_log", shift)["work_end_time"] == at("16:50")


@pytest.mark.rule("STAFF-8.26")
def test_a_reminder_whose_delivery_fails_twice_arrives_once(town: Town) -> None:
    booking, _ = begun(town, supervisor_id=None)
    town.conn.execute("delete from staffing.users where id = %s", [booking.borrowing_manager])
    town.sandbox.faults.set(Fault(provider="twilio", kind="error", status=503, times=4))
    leap(town, at("17:04"))
    ran = town.mainspring.advance(to=at("17:08"), raise_errors=False)

    sent = town.rows("select recipient_id, status, attempts from staffing.notification_log order by 1")
    assert sent == sorted([(booking.worker_user, "Sent", 3), (booking.borrowing_admin, "Sent", 3)])
    assert len(town.sms()) == 2
    assert [run.state for run in ran].count("retrying") == 4


@pytest.mark.rule("STAFF-8.28")
def test_timers_that_cannot_be_set_do_not_keep_anybody_from_work(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    booking, shift = booked(town)
    leap(town, at("09:00"))
    with refusing(town, "insert", "remind_5m", "remind_30m"), town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)

    assert town.shift_status(shift) == "Working"
    assert timers(town, shift) == {}
    assert [line.message for line in caplog.records if line.levelno >= logging.ERROR] == [
        f"timer reminder-5m:{shift} was not set: RaiseException",
        f"timer reminder-30m:{shift} was not set: RaiseException",
    ]


@pytest.mark.rule("STAFF-8.02")
def test_an_overnight_end_that_changes_stays_on_the_next_day(town: Town) -> None:
    booking, shift = begun(town, start=time(22), end=time(6))
    with town.conn.transaction():
        shifts.change_scheduled_end(town.desk, town.conn, booking.id, time(7), by=booking.borrowing_admin)
    assert town.row("time_log", shift)["scheduled_end_time"] == at("07:00", date(2026, 6, 2))
