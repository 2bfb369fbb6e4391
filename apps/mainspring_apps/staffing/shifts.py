"""Shifts: clocking in and out, timesheets, and what happens to a shift that does not take place.

Events of a web application, each in its caller's transaction; `by` is the user who acts, None where that was checked
elsewhere.
"""

from __future__ import annotations

from datetime import datetime, time
from zoneinfo import ZoneInfo

from mainspring_apps.staffing import insurance, store
from mainspring_apps.staffing.desk import Desk, acting
from mainspring_apps.staffing.locking import LockedBooking, LockedShift, lock_booking, lock_shift
from mainspring_apps.staffing.people import Part
from mainspring_apps.staffing.rules import gate, weeks
from mainspring_apps.staffing.rules import ladder as rules
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.timesheets import approval, ladder, reminders


def clock_in(desk: Desk, conn: Conn, time_log_id: int, *, by: int | None = None) -> None:
    """The worker begins: checked by the gate, with reminders for the planned end."""
    booking, shift = lock_shift(conn, time_log_id)
    _check_hand(conn, "clock_in", booking.id, by)
    now = desk.now(conn)
    _check_gate(conn, booking, shift, now)
    store.do(conn, "clock_in_shift", time_log_id=shift.id, at=now)
    _record(desk, conn, "clock_in", shift, by, after="Working")
    reminders.follow(desk, conn, booking, shift, shift.scheduled_end_time, now=now)


def save_draft(conn: Conn, time_log_id: int, *, end: datetime, by: int | None = None) -> None:
    """A draft of the timesheet: nothing else changes."""
    booking, shift = lock_shift(conn, time_log_id)
    _check_hand(conn, "save_draft", booking.id, by)
    _check_status(shift, "Working")
    store.do(conn, "draft_shift", time_log_id=shift.id, end=end)


def submit_timesheet(
    desk: Desk, conn: Conn, time_log_id: int, *, end: datetime | None = None, by: int | None = None
) -> None:
    """The worker submits: clocked out now, four hours to verify."""
    _clock_out(desk, conn, "submit_timesheet", time_log_id, end, by)


def force_clock_out(
    desk: Desk, conn: Conn, time_log_id: int, *, end: datetime | None = None, by: int | None = None
) -> None:
    """The supervisor clocks the worker out: as a submit."""
    _clock_out(desk, conn, "force_clock_out", time_log_id, end, by)


def _clock_out(
    desk: Desk, conn: Conn, act: gate.ShiftAct, time_log_id: int, end: datetime | None, by: int | None
) -> None:
    booking, shift = lock_shift(conn, time_log_id)
    _check_hand(conn, act, booking.id, by)
    _check_status(shift, "Working")
    now = desk.now(conn)
    _check_end(shift, end, now)
    sheet = rules.sheet(shift.id, booking.id, now)
    store.do(conn, "clock_out_shift", time_log_id=shift.id, at=now, end=end, deadline=sheet.auto_approval_time)
    _record(desk, conn, act, shift, by, after="Pending_Verification")
    reminders.drop(desk, conn, shift.id, now=now, reason="clocked out")
    ladder.begin(desk, conn, sheet)


def edit_timesheet(desk: Desk, conn: Conn, time_log_id: int, *, end: datetime, by: int) -> None:
    """Somebody corrects the end of work; a supervisor who does so late gives the worker an hour to review."""
    booking, shift = lock_shift(conn, time_log_id)
    part = _check_hand(conn, "edit_timesheet", booking.id, by)
    _check_status(shift, "Pending_Verification")
    assert shift.auto_approval_time is not None, "a submitted timesheet has a deadline"
    assert shift.clock_out_time is not None, "and was clocked out"
    now = desk.now(conn)
    _check_end(shift, end, now)
    deadline = rules.after_edit(
        shift.auto_approval_time, now=now, by_supervisor=part == "Supervisor", extensions=shift.edit_extensions
    )
    store.do(conn, "edit_shift", time_log_id=shift.id, end=end, deadline=deadline)
    _record(desk, conn, "edit_timesheet", shift, by)
    if deadline != shift.auto_approval_time:
        ladder.extend(desk, conn, rules.sheet(shift.id, booking.id, shift.clock_out_time, deadline=deadline))


def verify_timesheet(desk: Desk, conn: Conn, time_log_id: int, *, by: int) -> None:
    """A person verifies: what remains of the ladder ends, and the money goes to the lender."""
    booking, shift = lock_shift(conn, time_log_id)
    _check_hand(conn, "verify_timesheet", booking.id, by)
    _check_status(shift, "Pending_Verification")
    with acting(by):
        approval.verify(desk, conn, shift, by=str(by), action="verify_timesheet")
    ladder.end(desk, conn, shift.id, reason="verified")


def change_scheduled_end(desk: Desk, conn: Conn, booking_id: int, end: time | None, *, by: int | None = None) -> None:
    """Shifts of a booking end at another local time of day; the reminders of who works follow (STAFF-8.22)."""
    booking = lock_booking(conn, booking_id)
    _check_hand(conn, "change_scheduled_end", booking.id, by)
    store.do(conn, "change_booking_end", booking_id=booking.id, end=end)
    with acting(by):
        was, will = ({"scheduled_end_time": str(at) if at else None} for at in (booking.scheduled_end_time, end))
        desk.record(conn, "change_scheduled_end", "booking", booking.id, before=was, after=will)
    for shift in store.many(conn, LockedShift, "open_shifts", booking_id=booking.id):
        begins = shift.scheduled_start_time.astimezone(ZoneInfo(booking.zone))
        _, ends = weeks.shift(begins.date(), begins.time(), end, booking.zone)
        _move_end(desk, conn, booking, shift, ends)


def change_shift_end(desk: Desk, conn: Conn, time_log_id: int, end: datetime | None, *, by: int | None = None) -> None:
    """One shift ends at another instant than its booking says; its reminders follow."""
    booking, shift = lock_shift(conn, time_log_id)
    _check_hand(conn, "change_scheduled_end", booking.id, by)
    _check_status(shift, "Scheduled", "Working")
    if end is not None and end <= shift.scheduled_start_time:
        raise Refused("end: is not after the start of the shift", field="end")
    _record(desk, conn, "change_shift_end", shift, by)
    _move_end(desk, conn, booking, shift, end)


def _move_end(desk: Desk, conn: Conn, booking: LockedBooking, shift: LockedShift, end: datetime | None) -> None:
    store.do(conn, "change_shift_end", time_log_id=shift.id, end=end)
    if shift.status == "Working":
        reminders.follow(desk, conn, booking, shift, end, now=desk.now(conn))


def _check_hand(conn: Conn, act: gate.ShiftAct, booking_id: int, by: int | None) -> Part | None:
    if by is None:
        return None
    part: Part | None = store.value(conn, "part_in_booking", booking_id=booking_id, user_id=by)
    gate.check_hand(act, part)
    return part


def _check_gate(conn: Conn, booking: LockedBooking, shift: LockedShift, now: datetime) -> None:
    why = gate.closed(
        booking=booking.status,
        shift=shift.status,
        starts_on=weeks.local_date(shift.scheduled_start_time, booking.zone),
        end_date=booking.end_date,
        uncovered=insurance.uncovered(conn, booking.id, weeks.local_date(now, booking.zone)),
    )
    if why is not None:
        raise Refused(why, field=why.partition(":")[0])


def _check_status(shift: LockedShift, *wanted: str) -> None:
    if shift.status not in wanted:
        raise Refused(f"status: the shift is {shift.status}, not {' or '.join(wanted)}", field="status")


def _check_end(shift: LockedShift, end: datetime | None, now: datetime) -> None:
    if end is not None and not shift.clock_in_time <= end <= now:
        raise Refused("end: work ends between clock-in and now", field="end")


def _record(desk: Desk, conn: Conn, act: str, shift: LockedShift, by: int | None, *, after: str | None = None) -> None:
    was, will = ({"status": shift.status}, {"status": after}) if after else (None, None)
    with acting(by):
        desk.record(conn, act, "time_log", shift.id, booking_id=shift.booking_id, before=was, after=will)
