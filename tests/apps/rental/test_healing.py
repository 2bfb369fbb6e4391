"""Outages heal without a person, evenings tell of what lacks its invoice, and refunds of the dashboard are found."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.apps.rental.test_invoices import DOCUMENTS, error
from tests.apps.rental.yard import Yard

from mainspring_apps.rental.rules import healing

DAY = timedelta(days=1)


@pytest.mark.rule("RENT-20.22")
def test_work_is_created_again_after_five_minutes_and_later_at_most_within_half_an_hour() -> None:
    said = [healing.distance(times) for times in range(40)]
    assert said[0] == timedelta(minutes=5)
    assert said == sorted(said)
    assert said[-1] + timedelta(minutes=5) < timedelta(minutes=30)
    assert healing.PASSING.isdisjoint({"INVOICE_REJECTED", "VALIDATION_ERROR", "EMAIL_ADDRESS_INVALID"})


@pytest.mark.rule("RENT-20.22", "RENT-20.21")
@pytest.mark.parametrize("away", [0, 12])
def test_one_booking_gets_its_invoice_within_half_an_hour_of_the_return(yard: Yard, away: int) -> None:
    yard.fault("vendus", "error")
    booking = yard.paid()
    yard.go_on(minutes=5)
    yard.jump(hours=away)
    assert yard.row(booking)["invoice_number"] is None
    evening = away >= 12
    assert (("invoice_overdue", f"booking {booking}") in yard.alerts()) is evening

    yard.sandbox.faults.clear("vendus")
    yard.go_on(minutes=30)

    assert yard.row(booking)["invoice_number"] is not None
    assert {job["status"] for job in yard.jobs(booking).values()} == {"completed"}
    assert (yard.posts(), yard.alerts()) == (1, [])


@pytest.mark.rule("RENT-20.22")
@pytest.mark.parametrize(
    ("provider", "fault", "kind"),
    [
        ("vendus", {"status": 422, **DOCUMENTS}, "issue_invoice"),
        ("resend", {"status": 403}, "send_customer_confirmation"),
    ],
)
def test_what_failed_for_good_waits_for_a_person(yard: Yard, provider: str, fault: dict[str, Any], kind: str) -> None:
    yard.fault(provider, "error", **fault)
    booking = yard.paid()
    yard.drain()
    before = error(yard, booking, kind)
    yard.sandbox.faults.clear(provider)
    yard.go_on(minutes=20)
    assert (yard.jobs(booking)[kind]["status"], error(yard, booking, kind)) == ("failed", before)


@pytest.mark.rule("RENT-20.22")
def test_a_mail_is_tried_until_the_rental_ends(yard: Yard) -> None:
    booking = yard.paid()
    yard.fault("resend", "error")
    yard.drain()
    yard.mainspring.clock.set(yard.mainspring.now() + 7 * DAY)
    yard.sandbox.faults.clear("resend")
    yard.go_on(minutes=10)
    jobs = yard.jobs(booking)
    assert jobs["send_customer_confirmation"]["status"] == "completed"
    assert jobs["send_customer_confirmation"]["result"] == {"skipped": "RENTAL_OVER"}


@pytest.mark.rule("RENT-20.16")
def test_a_refund_of_the_dashboard_that_no_event_told_of_is_found_within_a_day(yard: Yard) -> None:
    booking = yard.paid_at_stripe()
    yard.drain()
    yard.sandbox.stripe.refund(yard.row(booking)["stripe_payment_intent_id"], amount=2000)
    yard.jump(days=1)
    assert yard.rows("select state, amount_minor from rental.refunds") == [("done", 2000)]
    assert ("refunded_outside", f"booking {booking}") in yard.alerts()
    yard.jump(days=1)
    assert yard.value("select count(*) from rental.refunds") == 1
