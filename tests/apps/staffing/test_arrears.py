"""What is charged at all, and what is still owed when a booking has ended: work that was done, and nothing else."""

from __future__ import annotations

from datetime import time, timedelta
from typing import Any

import pytest
from tests.apps.staffing.quarrels import filed, resolved, submit
from tests.apps.staffing.sheets import at, leap
from tests.apps.staffing.test_settling import told
from tests.apps.staffing.test_weekly_payments import near
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, NEXT_WEEK, T00, W10, Booking, Town
from tests.apps.staffing.wednesday import SECOND

from mainspring_apps.staffing import bookings, shifts
from mainspring_apps.staffing.payments import arrears, escrow, weekly
from mainspring_apps.staffing.rules import charge, weeks
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Fault

TUESDAY, WEDNESDAY, THURSDAY, FRIDAY = (MONDAY + timedelta(days=n) for n in (1, 2, 3, 4))
BROKE = "pm_card_chargeDeclined"


def worked(town: Town, booking: Booking, shift: int, *, verified: bool = True) -> None:
    """The worker has worked a shift from its start to its end, and it is verified, or still to be."""
    row = town.row("time_log", shift)
    leap(town, row["scheduled_start_time"])
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    leap(town, row["scheduled_end_time"])
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    if verified:
        verify(town, booking, shift)


def verify(town: Town, booking: Booking, shift: int) -> None:
    with town.conn.transaction():
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.borrowing_admin)


def card(town: Town, booking: Booking, name: str = "pm_card_visa") -> None:
    customer = town.row("companies", booking.borrower)["stripe_customer_id"]
    about = {"customer": customer, "payment_method": name, "by": booking.borrowing_admin}
    with town.conn.transaction():
        bookings.put_card(town.desk, town.conn, booking.borrower, **about)


def pay(town: Town, booking: Booking) -> None:
    with town.conn.transaction():
        arrears.pay_arrears(town.desk, town.conn, booking.id, by=booking.borrowing_manager)


def payments(town: Town, booking: Booking) -> list[tuple[Any, ...]]:
    """(source, try, status, amount, its shifts) of a booking, in order."""
    return town.rows(
        "select source, try, status, amount_minor::int, (select array_agg(time_log_id order by 1)"
        " from staffing.payment_shifts s where s.payment_id = p.id) from staffing.pending_payments p"
        " where booking_id = %s and status <> 'Not_Required' order by id",
        booking.id,
    )


def released(town: Town) -> Booking:
    """Tuesday was worked and verified; on Wednesday the card was declined, and at midnight the worker was released."""
    booking = town.booking(shifts=[MONDAY, TUESDAY, WEDNESDAY, THURSDAY, NEXT_MONDAY], card=BROKE)
    town.only("weekly-payments", "weekly-hard-cutoff")
    worked(town, booking, booking.shifts[1])
    town.mainspring.advance(to=W10 + SECOND)
    return booking


@pytest.mark.rule("STAFF-20.06")
@pytest.mark.parametrize(
    ("status", "minutes_ago", "owed"),
    [
        ("Scheduled", 1, False), ("Scheduled", 0, False), ("Scheduled", -1, True),
        ("Working", 1, True), ("Pending_Verification", 1, True), ("Verified", 1, True), ("Disputed", 1, False),
    ],
)  # fmt: skip
@pytest.mark.parametrize("known", [True, False])  # whether somebody has said when the shift ends
def test_a_shift_that_is_over_is_owed_only_if_somebody_began_it(
    status: str, minutes_ago: int, owed: bool, known: bool
) -> None:
    end = W10 - timedelta(minutes=minutes_ago)
    start, until = end - timedelta(minutes=60), end if known else None
    shift = charge.UnpaidShift(
        id=1, status=status, scheduled_start_time=start, scheduled_end_time=until, planned_minutes=60
    )
    found = charge.amounts([shift], 3000, weeks.Period(*NEXT_WEEK), 0, now=W10)
    assert found == ({1: 3000} if owed else {})


@pytest.mark.rule("STAFF-20.06", "STAFF-1.25")
def test_no_source_charges_what_nobody_began_and_every_source_what_was_done(town: Town) -> None:
    """Last week's shifts were not worked; Monday's and Tuesday's were, in part: the other sources ask the same rule."""
    old = MONDAY - timedelta(days=5)
    booking = town.booking(shifts=[old, MONDAY, TUESDAY, NEXT_MONDAY])
    missed, done, working, ahead = booking.shifts
    unknown = town.shift(booking, old + timedelta(days=1), end=None)
    worked(town, booking, done)
    town.conn.execute("update staffing.time_log set paid_minutes = 187 where id = %s", [done])
    leap(town, at("09:00", TUESDAY))
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, working, by=booking.worker_user)
    near(town)
    town.mainspring.advance(to=W10 + 3 * SECOND)

    assert payments(town, booking) == [("weekly", 1, "Succeeded", 9350 + 48000, [done, working, ahead])]
    assert town.ledger(booking) == (57350, 48000, 0, 9350, 0)
    charged = set(town.rows("select time_log_id from staffing.payment_shifts"))
    assert not {(missed,), (unknown,)} & charged

    for source in ("manual", "retry", "renewal", "late"):
        other = town.booking(shifts=[old], borrower=booking.borrower, lender=booking.lender)
        if source == "manual":
            with town.conn.transaction():
                weekly.pay_by_hand(town.desk, town.conn, other.id, by=other.borrowing_admin)
        else:
            weekly.enqueue_due(town.desk, town.conn, other.id, source=source)
        town.mainspring.drain()
        assert payments(town, other) == []


@pytest.mark.rule("STAFF-20.14", "STAFF-3.12")
def test_who_is_released_begins_only_what_is_paid_for_and_what_was_worked_is_paid_by_a_new_card(town: Town) -> None:
    booking = released(town)
    _, done, _, thursday, later = booking.shifts
    evening = town.shift(booking, WEDNESDAY, time(20), time(23))
    friday = town.shift(booking, FRIDAY)
    town.funded(booking, friday)
    town.conn.execute("update staffing.bookings set funded_period_end = null")
    worked(town, booking, evening, verified=False)
    assert [row[:3] for row in payments(town, booking)] == [("weekly", 1, "Failed"), ("weekly", 1, "Succeeded")]
    assert ("unfunded_work", f"time_log {done}", "warning") in town.alerts()
    with pytest.raises(Refused, match="is Active: its work is charged with its weeks") as refused:
        pay(town, booking)
    assert refused.value.field == "booking"
    town.mainspring.advance(to=T00 + SECOND)
    assert (town.status(booking), town.shift_status(later)) == ("Completed", "Cancelled")

    leap(town, at("09:00", THURSDAY))
    with pytest.raises(Refused, match="is Completed, and nobody has paid for the shift") as refused:
        shifts.clock_in(town.desk, town.conn, thursday, by=booking.worker_user)
    assert refused.value.field == "status"

    before = len(town.messages("action_required"))
    verify(town, booking, evening)  # later than the release: it is charged with the rest, by the old card
    town.mainspring.advance(seconds=5)
    assert payments(town, booking)[2:] == [("arrears", 2, "Failed", 33000, [done, evening])]
    assert [row[1:] for row in town.messages("arrears_failed")] == [
        (booking.borrowing_admin, channel, "Sent") for channel in ("email", "sms")
    ]
    assert len(town.messages("action_required")) == before
    assert town.texts("arrears_failed") == {
        f"Action Required: the payment of $330.00 for work already done on booking {booking.id} failed. Please pay"
        " manually, with another payment method if necessary."
    }

    for _ in range(2):  # said twice
        card(town, booking)
    town.mainspring.advance(seconds=5)
    assert payments(town, booking)[3:] == [("arrears", 3, "Succeeded", 33000, [done, evening])]
    assert town.ledger(booking) == (57000, 24000, 0, 33000, 0)
    assert sorted(entry.body["amount"] for entry in town.sandbox.ledger.find("transfer")) == [9000, 24000]
    assert (town.status(booking), town.row("bookings", booking.id)["funded_period_end"]) == ("Completed", None)
    assert town.alerts() == []
    with pytest.raises(Refused, match="nothing is owed") as refused:
        pay(town, booking)
    assert refused.value.field == "payment"

    leap(town, at("09:00", FRIDAY))  # what was paid for is worked
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, friday, by=booking.worker_user)


@pytest.mark.rule("STAFF-20.14", "STAFF-19.08")
def test_arrears_are_charged_once_whatever_is_lost_and_as_often_as_there_is_more_to_pay(town: Town) -> None:
    booking = released(town)
    disputed, done = booking.shifts[:2]
    town.conn.execute("update staffing.time_log set status = 'Working' where id = %s", [disputed])
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, disputed, by=booking.worker_user)
    dispute = filed(town, disputed, by=booking.supervisor or 0)
    town.conn.execute("update staffing.bookings set status = 'Completed', end_date = '2026-06-07'")
    town.conn.execute("update staffing.companies set card_on_file = 'pm_card_visa' where id = %s", [booking.borrower])
    town.unheard()
    lost = Fault(provider="stripe", kind="drop", path="payment_intents", method="POST", times=1)  # charged, no answer
    town.sandbox.faults.set(lost)
    pay(town, booking)
    town.mainspring.drain(raise_errors=False)
    assert payments(town, booking)[1:] == [("arrears", 1, "Pending", 24000, [done])]  # nothing of what is disputed
    for _ in range(2):
        with pytest.raises(Refused, match="or it is being paid"):
            pay(town, booking)
    town.mainspring.advance(to=town.now + town.desk.settings.reconcile_after + timedelta(minutes=5))
    assert payments(town, booking)[1:] == [("arrears", 1, "Succeeded", 24000, [done])]
    assert len([one for one in town.sandbox.ledger.find("charge") if one.body["amount"] == 24000]) == 1

    town.sandbox.stripe.post.manners.clear()
    resolved(town, dispute)  # of money that is not there yet
    pay(town, booking)
    town.mainspring.advance(seconds=5)
    assert payments(town, booking)[2:] == [("arrears", 2, "Succeeded", 24000, [disputed])]  # of the same week
    assert town.ledger(booking) == (48000, 0, 0, 48000, 0)
    assert town.row("bookings", booking.id)["funded_period_end"] is None


@pytest.mark.rule("STAFF-20.14")
def test_money_for_work_that_came_too_late_and_went_back_is_owed_again(town: Town) -> None:
    """The borrower confirms Wednesday's charge at the bank after the release: the week is not wanted, the work is."""
    booking = released(town)
    done = booking.shifts[1]
    payment = int(town.value("select id from staffing.pending_payments"))
    town.mainspring.advance(to=T00 + SECOND)
    assert told(town, payment, "succeeded") == "Succeeded"
    assert town.ledger(booking)[0] == town.ledger(booking)[4] > 24000

    card(town, booking)
    town.mainspring.advance(seconds=5, raise_errors=False)  # the sandbox knows of no success to refund
    assert payments(town, booking)[1:] == [("arrears", 1, "Succeeded", 24000, [done])]
    assert town.ledger(booking)[3] == 24000


@pytest.mark.rule("STAFF-20.14", "STAFF-9.40")
@pytest.mark.parametrize("ending", ["Cancelled", "Suspended_Insurance", "Completed"])
def test_a_booking_that_was_ended_or_stopped_still_pays_for_what_was_worked(town: Town, ending: str) -> None:
    town.only()
    booking = town.booking(shifts=[MONDAY, TUESDAY, NEXT_MONDAY])
    first, second, _ = booking.shifts
    town.mainspring.clock.set(at("17:00"))
    submit(town, booking, first)
    verify(town, booking, first)
    town.mainspring.advance(seconds=5)
    assert payments(town, booking) == []  # the week is charged on Wednesday
    worked(town, booking, second, verified=False)
    if ending == "Cancelled":
        filed(town, second, "B", by=booking.borrowing_admin)
    else:
        before = "Active" if ending == "Suspended_Insurance" else None
        town.conn.execute(
            "update staffing.bookings set status = %s, status_before_suspension = %s, start_date = %s, end_date = %s",
            [ending, before, TUESDAY, TUESDAY],  # of one day, in a week that has begun
        )
        verify(town, booking, second)
    town.mainspring.advance(seconds=5)

    owed = [first] if ending == "Cancelled" else [first, second]
    assert payments(town, booking) == [("arrears", 1, "Succeeded", 24000 * len(owed), owed)]
    assert town.ledger(booking)[3] == 24000 * len(owed)
    assert escrow.ledger(town.conn, booking.id).even
    assert town.status(booking) == ending


@pytest.mark.rule("STAFF-20.14")
def test_without_a_card_arrears_fail_and_a_person_is_told(town: Town) -> None:
    booking = released(town)
    town.mainspring.advance(to=T00 + SECOND)
    town.conn.execute("update staffing.companies set card_on_file = null where id = %s", [booking.borrower])
    pay(town, booking)
    town.mainspring.drain()
    assert [row[:3] for row in payments(town, booking)][1:] == [("arrears", 1, "Failed")]
    assert ("payment_needs_a_person", f"booking {booking.id}", "warning") in town.alerts()
    assert len(town.messages("arrears_failed")) == 2


@pytest.mark.rule("STAFF-20.04", "STAFF-20.14")
def test_extra_time_that_is_confirmed_after_the_last_week_is_charged_at_once(town: Town) -> None:
    town.only()
    booking = town.booking(shifts=[MONDAY])
    (shift,) = booking.shifts
    town.funded(booking)
    leap(town, at("09:00"))
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    leap(town, at("19:00"))
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    verify(town, booking, shift)
    town.conn.execute("update staffing.bookings set status = 'Completed', end_date = %s", [MONDAY])
    with town.conn.transaction():
        shifts.confirm_extra_time(town.desk, town.conn, shift, by=booking.supervisor or 0)
    town.mainspring.advance(seconds=30)
    assert [row[:4] for row in payments(town, booking)][1:] == [("arrears", 2, "Succeeded", 6000)]
    assert escrow.ledger(town.conn, booking.id).released == 30000
