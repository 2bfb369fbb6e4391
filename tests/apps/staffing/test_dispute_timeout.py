from __future__ import annotations

from datetime import time, timedelta
from typing import Any

import pytest
from tests.apps.staffing.quarrels import (
    DAY,
    HOUR,
    MINUTE,
    TUESDAY,
    T,
    at,
    filed,
    frozen,
    moved,
    resolved,
    submit,
    submitted,
)
from tests.apps.staffing.sheets import refusing
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, W10, Booking, Town

from mainspring_apps.staffing import shifts
from mainspring_apps.staffing.conflicts import timeouts
from mainspring_apps.staffing.conflicts.disputes import Ending
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import dispute as rules
from mainspring_apps.staffing.rules import pay
from mainspring_sandbox import Fault

TEXT = "Dispute unresolved after 3 hours. All future shifts cancelled until dispute is resolved."


def disputed(town: Town, **values: object) -> tuple[Booking, int]:
    """A paid booking with a shift tomorrow and one next Monday, disputed at T. Answers the dispute."""
    booking, shift = submitted(town, funded=False, **values)
    for day in (TUESDAY, NEXT_MONDAY):
        town.shift(booking, day)
    town.funded(booking)
    return booking, filed(town, shift, by=booking.borrowing_admin)


@pytest.mark.rule("STAFF-10.13", "STAFF-10.15", "STAFF-10.16", "STAFF-10.20", "STAFF-10.21")
@pytest.mark.parametrize("status", ["Active", "Payment_Paused_Dispute"])
def test_an_unresolved_dispute_cancels_what_is_to_come(town: Town, status: str) -> None:
    booking, dispute = disputed(town, payment_type="Upfront")
    town.conn.execute("update staffing.bookings set status = %s", [status])
    shift, tomorrow, next_week = booking.shifts

    at(town, T + 3 * HOUR - MINUTE)
    assert town.shift_status(tomorrow) == "Scheduled"
    at(town, T + 3 * HOUR)

    for cancelled in (tomorrow, next_week):
        row = town.row("time_log", cancelled)
        assert (row["status"], row["cancel_reason"], row["cancelled_at"]) == ("Cancelled", "Dispute_Timeout", town.now)
    assert (town.shift_status(shift), town.status(booking)) == ("Disputed", status)
    assert town.row("disputes", dispute)["timed_out_at"] == town.now
    assert frozen(town, dispute) == [("Penalty", 12000), ("Shift", 24000)]  # half of tomorrow's, in thirteen hours
    assert (moved(town, "transfer"), moved(town, "refund")) == ([], [12000, 24000])
    assert town.ledger(booking) == (72000, 0, 36000, 0, 36000)
    assert town.audit("cancel_shift") == [
        ("SYSTEM", "time_log", cancelled, "Dispute_Timeout", dispute) for cancelled in (tomorrow, next_week)
    ]
    assert town.audit("dispute_timeout") == [("SYSTEM", "dispute", dispute, "Dispute_Timeout", dispute)]


@pytest.mark.rule("STAFF-10.19")
def test_both_companies_and_the_worker_are_told_by_sms_and_email(town: Town) -> None:
    booking, _ = disputed(town)
    at(town, T + 3 * HOUR)

    told = {booking.borrowing_admin, booking.lending_admin, booking.worker_user}
    wanted = {(user, channel) for user in told for channel in ("sms", "email")}
    messages = town.messages("dispute_timeout")
    assert len(messages) == 6
    assert {(user, channel) for _, user, channel, _ in messages} == wanted
    assert {status for *_, status in messages} == {"Sent"}
    assert town.texts("dispute_timeout") == {TEXT}


@pytest.mark.rule("STAFF-10.12")
def test_a_shift_that_has_begun_is_kept_and_one_that_begins_in_a_minute_is_cancelled(town: Town) -> None:
    booking, shift = submitted(town)
    filed(town, shift, by=booking.borrowing_admin)
    begun, now, soon = (
        town.shift(booking, MONDAY, time(20), time(22), scheduled_start_time=T + 3 * HOUR + offset)
        for offset in (-MINUTE, timedelta(0), MINUTE)
    )
    at(town, T + 3 * HOUR)
    assert [town.shift_status(one) for one in (begun, now, soon)] == ["Scheduled", "Scheduled", "Cancelled"]
    with town.conn.transaction():  # STAFF-10.23
        shifts.clock_in(town.desk, town.conn, begun, by=booking.worker_user)


@pytest.mark.rule("STAFF-10.11")
@pytest.mark.parametrize("status", ["Settled", "Resolved", "Legal_Hold"])
def test_a_timer_that_was_left_finds_a_resolved_dispute_and_does_nothing(
    town: Town, status: Ending, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking, dispute = disputed(town)
    with monkeypatch.context() as patch:
        patch.setattr(type(town.desk.client.timers), "try_cancel_many", lambda *_, **__: None)
        amounts = {} if status == "Legal_Hold" else {"lender_minor": 24000, "borrower_minor": 0}
        resolved(town, dispute, status, **amounts)
    assert len(town.waiting("dispute_timeout")) == 1

    at(town, T + 3 * HOUR)

    nothing_happened(town, booking, dispute)


@pytest.mark.rule("STAFF-10.10", "STAFF-10.26")
def test_option_b_wins_and_every_timer_of_the_booking_does_nothing(town: Town) -> None:
    booking, dispute = disputed(town)
    other = submit(town, booking, town.shift(booking, MONDAY))
    b = filed(town, other, "B", by=booking.borrowing_admin)
    town.mainspring.drain()
    refunds = moved(town, "refund")

    at(town, T + 3 * HOUR)

    assert (town.messages("dispute_timeout"), town.audit("dispute_timeout")) == ([], [])
    assert [town.row("disputes", one)["timed_out_at"] for one in (dispute, b)] == [None, None]
    assert moved(town, "refund") == refunds
    for hours in range(4, 8):
        at(town, T + hours * HOUR)
    assert len(ran(town)) == 2  # the two timers, and no sweep after them


@pytest.mark.rule("STAFF-10.24", "STAFF-10.25")
def test_the_first_dispute_to_expire_cancels_and_the_second_only_tells_of_itself(town: Town) -> None:
    booking, dispute = disputed(town)
    other = submit(town, booking, town.shift(booking, MONDAY))
    at(town, T + HOUR)
    third = submit(town, booking, town.shift(booking, MONDAY))
    second, _ = (filed(town, shift, by=booking.borrowing_admin) for shift in (other, third))

    at(town, T + 3 * HOUR)
    assert (len(town.messages("dispute_timeout")), len(town.audit("cancel_shift"))) == (6, 2)
    refunds, held = moved(town, "refund"), frozen(town, dispute)
    at(town, T + 4 * HOUR)

    assert (len(town.messages("dispute_timeout")), len(town.audit("cancel_shift"))) == (18, 2)  # two at one instant
    assert (moved(town, "refund"), frozen(town, dispute), frozen(town, second)) == (refunds, held, [])
    assert town.row("disputes", second)["timed_out_at"] == T + 4 * HOUR


@pytest.mark.rule("STAFF-10.18")
def test_a_refund_that_fails_twice_comes_at_the_third_try_and_the_shift_stays_cancelled(town: Town) -> None:
    booking, _ = disputed(town)
    town.sandbox.faults.set(Fault(provider="stripe", kind="error", path="/v1/refunds", method="POST", times=2))

    town.mainspring.clock.set(T + 3 * HOUR)
    town.mainspring.drain(raise_errors=False)
    assert town.shift_status(booking.shifts[2]) == "Cancelled"
    runs = town.mainspring.advance(minutes=3, raise_errors=False)

    assert [run.state for run in runs if run.task == "refund_borrower"] == ["scheduled", "succeeded"]
    assert moved(town, "refund") == [24000]


@pytest.mark.rule("STAFF-10.27")
def test_a_cancellation_that_fails_twice_works_at_the_third_try(town: Town) -> None:
    booking, _ = disputed(town)
    broken(town, times=2)

    town.mainspring.clock.set(T + 3 * HOUR)
    runs = town.mainspring.advance(minutes=3, raise_errors=False)

    assert [run.state for run in runs if run.task == "dispute_timeout"] == ["retrying", "retrying", "succeeded"]
    assert town.shift_status(booking.shifts[1]) == "Cancelled"
    assert len(town.messages("dispute_timeout")) == 6


@pytest.mark.rule("STAFF-10.28", "STAFF-10.31")
def test_a_cancellation_that_always_fails_is_one_dead_letter_and_one_alert(town: Town) -> None:
    booking, dispute = disputed(town)
    broken(town)

    town.mainspring.clock.set(T + 3 * HOUR)
    runs = town.mainspring.run_until(lambda: town.mainspring.client.dead.list(), raise_errors=False)
    for hours in (4, 5):  # the sweep leaves it to a person
        town.mainspring.clock.set(T + hours * HOUR)
        town.mainspring.drain(raise_errors=False)

    assert [run.state for run in runs if run.task == "dispute_timeout"] == ["retrying"] * 5 + ["dead"]
    assert len(town.mainspring.client.dead.list()) == 1
    assert [found[0] for found in town.wrong("dispute_timeout_failed")] == [f"dispute {dispute}"]
    assert town.shift_status(booking.shifts[1]) == "Scheduled"
    nothing_happened(town, booking, dispute)


@pytest.mark.rule("STAFF-10.29")
def test_a_message_that_cannot_be_sent_does_not_stand_in_the_way(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    booking, _ = disputed(town)
    town.sandbox.faults.set(Fault(provider="twilio", kind="error"))
    town.mainspring.clock.set(T + 3 * HOUR)
    town.mainspring.drain(raise_errors=False)
    assert town.shift_status(booking.shifts[1]) == "Cancelled"

    other, _ = disputed_too(town)

    def fails(*_: object, **__: object) -> None:
        raise RuntimeError("no template is called so")

    monkeypatch.setattr(type(town.desk), "tell", fails)
    town.mainspring.clock.set(town.now + 3 * HOUR)
    town.mainspring.drain(raise_errors=False)
    assert town.shift_status(other.shifts[1]) == "Cancelled"


def disputed_too(town: Town) -> tuple[Booking, int]:
    """Another booking, disputed now."""
    booking = town.booking(shifts=[TUESDAY, NEXT_MONDAY])
    shift = submit(town, booking, booking.shifts[0])
    return booking, filed(town, shift, by=booking.borrowing_admin)


@pytest.mark.rule("STAFF-10.30", "STAFF-10.31")
def test_a_dispute_without_a_timer_is_handled_at_the_next_full_hour_once(town: Town) -> None:
    town.mainspring.clock.set(T)
    booking = town.booking(shifts=[MONDAY, NEXT_MONDAY])
    town.mainspring.clock.set(T + 10 * MINUTE)
    with refusing(town, "insert", "dispute_timeout"):
        dispute = filed(town, submit(town, booking, booking.shifts[0]), by=booking.borrowing_admin)
    assert town.waiting("dispute_timeout") == []
    town.mainspring.drain()  # from here on the sweep is known

    at(town, T + 3 * HOUR)  # not three hours old: the sweep of this hour leaves it
    at(town, T + 4 * HOUR - MINUTE)
    assert town.shift_status(booking.shifts[1]) == "Scheduled"
    at(town, T + 4 * HOUR)
    assert town.shift_status(booking.shifts[1]) == "Cancelled"
    assert town.row("disputes", dispute)["timed_out_at"] == T + 4 * HOUR
    for hours in range(5, 9):
        at(town, T + hours * HOUR)
    assert (len(ran(town)), len(town.messages("dispute_timeout"))) == (1, 6)


@pytest.mark.rule("STAFF-10.26", "STAFF-10.30", "STAFF-10.31")
@pytest.mark.parametrize(
    ("about", "rows"),
    [
        ({}, 1),
        ({"dispute_filed_at": T + timedelta(microseconds=1)}, 0),
        ({"timed_out_at": T + 3 * HOUR}, 0),
        ({"dispute_option": "B"}, 0),
        *[({"status": status}, 0) for status in ("Settled", "Resolved", "Legal_Hold")],
    ],
)
def test_the_sweep_reads_only_disputes_that_should_have_timed_out(town: Town, about: dict[str, Any], rows: int) -> None:
    booking = town.booking(shifts=1)
    known = {"booking_id": booking.id, "time_log_id": booking.shifts[0], "dispute_option": "A", "dispute_filed_at": T}
    town.insert("disputes", **known | about)
    town.mainspring.clock.set(T + 3 * HOUR)
    sweep = tasks.bound(town.desk).get("overdue-disputes").job().for_org("SYSTEM")
    assert town.mainspring.run_one(sweep).result == {"rows": rows}
    town.conn.execute("update staffing.bookings set status = 'Cancelled'")  # option B has ended it
    assert town.mainspring.run_one(sweep).result == {"rows": 0}


@pytest.mark.rule("STAFF-10.35", "STAFF-10.36")
def test_what_the_timeout_cancelled_does_not_come_back_and_is_not_charged(town: Town) -> None:
    booking, dispute = disputed(town, payment_type="Upfront")
    kept = town.shift(booking, NEXT_MONDAY + DAY)
    at(town, T + 3 * HOUR)
    assert town.shift_status(kept) == "Cancelled"

    resolved(town, dispute, lender_minor=24000, borrower_minor=12000)
    town.mainspring.drain()

    assert [town.shift_status(one) for one in booking.shifts[1:]] == ["Cancelled"] * 3
    assert town.ledger(booking) == (72000, 0, 0, 24000, 48000)
    assert (moved(town, "transfer"), moved(town, "refund")) == ([24000], [12000, 12000, 24000])
    again = town.shift(booking, NEXT_MONDAY)
    town.conn.execute("update staffing.bookings set payment_type = 'Weekly_Progress'")
    town.mainspring.clock.set(W10 - MINUTE)
    town.mainspring.advance(minutes=1)
    paid = town.rows("select amount_minor::int from staffing.pending_payments where source = 'weekly' and try = 1"
                     " and period_start > %s", T)  # fmt: skip
    assert paid == [(pay.shift_pay(480, 3000, 0),)]
    assert town.rows("select time_log_id from staffing.payment_shifts where time_log_id = any(%s)",
                     [*booking.shifts[3:], again]) == [(again,)]  # fmt: skip


@pytest.mark.rule("STAFF-10.10", "STAFF-10.11", "STAFF-10.26", "STAFF-10.31")
def test_when_a_dispute_times_out() -> None:
    due = {
        "option": "A", "status": "Open", "booking": "Active", "filed_at": T, "timed_out_at": None, "now": T + 3 * HOUR,
        "timeout": 3 * HOUR,
    }  # fmt: skip

    def times_out(**other: object) -> bool:
        return rules.times_out(**due | other)  # type: ignore[arg-type]  # as above

    assert times_out()
    assert times_out(booking="Payment_Paused_Dispute")
    assert times_out(booking="Suspended_Insurance")
    assert not times_out(now=T + 3 * HOUR - timedelta(microseconds=1))
    assert not times_out(option="B")
    assert not times_out(booking="Cancelled")
    assert not times_out(timed_out_at=T)
    assert not any(times_out(status=status) for status in ("Settled", "Resolved", "Legal_Hold"))
    assert rules.TIMEOUT_TOLD == ("Borrowing Admin", "Lending Admin", "Worker")


def nothing_happened(town: Town, booking: Booking, dispute: int) -> None:
    assert town.row("disputes", dispute)["timed_out_at"] is None
    assert (town.messages("dispute_timeout"), town.audit("dispute_timeout")) == ([], [])
    assert [town.shift_status(one) for one in booking.shifts[1:]] == ["Scheduled", "Scheduled"]
    assert moved(town, "refund") == []


def broken(town: Town, times: int = 1000) -> None:
    """The database refuses to cancel a shift so often; a sequence counts, since it is not rolled back."""
    town.conn.execute("create sequence broken")
    town.conn.execute(
        f"""
        create function broken() returns trigger language plpgsql as $$ begin
          if nextval('broken') <= {times} then raise exception 'out of order'; end if;
          return new;
        end $$""".encode()
    )
    town.conn.execute(
        "create trigger broken before update on staffing.time_log for each statement execute function broken()"
    )


def ran(town: Town) -> list[tuple[object, ...]]:
    """The timeouts that have run."""
    name = timeouts.dispute_timeout.name
    return town.rows("select id from mainspring.jobs where task = %s and state = 'succeeded'", name)
