from __future__ import annotations

from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest
from tests.apps.staffing.town import NEXT_WEEK, NY, T00, W14, Town
from tests.apps.staffing.wednesday import MINUTE, SECOND, at, deliver, pending, tried

from mainspring_apps.staffing.payments import warning
from mainspring_apps.staffing.rules import cutoff as rules
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.settings import Settings
from mainspring_sandbox import Fault


def warned(town: Town) -> list[int]:
    """The bookings that were warned, each once for every channel."""
    query = (
        "select (data ->> 'booking_id')::bigint, channel from mainspring.notification where template = 'final_warning'"
    )
    found = sorted(town.rows(query))
    assert [channel for _, channel in found] == ["email", "sms"] * (len(found) // 2)
    return [booking for booking, channel in found if channel == "sms"]


@pytest.mark.rule("STAFF-2.01")
@pytest.mark.parametrize(
    ("zone", "instant"),
    [(NY, W14), ("Asia/Kolkata", at("2026-06-03T08:30")), ("Asia/Kathmandu", at("2026-06-03T08:15"))],
)
def test_it_comes_on_wednesday_at_14_where_the_project_is(town: Town, zone: str, instant: datetime) -> None:
    booking = town.booking(zone=zone)
    town.mainspring.clock.set(instant - SECOND)
    tried(town, booking)
    town.mainspring.drain()
    assert warned(town) == []

    town.mainspring.advance(to=instant)
    assert warned(town) == [booking.id]
    (job,) = town.rows("select queue, payload from mainspring.jobs where task = 'warn_unpaid'")
    assert job[0] == "weekly-final-warning"
    assert job[1]["booking_id"] == booking.id


@pytest.mark.rule("STAFF-2.02", "STAFF-2.03", "STAFF-2.04", "STAFF-2.05")
def test_only_active_weekly_bookings_without_the_next_week_are_warned(town: Town) -> None:
    first = town.booking(funded_period_end=NEXT_WEEK[0])
    same: dict[str, Any] = {"borrower": first.borrower, "lender": first.lender, "worker": first.worker}
    never = town.booking(**same, funded_period_end=None)
    others = [town.booking(**same, funded_period_end=NEXT_WEEK[1]), town.booking(**same, payment_type="Upfront")]
    stopped = ("Payment_Paused_Dispute", "Cancelled", "Completed", "Disputed")
    others += [town.booking(**same, status=status) for status in stopped]
    others.append(town.booking(**same, status="Suspended_Insurance", status_before_suspension="Active"))
    town.mainspring.clock.set(W14 - SECOND)
    for booking in (first, never, *others):
        tried(town, booking)
    town.mainspring.drain()

    town.mainspring.advance(to=W14)

    assert warned(town) == [first.id, never.id]
    assert town.value("select count(*) from mainspring.jobs where task = 'warn_unpaid'") == 2


@pytest.mark.rule("STAFF-2.02", "STAFF-2.03", "STAFF-3.05")
@pytest.mark.parametrize(
    ("instant", "funded", "unpaid"),
    [
        (W14, None, True),
        (W14, NEXT_WEEK[0], True),
        (W14, NEXT_WEEK[1] - SECOND, True),
        (W14, NEXT_WEEK[1], False),
        (T00, NEXT_WEEK[0], True),
        (T00, NEXT_WEEK[1], False),
        # Weeks of 169 and 167 hours, on Wednesday and at a cutoff that was moved to Monday.
        (at("2026-10-21T18:00"), at("2026-11-02T05:00"), False),
        (at("2026-10-21T18:00"), at("2026-10-26T04:00"), True),
        (at("2026-03-02T05:00"), at("2026-03-09T04:00"), False),
        (at("2026-03-02T05:00"), at("2026-03-02T05:00"), True),
    ],
)
def test_unpaid_is_what_ends_before_the_due_week_does(instant: datetime, funded: datetime | None, unpaid: bool) -> None:
    standing = rules.Standing(status="Active", payment_type="Weekly_Progress", funded_period_end=funded)
    assert rules.unpaid(standing, weeks.due_week(instant, NY, Settings())) is unpaid
    upfront = rules.Standing(status="Active", payment_type="Upfront", funded_period_end=funded)
    assert not rules.unpaid(upfront, weeks.due_week(instant, NY, Settings()))


@pytest.mark.rule("STAFF-2.06", "STAFF-20.16")
@pytest.mark.parametrize(
    ("payment", "heard", "step"),
    [
        (None, False, "wait"),  # nobody has asked for money yet
        ("Pending", False, "wait"),
        ("Pending", True, "warn"),
        ("Failed", True, "warn"),
        ("Failed", False, "warn"),  # there was no card
    ],
)
def test_who_was_never_asked_by_anybody_who_answers_is_not_warned(payment: str | None, heard: bool, step: str) -> None:
    about: dict[str, Any] = {"status": "Active", "payment_type": "Weekly_Progress", "payment": payment, "heard": heard}
    due = weeks.due_week(W14, NY, Settings())
    assert rules.warning(rules.Standing(**about, funded_period_end=None), due) == step
    assert rules.warning(rules.Standing(**about, funded_period_end=due.end), due) == "skip"


@pytest.mark.rule("STAFF-2.07", "STAFF-2.08", "STAFF-2.09", "STAFF-2.10")
def test_the_borrowing_admin_reads_the_exact_text_once_by_sms_and_email(town: Town) -> None:
    booking = town.booking()
    town.mainspring.clock.set(W14 - SECOND)
    tried(town, booking)
    town.mainspring.advance(to=W14)
    town.mainspring.clock.set(W14 + 30 * MINUTE)  # as a retry comes later
    town.mainspring.run_one(warning.warn_unpaid.job(booking_id=booking.id, instant=W14))
    town.mainspring.drain()

    admin = booking.borrowing_admin
    assert town.messages() == [("final_warning", admin, "email", "Sent"), ("final_warning", admin, "sms", "Sent")]
    assert town.texts("final_warning") == {
        f"Payment required for booking {booking.id}. Final warning - payment must be completed by end of day Wednesday "
        "to avoid worker release."
    }
    assert len(town.sms()) == 1


@pytest.mark.rule("STAFF-2.06")
def test_a_payment_under_way_is_warned_of_unless_the_provider_says_that_it_has_come(town: Town) -> None:
    came, processing, unknown = (town.booking(shifts=1) for _ in range(3))
    town.mainspring.clock.set(W14 - 10 * MINUTE)
    pending(town, came, "pm_card_visa")
    pending(town, processing)
    for booking in (came, processing):
        town.mainspring.run_one(warning.warn_unpaid.job(booking_id=booking.id, instant=W14))
    assert warned(town) == [processing.id]
    assert town.row("bookings", came.id)["funded_period_end"] == NEXT_WEEK[1]

    pending(town, unknown)
    town.sandbox.faults.set(Fault(provider="stripe", kind="error"))
    run = town.mainspring.run_one(warning.warn_unpaid.job(booking_id=unknown.id, instant=W14))
    assert warned(town) == [processing.id]  # nobody knows whether it is paid
    town.sandbox.faults.clear()
    town.mainspring.clock.set(W14 + 10 * MINUTE)
    town.mainspring.run_one(run.job.id)
    assert warned(town) == [processing.id, unknown.id]


@pytest.mark.rule("STAFF-2.11", "STAFF-2.12")
def test_an_sms_that_cannot_be_delivered_is_tried_ever_later_then_a_person_is_asked(town: Town) -> None:
    booking = town.booking()
    admin = booking.borrowing_admin
    town.mainspring.clock.set(W14)
    tried(town, booking)
    town.sandbox.faults.set(Fault(provider="twilio", kind="error"))
    town.mainspring.run_one(warning.warn_unpaid.job(booking_id=booking.id, instant=W14))

    tries = deliver(town)

    gaps = [(later - sooner).total_seconds() for sooner, later in pairwise(tries)]
    assert len(tries) == 6
    assert gaps == sorted(gaps)
    assert 24 <= gaps[0] <= 36
    assert town.messages() == [("final_warning", admin, "email", "Sent"), ("final_warning", admin, "sms", "Failed")]
    assert [text for _, text in town.wrong("final_warning_delivery")] == [f"final_warning to user {admin} by sms"]
    assert [(*labels, float(rate)) for *labels, rate in town.measured("staffing_delivery_rate")] == [
        ("final_warning", "email", 1.0),
        ("final_warning", "sms", 0.0),
    ]

    town.sandbox.faults.clear()
    ((dead,),) = town.rows("select id from mainspring.dead_letters")
    town.mainspring.client.replay(dead, reason="the provider is back")
    deliver(town)
    assert town.wrong("final_warning_delivery") == []
