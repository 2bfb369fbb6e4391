"""Shifts: clocking in and out, timesheets, and what happens to a shift that does not take place.

Events of a web application, each in its caller's transaction.
"""

from __future__ import annotations

from datetime import date, datetime, time
from typing import Any, Literal
from zoneinfo import ZoneInfo

from mainspring_apps.staffing import insurance, store, timers
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.languages import moment
from mainspring_apps.staffing.locking import LockedBooking, LockedShift, lock_booking, lock_shift
from mainspring_apps.staffing.payments import arrears, escrow, no_shows
from mainspring_apps.staffing.people import EVERYBODY, By, parts_of, people
from mainspring_apps.staffing.rules import gate, parts, pay, weeks
from mainspring_apps.staffing.rules import ladder as rules
from mainspring_apps.staffing.rules import no_shows as unbegun
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn
from mainspring_apps.staffing.timesheets import approval, ladder, reminders

_EndChange = Literal["shortened", "changed"]


@event
def clock_in(desk: Desk, conn: Conn, time_log_id: int, *, by: By) -> None:
    """Clock in, if the gate is open; reminders to clock out are set for the planned end."""
    booking, shift = lock_shift(conn, time_log_id)
    now = desk.now(conn)
    _check_gate(desk, conn, booking, shift, now)
    _check_alone(conn, shift)
    store.do(conn, "clock_in_shift", time_log_id=shift.id, at=now)
    _record(desk, conn, "clock_in", shift, after="Working")
    timers.cancel(desk, conn, shift.id, timers.NO_SHOW_TIMER, reason="begun")
    reminders.follow(desk, conn, booking, shift, shift.scheduled_end_time, now=now)


@event
def save_draft(desk: Desk, conn: Conn, time_log_id: int, *, end: datetime, by: By) -> None:
    """Save a draft of the timesheet; nothing else changes."""
    _, shift = lock_shift(conn, time_log_id)
    _check_status(shift, "Working")
    store.do(conn, "draft_shift", time_log_id=shift.id, end=end)


@event
def submit_timesheet(desk: Desk, conn: Conn, time_log_id: int, *, end: datetime | None = None, by: By) -> None:
    """Clock out and submit the timesheet, which approves itself after four hours."""
    _clock_out(desk, conn, "submit_timesheet", time_log_id, end)


@event
def force_clock_out(desk: Desk, conn: Conn, time_log_id: int, *, end: datetime | None = None, by: By) -> None:
    """Clock a worker out and submit for them; an end that is given binds the worker as an edit does."""
    _clock_out(desk, conn, "force_clock_out", time_log_id, end, capped=end)


def _clock_out(
    desk: Desk, conn: Conn, act: str, time_log_id: int, end: datetime | None, *, capped: datetime | None = None
) -> None:
    booking, shift = lock_shift(conn, time_log_id)
    _check_status(shift, "Working")
    now = desk.now(conn)
    _check_end(shift, end, now)
    sheet = rules.sheet(shift.id, booking.id, now, desk.settings)
    ends = {"end": end, "deadline": sheet.auto_approval_time, "capped": capped, "less": False}
    store.do(conn, "clock_out_shift", time_log_id=shift.id, at=now, **ends)
    _record(desk, conn, act, shift, after="Pending_Verification")
    _tell_cut(desk, conn, shift.id, now)
    reminders.drop(desk, conn, shift.id, now=now, reason="clocked out")
    ladder.begin(desk, conn, sheet)


def _tell_cut(desk: Desk, conn: Conn, time_log_id: int, now: datetime) -> None:
    """Tell the worker of hours that were cut just now: they have an hour to object (STAFF-20.03)."""
    booking, shift = lock_shift(conn, time_log_id)
    if shift.cut_at != now or shift.work_end_time is None:
        return
    about = {
        "ID": booking.id,
        "Date": weeks.local_date(shift.scheduled_start_time, booking.zone).isoformat(),
        "End": moment(shift.work_end_time, booking.zone),
        "Link": f"{desk.settings.app_url}/timesheets/{shift.id}",
        "time_log_id": shift.id,
        "booking_id": booking.id,
    }
    desk.tell(conn, "hours_cut", people(conn, booking.id, *rules.CUT_TOLD), about, occurrence=now)


@event
def edit_timesheet(desk: Desk, conn: Conn, time_log_id: int, *, end: datetime, by: By) -> None:
    """Correct the end of work; a supervisor who does so late, or who cuts, gives the worker an hour.

    What the borrower's side has set is the worker's limit: who disagrees disputes the timesheet.
    """
    booking, shift = lock_shift(conn, time_log_id)
    _check_status(shift, "Pending_Verification")
    assert shift.auto_approval_time is not None, "a submitted timesheet has a deadline"
    assert shift.clock_out_time is not None, "and was clocked out"
    now = desk.now(conn)
    _check_end(shift, end, now)
    played = parts_of(conn, by, "booking_id", booking.id)
    pays = not parts.MAY["verify_timesheet"].isdisjoint(played)
    if not pays:
        rules.check_worker(end, shift.capped_end_time, booking.zone)
    deadline = rules.after_edit(
        shift.auto_approval_time, desk.settings, now=now, extensions=shift.edit_extensions,
        extends="Supervisor" in played or (pays and end < (shift.work_end_time or shift.clock_out_time)),
    )  # fmt: skip
    about = {"end": end, "deadline": deadline, "capped": end if pays else None, "at": now}
    store.do(conn, "edit_shift", time_log_id=shift.id, **about)
    _record_end(desk, conn, "edit_timesheet", shift, "work_end_time", shift.work_end_time, end)
    _tell_cut(desk, conn, shift.id, now)
    if deadline != shift.auto_approval_time:
        moved = rules.sheet(shift.id, booking.id, shift.clock_out_time, desk.settings, deadline=deadline)
        ladder.extend(desk, conn, moved)


@event
def verify_timesheet(desk: Desk, conn: Conn, time_log_id: int, *, by: By) -> None:
    """Verify a timesheet: its messages stop, and its pay goes to the lender."""
    booking, shift = lock_shift(conn, time_log_id)
    _check_status(shift, "Pending_Verification")
    now, zone = desk.now(conn), booking.zone
    rules.check_verifier(shift.cut_at, shift.auto_approval_time, desk.settings, now=now, zone=zone)
    approval.verify(desk, conn, shift, by=str(by), action="verify_timesheet")
    ladder.end(desk, conn, shift.id, reason="verified")


@event
def confirm_extra_time(desk: Desk, conn: Conn, time_log_id: int, *, by: By) -> None:
    """Agree to pay for time after the planned end; it is charged with the next week."""
    _, shift = lock_shift(conn, time_log_id)
    _check_status(shift, "Verified")
    if not store.do(conn, "confirm_extra_time", time_log_id=shift.id, at=desk.now(conn)):
        raise Refused("time_log_id: has no extra time that is yet to be confirmed", field="time_log_id")
    _record(desk, conn, "confirm_extra_time", shift)
    arrears.of_booking(desk, conn, shift.booking_id)  # where no week follows


@event
def was_worked(desk: Desk, conn: Conn, time_log_id: int, *, start: datetime, end: datetime, by: By) -> None:
    """Say that a shift was worked though nobody clocked in: whole, it is verified at once; less is a cut."""
    booking, shift = lock_shift(conn, time_log_id)
    now = desk.now(conn)
    why = unbegun.refusal(
        status=shift.status, planned_start=shift.scheduled_start_time, planned_end=shift.planned_end,
        until=unbegun.given_up_at(shift.planned_end, desk.settings.no_show_after), start=start, end=end, now=now,
    )  # fmt: skip
    if why is not None:
        raise Refused(why, field=why.partition(":")[0])
    sheet = rules.sheet(shift.id, booking.id, now, desk.settings)
    store.do(conn, "clock_in_shift", time_log_id=shift.id, at=start)
    less = unbegun.less(shift.scheduled_start_time, shift.planned_end, start, end)
    ends = {"end": end, "deadline": sheet.auto_approval_time, "capped": end if less else None, "less": less}
    store.do(conn, "clock_out_shift", time_log_id=shift.id, at=now, **ends)
    _record(desk, conn, "was_worked", shift, after="Pending_Verification")
    timers.cancel(desk, conn, shift.id, timers.NO_SHOW_TIMER, reason="worked")
    if less:  # the worker is told, and can object for an hour, as to every cut
        _tell_cut(desk, conn, shift.id, now)
        ladder.begin(desk, conn, sheet)
        return
    _, submitted = lock_shift(conn, time_log_id)
    approval.verify(desk, conn, submitted, by=str(by), action="verify_timesheet")


@event
def change_scheduled_end(desk: Desk, conn: Conn, booking_id: int, end: time | None, *, by: By) -> None:
    """Change when the shifts of a booking end, by its project's clock; an earlier end cancels what it drops."""
    booking = lock_booking(conn, booking_id)
    store.do(conn, "change_booking_end", booking_id=booking.id, end=end)
    was, will = ({"scheduled_end_time": str(at) if at else None} for at in (booking.scheduled_end_time, end))
    desk.record(conn, "change_scheduled_end", "booking", booking.id, before=was, after=will)
    moved: list[tuple[date, _EndChange]] = []
    for shift in store.many(conn, LockedShift, "open_shifts", booking_id=booking.id):
        begins = shift.scheduled_start_time.astimezone(ZoneInfo(booking.zone))
        _, ends = weeks.shift(begins.date(), begins.time(), end, booking.zone)
        if how := _move_end(desk, conn, booking, shift, ends):
            moved.append((begins.date(), how))
    no_shows.watch_over(desk, conn, booking.id)
    if moved and end is not None:
        first, shorter = min(day for day, _ in moved), any(how == "shortened" for _, how in moved)
        about = {"ID": booking.id, "Date": first.isoformat(), "booking_id": booking.id}
        about["Time"] = f"{end:%H:%M} ({booking.zone})"
        _tell_everybody(desk, conn, "shifts_shortened" if shorter else "shifts_end_changed", about)


@event
def change_shift_end(desk: Desk, conn: Conn, time_log_id: int, end: datetime | None, *, by: By) -> None:
    """Change when one shift ends; an earlier end cancels what it drops, with the same penalty."""
    booking, shift = lock_shift(conn, time_log_id)
    _check_status(shift, "Scheduled", "Working")
    if end is not None and end <= shift.scheduled_start_time:
        raise Refused("end: is not after the start of the shift", field="end")
    _record_end(desk, conn, "change_shift_end", shift, "scheduled_end_time", shift.scheduled_end_time, end)
    moved = _move_end(desk, conn, booking, shift, end)
    no_shows.watch_over(desk, conn, booking.id)
    if moved and end is not None:
        day = weeks.local_date(shift.scheduled_start_time, booking.zone)
        about = {"ID": booking.id, "Date": day.isoformat(), "booking_id": booking.id, "time_log_id": shift.id}
        kind = "shift_shortened" if moved == "shortened" else "shift_end_changed"
        _tell_everybody(desk, conn, kind, about | {"End": moment(end, booking.zone)})


def _move_end(
    desk: Desk, conn: Conn, booking: LockedBooking, shift: LockedShift, end: datetime | None
) -> _EndChange | None:
    """Move the end of a shift, and say how; what is dropped of one that has not begun is called off.

    Of one that has begun only the reminders follow (STAFF-8.20): what was planned of it is not taken back.
    """
    now = desk.now(conn)
    _check_room(conn, shift, end)
    changed: _EndChange | None = "changed" if end != shift.scheduled_end_time else None
    store.do(conn, "change_shift_end", time_log_id=shift.id, end=end)
    if shift.status == "Working":
        reminders.follow(desk, conn, booking, shift, end, now=now)
        return changed
    minutes = pay.shortened(shift.planned_minutes, shift.scheduled_start_time, end)
    owed = insurance.lender_covered(desk, conn, booking)
    if not store.do(conn, "shorten_shift", time_log_id=shift.id, minutes=minutes, at=now if owed else None):
        escrow.plan_again(desk, conn, shift.id)
        return changed
    escrow.shorten(desk, conn, shift.id, now, penalised=owed)
    desk.record(
        conn, "shorten_shift", "time_log", shift.id, booking_id=booking.id,
        before={"planned_minutes": shift.planned_minutes}, after={"planned_minutes": minutes},
    )  # fmt: skip
    return "shortened"


def _tell_everybody(desk: Desk, conn: Conn, kind: str, about: dict[str, Any]) -> None:
    told = people(conn, about["booking_id"], *EVERYBODY)
    desk.tell(conn, kind, told, about, occurrence=desk.now(conn))


def _check_gate(desk: Desk, conn: Conn, booking: LockedBooking, shift: LockedShift, now: datetime) -> None:
    holds = store.column(conn, "holds_of_shift", time_log_id=shift.id)
    why = gate.closed(
        booking=booking.status,
        shift=shift.status,
        starts_on=weeks.local_date(shift.scheduled_start_time, booking.zone),
        end_date=booking.end_date,
        funded=not gate.PAID.isdisjoint(holds),
        taken="Taken" in holds and arrears.taken_back(desk, conn, booking.id, shift.id),
        awaits_resolution=booking.renewed_in_dispute and desk.settings.clock_in_needs_no_dispute_after_renewal,
        uncovered=insurance.uncovered(conn, booking.id, weeks.local_date(now, booking.zone)),
    ) or gate.outside(
        now, start=shift.scheduled_start_time, end=shift.scheduled_end_time, early=desk.settings.clock_in_early,
        open_for=desk.settings.clock_in_open, zone=booking.zone,
    )  # fmt: skip
    if why is not None:
        raise Refused(why, field=why.partition(":")[0])


def _check_alone(conn: Conn, shift: LockedShift) -> None:
    """Refuse to begin a shift while its worker works on another: nobody is in two places (STAFF-12.03)."""
    store.value(conn, "lock_worker", worker_id=shift.worker_id)
    if (other := store.value(conn, "working_elsewhere", worker_id=shift.worker_id)) is not None:
        raise Refused(gate.elsewhere(other), field="status")


def _check_room(conn: Conn, shift: LockedShift, end: datetime | None) -> None:
    """Refuse to lengthen a shift over another one of its worker; time that it has already is not asked for."""
    will = shift.planned_until(end)
    if will <= shift.planned_end:
        return
    store.value(conn, "lock_worker", worker_id=shift.worker_id)
    added = {"starts": shift.planned_end, "ends": will}
    if store.value(conn, "other_shift_in_the_way", time_log_id=shift.id, worker_id=shift.worker_id, **added):
        raise Refused("end: the worker is not available for so long: they are booked elsewhere by then", field="end")


def _check_status(shift: LockedShift, *wanted: str) -> None:
    if shift.status not in wanted:
        raise Refused(f"status: the shift is {shift.status}, not {' or '.join(wanted)}", field="status")


def _check_end(shift: LockedShift, end: datetime | None, now: datetime) -> None:
    if end is not None and not shift.clock_in_time <= end <= now:
        raise Refused("end: work ends between clock-in and now", field="end")


def _record(desk: Desk, conn: Conn, act: str, shift: LockedShift, *, after: str | None = None) -> None:
    was, will = ({"status": shift.status}, {"status": after}) if after else (None, None)
    desk.record(conn, act, "time_log", shift.id, booking_id=shift.booking_id, before=was, after=will)


def _record_end(
    desk: Desk, conn: Conn, act: str, shift: LockedShift, name: str, was: datetime | None, will: datetime | None
) -> None:
    before, after = ({name: at and at.isoformat()} for at in (was, will))
    desk.record(conn, act, "time_log", shift.id, booking_id=shift.booking_id, before=before, after=after)
