"""Shifts that nobody began: the money goes back a day after their end, unless somebody says that they were worked."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, datetime, time, timedelta

import pytest
from tests.apps.staffing.quarrels import moved
from tests.apps.staffing.sheets import at, timers, told
from tests.apps.staffing.test_settling import charged
from tests.apps.staffing.test_settling import told as says
from tests.apps.staffing.town import NEXT_MONDAY, W10, Booking, Town

from mainspring_apps.staffing import shifts
from mainspring_apps.staffing.conflicts import disputes
from mainspring_apps.staffing.payments import no_shows
from mainspring_apps.staffing.states import NotAllowed, Refused

HOUR, DAY, INSTANT = timedelta(hours=1), timedelta(days=1), timedelta(microseconds=1)


def said(town: Town, shift: int, start: datetime, end: datetime, *, by: int) -> None:
    with town.conn.transaction():
        shifts.was_worked(town.desk, town.conn, shift, start=start, end=end, by=by)


def held(town: Town, booking: Booking) -> list[int]:
    """The shifts that money is held for."""
    query = "select time_log_id from staffing.escrow_holds where booking_id = %s and status = 'Held' order by 1"
    return [shift for (shift,) in town.rows(query, booking.id)]


@pytest.mark.rule("STAFF-20.07")
def test_what_is_held_for_a_shift_that_nobody_began_goes_back_a_day_after_its_end_unless_it_was_worked(
    town: Town,
) -> None:
    booking = town.booking(shifts=3)
    assert booking.supervisor is not None
    missed, worked, begun = booking.shifts
    charged(town, booking)
    town.mainspring.advance(to=W10 + HOUR)
    due = {shift: at("17:00", NEXT_MONDAY + n * DAY) + DAY for n, shift in enumerate(booking.shifts)}
    assert {shift: timers(town, shift) for shift in due} == {shift: {"no-show": due[shift]} for shift in due}
    assert town.value("select count(*) from mainspring.jobs where task = 'refund_no_show'") == 3

    town.mainspring.clock.set(due[missed] - INSTANT)
    town.mainspring.drain()
    assert (town.shift_status(missed), held(town, booking)) == ("Scheduled", booking.shifts)

    town.mainspring.advance(to=due[missed] + HOUR)
    row = town.row("time_log", missed)
    assert (row["status"], row["cancel_reason"], row["cancelled_at"]) == ("Cancelled", "No_Show", due[missed])
    assert (moved(town, "refund"), moved(town, "transfer")) == ([24000], [])
    assert town.texts("no_show") == {
        f"Nobody clocked in for the shift on 2026-06-08 (booking {booking.id}). It is not paid, and the money held for "
        "it is being refunded to the borrower."
    }
    everybody = (booking.worker_user, booking.supervisor, booking.borrowing_admin, booking.lending_admin)
    assert told(town, "no_show") == sorted((who, by, "Sent") for who in everybody for by in ("email", "sms"))

    begins, ends = due[worked] - DAY - 8 * HOUR, due[worked] - DAY
    for hours in ((begins, town.now + HOUR), (ends, begins), (ends, ends + HOUR), (begins - HOUR, begins)):
        with pytest.raises(Refused, match=r"work ends after its start|lie outside"):
            said(town, worked, *hours, by=booking.supervisor)
    for nobody in (booking.worker_user, booking.lending_admin, booking.lending_manager, town.operator):
        with pytest.raises(NotAllowed):
            said(town, worked, begins, ends, by=nobody)
    town.mainspring.clock.set(due[worked] - HOUR)
    said(town, worked, begins, ends, by=booking.supervisor)
    assert timers(town, worked).keys() == {"release-shift"}
    row = town.row("time_log", worked)
    assert (row["clock_in_time"], row["work_end_time"]) == (begins, ends)
    assert (row["status"], row["verified_by"]) == ("Verified", str(booking.supervisor))
    with pytest.raises(Refused, match="the shift is Verified, not Scheduled"):
        said(town, worked, begins, ends, by=booking.supervisor)
    with pytest.raises(Refused, match="the shift was verified by a person"), town.conn.transaction():
        disputes.file_dispute(town.desk, town.conn, worked, option="A", by=booking.worker_user)

    town.mainspring.clock.set(due[begun] - DAY - 8 * HOUR)
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, begun, by=booking.worker_user)
    assert "no-show" not in timers(town, begun)
    town.mainspring.clock.set(due[begun] + HOUR)
    town.mainspring.client.enqueue(no_shows.refund_no_show.job(time_log_id=begun))  # as if its timer had stayed
    town.mainspring.drain()
    assert (moved(town, "refund"), moved(town, "transfer")) == ([24000], [24000])
    assert (town.shift_status(begun), town.ledger(booking)) == ("Working", (72000, 24000, 0, 24000, 24000))


@pytest.mark.rule("STAFF-20.07")
def test_what_has_no_timer_is_found_within_the_hour_whatever_became_of_its_booking(town: Town) -> None:
    day = date(2026, 6, 3)
    paid, suspended, ended, unpaid = (
        town.booking(zone="Asia/Tokyo", start=time(8), end=time(16), shifts=[day]) for _ in range(4)
    )
    for booking in (paid, suspended, ended):
        town.funded(booking)  # by hand: no timer is set
    change = "update staffing.bookings set status = %s, status_before_suspension = %s where id = %s"
    town.conn.execute(change, ["Suspended_Insurance", "Active", suspended.id])
    town.conn.execute(change, ["Cancelled", None, ended.id])
    endless = town.booking(shifts=[day], end=None)  # 9:00 in New York, planned as eight hours
    town.funded(endless)
    due = datetime.fromisoformat("2026-06-04T07:00Z")

    town.only("no-shows", at=due - HOUR)
    town.mainspring.advance(to=due - INSTANT)
    assert {town.shift_status(one.shifts[0]) for one in (paid, suspended, ended, unpaid)} == {"Scheduled"}
    town.mainspring.advance(to=due + HOUR)
    for booking in (paid, suspended, ended):
        assert town.ledger(booking) == (24000, 0, 0, 0, 24000)
    texts = str(town.texts("no_show"))  # of a shift that began on the 2nd in UTC
    assert "Nobody clocked in for the shift on 2026-06-03" in texts
    assert town.row("time_log", unpaid.shifts[0])["cancel_reason"] == "No_Show"
    # Nobody has paid for the fourth: nobody gets anything back, and nobody is told.
    about = "select distinct (data ->> 'ID')::bigint from mainspring.notification where template = 'no_show' order by 1"
    assert town.rows(about) == [(one.id,) for one in (paid, suspended, ended)]

    due = at("17:00", date(2026, 6, 4))
    town.mainspring.advance(to=due - INSTANT)
    assert held(town, endless) == endless.shifts
    town.mainspring.clock.set(due)
    with pytest.raises(Refused, match="the time to say that the shift was worked is over"):
        said(town, endless.shifts[0], due - DAY - 8 * HOUR, due - DAY, by=endless.borrowing_admin)
    town.mainspring.advance(to=due + HOUR)
    assert town.ledger(endless) == (24000, 0, 0, 0, 24000)


@pytest.mark.rule("STAFF-20.07")
def test_the_refund_follows_the_planned_end_and_money_that_comes_later_goes_back_whole(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(vars(town.desk), "settings", replace(town.desk.settings, no_show_after=6 * HOUR))
    town.unheard()
    booking, late = town.booking(shifts=2), town.booking(shifts=1)
    first, second = booking.shifts
    payment = charged(town, late)
    says(town, town.value("select id from staffing.pending_payments where booking_id = %s", booking.id), "succeeded")

    with town.conn.transaction():
        shifts.change_scheduled_end(town.desk, town.conn, booking.id, time(15), by=booking.borrowing_admin)
        shifts.change_shift_end(
            town.desk, town.conn, second, at("19:00", NEXT_MONDAY + DAY), by=booking.supervisor or 0
        )
    assert timers(town, first)["no-show"] == at("21:00", NEXT_MONDAY)
    assert timers(town, second)["no-show"] == at("01:00", NEXT_MONDAY + 2 * DAY)
    town.conn.execute(  # by somebody who told no timer
        "update staffing.time_log set scheduled_end_time = %s where id = %s", [at("16:00", NEXT_MONDAY), first]
    )
    town.mainspring.clock.set(at("21:00", NEXT_MONDAY))
    town.mainspring.drain()
    assert (held(town, booking), timers(town, first)) == ([first, second], {"no-show": at("22:00", NEXT_MONDAY)})
    town.only("no-shows", at=at("23:30", NEXT_MONDAY))
    town.mainspring.drain()
    assert held(town, booking) == [second]

    assert town.shift_status(late.shifts[0]) == "Cancelled"
    says(town, payment, "succeeded")
    town.mainspring.drain()
    assert town.ledger(late) == (24000, 0, 0, 0, 24000)
    assert moved(town, "transfer") == []


@pytest.mark.rule("STAFF-20.07", "STAFF-20.08")
def test_a_penalty_for_hours_that_were_planned_again_and_that_nobody_came_for_is_told_to_operations(town: Town) -> None:
    booking = town.booking(shifts=[NEXT_MONDAY])
    shift = booking.shifts[0]
    town.funded(booking)
    town.mainspring.clock.set(at("08:50", NEXT_MONDAY))
    for end in (at("09:01", NEXT_MONDAY), at("17:00", NEXT_MONDAY)):
        with town.conn.transaction():
            shifts.change_shift_end(town.desk, town.conn, shift, end, by=booking.supervisor or 0)
    town.mainspring.drain()
    town.mainspring.clock.set(at("17:00", NEXT_MONDAY) + DAY)
    town.mainspring.client.enqueue(no_shows.refund_no_show.job(time_log_id=shift))
    town.mainspring.drain()
    assert (town.shift_status(shift), town.ledger(booking)) == ("Cancelled", (24000, 0, 0, 23950, 50))
    assert "239.50 USD more" in town.value("select text from mainspring.alert where subject = %s", f"time_log {shift}")
