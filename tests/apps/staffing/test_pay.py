"""Pay follows hours: what was worked is paid, the rest of its hold goes back, and more is paid once it is confirmed."""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

import pytest
from tests.apps.staffing.quarrels import filed, moved, resolved
from tests.apps.staffing.sheets import at, begun, booked, leap, submitted, timers
from tests.apps.staffing.test_escrow import charged, received
from tests.apps.staffing.test_settling import on_webhook, told
from tests.apps.staffing.test_weekly_payments import near
from tests.apps.staffing.town import MONDAY, NY, W10, Booking, Town

from mainspring_apps.staffing import cli, shifts, show
from mainspring_apps.staffing.payments import escrow
from mainspring_apps.staffing.payments.escrow import PAID_TOO_MUCH
from mainspring_apps.staffing.rules import pay
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.timesheets import approval

__all__ = ["on_webhook"]
NINE, FIVE = datetime(2026, 6, 1, 9, tzinfo=UTC), datetime(2026, 6, 1, 17, tzinfo=UTC)
HOUR, MINUTE, SECOND = timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1)
#: The night in which New York's clocks go back: from 22:00 to 06:00 are nine hours.
LONG_NIGHT = [datetime(2026, 10, 31, 22, tzinfo=ZoneInfo(NY)), datetime(2026, 11, 1, 6, tzinfo=ZoneInfo(NY))]


@pytest.mark.rule("STAFF-20.01", "STAFF-20.04")
@pytest.mark.parametrize(
    ("clocked_in", "stopped", "worked"),
    [
        (NINE, NINE + timedelta(hours=3, minutes=7), (187, 0)),
        (NINE, NINE + timedelta(hours=3, minutes=7, seconds=59), (187, 0)),  # whole minutes
        (NINE, FIVE, (480, 0)),
        (NINE - 40 * MINUTE, FIVE, (480, 0)),  # not before the planned start
        (NINE + 90 * MINUTE, FIVE, (390, 0)),  # not before the clock-in
        (NINE, FIVE + 59 * SECOND, (480, 0)),
        (NINE, FIVE + HOUR, (480, 60)),
        (NINE + HOUR, FIVE + HOUR, (420, 60)),  # who comes late cannot make up for it unasked
        (NINE - 40 * MINUTE, NINE - 10 * MINUTE, (0, 0)),
        (FIVE, FIVE, (0, 0)),
        (FIVE + HOUR, FIVE + 3 * HOUR, (0, 120)),  # the planned end was moved before the clock-in
    ],
)
def test_whole_minutes_count_from_clock_in_or_planned_start_to_the_planned_end(
    clocked_in: datetime, stopped: datetime, worked: tuple[int, int]
) -> None:
    found = pay.hours(start=NINE, end=FIVE, planned_minutes=480, clocked_in=clocked_in, stopped=stopped)
    assert (found.paid, found.extra) == worked


@pytest.mark.rule("STAFF-20.01")
def test_hours_are_those_of_the_clock_that_never_changes_and_an_open_shift_is_paid_as_it_was_planned() -> None:
    begin, end = LONG_NIGHT
    night = pay.hours(start=begin, end=end, planned_minutes=540, clocked_in=begin, stopped=end)
    assert (night.paid, night.extra) == (540, 0)
    late = NINE + 3 * HOUR
    for stopped, worked in ((late + HOUR, (60, 0)), (late + 9 * HOUR, (480, 60))):
        found = pay.hours(start=NINE, end=None, planned_minutes=480, clocked_in=late, stopped=stopped)
        assert (found.paid, found.extra) == worked


@pytest.mark.rule("STAFF-20.01")
@pytest.mark.parametrize(
    ("minutes", "rate", "price"), [(187, 3000, 9350), (187, 1001, 3120), (30, 1001, 501), (0, 3000, 0), (29, 1, 0)]
)
def test_pay_is_rounded_once_half_up_however_it_is_charged(minutes: int, rate: int, price: int) -> None:
    assert pay.shift_pay(minutes, rate, 0) == price
    for part in range(minutes + 1):
        assert pay.shift_pay(part, rate, 0) + pay.added_pay(part, minutes, rate, 0) == price


@pytest.mark.rule("STAFF-20.01", "STAFF-20.02")
@pytest.mark.parametrize("by", ["a person", "SYSTEM"])
def test_the_commit_that_verifies_gives_back_what_was_not_worked(town: Town, by: str) -> None:
    booking, shift = submitted(town, at("12:07") + 30 * SECOND)
    town.mainspring.drain()
    if by == "SYSTEM":
        leap(town, at("16:07") + 30 * SECOND)
        town.mainspring.run_one(approval.auto_approve)
    else:
        verify(town, booking, shift)

    assert worked(town, shift) == (187, 0)
    assert town.ledger(booking) == (24000, 9350, 0, 0, 14650)
    ((refund, status, key),) = town.rows("select amount_minor, status, idempotency_key from staffing.refunds")
    rest = town.value("select id from staffing.escrow_holds where status = 'Refunded'")
    assert (refund, status, key) == (14650, "Pending", f"refund:{rest}:shift")
    assert (moved(town, "refund"), moved(town, "transfer")) == ([], []), "each by its own job"

    town.mainspring.advance(2 * SECOND)
    for _ in range(2):
        assert (moved(town, "transfer"), moved(town, "refund")) == ([9350], [14650])
        assert town.ledger(booking) == (24000, 0, 0, 9350, 14650)
        with town.conn.transaction():
            escrow.give_back_rest(town.desk, town.conn, shift)
        town.mainspring.drain()


@pytest.mark.rule("STAFF-20.02")
def test_money_that_comes_after_the_verification_is_divided_as_money_that_came_before(town: Town) -> None:
    booking, shift = submitted(town, at("12:00"), funded=False)
    payment = charged(town, booking, shift)
    verify(town, booking, shift)
    town.mainspring.drain()
    assert town.ledger(booking) == (0, 0, 0, 0, 0)

    with received(town, payment):
        escrow.fund(town.desk, town.conn, payment)

    assert town.ledger(booking) == (24000, 9000, 0, 0, 15000)


@pytest.mark.rule("STAFF-20.02")
def test_every_hold_of_a_shift_counts_and_who_did_nothing_gets_nothing(town: Town) -> None:
    booking, shift = submitted(town, at("12:00"))
    week = "period_start = period_start - interval '7 days', period_end = period_end - interval '7 days'"
    town.conn.execute(f"update staffing.pending_payments set {week}".encode())
    town.funded(booking, shift)
    verify(town, booking, shift)
    assert town.ledger(booking) == (48000, 9000, 0, 0, 39000)

    tuesday, wednesday = date(2026, 6, 2), date(2026, 6, 3)
    idle, nothing = submitted(town, at("08:59", tuesday), start=time(8), end=time(16), days=[tuesday])
    town.conn.execute("update staffing.time_log set clock_in_time = work_end_time where id = %s", [nothing])
    unpaid = town.shift(idle, wednesday, status="Pending_Verification", auto_approval_time=town.now,
                        clock_out_time=at("09:00", wednesday))  # fmt: skip
    for one in (nothing, unpaid):
        verify(town, idle, one)
    town.mainspring.drain()
    assert (worked(town, nothing), worked(town, unpaid)) == ((0, 0), (0, 0))
    assert town.ledger(idle) == (24000, 0, 0, 0, 24000)
    assert (moved(town, "transfer"), moved(town, "refund")) == ([9000], [15000, 24000, 24000])
    assert town.alerts() == [], "nobody is owed anything"


@pytest.mark.rule("STAFF-20.02")
def test_what_the_lender_has_already_does_not_come_back_by_itself(town: Town, on_webhook: None) -> None:
    booking, shift = submitted(town, at("12:00"), funded=False)
    payment = town.funded(booking, shift)
    with town.conn.transaction():
        escrow.release_whole(town.desk, town.conn, payment)
    verify(town, booking, shift)
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)
    assert town.alerts() == [(PAID_TOO_MUCH, f"time_log {shift}", "warning")]
    assert "150.00 USD more" in town.value("select text from mainspring.alert")


@pytest.mark.rule("STAFF-20.02")
def test_a_dispute_in_the_instant_of_the_approval_freezes_what_is_left_and_divides_it(town: Town) -> None:
    booking, shift = submitted(town, at("12:00"))
    leap(town, at("16:00"))
    town.mainspring.run_one(approval.auto_approve)
    dispute = filed(town, shift, by=booking.borrowing_admin)
    assert (worked(town, shift), town.ledger(booking)) == ((None, None), (24000, 0, 9000, 0, 15000))
    with pytest.raises(Refused, match="are not the 9000 that are frozen"):
        resolved(town, dispute, lender_minor=24000, borrower_minor=0)

    resolved(town, dispute, lender_minor=5000, borrower_minor=4000)
    town.mainspring.advance(2 * SECOND)

    assert town.ledger(booking) == (24000, 0, 0, 5000, 19000)
    assert (moved(town, "transfer"), moved(town, "refund")) == ([5000], [4000, 15000])
    assert worked(town, shift) == (None, None), "the settlement has divided the money, not the hours"


@pytest.mark.rule("STAFF-20.02")
def test_a_settlement_that_had_nothing_to_divide_leaves_the_money_to_the_hours(town: Town) -> None:
    booking, shift = submitted(town, at("12:00"), funded=False)
    payment = charged(town, booking, shift)
    resolved(town, filed(town, shift, by=booking.borrowing_admin))
    assert worked(town, shift) == (180, 0)
    with received(town, payment):
        escrow.fund(town.desk, town.conn, payment)
    assert town.ledger(booking) == (24000, 9000, 0, 0, 15000)


@pytest.mark.rule("STAFF-20.03")
def test_an_edit_changes_what_is_paid_up_to_the_verification_and_nothing_after_it(town: Town) -> None:
    booking, shift = submitted(town)
    edit(town, shift, at("16:00"), by=booking.supervisor)
    leap(town, town.now + HOUR)
    verify(town, booking, shift)
    for by, end in ((booking.supervisor, at("15:00")), (booking.worker_user, at("17:00"))):
        with pytest.raises(Refused, match="the shift is Verified, not Pending_Verification"):
            edit(town, shift, end, by=by)
    town.mainspring.advance(2 * SECOND)
    assert worked(town, shift) == (420, 0)
    assert (moved(town, "transfer"), moved(town, "refund")) == ([21000], [3000])


@pytest.mark.rule("STAFF-20.04")
def test_confirmed_extra_time_is_charged_with_the_next_week_and_never_twice(town: Town) -> None:
    tuesday = MONDAY + timedelta(days=1)
    booking, shift = submitted(town, at("18:00"), days=[MONDAY, tuesday], funded=False)
    town.funded(booking)
    town.shift(booking, date(2026, 6, 8))
    assert told_of(town, booking, shift) == "8:00, 1:00 more to be confirmed"
    with pytest.raises(Refused, match="the shift is Pending_Verification, not Verified"):
        confirm(town, shift, by=booking.supervisor)
    verify(town, booking, shift)
    other = worked_until(town, booking, booking.shifts[1], "18:30", tuesday)  # and nobody confirms it
    town.mainspring.drain()
    assert (worked(town, shift), worked(town, other)) == ((480, 60), (480, 90))
    assert town.ledger(booking) == (48000, 0, 0, 48000, 0), "planned pay, whoever confirms"

    for stranger in (booking.worker_user, booking.lending_admin):
        with pytest.raises(Refused, match="may not confirm_extra_time"):
            confirm(town, shift, by=stranger)
    confirm(town, shift, by=booking.supervisor)
    for by in (booking.supervisor, booking.borrowing_admin):
        with pytest.raises(Refused, match="no extra time that is yet to be confirmed"):
            confirm(town, shift, by=by)
    assert town.audit("confirm_extra_time") == [(str(booking.supervisor), "time_log", shift, None, None)]
    assert told_of(town, booking, shift) == "8:00, 1:00 more confirmed"
    assert told_of(town, booking, other) == "8:00, 1:30 more to be confirmed"
    asked = {who for _, who, *_ in town.messages("extra_time")}
    assert asked == {booking.supervisor, booking.borrowing_admin, booking.borrowing_manager}
    waits = {who for _, who, *_ in town.messages("extra_time_unpaid")}
    assert waits == {booking.worker_user, booking.lending_admin}
    assert {text for text in town.texts("extra_time") if text} == {
        f"{name(town, booking)} worked {longer} longer than planned on {day} (booking {booking.id}). This time is paid"
        f" only if you confirm it: https://app.example.com/timesheets/{one}/extra-time"
        for longer, day, one in (("1 hour", MONDAY, shift), ("1 hour 30 minutes", tuesday, other))
    }

    near(town)
    town.mainspring.advance(to=W10 + 10 * SECOND)
    assert paid_parts(town) == [(shift, "Extra", 3000), (booking.shifts[2], "Shift", 24000)]
    assert town.ledger(booking) == (75000, 24000, 0, 51000, 0), "and the lender has it as soon as it is there"
    assert moved(town, "transfer") == [3000, 24000, 24000]
    assert town.wrong("extra_time_unconfirmed") == []
    near(town, W10 + timedelta(days=7) - SECOND)
    town.mainspring.advance(to=W10 + timedelta(days=7, seconds=10))
    assert town.ledger(booking) == (75000, 0, 0, 51000, 24000), "and what nobody began has gone back"
    ((unpaid, _),) = town.wrong("extra_time_unconfirmed")
    assert unpaid == f"time_log {other}"


@pytest.mark.rule("STAFF-20.04")
def test_a_charge_of_extra_time_that_failed_is_made_again_and_given_back_if_it_comes_after_all(town: Town) -> None:
    booking, shift = submitted(town, at("18:00"), card="pm_card_chargeDeclined")
    verify(town, booking, shift)
    confirm(town, shift, by=booking.borrowing_admin)
    near(town)
    town.mainspring.advance(to=W10 + SECOND)
    first = town.value("select max(id) from staffing.pending_payments where status = 'Failed'")
    town.conn.execute("update staffing.companies set card_on_file = 'pm_card_visa' where kind = 'Borrower'")
    near(town, W10 + timedelta(days=7) - SECOND)
    town.mainspring.advance(to=W10 + timedelta(days=7, seconds=10))
    assert paid_parts(town) == [(shift, "Extra", 3000), (shift, "Extra", 3000)]
    assert town.ledger(booking) == (27000, 0, 0, 27000, 0)

    assert told(town, first, "succeeded") == "Failed"
    assert town.ledger(booking) == (30000, 0, 0, 27000, 3000)


@pytest.mark.rule("STAFF-20.01", "STAFF-20.04")
def test_a_later_end_that_the_borrower_set_is_paid_without_another_word(town: Town) -> None:
    booking, shift = begun(town)
    town.funded(booking, shift)
    with town.conn.transaction():
        shifts.change_shift_end(town.desk, town.conn, shift, at("18:00"), by=booking.supervisor or 0)
    leap(town, at("18:20"))
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    verify(town, booking, shift)
    assert worked(town, shift) == (540, 20)
    near(town)
    town.mainspring.advance(to=W10 + 10 * SECOND)
    assert paid_parts(town) == [(shift, "Longer", 3000)]
    confirm(town, shift, by=booking.supervisor)
    near(town, W10 + timedelta(days=7) - SECOND)
    town.mainspring.advance(to=W10 + timedelta(days=7, seconds=10))
    assert paid_parts(town) == [(shift, "Longer", 3000), (shift, "Extra", 1000)]
    assert town.ledger(booking) == (28000, 0, 0, 28000, 0)


@pytest.mark.rule("STAFF-20.01")
def test_work_that_is_verified_before_it_was_charged_is_charged_by_its_hours(town: Town) -> None:
    booking, shift = submitted(town, at("12:00"), funded=False)
    verify(town, booking, shift)
    near(town)
    town.mainspring.advance(to=W10 + 10 * SECOND)
    assert paid_parts(town) == [(shift, "Shift", 9000)]
    assert town.ledger(booking) == (9000, 0, 0, 9000, 0)


# -- who has the last word on hours


@pytest.mark.rule("STAFF-20.03", "STAFF-9.11", "STAFF-19.11")
def test_a_worker_cannot_undo_what_the_borrower_has_cut_and_every_edit_is_on_record(town: Town) -> None:
    booking, shift = submitted(town)
    worker, supervisor = booking.worker_user, booking.supervisor
    edit(town, shift, at("16:30"), by=worker)
    edit(town, shift, at("13:00"), by=booking.borrowing_manager)
    edit(town, shift, at("14:00"), by=supervisor)
    leap(town, at("20:59") + 50 * SECOND)
    with pytest.raises(Refused, match=r"end: the borrower has set it to 2026-06-01 14:00 \(America/New_York\); if"):
        edit(town, shift, at("17:00"), by=worker)
    edit(town, shift, at("13:30"), by=worker)  # less is theirs to give
    town.mainspring.advance(to=at("21:00") + MINUTE)
    assert (worked(town, shift), town.ledger(booking)) == ((270, 0), (24000, 0, 0, 13500, 10500))

    edits = "select actor, before, after from staffing.audit_log where action = 'edit_timesheet' order by id"
    said = [
        (int(actor), *(datetime.fromisoformat(one["work_end_time"]) for one in both))
        for actor, *both in town.rows(edits)
    ]
    assert said == [
        (worker, at("17:00"), at("16:30")), (booking.borrowing_manager, at("16:30"), at("13:00")),
        (supervisor, at("13:00"), at("14:00")), (worker, at("14:00"), at("13:30")),
    ]  # fmt: skip


@pytest.mark.rule("STAFF-20.03", "STAFF-9.09", "STAFF-10.39")
@pytest.mark.parametrize("late", [False, True])  # late: with less than an hour left, which adds one
def test_who_has_cut_hours_verifies_them_an_hour_later_and_until_then_the_worker_can_object(
    town: Town, late: bool
) -> None:
    booking, shift = submitted(town)
    now = at("20:30") if late else at("17:10")
    leap(town, now)
    edit(town, shift, at("13:00"), by=booking.supervisor)
    leap(town, now + MINUTE)
    edit(town, shift, at("13:01"), by=booking.supervisor)  # giving a minute back changes nothing
    told = {who for _, who, *_ in town.messages("hours_cut")}
    assert (told, len(town.messages("hours_cut"))) == ({booking.worker_user}, 2), "by SMS and mail, once"
    town.mainspring.drain()
    assert town.texts("hours_cut") == {
        f"Your working time on 2026-06-01 (booking {booking.id}) was cut: it now ends at 2026-06-01 13:00"
        " (America/New_York). If you do not agree, dispute the timesheet:"
        f" https://app.example.com/timesheets/{shift}"
    }
    leap(town, now + HOUR - SECOND)
    for somebody in (booking.supervisor, booking.borrowing_admin):
        with pytest.raises(Refused, match=r"can be verified from 2026-06-01 \d\d:\d\d \(America/New_York\) on"):
            shifts.verify_timesheet(town.desk, town.conn, shift, by=somebody or 0)
    with town.mainspring.conn.transaction(force_rollback=True):
        filed(town, shift, by=booking.worker_user)
    leap(town, now + HOUR)
    verify(town, booking, shift)
    assert worked(town, shift) == (241, 0)


@pytest.mark.rule("STAFF-20.03")
def test_what_is_not_cut_or_what_the_worker_has_seen_can_be_verified_at_once(town: Town) -> None:
    booking, shift = submitted(town)
    edit(town, shift, at("17:00"), by=booking.supervisor)
    with town.conn.transaction(force_rollback=True):
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.supervisor or 0)
    edit(town, shift, at("16:00"), by=booking.supervisor)
    edit(town, shift, at("16:00"), by=booking.worker_user)
    verify(town, booking, shift)
    assert worked(town, shift) == (420, 0)


@pytest.mark.rule("STAFF-20.03", "STAFF-9.36")
def test_the_end_of_a_forced_clock_out_binds_the_worker_and_cuts_what_they_had_drafted(town: Town) -> None:
    booking, shift = begun(town)
    leap(town, at("16:00"))
    with town.conn.transaction():
        shifts.save_draft(town.desk, town.conn, shift, end=at("15:50"), by=booking.worker_user)
        shifts.force_clock_out(town.desk, town.conn, shift, end=at("12:00"), by=booking.supervisor or 0)
    with pytest.raises(Refused, match="the borrower has set it"):
        edit(town, shift, at("15:50"), by=booking.worker_user)
    with pytest.raises(Refused, match="hours were cut"):
        verify(town, booking, shift)


@pytest.mark.rule("STAFF-20.03", "STAFF-20.07")
@pytest.mark.parametrize("act", ["forced out", "started late", "ended early"])
def test_less_than_the_clock_or_the_plan_is_a_cut_without_a_word_of_the_worker(town: Town, act: str) -> None:
    booking, shift = begun(town) if act == "forced out" else booked(town)
    town.funded(booking, shift)
    leap(town, at("16:50") if act == "forced out" else at("17:00"))
    with town.conn.transaction():
        by = booking.supervisor or 0
        if act == "forced out":
            shifts.force_clock_out(town.desk, town.conn, shift, end=at("09:01"), by=by)
        else:
            start, end = (at("16:59"), at("17:00")) if act == "started late" else (at("09:00"), at("09:01"))
            shifts.was_worked(town.desk, town.conn, shift, start=start, end=end, by=by)
    assert {who for _, who, *_ in town.messages("hours_cut")} == {booking.worker_user}
    assert {"ladder-0", "auto-approve"} <= timers(town, shift).keys()
    leap(town, town.now + HOUR - SECOND)
    with pytest.raises(Refused, match="its hours were cut"):
        verify(town, booking, shift)
    with town.conn.transaction(force_rollback=True):
        filed(town, shift, by=booking.worker_user)
    leap(town, town.now + SECOND)
    verify(town, booking, shift)
    assert town.ledger(booking) == (24000, 50, 0, 0, 23950)


@pytest.mark.rule("STAFF-20.03", "STAFF-9.11")
def test_a_cut_by_whoever_pays_gives_the_worker_an_hour_however_late_it_comes(town: Town) -> None:
    booking, shift = submitted(town)
    leap(town, at("20:58"))
    edit(town, shift, at("17:00"), by=booking.borrowing_manager)  # takes nothing away
    assert timers(town, shift)["auto-approve"] == at("21:00")
    leap(town, at("20:59"))
    edit(town, shift, at("09:01"), by=booking.borrowing_admin)
    assert timers(town, shift)["auto-approve"] == town.row("time_log", shift)["auto_approval_time"] == at("22:00")
    leap(town, at("21:59"))
    edit(town, shift, at("09:00"), by=booking.borrowing_manager)
    assert timers(town, shift)["auto-approve"] == at("23:00")


# -- what the tests do and look at


def verify(town: Town, booking: Booking, shift: int) -> None:
    with town.conn.transaction():
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.borrowing_admin)


def edit(town: Town, shift: int, end: datetime, *, by: int | None) -> None:
    with town.conn.transaction():
        shifts.edit_timesheet(town.desk, town.conn, shift, end=end, by=by or 0)


def confirm(town: Town, shift: int, *, by: int | None) -> None:
    with town.conn.transaction():
        shifts.confirm_extra_time(town.desk, town.conn, shift, by=by or 0)


def worked_until(town: Town, booking: Booking, shift: int, clock: str, day: date) -> int:
    """A shift is worked from its planned start, submitted and verified."""
    town.conn.execute("update staffing.time_log set status = 'Working' where id = %s", [shift])
    leap(town, at(clock, day))
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    verify(town, booking, shift)
    return shift


def worked(town: Town, shift: int) -> tuple[int | None, int | None]:
    """The minutes that are fixed: paid, and on top."""
    row = town.row("time_log", shift)
    return row["paid_minutes"], row["extra_minutes"]


def paid_parts(town: Town) -> list[tuple[Any, ...]]:
    """(shift, kind, amount) of what our own charges are for, in order."""
    return town.rows(
        "select s.time_log_id, s.kind, s.amount_minor::int from staffing.payment_shifts s"
        " join staffing.pending_payments p on p.id = s.payment_id where p.idempotency_key like 'charge:%%'"
        " order by p.id, 1"
    )


def name(town: Town, booking: Booking) -> str:
    return str(town.row("users", booking.worker_user)["name"])


def told_of(town: Town, booking: Booking, shift: int) -> str:
    """The hours of a shift as the command tells them."""
    (found,) = [one for one in show.story(town.desk, town.conn, booking.id).shifts if one.id == shift]
    return cli.hours(found)
