"""A booking that is paid whole beforehand: its money confirms it, and nothing else does."""

from __future__ import annotations

from datetime import date, time, timedelta
from typing import Any

import pytest
from tests.apps.staffing.test_settling import told
from tests.apps.staffing.town import Booking, Town

from mainspring_apps.staffing import bookings, insurance, shifts, withdrawal
from mainspring_apps.staffing.conflicts import incidents
from mainspring_apps.staffing.payments import arrears, weekly
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Fault

MONDAY, FRIDAY = date(2026, 6, 8), date(2026, 6, 12)
SECOND, MINUTE, HOUR = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1)
WHOLE = 5 * 24000
DECLINED = "pm_card_chargeDeclined"


def asked_for(town: Town, card: str = "pm_card_visa", **changes: Any) -> Booking:
    """Somebody asks for a worker from Monday to Friday, and pays for all of it."""
    town.only()
    found = town.booking(card=card)  # the people; another worker than theirs
    worker = town.worker(found.lender)
    about: dict[str, Any] = {"project_id": found.project, "worker_id": worker, "supervisor_id": found.supervisor}
    about |= {"start_date": MONDAY, "end_date": FRIDAY, "start": time(9), "end": time(17), "payment_type": "Upfront"}
    about |= {"rate_minor": 3000, "currency": "USD", "by": found.borrowing_manager}
    with town.conn.transaction():
        found.id = bookings.confirm_booking(town.desk, town.conn, **about | changes)
    found.worker, found.worker_user = worker, town.row("workers", worker)["user_id"]
    found.shifts = [row[0] for row in town.rows("select id from staffing.time_log where booking_id = %s", found.id)]
    return found


def again(town: Town, booking: Booking) -> None:
    """Somebody else wants the same worker at the same time."""
    about: dict[str, Any] = {"project_id": booking.project, "worker_id": booking.worker, "supervisor_id": None}
    about |= {"start_date": MONDAY, "end_date": MONDAY, "start": time(9), "end": time(17), "rate_minor": 100}
    with town.conn.transaction():
        bookings.confirm_booking(town.desk, town.conn, **about, currency="USD", by=booking.borrowing_manager)


def payment(town: Town, booking: Booking) -> dict[str, Any]:
    (id_,) = (row[0] for row in town.rows("select id from staffing.pending_payments where booking_id = %s", booking.id))
    return dict(town.row("pending_payments", id_))


def cancelled(town: Town, booking: Booking) -> bool:
    """Whether nothing of the booking is left, and the borrower was told so, once by each channel."""
    rows = [town.row("time_log", shift) for shift in booking.shifts]
    gone = {(row["status"], row["cancel_reason"]) for row in rows} == {
        ("Cancelled", "Upfront Payment - Booking Not Confirmed")
    }
    told_ = [row[1:3] for row in town.messages("not_confirmed")]
    once = told_ == [(booking.borrowing_admin, "email"), (booking.borrowing_admin, "sms")]
    return town.status(booking) == "Cancelled" and gone and once and town.waiting("end_wait") == []


@pytest.mark.rule("STAFF-20.27")
def test_an_upfront_booking_is_charged_whole_under_its_key_and_confirmed_by_the_money(town: Town) -> None:
    booking = asked_for(town)
    assert (town.status(booking), payment(town, booking)["status"]) == ("Pending_Payment", "Pending")
    assert payment(town, booking)["idempotency_key"] == f"charge:{booking.id}:2026-06-08T04:00:00+00:00:1"
    with pytest.raises(Refused, match="worker_id: not available"):
        again(town, booking)
    with pytest.raises(Refused, match="the booking is Pending_Payment"):
        shifts.clock_in(town.desk, town.conn, booking.shifts[0], by=booking.worker_user)
    with pytest.raises(Refused, match="no week of it can be paid"):
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    lost = Fault(provider="stripe", kind="drop", path="payment_intents", method="POST", times=1)  # charged, no answer
    town.sandbox.faults.set(lost)
    town.mainspring.advance(minutes=2, raise_errors=False)

    assert (town.status(booking), town.ledger(booking)) == ("Active", (WHOLE, WHOLE, 0, 0, 0))
    assert payment(town, booking)["source"] == "upfront"
    assert len(town.sandbox.ledger.find("charge")) == 1
    assert [row[0] for row in town.rows("select amount_minor from staffing.escrow_holds")] == [24000] * 5
    assert [row[2] for row in town.audit("booking_confirmed")] == [booking.id]
    assert town.waiting("end_wait") == []

    shift = booking.shifts[0]  # its money is released as any other
    town.mainspring.clock.set(town.row("time_log", shift)["scheduled_start_time"])
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    town.mainspring.clock.set(town.row("time_log", shift)["scheduled_end_time"])
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.borrowing_admin)
    town.mainspring.drain()
    assert town.ledger(booking) == (WHOLE, WHOLE - 24000, 0, 24000, 0)
    with town.conn.transaction():  # ends at once: 50 % of what begins within a day is owed (formula P, short-term)
        incidents.file_incident(town.desk, town.conn, booking.id, option="B", by=booking.borrowing_admin)
    assert town.ledger(booking) == (WHOLE, 0, 12000, 24000, 12000 + 3 * 24000)


@pytest.mark.rule("STAFF-20.27")
@pytest.mark.parametrize("card", [DECLINED, "pm_card_authenticationRequired"])
def test_a_decline_confirms_nothing_frees_the_worker_and_tells_the_borrower(town: Town, card: str) -> None:
    booking = asked_for(town, card)
    town.mainspring.advance(seconds=5)
    assert cancelled(town, booking)
    assert payment(town, booking)["status"] == "Failed"
    assert (town.messages("action_required"), town.ledger(booking)) == ([], (0, 0, 0, 0, 0))
    assert town.texts("not_confirmed") - {None} == {  # an SMS waits for the morning
        f"Action Required: booking {booking.id} is not confirmed, as its payment of $1,200.00 did not come. Please"
        " book again, if need be with another payment method."
    }
    again(town, booking)

    assert told(town, payment(town, booking)["id"], "succeeded") == "Succeeded"  # confirmed at the bank, too late
    assert (town.status(booking), town.ledger(booking)) == ("Cancelled", (WHOLE, 0, 0, 0, WHOLE))
    assert town.rows("select amount_minor from staffing.refunds") == [(WHOLE,)]
    town.mainspring.advance(hours=2, raise_errors=False)
    assert cancelled(town, booking)


@pytest.mark.rule("STAFF-20.27")
def test_without_a_card_nothing_is_booked_and_where_nothing_is_to_be_paid_there_is_nothing_to_wait_for(
    town: Town,
) -> None:
    with pytest.raises(Refused, match="payment_type: Upfront is charged now, and the borrower has no card") as refused:
        asked_for(town, card=None)  # type: ignore[arg-type] # nobody gave one
    assert refused.value.field == "payment_type"
    assert town.value("select count(*) from staffing.bookings where payment_type = 'Upfront'") == 0

    town.mainspring.clock.set(town.now + 19 * HOUR)  # the only shift is over
    booking = asked_for(town, start_date=date(2026, 6, 1), end_date=date(2026, 6, 1))
    assert (town.status(booking), payment(town, booking)["status"]) == ("Active", "Not_Required")
    town.mainspring.advance(hours=2)
    assert (town.status(booking), town.sandbox.ledger.find("charge")) == ("Active", [])


@pytest.mark.rule("STAFF-20.27", "STAFF-19.08")
@pytest.mark.parametrize("heard", [False, True], ids=["unheard", "charged"])
def test_nobody_waits_for_longer_than_an_hour_and_what_was_charged_all_the_same_goes_back(
    town: Town, heard: bool
) -> None:
    town.unheard()
    kind: Any = "drop" if heard else "error"
    town.sandbox.faults.set(Fault(provider="stripe", kind=kind, path="payment_intents", method="POST"))
    town.sandbox.faults.set(Fault(provider="stripe", kind="error", path="payment_intents", method="GET"))
    town.sandbox.faults.set(Fault(provider="stripe", kind="error", path="search", method="GET"))
    booking = asked_for(town)
    town.mainspring.advance(to=town.now + HOUR - SECOND, raise_errors=False)
    assert town.status(booking) == "Pending_Payment"
    town.mainspring.advance(seconds=1, raise_errors=False)
    assert cancelled(town, booking)
    assert payment(town, booking)["status"] == "Pending"

    town.sandbox.faults.clear()
    town.mainspring.advance(hours=3, raise_errors=False)
    for dead in town.rows("select id from mainspring.dead_letters"):
        town.mainspring.client.dead.replay(dead[0], reason="the provider is back")
    town.mainspring.advance(hours=1, raise_errors=False)
    assert cancelled(town, booking)
    assert payment(town, booking)["status"] == ("Succeeded" if heard else "Canceled")
    assert town.ledger(booking) == ((WHOLE, 0, 0, 0, WHOLE) if heard else (0, 0, 0, 0, 0))
    assert len(town.sandbox.ledger.find("charge")) == len(town.sandbox.ledger.find("refund")) == heard


@pytest.mark.rule("STAFF-20.27")
def test_what_is_still_under_way_after_the_wait_is_given_up_and_the_wait_is_a_setting(town: Town) -> None:
    booking = asked_for(town, "pm_card_processing")
    assert town.desk.settings.upfront_wait == HOUR
    (wait,) = town.waiting("end_wait")
    assert wait[1:] == (town.now + HOUR, f"upfront:{booking.id}")
    town.mainspring.advance(seconds=5)
    town.mainspring.advance(to=wait[1])
    assert cancelled(town, booking)
    assert (payment(town, booking)["status"], town.ledger(booking)[0]) == ("Canceled", 0)
    assert told(town, payment(town, booking)["id"], "succeeded") == "Canceled"  # it came all the same
    assert (town.status(booking), town.ledger(booking)) == ("Cancelled", (WHOLE, 0, 0, 0, WHOLE))


@pytest.mark.rule("STAFF-20.27")
def test_a_booking_that_ends_or_is_to_stop_before_its_money_comes_does_not_go_on(town: Town) -> None:
    ended, stopped = asked_for(town, "pm_card_processing"), asked_for(town, "pm_card_processing")
    town.mainspring.advance(seconds=5)
    policy = town.value("select id from staffing.insurance_policies where company_id = %s", stopped.lender)
    with town.conn.transaction():
        incidents.file_incident(town.desk, town.conn, ended.id, option="B", by=ended.borrowing_admin)
        insurance.deactivate_insurance(town.desk, town.conn, policy, by=stopped.lending_admin)
    town.mainspring.advance(minutes=7)
    assert (town.status(ended), town.status(stopped)) == ("Cancelled", "Pending_Payment")

    for intent in town.sandbox.ledger.find("stripe.payment_intent"):
        town.sandbox.stripe.settle(intent.id, "succeeded")
    town.mainspring.advance(minutes=7)
    assert (town.status(ended), town.ledger(ended)) == ("Cancelled", (WHOLE, 0, 0, 0, WHOLE))
    assert (town.status(stopped), town.ledger(stopped)) == ("Suspended_Insurance", (WHOLE, WHOLE, 0, 0, 0))
    assert [row[2] for row in town.audit("booking_suspended")].count(stopped.id) == 1


@pytest.mark.rule("STAFF-20.04", "STAFF-20.14", "STAFF-20.27", "STAFF-20.09")
def test_what_an_upfront_booking_has_on_top_is_charged_by_itself_by_hand_or_by_a_new_card_and_then_it_completes(
    town: Town,
) -> None:
    """An hour beyond the planned end that was confirmed, and another that the borrower has set: both are declined."""
    booking = asked_for(town)
    town.mainspring.advance(minutes=2)
    extra, longer, *rest = booking.shifts
    with town.conn.transaction():
        for shift in rest:
            withdrawal.cancel_shift(town.desk, town.conn, shift, by=town.operator)
    town.conn.execute("update staffing.companies set card_on_file = %s where id = %s", [DECLINED, booking.borrower])
    for shift in (extra, longer):
        row = town.row("time_log", shift)
        town.mainspring.clock.set(row["scheduled_start_time"])
        with town.conn.transaction():
            shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
        end = row["scheduled_end_time"] + timedelta(hours=1)
        if shift == longer:
            with town.conn.transaction():
                shifts.change_shift_end(town.desk, town.conn, shift, end, by=booking.borrowing_admin)
        town.mainspring.clock.set(end)
        with town.conn.transaction():
            shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
            shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.borrowing_admin)
            if shift == extra:
                shifts.confirm_extra_time(town.desk, town.conn, shift, by=booking.borrowing_admin)
        town.mainspring.drain()
    tries = "select status, amount_minor::int from staffing.pending_payments where source = 'arrears' order by id"
    assert town.rows(tries) == [("Failed", 3000), ("Failed", 6000)]
    assert len(town.messages("arrears_failed")) == 4

    with town.conn.transaction():
        arrears.pay_arrears(town.desk, town.conn, booking.id, by=booking.borrowing_manager)
    town.mainspring.drain()
    card = {"customer": town.row("companies", booking.borrower)["stripe_customer_id"], "payment_method": "pm_card_visa"}
    with town.conn.transaction():
        bookings.put_card(town.desk, town.conn, booking.borrower, **card, by=booking.borrowing_admin)
    town.mainspring.advance(seconds=5)
    assert town.rows(tries)[2:] == [("Failed", 6000), ("Succeeded", 6000)]
    assert town.ledger(booking) == (WHOLE + 6000, 0, 0, 2 * 24000 + 6000, 3 * 24000)
    with pytest.raises(Refused, match="nothing is owed"):
        arrears.pay_arrears(town.desk, town.conn, booking.id, by=booking.borrowing_manager)
    town.only("finished-bookings", at=town.row("time_log", rest[-1])["scheduled_end_time"] + timedelta(days=1))
    town.mainspring.advance(hours=1)
    assert town.status(booking) == "Completed"
