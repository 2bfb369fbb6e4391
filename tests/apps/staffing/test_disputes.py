from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.apps.staffing.quarrels import HOUR, MINUTE, TUESDAY, T, at, filed, frozen, moved, resolved, submit, submitted
from tests.apps.staffing.sheets import refusing, timers
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, Booking, Town

from mainspring_apps.staffing import shifts, unresolved
from mainspring_apps.staffing.conflicts import timeouts
from mainspring_apps.staffing.conflicts.disputes import Option
from mainspring_apps.staffing.rules import dispute as rules
from mainspring_apps.staffing.rules.parts import MAY
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.timers import OF_SHIFT
from mainspring_apps.staffing.timesheets import approval
from mainspring_apps.staffing.unresolved import Unresolved


def refused(town: Town, shift: int, option: Option = "A", *, by: int) -> str:
    """The field that a refusal names; and nothing was written."""
    before = town.rows("select status from staffing.time_log order by id")
    with pytest.raises(Refused) as error:
        filed(town, shift, option, by=by)
    assert town.rows("select status from staffing.time_log order by id") == before
    assert town.rows("select id from staffing.disputes where status = 'Open' and time_log_id = %s", shift) == []
    return error.value.field


# -- filing


@pytest.mark.rule("STAFF-10.02", "STAFF-10.03", "STAFF-10.04", "STAFF-10.07", "STAFF-9.38")
def test_a_dispute_freezes_the_money_and_ends_approval_and_ladder_of_its_timesheet_alone(town: Town) -> None:
    booking, shift = submitted(town)
    other = submit(town, booking, town.shift(booking, MONDAY))
    at(town, T + 30 * MINUTE)
    assert town.waiting("dispute_timeout") == []

    dispute = filed(town, shift, by=booking.supervisor)  # type: ignore[arg-type]  # there is one

    row = town.row("disputes", dispute)
    assert (row["dispute_filed_at"], row["status"], row["dispute_option"]) == (town.now, "Open", "A")
    assert (row["time_log_id"], row["booking_id"], row["filed_by"]) == (shift, booking.id, booking.supervisor)
    assert town.shift_status(shift) == "Disputed"
    assert of_shift(town, shift) == set()
    assert of_shift(town, other) == {"ladder-60m", "ladder-3h", "auto-approve"}
    assert town.ledger(booking) == (24000, 0, 24000, 0, 0)
    assert town.value("select dispute_id from staffing.escrow_holds where time_log_id = %s", shift) == dispute
    assert town.audit("file_dispute") == [(str(booking.supervisor), "dispute", dispute, "option A", dispute)]


@pytest.mark.rule("STAFF-10.05", "STAFF-10.06", "STAFF-10.09")
@pytest.mark.parametrize("option", ["A", "B"])
def test_the_resolution_timer_is_due_three_hours_after_filing_for_both_options(town: Town, option: Option) -> None:
    booking, shift = submitted(town)
    at(town, T + 10 * MINUTE)

    dispute = filed(town, shift, option, by=booking.borrowing_admin)

    due = T + 3 * HOUR + 10 * MINUTE
    town.mainspring.assert_enqueued(
        timeouts.dispute_timeout, at=due, key=f"dispute-timeout:{dispute}", queue="dispute-timeout", count=1,
        payload={
            "dispute_id": dispute, "booking_id": booking.id, "dispute_filed_at": "2026-06-01T21:10:00Z",
            "timeout_expiration_time": "2026-06-02T00:10:00Z",
        },
    )  # fmt: skip
    assert town.status(booking) == ("Active" if option == "A" else "Cancelled")


@pytest.mark.rule("STAFF-10.01", "STAFF-10.39")
@pytest.mark.parametrize(
    ("status", "by", "now", "paid", "disputed", "refusal"),
    [
        ("Pending_Verification", None, 3.5, False, False, None),
        ("Pending_Verification", None, 4, False, False, None),
        ("Pending_Verification", None, 4.01, False, False, "the time for disputes has ended"),
        ("Pending_Verification", None, 1, True, False, "the lender was paid"),
        ("Verified", "SYSTEM", 4, False, False, None),
        ("Verified", "SYSTEM", 4.01, False, False, "the time for disputes has ended"),
        ("Verified", "SYSTEM", 4, True, False, "the lender was paid"),
        ("Verified", "17", 1, False, False, "the shift was verified by a person"),
        ("Verified", None, 1, False, False, "the shift was verified by a person"),
        ("Working", None, 1, False, False, "the shift is Working, not submitted for verification"),
        ("Scheduled", None, 1, False, False, "the shift is Scheduled, not submitted for verification"),
        ("Cancelled", None, 1, False, False, "the shift is Cancelled, not submitted for verification"),
        ("Disputed", None, 1, False, True, "there was a dispute about the shift already"),
        ("Pending_Verification", None, 1, False, True, "there was a dispute about the shift already"),
    ],
)
def test_when_a_shift_can_be_disputed(
    status: str, by: str | None, now: float, paid: bool, disputed: bool, refusal: str | None
) -> None:
    found = rules.refusal(
        status=status, verified_by=by, deadline=T + 4 * HOUR, now=T + now * HOUR, paid=paid, disputed=disputed
    )
    assert found == refusal


@pytest.mark.rule("STAFF-10.01", "STAFF-10.39")
def test_a_timesheet_can_be_disputed_up_to_its_deadline_that_instant_included(town: Town) -> None:
    booking, shift = submitted(town)
    planned = town.shift(booking, TUESDAY)
    assert refused(town, planned, by=booking.borrowing_admin) == "time_log_id"
    town.mainspring.clock.set(T + 4 * HOUR + MINUTE)  # the approval is late: the time is over all the same
    assert refused(town, shift, by=booking.borrowing_admin) == "time_log_id"
    town.mainspring.clock.set(T + 4 * HOUR)
    filed(town, shift, by=booking.borrowing_admin)
    with pytest.raises(Refused, match="there was a dispute about the shift already"):
        filed(town, shift, by=booking.borrowing_admin)


@pytest.mark.rule("STAFF-10.39")
def test_what_a_person_has_verified_cannot_be_disputed(town: Town) -> None:
    booking, shift = submitted(town)
    with town.conn.transaction():
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.borrowing_admin)
    assert refused(town, shift, by=booking.supervisor) == "time_log_id"  # type: ignore[arg-type]  # there is one


@pytest.mark.rule("STAFF-9.22", "STAFF-10.01")
def test_a_dispute_at_the_instant_of_the_approval_turns_it_back_and_nothing_is_paid(town: Town) -> None:
    booking, shift = submitted(town)
    town.mainspring.clock.set(T + 4 * HOUR)
    town.mainspring.run_one(approval.auto_approve)
    assert town.shift_status(shift) == "Verified"

    filed(town, shift, by=booking.borrowing_admin)
    at(town, T + 4 * HOUR + MINUTE)

    assert town.shift_status(shift) == "Disputed"
    assert moved(town, "transfer") == []
    assert town.ledger(booking) == (24000, 0, 24000, 0, 0)


@pytest.mark.rule("STAFF-10.38")
@pytest.mark.parametrize("option", ["A", "B"])
def test_who_may_file_which_option(option: Option) -> None:
    parts = ("Worker", "Supervisor", "Borrowing Admin", "Borrowing Manager", "Lending Admin", "Lending Manager", None)
    able = {part for part in parts if part in MAY[f"file_dispute {option}"] & MAY[f"file_incident {option}"]}
    assert able == {"A": {"Supervisor", "Borrowing Admin", "Worker"}, "B": {"Supervisor", "Borrowing Admin"}}[option]


@pytest.mark.rule("STAFF-10.38")
def test_the_worker_may_dispute_the_shift_but_not_end_the_booking(town: Town) -> None:
    booking, shift = submitted(town)
    stranger = town.user(town.company("Borrower"), "Admin")
    assert refused(town, shift, "B", by=booking.worker_user) == "by"
    assert refused(town, shift, by=booking.lending_admin) == "by"
    assert refused(town, shift, by=stranger) == "time_log_id", "for a stranger it is not there"
    assert refused(town, shift, "C", by=booking.borrowing_admin) == "option"  # type: ignore[arg-type]  # on purpose
    filed(town, shift, by=booking.worker_user)
    assert town.shift_status(shift) == "Disputed"


@pytest.mark.rule("STAFF-1.19")
def test_a_dispute_belongs_to_a_shift_and_has_option_a_or_b(town: Town) -> None:
    booking = town.booking(shifts=1)
    for wrong, error in (
        ({"time_log_id": None}, psycopg.errors.NotNullViolation),
        ({"dispute_option": "C"}, psycopg.errors.CheckViolation),
        ({"dispute_option": None}, psycopg.errors.NotNullViolation),
    ):
        about = {"time_log_id": booking.shifts[0], "dispute_option": "A", "dispute_filed_at": town.now} | wrong
        with pytest.raises(error):
            town.insert("disputes", booking_id=booking.id, **about)


@pytest.mark.rule("STAFF-1.17", "STAFF-1.18")
def test_what_is_unresolved(town: Town) -> None:
    booking, other = town.booking(shifts=6), town.booking(shifts=1)

    def disputed(shift: int, option: str, status: str, shift_status: str, of: Booking = booking) -> None:
        town.conn.execute("alter table staffing.time_log disable trigger transition")
        town.conn.execute(
            "update staffing.time_log set status = %s, auto_approval_time = %s where id = %s",
            [shift_status, town.now, shift],
        )
        about = {"dispute_option": option, "status": status, "dispute_filed_at": town.now}
        town.insert("disputes", booking_id=of.id, time_log_id=shift, **about)

    def incident(option: str, status: str) -> None:
        town.insert("incident_reports", booking_id=booking.id, dispute_option=option, status=status, filed_at=town.now)

    def found() -> Unresolved:
        return unresolved.of_booking(town.conn, booking.id)

    none = Unresolved(disputes_a=0, disputes_b=0, incidents_a=0, incidents_b=0)
    disputed(booking.shifts[0], "A", "Settled", "Verified")
    disputed(booking.shifts[1], "A", "Resolved", "Disputed")
    disputed(booking.shifts[2], "A", "Legal_Hold", "Disputed")
    disputed(booking.shifts[5], "A", "Open", "Verified")  # of no disputed shift
    disputed(other.shifts[0], "A", "Open", "Disputed", other)
    incident("A", "Closed")
    assert (found(), found().option_a) == (none, False)
    incident("B", "Pending")
    disputed(booking.shifts[3], "B", "Open", "Disputed")
    assert found() == Unresolved(disputes_a=0, disputes_b=1, incidents_a=0, incidents_b=1)
    assert not found().option_a
    incident("A", "Pending")
    assert (found().incidents_a, found().option_a) == (1, True)
    town.conn.execute("update staffing.incident_reports set status = 'Closed'")
    disputed(booking.shifts[4], "A", "Open", "Disputed")
    assert (found().disputes_a, found().option_a) == (1, True)


# -- option B


@pytest.mark.rule("STAFF-10.08", "STAFF-10.15", "STAFF-10.16", "STAFF-10.37")
def test_option_b_ends_the_booking_at_once(town: Town) -> None:
    booking, shift = submitted(town, payment_type="Upfront")
    tomorrow = town.shift(booking, TUESDAY)  # in sixteen hours
    next_week = town.shift(booking, NEXT_MONDAY)
    paid_later(town, booking, tomorrow, next_week)
    planted = timeouts.timeout_of(town.desk, 1, booking.id, T).with_key(f"reminder-5m:{tomorrow}")
    town.desk.client.timers.set(planted, conn=town.conn)

    dispute = filed(town, shift, "B", by=booking.borrowing_admin)

    assert town.status(booking) == "Cancelled"
    for cancelled in (tomorrow, next_week):
        row = town.row("time_log", cancelled)
        assert (row["status"], row["cancel_reason"], row["cancelled_at"]) == ("Cancelled", "Dispute_Option_B", town.now)
        assert of_shift(town, cancelled) == set()
    assert town.shift_status(shift) == "Disputed"
    assert town.ledger(booking) == (72000, 0, 24000 + 12000, 0, 36000)
    assert frozen(town, dispute) == [("Penalty", 12000), ("Shift", 24000)]
    admin = str(booking.borrowing_admin)
    assert town.audit("cancel_booking") == [(admin, "booking", booking.id, "Dispute_Option_B", dispute)]
    assert [row[2:] for row in town.audit("cancel_shift")] == [
        (tomorrow, "Dispute_Option_B", dispute), (next_week, "Dispute_Option_B", dispute),
    ]  # fmt: skip
    town.mainspring.drain()
    assert moved(town, "refund") == [12000, 24000]


def of_shift(town: Town, shift: int) -> set[str]:
    """The timers that a shift has left."""
    return set(timers(town, shift)) & set(OF_SHIFT)


def paid_later(town: Town, booking: Booking, *shifts: int) -> None:
    """Further shifts are paid for, by a payment of the week after."""
    town.mainspring.clock.set(T + timedelta(days=7))
    town.funded(booking, *shifts)
    town.mainspring.clock.set(T)


@pytest.mark.rule("STAFF-10.08")
@pytest.mark.parametrize(
    ("status", "after"),
    [
        ("Payment_Paused_Dispute", "Cancelled"),
        ("Suspended_Insurance", "Cancelled"),
        ("Disputed", "Cancelled"),
        ("Completed", "Completed"),
    ],
)
def test_option_b_ends_what_can_end(town: Town, status: str, after: str) -> None:
    booking, shift = submitted(town)
    later = town.shift(booking, NEXT_MONDAY)
    suspended = "Active" if status == "Suspended_Insurance" else None
    town.conn.execute("alter table staffing.bookings disable trigger transition")  # nothing of ours sets `Disputed`
    town.conn.execute("update staffing.bookings set status = %s, status_before_suspension = %s", [status, suspended])
    filed(town, shift, "B", by=booking.borrowing_admin)
    assert (town.status(booking), town.shift_status(later)) == (after, "Cancelled")


# -- resolving


@pytest.mark.rule("STAFF-10.32", "STAFF-10.33", "STAFF-10.35")
def test_a_settlement_within_three_hours_cancels_the_timer_and_pays_to_the_cent(town: Town) -> None:
    booking, shift = submitted(town)
    later = town.shift(booking, NEXT_MONDAY)
    dispute = filed(town, shift, by=booking.borrowing_admin)
    at(town, T + 2 * HOUR)

    wrong: tuple[dict[str, Any], ...] = ({"lender_minor": 10000, "borrower_minor": 13999}, {"lender_minor": 24000}, {})
    for amounts in wrong:
        with pytest.raises(Refused) as error:
            resolved(town, dispute, **amounts)
        assert error.value.field == "settlement"
    assert town.row("disputes", dispute)["status"] == "Open"
    resolved(town, dispute, lender_minor=10000, borrower_minor=14000)

    row = town.row("disputes", dispute)
    assert (row["status"], row["dispute_resolved_at"]) == ("Settled", town.now)
    assert (row["settlement_lender_minor"], row["settlement_borrower_minor"]) == (10000, 14000)
    assert town.waiting("dispute_timeout") == []
    assert town.row("time_log", shift)["status"] == "Verified"
    at(town, T + 4 * HOUR)
    assert (moved(town, "transfer"), moved(town, "refund")) == ([10000], [14000])
    assert town.ledger(booking) == (24000, 0, 0, 10000, 14000)
    assert town.shift_status(later) == "Scheduled"
    assert town.messages("dispute_timeout") == []
    (act,) = town.audit("resolve_dispute")
    assert act == (str(town.operator), "dispute", dispute, None, dispute)


@pytest.mark.rule("STAFF-10.34")
def test_a_legal_hold_stops_the_timer_and_keeps_the_money(town: Town) -> None:
    booking, shift = submitted(town)
    later = town.shift(booking, NEXT_MONDAY)
    dispute = filed(town, shift, by=booking.borrowing_admin)

    with pytest.raises(Refused, match="a legal hold pays nothing"):
        resolved(town, dispute, "Legal_Hold", lender_minor=24000, borrower_minor=0)
    resolved(town, dispute, "Legal_Hold")
    at(town, T + 4 * HOUR)

    assert (town.shift_status(shift), town.shift_status(later)) == ("Disputed", "Scheduled")
    assert town.ledger(booking) == (24000, 0, 24000, 0, 0)
    assert (moved(town, "transfer"), moved(town, "refund")) == ([], [])
    assert not unresolved.of_booking(town.conn, booking.id).option_a
    with pytest.raises(Refused, match="cannot go from Legal_Hold to Legal_Hold"):
        resolved(town, dispute, "Legal_Hold")
    resolved(town, dispute, "Resolved", lender_minor=24000, borrower_minor=0)
    town.mainspring.drain()
    assert moved(town, "transfer") == [24000]
    with pytest.raises(Refused, match="cannot go from Resolved to Settled"):
        resolved(town, dispute, lender_minor=0, borrower_minor=0)


def test_an_unfunded_shift_has_nothing_to_settle(town: Town) -> None:
    booking, shift = submitted(town, funded=False)
    dispute = filed(town, shift, by=booking.borrowing_admin)
    with pytest.raises(Refused, match="settlement"):
        resolved(town, dispute, lender_minor=1, borrower_minor=0)
    resolved(town, dispute)
    assert (town.shift_status(shift), town.ledger(booking)) == ("Verified", (0, 0, 0, 0, 0))


@pytest.mark.rule("STAFF-10.22")
def test_payment_stays_paused_until_the_last_dispute_is_resolved(town: Town) -> None:
    booking, first = submitted(town)
    second = submit(town, booking, town.shift(booking, MONDAY))
    town.conn.execute("update staffing.bookings set status = 'Payment_Paused_Dispute'")
    one, two = (filed(town, shift, by=booking.borrowing_admin) for shift in (first, second))

    resolved(town, one, lender_minor=24000, borrower_minor=0)
    town.mainspring.drain()
    assert (town.status(booking), town.waiting("retry_payment")) == ("Payment_Paused_Dispute", [])
    resolved(town, two)
    assert len(town.waiting("retry_payment")) == 1
    town.mainspring.drain()
    assert town.status(booking) == "Active"


@pytest.mark.rule("STAFF-10.23")
def test_a_disputed_booking_accepts_clock_in(town: Town) -> None:
    booking, shift = submitted(town)
    filed(town, shift, by=booking.borrowing_admin)
    tomorrow = town.shift(booking, TUESDAY)
    town.conn.execute("update staffing.bookings set status = 'Payment_Paused_Dispute'")
    town.mainspring.clock.set(town.row("time_log", tomorrow)["scheduled_start_time"])
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, tomorrow, by=booking.worker_user)
    assert town.shift_status(tomorrow) == "Working"


def test_a_dispute_is_filed_though_its_timers_cannot_be_cancelled(town: Town) -> None:
    booking, shift = submitted(town)
    before = timers(town, shift)
    with refusing(town, "delete", "ladder_0", "ladder_60m", "ladder_3h", "auto_approve"):
        filed(town, shift, by=booking.borrowing_admin)
    assert before.items() <= timers(town, shift).items()
    at(town, T + 5 * HOUR)
    assert town.shift_status(shift) == "Disputed"
    assert town.ledger(booking) == (24000, 0, 24000, 0, 0)
