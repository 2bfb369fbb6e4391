from __future__ import annotations

import logging
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from tests.apps.staffing.sheets import at, begun, leap, live, refusing, submitted, timers, told
from tests.apps.staffing.town import MONDAY, Booking, Town

import mainspring as ms
from mainspring_apps.staffing import shifts
from mainspring_apps.staffing import timers as keys
from mainspring_apps.staffing.conflicts.disputes import file_dispute
from mainspring_apps.staffing.payments import accounts, escrow
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import ladder as rules
from mainspring_apps.staffing.rules.release import release
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.timesheets import approval
from mainspring_apps.staffing.timesheets.approval import auto_approve, release_shift
from mainspring_sandbox import Fault

DEADLINE = at("21:00")
RELEASED = at("21:00:01")


def again(town: Town, shift: int) -> ms.NewJob:
    """The approval of a shift, as its timer runs it."""
    row = town.row("time_log", shift)
    out, deadline = row["clock_out_time"] or town.now, row["auto_approval_time"]
    return auto_approve.job(rules.sheet(shift, row["booking_id"], out, town.desk.settings, deadline=deadline))


def transfers(town: Town) -> list[tuple[Any, ...]]:
    return town.rows("select amount_minor, status, idempotency_key from staffing.transfers order by id")


def verify(town: Town, booking: Booking, shift: int) -> None:
    with town.conn.transaction():
        shifts.verify_timesheet(town.desk, town.conn, shift, by=booking.supervisor or 0)


@pytest.mark.rule("STAFF-9.21", "STAFF-9.23", "STAFF-9.24", "STAFF-9.32")
@pytest.mark.parametrize(
    ("status", "disputed", "late", "expected"),
    [
        ("Pending_Verification", False, timedelta(0), True),
        ("Pending_Verification", False, timedelta(hours=1), True),
        ("Pending_Verification", False, -timedelta(microseconds=1), False),  # the deadline was moved
        ("Pending_Verification", True, timedelta(0), False),
        ("Disputed", True, timedelta(0), False),
        ("Verified", False, timedelta(0), False),
        ("Cancelled", False, timedelta(0), False),
        ("Working", False, timedelta(0), False),
    ],
)
def test_only_an_undisputed_timesheet_approves_itself_and_not_before_its_deadline(
    status: str, disputed: bool, late: timedelta, expected: bool
) -> None:
    found = rules.approves(status=status, disputed=disputed, now=DEADLINE + late, deadline=DEADLINE)
    assert found is expected


@pytest.mark.rule("STAFF-9.22", "STAFF-9.35", "STAFF-9.37")
@pytest.mark.parametrize(
    ("status", "disputed", "holds", "expected"),
    [
        ("Verified", False, ["Held"], "release"),
        ("Verified", False, ["Released"], "nothing"),
        ("Verified", False, ["Held", "Released"], "release"),  # a second payment for the same shift
        ("Verified", False, ["Frozen"], "nothing"),
        ("Verified", False, [], "unfunded"),
        ("Verified", False, ["Refunded"], "nothing"),  # nothing was worked of it
        ("Verified", True, ["Held"], "nothing"),
        ("Disputed", True, ["Held"], "nothing"),
        ("Disputed", True, [], "nothing"),
        ("Pending_Verification", False, ["Held"], "nothing"),
    ],
)
def test_money_leaves_escrow_for_a_verified_undisputed_and_funded_shift(
    status: str, disputed: bool, holds: list[str], expected: str
) -> None:
    assert release(status=status, disputed=disputed, holds=holds) == expected


@pytest.mark.rule("STAFF-9.24", "STAFF-9.25", "STAFF-9.26", "STAFF-9.27")
def test_what_nobody_verified_is_approved_and_paid_after_four_hours(town: Town) -> None:
    booking, shift = submitted(town)
    live(town, at("17:00"), at("18:00"), at("20:00"))
    leap(town, DEADLINE - timedelta(seconds=1))
    town.mainspring.drain()
    assert town.shift_status(shift) == "Pending_Verification"

    assert live(town, DEADLINE, RELEASED) == [("auto_approve", DEADLINE), ("release_shift", RELEASED)]
    row = town.row("time_log", shift)
    assert (row["status"], row["verified_by"]) == ("Verified", "SYSTEM")
    hold = town.value("select id from staffing.escrow_holds where time_log_id = %s", shift)
    assert transfers(town) == [(24000, "Succeeded", f"transfer:{hold}")]
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)
    assert told(town, "auto_approved") == [(booking.worker_user, "sms", "Sent")]
    assert town.texts("auto_approved") == {
        "Timesheet auto-approved after 4 hours. Supervisor did not verify within required timeframe."
    }
    assert town.audit("auto_approve") == [("SYSTEM", "time_log", shift, None, None)]
    assert tasks.bound(town.desk).get("release_shift").queue == "lender-transfers"


@pytest.mark.rule("STAFF-9.07", "STAFF-9.40")
@pytest.mark.parametrize("status", ["Suspended_Insurance", "Completed", "Cancelled"])
def test_work_is_approved_and_paid_at_any_hour_whatever_became_of_the_booking(town: Town, status: str) -> None:
    saturday = date(2026, 6, 6)
    booking, shift = submitted(town, days=[saturday], start=time(14), end=time(22))
    before = "Active" if status == "Suspended_Insurance" else None
    town.conn.execute(
        "update staffing.bookings set status = %s, status_before_suspension = %s where id = %s",
        [status, before, booking.id],
    )
    sunday = at("02:00", saturday + timedelta(days=1))
    assert timers(town, shift)["auto-approve"] == sunday
    leap(town, sunday)
    town.mainspring.run_one(auto_approve)
    leap(town, sunday + town.desk.settings.release_delay)
    town.mainspring.run_one(release_shift)
    town.mainspring.drain()
    assert town.shift_status(shift) == "Verified"
    assert [row[:2] for row in transfers(town)] == [(24000, "Succeeded")]
    assert town.status(booking) == status


@pytest.mark.rule("STAFF-9.19", "STAFF-9.28", "STAFF-9.37")
def test_verified_by_a_person_it_is_paid_at_once_and_once(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    booking, shift = submitted(town)
    live(town, at("17:00"))
    leap(town, at("17:30"))
    verify(town, booking, shift)
    town.mainspring.drain()
    assert [row[:2] for row in transfers(town)] == [(24000, "Succeeded")]
    assert town.audit("verify_timesheet") == [(str(booking.supervisor), "time_log", shift, None, None)]

    leap(town, DEADLINE)
    with caplog.at_level(logging.WARNING):
        ran = [town.mainspring.run_one(again(town, shift)), town.mainspring.run_one(approval.release(shift))]
    assert [run.state for run in ran] == ["succeeded"] * 2
    assert [line for line in caplog.records if line.name.startswith("mainspring_apps")] == []
    assert len(transfers(town)) == 1
    assert town.audit("auto_approve") == town.messages("auto_approved") == []
    assert town.alerts() == []
    assert town.row("time_log", shift)["verified_by"] == str(booking.supervisor)


@pytest.mark.rule("STAFF-9.21", "STAFF-9.23", "STAFF-9.33")
def test_a_dispute_and_a_cancelled_shift_are_left_alone_by_timer_and_sweep(town: Town) -> None:
    booking, shift = submitted(town)
    values: dict[str, Any] = {"auto_approval_time": at("12:00"), "clock_out_time": at("08:00")}
    cancelled = town.shift(booking, MONDAY, status="Cancelled", cancelled_at=town.now, **values)
    pending = town.shift(booking, MONDAY, status="Pending_Verification", **values)  # its dispute came another way
    town.insert(
        "disputes", booking_id=booking.id, time_log_id=pending, dispute_option="A", dispute_filed_at=at("11:00")
    )
    live(town, at("17:00"))
    with refusing(town, "delete", "auto_approve", "ladder_60m", "ladder_3h"), town.conn.transaction():
        file_dispute(town.desk, town.conn, shift, option="A", by=booking.supervisor or 0)

    leap(town, DEADLINE)
    assert town.mainspring.run_one(auto_approve).state == "succeeded"  # the timer that could not be cancelled
    for one in (cancelled, pending):
        assert town.mainspring.run_one(again(town, one)).state == "succeeded"
    sweep = tasks.bound(town.desk).get("approval-sweep").job().for_org("SYSTEM")
    assert town.mainspring.run_one(sweep).result == {"rows": 1}
    town.mainspring.drain()
    assert [town.shift_status(one) for one in (shift, cancelled, pending)] == [
        "Disputed", "Cancelled", "Pending_Verification",
    ]  # fmt: skip
    assert transfers(town) == town.messages("auto_approved") == []


@pytest.mark.rule("STAFF-9.22")
@pytest.mark.parametrize("first", ["dispute", "approval"])
def test_a_dispute_at_the_very_instant_wins_in_either_order(town: Town, first: str) -> None:
    booking, shift = submitted(town)
    leap(town, DEADLINE)

    def approve() -> None:
        assert town.mainspring.run_one(again(town, shift)).state == "succeeded"

    def dispute() -> None:
        with town.conn.transaction():
            file_dispute(town.desk, town.conn, shift, option="A", by=booking.supervisor or 0)

    for act in (dispute, approve) if first == "dispute" else (approve, dispute):
        act()
    assert town.shift_status(shift) == "Disputed"
    ran = live(town, DEADLINE, RELEASED)
    assert (("release_shift", RELEASED) in ran) == (first == "approval")
    assert transfers(town) == []
    assert town.ledger(booking) == (24000, 0, 24000, 0, 0)


@pytest.mark.rule("STAFF-9.22")
def test_a_moment_after_the_approval_it_is_too_late_to_dispute(town: Town) -> None:
    booking, shift = submitted(town)
    leap(town, DEADLINE)
    town.mainspring.run_one(again(town, shift))
    leap(town, DEADLINE + timedelta(milliseconds=1))
    with pytest.raises(Refused), town.conn.transaction():
        file_dispute(town.desk, town.conn, shift, option="A", by=booking.supervisor or 0)


@pytest.mark.rule("STAFF-9.29", "STAFF-9.31")
def test_neither_a_failing_bank_nor_a_failing_message_holds_the_approval(town: Town) -> None:
    _, shift = submitted(town)
    live(town, at("17:00"), at("18:00"), at("20:00"))
    town.sandbox.faults.set(
        Fault(provider="stripe", kind="error", path="/v1/transfers", method="POST", times=2),
        Fault(provider="twilio", kind="error", status=503),
    )
    leap(town, DEADLINE)
    town.mainspring.drain(raise_errors=False)
    assert town.shift_status(shift) == "Verified"

    ran = town.mainspring.advance(to=DEADLINE + timedelta(minutes=3), raise_errors=False)
    tries = [(run.job.task, run.state) for run in ran if run.job.task in ("release_shift", "pay_lender")]
    assert tries == [("release_shift", "succeeded")] + [
        ("pay_lender", state) for state in ("scheduled", "scheduled", "succeeded")
    ]
    assert [row[:2] for row in transfers(town)] == [(24000, "Succeeded")]
    assert told(town, "auto_approved")[0][2] != "Sent"


@pytest.mark.rule("STAFF-9.30")
def test_a_release_that_fails_for_good_is_a_dead_letter_and_an_alert_and_the_approval_stands(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, shift = submitted(town)
    leap(town, DEADLINE)
    town.mainspring.run_one(again(town, shift))
    leap(town, RELEASED)

    def refuse(*_: object) -> None:
        raise ms.Permanent("no money today")

    monkeypatch.setattr(escrow, "release", refuse)
    assert town.mainspring.run_one(release_shift, raise_errors=False).state in ("failed", "dead")
    assert [found[0] for found in town.wrong("release_failed")] == [f"time_log {shift}"]
    assert town.shift_status(shift) == "Verified"


@pytest.mark.rule("STAFF-9.32", "STAFF-9.33")
def test_without_timers_the_sweep_approves_at_the_next_full_hour(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    booking, shift = begun(town)
    town.funded(booking, shift)
    leap(town, at("17:20"))
    every = ("ladder_0", "ladder_60m", "ladder_3h", "auto_approve")
    with refusing(town, "insert", *every), town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    assert timers(town, shift) == {}
    assert [line.message for line in caplog.records if line.levelno >= logging.ERROR] == [
        f"timer {timer}:{shift} was not set: RaiseException"
        for timer in (*keys.LADDER_TIMERS, keys.AUTO_APPROVAL_TIMER)
    ]

    assert live(town, at("21:00"), at("21:20"), at("22:00")) == [("auto_approve", at("22:00"))]
    assert town.row("time_log", shift)["verified_by"] == "SYSTEM"
    (schedule,) = [one for one in tasks.bound(town.desk).schedules() if one.name == "approval-sweep"]
    fires = [tick.at for tick in schedule.rule.ticks(at("17:20"), at("20:20"))]
    assert fires == [at("18:00"), at("19:00"), at("20:00")]


@pytest.mark.rule("STAFF-9.32")
def test_the_sweep_waits_for_the_deadline_as_it_was_extended(town: Town) -> None:
    booking, shift = submitted(town, at("17:20"))
    leap(town, at("20:50"))
    with refusing(town, "insert or update", "auto_approve"), town.conn.transaction():
        shifts.edit_timesheet(town.desk, town.conn, shift, end=at("17:00"), by=booking.supervisor or 0)
    assert town.row("time_log", shift)["auto_approval_time"] == at("22:20")
    assert timers(town, shift)["auto-approve"] == at("21:20")  # it could not be moved

    ran = [one for one in live(town, at("21:20"), at("22:00"), at("22:20"), at("23:00")) if one[0] == "auto_approve"]
    assert ran == [("auto_approve", at("21:20")), ("auto_approve", at("23:00"))]
    assert town.shift_status(shift) == "Verified"
    assert len(town.audit("auto_approve")) == 1


@pytest.mark.rule("STAFF-9.34")
def test_sweep_and_timer_together_approve_and_pay_once(town: Town) -> None:
    _, shift = submitted(town)
    leap(town, DEADLINE)
    sweep = tasks.bound(town.desk).get("approval-sweep").job().for_org("SYSTEM")
    assert town.mainspring.run_one(sweep).result == {"rows": 1}
    assert len(town.waiting("auto_approve")) == 1  # a timer that waits is not doubled
    job = again(town, shift)
    ran = [town.mainspring.run_one(one) for one in (job, auto_approve, job)]
    assert [run.state for run in ran] == ["succeeded"] * 3
    live(town, RELEASED)
    assert (len(town.audit("auto_approve")), len(transfers(town)), len(town.messages("auto_approved"))) == (1, 1, 1)


@pytest.mark.rule("STAFF-9.35")
def test_a_shift_that_nobody_paid_for_moves_nothing_and_is_told_until_it_is_paid(town: Town) -> None:
    booking, shift = submitted(town, funded=False)
    verify(town, booking, shift)
    town.mainspring.run_one(release_shift)
    assert transfers(town) == []
    assert town.alerts() == [("unfunded_work", f"time_log {shift}", "warning")]

    payment = town.funded(booking, shift)
    with town.conn.transaction():
        accounts.pay_out(town.desk, town.conn, booking.id, payment)
    assert [row[0] for row in transfers(town)] == [24000]
    assert town.alerts() == []


@pytest.mark.rule("STAFF-9.35")
def test_money_that_left_with_the_webhook_is_neither_missed_nor_sent_again(town: Town) -> None:
    booking, shift = submitted(town)
    with town.conn.transaction():
        escrow.release_whole(town.desk, town.conn, town.value("select id from staffing.pending_payments"))
    verify(town, booking, shift)
    town.mainspring.drain()
    assert [row[:2] for row in transfers(town)] == [(24000, "Succeeded")]
    assert town.alerts() == []


@pytest.mark.rule("STAFF-1.41")
def test_without_an_account_of_the_lender_the_money_waits_in_escrow(town: Town) -> None:
    booking, shift = submitted(town, lender=town.company("Lender", stripe_account_id=None))
    verify(town, booking, shift)
    town.mainspring.run_one(release_shift)
    assert town.alerts() == [("lender_without_account", f"company {booking.lender}", "warning")]
    assert town.ledger(booking) == (24000, 24000, 0, 0, 0)

    with town.conn.transaction():
        accounts.connect_account(
            town.desk, town.conn, booking.lender, account=town.account(), by=town.admin(booking.lender)
        )
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)


@pytest.mark.rule("STAFF-9.06")
def test_the_four_hours_do_not_follow_the_clocks_of_the_session(town: Town) -> None:
    """Whoever's web application calls may have New York's time on its connection, in the night when clocks go back."""
    town.conn.execute("set timezone to 'America/New_York'")
    half_past_midnight = datetime(2026, 11, 1, 4, 30, tzinfo=UTC)
    _, shift = submitted(town, half_past_midnight, funded=False, days=[date(2026, 10, 31)])
    assert timers(town, shift)["auto-approve"].astimezone(UTC) == datetime(2026, 11, 1, 8, 30, tzinfo=UTC)
    assert timers(town, shift)["ladder-3h"].astimezone(UTC) == datetime(2026, 11, 1, 7, 30, tzinfo=UTC)
