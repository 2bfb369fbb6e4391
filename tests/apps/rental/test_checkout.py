"""A paid checkout confirms its booking with three jobs; other money is listed and told of."""

from __future__ import annotations

from typing import Any

import pytest
from tests.apps.rental.yard import Yard

from mainspring_apps.rental import checkout, rounds

KINDS = {"issue_invoice", "send_customer_confirmation", "send_internal_confirmation"}


@pytest.mark.rule("RENT-1.02", "RENT-2.01", "RENT-2.05", "RENT-2.06", "RENT-3.02")
def test_a_paid_session_confirms_and_creates_exactly_three_jobs_at_once(yard: Yard) -> None:
    booking = yard.book()
    row = yard.row(booking)
    assert row["status"] == "PENDING"
    assert [row[name] for name in ("invoice_number", "invoice_pdf_url", "confirmation_email_sent_at")] == [None] * 3

    yard.pay(booking)

    assert (yard.row(booking)["status"], yard.row(booking)["stripe_payment_intent_id"]) == (
        "CONFIRMED",
        f"pi_{booking}",
    )
    jobs = yard.jobs(booking)
    assert {type_: job["payload"] for type_, job in jobs.items()} == {
        "issue_invoice": {"stripePaymentIntentId": f"pi_{booking}"},
        "send_customer_confirmation": {}, "send_internal_confirmation": {},
    }  # fmt: skip
    assert {(job["status"], job["attempts"], job["max_attempts"]) for job in jobs.values()} == {("pending", 0, 3)}
    assert {job["created_at"] for job in jobs.values()} == {yard.mainspring.now()}
    assert set(yard.rows("select distinct org_id from mainspring.job where task = any(%s)", list(KINDS))) == {
        ("rental",)
    }


@pytest.mark.rule("RENT-2.03", "RENT-3.06", "RENT-1.05")
def test_the_same_event_again_changes_nothing(yard: Yard) -> None:
    booking = yard.book()
    event = yard.pay(booking)
    yard.drain()
    before = yard.jobs(booking)
    assert {job["status"] for job in before.values()} == {"completed"}

    with yard.conn.transaction():
        assert checkout.take(yard.desk, yard.conn, event) is None
        again = yard.event(booking)  # another event of the same payment
        assert checkout.take(yard.desk, yard.conn, again) is None

    assert yard.jobs(booking) == before
    assert yard.alerts() == []


@pytest.mark.rule("RENT-2.04")
def test_a_failure_in_the_creation_of_jobs_leaves_the_booking_pending(
    yard: Yard, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = yard.book()

    def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("no jobs today")

    with monkeypatch.context() as patched:
        patched.setattr(rounds, "start", broken)
        with pytest.raises(RuntimeError):
            yard.pay(booking)

    assert yard.row(booking)["status"] == "PENDING"
    assert yard.value("select count(*) from rental.stripe_events") == 0  # it is taken when it comes again
    yard.pay(booking)
    assert yard.row(booking)["status"] == "CONFIRMED"


@pytest.mark.rule("RENT-2.09")
def test_an_unpaid_session_waits_for_the_event_that_it_is_paid(yard: Yard) -> None:
    booking = yard.book()

    yard.pay(booking, payment_status="unpaid")
    assert (yard.row(booking)["status"], yard.alerts()) == ("PENDING", [])

    yard.pay(booking, type_="checkout.session.async_payment_succeeded")
    assert yard.row(booking)["status"] == "CONFIRMED"


@pytest.mark.rule("RENT-2.10", "RENT-20.11")
@pytest.mark.parametrize("changes", [{"amount_total": 12_299}, {"amount_total": 12_301}, {"currency": "usd"}])
def test_another_amount_or_currency_confirms_nothing_and_is_to_be_settled(yard: Yard, changes: dict[str, Any]) -> None:
    booking = yard.book()

    yard.pay(booking, **changes)

    assert (yard.row(booking)["status"], yard.jobs(booking)) == ("PENDING", {})
    assert yard.alerts() == [("payment_mismatch", f"pi_{booking}")]
    assert yard.rows("select payment_intent, booking_id, reason from rental.to_settle") == [
        (f"pi_{booking}", booking, "PAYMENT_MISMATCH")
    ]


@pytest.mark.rule("RENT-2.11", "RENT-2.12", "RENT-1.03", "RENT-20.11")
def test_money_for_no_booking_a_second_time_or_too_late_is_told_of_once(yard: Yard) -> None:
    confirmed, expired = yard.paid(), yard.book()
    yard.conn.execute("update rental.bookings set status = 'EXPIRED' where id = %s", [expired])
    jobs = yard.jobs(confirmed)

    for _ in range(2):
        yard.pay(987_654)
        yard.pay(confirmed, payment_intent="pi_second")
        yard.pay(expired)
    yard.pay(0, client_reference_id="somebody else's", payment_intent="pi_foreign")

    assert yard.alerts() == [
        ("late_payment", f"pi_{expired}"), ("second_payment", "pi_second"), ("unknown_booking", "pi_987654"),
        ("unknown_booking", "pi_foreign"),
    ]  # fmt: skip
    assert yard.value("select count(*) from rental.to_settle where settled_at is null") == 4
    assert yard.row(expired)["status"] == "EXPIRED"
    assert yard.jobs(confirmed) == jobs
