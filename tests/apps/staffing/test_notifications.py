"""Messages across all jobs: asked for with the change, delivered on their own, by night only where their class says."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from tests.apps.staffing.sheets import at, submitted, told
from tests.apps.staffing.town import T00, Town
from tests.apps.staffing.wednesday import tried

from mainspring_apps.staffing import insurance, shifts
from mainspring_apps.staffing.conflicts import disputes
from mainspring_apps.staffing.languages import moment
from mainspring_apps.staffing.payments import cutoff
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.texts import templates
from mainspring_sandbox import Fault

HOUR = timedelta(hours=1)
THREE = datetime(2026, 6, 2, 7, tzinfo=UTC)  # 03:00 in New York
CLASSES = {
    "critical": {"ladder_0", "insurance_stop", "insurance_expired"},
    "time_bound": {
        "reminder_5m", "reminder_30m", "ladder_60m", "ladder_3h", "final_warning", "late_warning", "dispute_timeout",
        "shift_cancelled", "booking_cancelled", "shift_shortened", "shifts_shortened", "dispute_filed",
        "unpaid_dispute_filed", "unpaid_settlement_proposed", "settlement_proposed", "hours_cut",
        "shift_end_changed", "shifts_end_changed",
    },
    "normal": {
        "action_required", "worker_released", "insurance_14", "insurance_7", "auto_approved", "instant_alert", "digest",
        "search_deactivated", "arrears_failed", "not_confirmed", "no_show", "refund_made", "transfer_reversed",
        "extra_time", "extra_time_unpaid", "dispute_settled", "unpaid_dispute_settled", "dispute_over",
        "dispute_on_hold",
    },
}  # fmt: skip
BOTH = {
    "action_required", "final_warning", "worker_released", "insurance_7", "insurance_expired", "insurance_stop",
    "dispute_timeout", "instant_alert", "arrears_failed", "not_confirmed", "no_show", "shift_cancelled",
    "booking_cancelled", "late_warning", "shift_shortened", "shifts_shortened", "dispute_filed", "settlement_proposed",
    "extra_time", "extra_time_unpaid", "dispute_settled", "unpaid_dispute_settled", "unpaid_dispute_filed",
    "unpaid_settlement_proposed",
    "dispute_over", "dispute_on_hold", "hours_cut", "shift_end_changed",
    "shifts_end_changed",
}  # fmt: skip
MAIL = {"insurance_14", "digest", "search_deactivated", "refund_made", "transfer_reversed"}


@pytest.mark.rule("STAFF-14.06", "STAFF-14.07", "STAFF-14.08")
def test_every_kind_has_its_class_and_its_channels() -> None:
    kinds = {one.name: one for one in templates(Settings())}
    assert {kind: {name for name, one in kinds.items() if one.class_ == kind} for kind in CLASSES} == CLASSES
    channels = {name: {"sms", "email"} if name in BOTH else {"email"} if name in MAIL else {"sms"} for name in kinds}
    assert {name: set(one.channels) for name, one in kinds.items()} == channels


@pytest.mark.rule("STAFF-14.06", "STAFF-14.07", "STAFF-14.08", "STAFF-14.10", "STAFF-14.02")
def test_at_three_in_the_night_only_a_normal_sms_waits_for_seven(town: Town) -> None:
    town.only(at=THREE)
    somebody = town.user(town.company("Borrower"), "Admin")
    payment = tried(town, town.booking())
    with town.conn.transaction():
        for one in templates(Settings()):
            about: dict[str, Any] = dict.fromkeys(re.findall(r"\[([^]]+)\]", one.text), "x")
            about |= {"parts": [{"name": "x", "workers": []}], "Search": "x", "Link": "x"}
            if one.name == "action_required":  # which asks whether it still holds
                about |= {"payment_id": payment, "Cutoff": moment(THREE + 6 * HOUR, "UTC")}
            town.desk.tell(town.conn, one.name, [somebody], about, occurrence=THREE)
    asked = sorted((one.name, channel) for one in templates(Settings()) for channel in one.channels)
    assert [(kind, channel) for kind, _, channel, _ in town.messages()] == asked

    town.mainspring.advance(hours=5)

    log = town.rows("select kind, channel, sent_at, critical, status, attempts, message from staffing.notification_log")
    for kind, channel, sent, critical, *rest in log:
        waits = kind in CLASSES["normal"] and channel == "sms"
        late = sent - (THREE + 4 * HOUR * waits)  # 50 leave in a second
        assert timedelta(0) <= late < timedelta(seconds=3), (kind, channel)
        assert critical == (kind in CLASSES["critical"])
        assert rest[:2] == ["Sent", 1]
        assert "[" not in rest[2]
    assert len(log) == len(asked) == len(town.sms()) + len(town.sandbox.ledger.find("mail"))


@pytest.mark.rule("STAFF-14.08", "STAFF-14.10")
def test_a_release_at_midnight_is_mailed_at_once_and_texted_at_seven_where_somebody_lives(town: Town) -> None:
    town.only(at=T00)
    booking = town.booking(shifts=1)
    town.conn.execute("update staffing.users set timezone = 'Asia/Kathmandu' where id = %s", [booking.lending_admin])
    tried(town, booking)
    town.mainspring.run_one(cutoff.cut_off.job(booking_id=booking.id, instant=T00))
    town.mainspring.advance(hours=8)

    seven = datetime(2026, 6, 4, 11, tzinfo=UTC)
    log = town.rows(
        "select recipient_id, channel, sent_at from staffing.notification_log where kind = 'worker_released'"
    )
    sent = {(who, channel): instant for who, channel, instant in log}
    people = (booking.worker_user, booking.borrowing_admin, booking.lending_admin)
    assert {who: sent[who, "email"] for who in people} == dict.fromkeys(people, T00)
    assert [sent[who, "sms"] for who in people] == [seven, seven, T00]  # it is 09:45 in Nepal
    assert town.texts("worker_released") == {
        f"Booking {booking.id} ended due to non-payment. Worker released effective 2026-06-07."
    }


@pytest.mark.rule("STAFF-14.01", "STAFF-14.03", "STAFF-14.09")
def test_asking_writes_a_request_and_each_channel_is_delivered_alone_and_once(town: Town) -> None:
    town.only(at=THREE)
    admin = town.user(town.company("Borrower"), "Admin")

    def ask(occurrence: datetime = THREE, booking: int = 7) -> None:
        about = {"ID": booking, "booking_id": booking}
        town.desk.tell(town.conn, "final_warning", [admin, admin], about, occurrence=occurrence)

    with town.conn.transaction(force_rollback=True):
        ask()
        assert len(town.messages()) == 2
    assert town.messages() == []

    town.sandbox.faults.set(Fault(provider="twilio", kind="error"))
    with town.conn.transaction():
        ask()
        ask()
    assert town.messages() == [("final_warning", admin, channel, "Queued") for channel in ("email", "sms")]
    assert (town.sms(), town.sandbox.ledger.find("mail")) == ([], [])  # nobody was called

    town.mainspring.drain(raise_errors=False)
    assert town.messages() == [("final_warning", admin, "email", "Sent"), ("final_warning", admin, "sms", "Queued")]
    town.sandbox.faults.clear()
    town.mainspring.advance(minutes=2)
    with town.conn.transaction():
        ask()  # a retry of who asked
        ask(THREE + 7 * timedelta(days=1))
        ask(booking=8)
    town.mainspring.drain()
    assert (len(town.sms()), len(town.sandbox.ledger.find("mail"))) == (3, 3)


@pytest.mark.rule("STAFF-14.05", "STAFF-9.31", "STAFF-10.29", "STAFF-3.22")
def test_no_message_that_fails_undoes_what_was_done(town: Town) -> None:
    town.only()
    _, shift = submitted(town)
    for provider in ("twilio", "smtp"):
        town.sandbox.faults.set(Fault(provider=provider, kind="error"))
    disputed = town.booking(shifts=1)
    contested = town.shift(disputed, date(2026, 6, 1), status="Pending_Verification", auto_approval_time=at("23:00"))
    with town.conn.transaction():
        disputes.file_dispute(town.desk, town.conn, contested, option="A", by=disputed.borrowing_admin)
    town.mainspring.clock.set(town.now + 4 * HOUR)
    town.mainspring.drain(raise_errors=False)
    unpaid, stopped = town.booking(shifts=1), town.booking()
    tried(town, unpaid, created_at=T00 - 14 * HOUR)
    town.mainspring.clock.set(T00)
    town.mainspring.run_one(cutoff.cut_off.job(booking_id=unpaid.id, instant=T00))
    policy = town.value("select id from staffing.insurance_policies where company_id = %s", stopped.lender)
    with town.conn.transaction():
        insurance.deactivate_insurance(town.desk, town.conn, policy, by=stopped.lending_admin)
    town.mainspring.drain(raise_errors=False)

    assert town.shift_status(shift) == "Verified"
    assert (town.shift_status(disputed.shifts[0]), town.status(disputed)) == ("Cancelled", "Active")
    assert [town.status(booking) for booking in (unpaid, stopped)] == ["Completed", "Suspended_Insurance"]
    asked = [(kind, status) for kind, _, _, status in town.messages() if not kind.startswith("ladder")]
    assert {kind for kind, _ in asked} == {
        "auto_approved", "unpaid_dispute_filed", "dispute_timeout", "worker_released", "insurance_stop",
    }  # fmt: skip
    assert len(asked) == 1 + 8 + 6 + 6 + 12
    assert {status for _, status in asked} <= {"Queued", "Deferred"}
    assert (town.sms(), town.sandbox.ledger.find("mail")) == ([], [])


@pytest.mark.rule("STAFF-14.12")
def test_without_a_supervisor_the_borrowing_admin_hears_it_once(town: Town) -> None:
    town.only()
    booking, _ = submitted(town, supervisor_id=None)
    town.mainspring.advance(hours=4)

    for kind in ("ladder_0", "ladder_60m", "ladder_3h"):
        assert told(town, kind) == [(booking.borrowing_admin, "sms", "Sent")]


@pytest.mark.rule("STAFF-14.13", "STAFF-14.10")
def test_words_stay_as_they_are_where_circumstances_make_them_inexact_and_the_label_is_the_title(town: Town) -> None:
    town.only()
    booking, shift = submitted(town)
    town.mainspring.advance(hours=3, minutes=30)
    assert booking.supervisor is not None
    with town.conn.transaction():
        shifts.edit_timesheet(town.desk, town.conn, shift, end=at("16:00"), by=booking.supervisor)
    town.mainspring.advance(hours=1, minutes=29)
    assert town.messages("auto_approved") == []
    town.mainspring.advance(minutes=1)  # T+5h,
    assert town.messages("auto_approved") == [("auto_approved", booking.worker_user, "sms", "Deferred")]
    town.mainspring.advance(hours=9)  # and the morning after

    assert town.rows("select title, message from staffing.notification_log where kind = 'auto_approved'") == [(
        "Timesheet auto-approved",
        "Timesheet auto-approved after 4 hours. Supervisor did not verify within required timeframe.",
    )]  # fmt: skip
