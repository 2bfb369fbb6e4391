from __future__ import annotations

from datetime import UTC, datetime, time, timedelta

import pytest
from tests.apps.staffing.sheets import at, begun, leap, live, payload, refusing, submitted, timers, told
from tests.apps.staffing.town import MONDAY, Town

from mainspring_apps.staffing import shifts
from mainspring_apps.staffing.conflicts.disputes import file_dispute
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import ladder as rules
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.timesheets.ladder import ladder_60m

HOUR = timedelta(hours=1)
DEADLINE = datetime(2026, 6, 2, 1, tzinfo=UTC)
LADDER = ("ladder_0", "ladder_60m", "ladder_3h", "auto_approve")


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


@pytest.mark.rule("STAFF-9.03", "STAFF-9.06", "STAFF-9.07")
@pytest.mark.parametrize(
    ("clock_out", "deadline"),
    [
        ("2026-06-01T17:00Z", "2026-06-01T21:00Z"),
        ("2026-11-01T04:30Z", "2026-11-01T08:30Z"),  # New York: 00:30 EDT to 03:30 EST
        ("2026-03-08T05:30Z", "2026-03-08T09:30Z"),  # 00:30 EST to 05:30 EDT
        ("2026-10-03T14:00Z", "2026-10-03T18:00Z"),  # Lord Howe: 00:30 to 05:00
        ("2026-06-07T02:00Z", "2026-06-07T06:00Z"),  # a Saturday night
    ],
)
def test_four_hours_are_four_hours(clock_out: str, deadline: str) -> None:
    out = instant(clock_out)
    for begin in (out, out.astimezone(at("09:00").tzinfo)):  # whatever zone the instant is told in
        sheet = rules.sheet(9, 1, begin, Settings())
        notes = (sheet.notification_0_time, sheet.notification_60m_time, sheet.notification_3h_time)
        assert tuple(note - out for note in notes) == (timedelta(0), HOUR, 3 * HOUR)
        assert sheet.auto_approval_time.astimezone(UTC) == instant(deadline)


@pytest.mark.rule("STAFF-9.08", "STAFF-9.09", "STAFF-9.10", "STAFF-9.11", "STAFF-9.12")
@pytest.mark.parametrize(
    ("left", "extends", "extensions", "added"),
    [
        (timedelta(hours=3), True, 0, 0),
        (HOUR, True, 0, 0),  # exactly an hour is not less than one
        (HOUR - timedelta(microseconds=1), True, 0, 1),
        (timedelta(minutes=30), True, 0, 1),
        (timedelta(minutes=30), True, 3, 1),
        (timedelta(0), True, 0, 1),
        (timedelta(minutes=30), False, 0, 0),
        (timedelta(minutes=30), False, 4, 0),
        (HOUR, True, 4, 0),
        (timedelta(minutes=30), True, 4, None),
        (-timedelta(microseconds=1), True, 0, None),
    ],
)
def test_a_supervisor_who_edits_late_gives_an_hour(
    left: timedelta, extends: bool, extensions: int, added: int | None
) -> None:
    def edited() -> datetime:
        return rules.after_edit(DEADLINE, Settings(), now=DEADLINE - left, extends=extends, extensions=extensions)

    if added is None:
        with pytest.raises(Refused):
            edited()
    else:
        assert edited() == DEADLINE + added * HOUR


@pytest.mark.rule("STAFF-9.01", "STAFF-9.02", "STAFF-9.03", "STAFF-9.04")
def test_submit_and_nothing_before_it_starts_the_four_hours(town: Town) -> None:
    booking, shift = begun(town)
    leap(town, at("16:30"))
    with town.conn.transaction():
        shifts.save_draft(town.desk, town.conn, shift, end=at("16:25"), by=booking.worker_user)
    with pytest.raises(Refused, match="status: the shift is Working"):
        shifts.edit_timesheet(town.desk, town.conn, shift, end=at("16:20"), by=booking.supervisor or 0)
    assert set(timers(town, shift)) == {"reminder-5m", "reminder-30m"}

    leap(town, at("16:45"))
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)

    row = town.row("time_log", shift)
    assert (row["status"], row["clock_out_time"]) == ("Pending_Verification", at("16:45"))
    assert (row["work_end_time"], row["auto_approval_time"]) == (at("16:25"), at("20:45"))
    assert timers(town, shift) == {
        "ladder-0": at("16:45"),
        "ladder-60m": at("17:45"),
        "ladder-3h": at("19:45"),
        "auto-approve": at("20:45"),
    }
    for key in ("ladder-0", "ladder-60m", "ladder-3h", "auto-approve"):
        assert payload(town, f"{key}:{shift}") == {
            "time_log_id": shift,
            "booking_id": booking.id,
            "clock_out_time": "2026-06-01T20:45:00Z",
            "notification_0_time": "2026-06-01T20:45:00Z",
            "notification_60m_time": "2026-06-01T21:45:00Z",
            "notification_3h_time": "2026-06-01T23:45:00Z",
            "auto_approval_time": "2026-06-02T00:45:00Z",
        }
    queues = [tasks.bound(town.desk).get(name).queue for name in LADDER]
    assert queues == ["timesheet-notifications"] * 3 + ["timesheet-auto-approval"]
    assert [row[0] for row in town.audit("submit_timesheet")] == [str(booking.worker_user)]


@pytest.mark.rule("STAFF-9.05", "STAFF-9.13", "STAFF-9.14", "STAFF-9.15", "STAFF-9.36")
def test_the_ladder_is_climbed_in_the_night_at_its_instants(town: Town) -> None:
    """Forced at 02:00 where everybody sleeps: as after a submit, four timers, and none waits for the morning."""
    booking, shift = begun(town, start=time(18), end=time(2))
    town.funded(booking, shift)
    two = at("02:00", MONDAY + timedelta(days=1))
    leap(town, two)
    with town.conn.transaction():
        shifts.force_clock_out(town.desk, town.conn, shift, by=booking.supervisor or 0)
    assert timers(town, shift) == {
        "ladder-0": two, "ladder-60m": two + HOUR, "ladder-3h": two + 3 * HOUR, "auto-approve": two + 4 * HOUR,
    }  # fmt: skip

    assert live(town, two, two + HOUR, two + 3 * HOUR, two + 4 * HOUR) == [
        ("ladder_0", two), ("ladder_60m", two + HOUR), ("ladder_3h", two + 3 * HOUR), ("auto_approve", two + 4 * HOUR),
    ]  # fmt: skip
    both = sorted([(booking.supervisor, "sms", "Sent"), (booking.borrowing_admin, "sms", "Sent")])
    assert told(town, "ladder_0") == [(booking.supervisor, "sms", "Sent")]
    assert told(town, "ladder_60m") == told(town, "ladder_3h") == both
    name = town.value("select name from staffing.users where id = %s", booking.worker_user)
    link = f"https://app.example.com/timesheets/{shift}/verify"
    assert town.texts("ladder_0") == {f"Timesheet of {name} is ready to verify: {link}"}
    assert town.texts("ladder_60m") == {f"Timesheet pending verification for {name}. Please verify within 4 hours."}
    assert town.texts("ladder_3h") == {f"URGENT: Timesheet for {name} will auto-approve in 1 hour if not verified."}
    sent = "select kind, critical, sent_at from staffing.notification_log where kind like 'ladder%%' order by 3, 2"
    assert list(dict.fromkeys(town.rows(sent))) == [
        ("ladder_0", True, two), ("ladder_60m", False, two + HOUR), ("ladder_3h", False, two + 3 * HOUR),
    ]  # fmt: skip


@pytest.mark.rule("STAFF-9.08", "STAFF-9.09", "STAFF-9.10", "STAFF-9.11", "STAFF-9.12")
def test_only_late_edits_of_a_supervisor_move_the_timer_and_only_four_times(town: Town) -> None:
    booking, shift = submitted(town)
    supervisor = booking.supervisor or 0

    live(town, at("17:00"), at("18:00"), at("20:00"))

    def edit(clock: datetime, by: int) -> datetime:
        leap(town, clock)
        with town.conn.transaction():
            shifts.edit_timesheet(town.desk, town.conn, shift, end=at("16:50"), by=by)
        assert town.row("time_log", shift)["auto_approval_time"] == timers(town, shift)["auto-approve"]
        return timers(town, shift)["auto-approve"]

    assert edit(at("20:00"), supervisor) == at("21:00")
    assert edit(at("20:30"), booking.worker_user) == at("21:00")
    assert edit(at("20:30"), booking.borrowing_admin) == at("21:00")
    assert edit(at("20:30"), supervisor) == at("22:00")
    assert payload(town, f"auto-approve:{shift}")["auto_approval_time"] == "2026-06-02T02:00:00Z"
    assert [edit(at(f"{hour}:30"), supervisor).astimezone(UTC).hour for hour in (21, 22, 23)] == [3, 4, 5]
    midnight = at("00:30", MONDAY + timedelta(days=1))
    leap(town, midnight)
    with pytest.raises(Refused, match="was edited late 4 times"), town.conn.transaction():
        shifts.edit_timesheet(town.desk, town.conn, shift, end=at("16:40"), by=supervisor)

    row = town.row("time_log", shift)
    assert (row["work_end_time"], row["clock_out_time"], row["edit_extensions"]) == (at("16:50"), at("17:00"), 4)
    assert live(town, midnight + HOUR / 2) == [("auto_approve", midnight + HOUR / 2)]
    assert town.shift_status(shift) == "Verified"


@pytest.mark.rule("STAFF-9.16", "STAFF-9.17", "STAFF-9.18")
@pytest.mark.parametrize(
    ("passed", "runs"), [([], "ladder_0"), (["17:00"], "ladder_60m"), (["17:00", "18:00"], "ladder_3h")]
)
def test_a_step_that_finds_the_timesheet_verified_ends_the_rest(town: Town, passed: list[str], runs: str) -> None:
    booking, shift = submitted(town)
    live(town, *map(at, passed))
    before = len(town.messages())
    with refusing(town, "delete", *LADDER), town.conn.transaction():
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.supervisor or 0)
    assert "auto-approve" in timers(town, shift)  # none could be cancelled

    ran = live(town, *map(at, ("17:00", "18:00", "20:00", "21:00")[len(passed) :]))
    assert [task for task, _ in ran if task in LADDER] == [runs]
    assert timers(town, shift) == {}
    assert len(town.messages()) == before


@pytest.mark.rule("STAFF-9.20")
def test_verifying_cancels_everything_that_is_left(town: Town) -> None:
    booking, shift = submitted(town)
    live(town, at("17:00"))
    leap(town, at("17:30"))
    with town.conn.transaction():
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.supervisor or 0)
    assert set(timers(town, shift)) == {"release-shift"}
    assert town.row("time_log", shift)["verified_by"] == str(booking.supervisor)
    live(town, at("18:00"), at("20:00"), at("21:00"))
    assert {message[0] for message in town.messages()} == {"ladder_0"}
    with pytest.raises(Refused, match="status: the shift is Verified"):
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.supervisor or 0)


@pytest.mark.rule("STAFF-9.38")
@pytest.mark.parametrize("cancelled", [True, False])
def test_a_disputed_timesheet_is_not_urged_any_more(town: Town, cancelled: bool) -> None:
    booking, shift = submitted(town)
    live(town, at("17:00"))
    leap(town, at("17:30"))
    with refusing(town, "delete", *([] if cancelled else LADDER)), town.conn.transaction():
        file_dispute(town.desk, town.conn, shift, option="A", by=booking.supervisor or 0)
    assert len(set(timers(town, shift)) & {"ladder-60m", "ladder-3h", "auto-approve"}) == (0 if cancelled else 3)
    live(town, at("18:00"), at("20:00"))
    assert town.messages("ladder_60m") == town.messages("ladder_3h") == []
    assert "auto-approve" not in timers(town, shift)


@pytest.mark.rule("STAFF-9.39")
def test_after_an_outage_over_the_deadline_nobody_is_urged(town: Town) -> None:
    booking, shift = submitted(town)
    live(town, at("17:00"))
    leap(town, at("22:00"))  # nobody worked meanwhile
    town.mainspring.run_one(ladder_60m)  # before the approval, as it may come in another queue
    assert town.shift_status(shift) == "Pending_Verification"
    live(town, at("22:01"))
    assert town.messages("ladder_60m") == town.messages("ladder_3h") == []
    assert town.shift_status(shift) == "Verified"
    assert told(town, "auto_approved")[0][0] == booking.worker_user


@pytest.mark.rule("STAFF-9.39")
def test_a_message_helps_only_before_the_deadline() -> None:
    assert rules.tells(now=DEADLINE - timedelta(microseconds=1), deadline=DEADLINE)
    assert not rules.tells(now=DEADLINE, deadline=DEADLINE)


@pytest.mark.rule("STAFF-19.13")
def test_a_submit_that_is_rolled_back_leaves_no_timers_and_keeps_the_reminders(town: Town) -> None:
    booking, shift = begun(town)
    with town.conn.transaction(force_rollback=True):
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
        assert len(timers(town, shift)) == 4
    assert set(timers(town, shift)) == {"reminder-5m", "reminder-30m"}
    assert town.shift_status(shift) == "Working"
