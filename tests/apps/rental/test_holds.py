"""Holds: they end with the payment, with the page, or by themselves, and Stripe is asked before."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from tests.apps.rental.yard import ADA, OLGA, Yard

from mainspring_apps.frame.refusal import NotAllowed, Refused
from mainspring_apps.rental import holds, pages, settling
from mainspring_apps.rental.rules.holds import Held, ending

AT = datetime(2026, 6, 1, 12, tzinfo=UTC)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)


def held(**changes: Any) -> Held:
    about: dict[str, Any] = {
        "status": "PENDING", "held_until": AT, "paid": False, "waits_since": None, "ended": False, "disputed": False,
    }  # fmt: skip
    return Held(**about | changes)


def page(yard: Yard, booking: int) -> str:
    """Open the page of a booking at the sandbox; its id."""
    pages.open_page(yard.desk, booking)
    return str(yard.row(booking)["stripe_session_id"])


def hint(yard: Yard, session: str, *, failed: bool = False) -> None:
    with yard.conn.transaction():
        yard.desk.enqueue(yard.conn, holds.look_at_session.job(session_id=session, failed=failed))
    yard.drain()


@pytest.mark.rule("RENT-20.07", "RENT-20.12")
@pytest.mark.parametrize(
    ("changes", "now", "becomes"),
    [
        ({}, AT - DAY, "leave"), ({}, AT, "expire"), ({"ended": True}, AT - HOUR, "expire"),
        ({"paid": True}, AT + DAY, "paid"), ({"paid": True, "status": "EXPIRED"}, AT, "paid"),
        ({"status": "CONFIRMED", "ended": True}, AT, "leave"), ({"status": "CANCELLED"}, AT, "leave"),
        ({"waits_since": AT - HOUR}, AT, AT - HOUR + 8 * DAY), ({"waits_since": AT - 8 * DAY}, AT, "expire"),
        ({"disputed": True}, AT + DAY, AT + DAY + HOUR), ({"disputed": True, "ended": True}, AT, AT + HOUR),
    ],
)  # fmt: skip
def test_a_hold_ends_with_its_payment_its_page_or_the_last_day_of_a_voucher(
    changes: dict[str, Any], now: datetime, becomes: object
) -> None:
    assert ending(held(**changes), now, 8) == becomes


@pytest.mark.rule("RENT-20.06", "RENT-20.11")
def test_a_page_is_open_as_long_as_the_hold_and_a_new_one_closes_the_older(yard: Yard) -> None:
    booking = yard.book()
    first = page(yard, booking)
    session = yard.desk.stripe.sync.session(first)
    assert session is not None
    assert (session.expires_at, session.reference, session.amount.minor) == (
        yard.row(booking)["held_until"], str(booking), 12_300,
    )  # fmt: skip

    second = page(yard, booking)
    states = [yard.desk.stripe.sync.session(one) for one in (first, second)]
    assert [one.status for one in states if one is not None] == ["expired", "open"]
    yard.jump(hours=2)
    with pytest.raises(Refused, match="is not held any more"):
        pages.open_page(yard.desk, booking)


@pytest.mark.rule("RENT-20.06")
def test_a_page_that_is_opened_late_keeps_the_hold_for_as_long_as_stripe_needs(yard: Yard) -> None:
    booking = yard.book()
    yard.go_on(minutes=45)
    session = yard.desk.stripe.sync.session(page(yard, booking))
    assert session is not None
    assert session.expires_at == yard.row(booking)["held_until"] == yard.mainspring.now() + timedelta(minutes=31)
    yard.go_on(minutes=20)
    assert yard.row(booking)["status"] == "PENDING"
    yard.go_on(minutes=12)
    assert yard.row(booking)["status"] == "EXPIRED"


@pytest.mark.rule("RENT-20.07", "RENT-1.03")
def test_a_hold_that_nobody_paid_expires_silently_and_frees_its_machine(yard: Yard) -> None:
    booking = yard.book(machine=yard.machine)
    session = page(yard, booking)

    yard.go_on(minutes=59)
    assert yard.row(booking)["status"] == "PENDING"
    yard.go_on(minutes=2)

    assert (yard.row(booking)["status"], yard.mails()) == ("EXPIRED", [])
    closed = yard.desk.stripe.sync.session(session)
    assert closed is not None
    assert closed.status == "expired"
    yard.book(machine=yard.machine)


@pytest.mark.rule("RENT-20.07", "RENT-20.09")
def test_a_paid_page_whose_webhook_was_lost_confirms_when_the_hold_ends(yard: Yard) -> None:
    booking = yard.book()
    yard.sandbox.stripe.settle(page(yard, booking), "succeeded")

    yard.go_on(minutes=61)

    assert yard.row(booking)["status"] == "CONFIRMED"
    assert {job["status"] for job in yard.jobs(booking).values()} == {"completed"}


@pytest.mark.rule("RENT-20.07")
def test_while_stripe_cannot_be_asked_nothing_expires(yard: Yard) -> None:
    booking = yard.book()
    yard.sandbox.stripe.settle(page(yard, booking), "succeeded")
    yard.fault("stripe", "error")

    yard.jump(hours=3)
    assert yard.row(booking)["status"] == "PENDING"

    yard.sandbox.faults.clear("stripe")
    yard.jump(hours=1)
    assert yard.row(booking)["status"] == "CONFIRMED"


@pytest.mark.rule("RENT-20.07", "RENT-2.09")
def test_a_voucher_keeps_the_hold_until_it_fails_and_that_is_told_once(yard: Yard) -> None:
    booking = yard.book()
    with yard.settings(payment_methods=("card", "multibanco")):
        session = page(yard, booking)
    yard.sandbox.stripe.settle(session, "succeeded", method="multibanco")
    hint(yard, session)
    yard.jump(hours=2)
    assert yard.row(booking)["status"] == "PENDING"

    yard.sandbox.stripe.settle(session, "failed")
    for _ in range(2):
        hint(yard, session, failed=True)

    assert yard.row(booking)["status"] == "EXPIRED"
    assert [mail["subject"] for mail in yard.mails()] == ["Your payment did not come"]


@pytest.mark.rule("RENT-20.11")
def test_an_older_page_that_expires_takes_nothing_from_the_newer_one(yard: Yard) -> None:
    booking = yard.book()
    first, second = page(yard, booking), page(yard, booking)
    hint(yard, first)
    assert yard.row(booking)["status"] == "PENDING"
    yard.sandbox.stripe.settle(second, "succeeded")
    hint(yard, second)
    assert yard.row(booking)["status"] == "CONFIRMED"


@pytest.mark.rule("RENT-11.02", "RENT-20.09")
def test_payments_that_no_event_told_of_are_found_within_an_hour_and_told_of_once(yard: Yard) -> None:
    with yard.settings(hold_minutes=1440):
        lost = [yard.book() for _ in range(2)]
    for booking in lost:
        yard.sandbox.stripe.settle(page(yard, booking), "succeeded")

    yard.drain()
    yard.jump(hours=1, minutes=1)

    assert {yard.row(booking)["status"] for booking in lost} == {"CONFIRMED"}
    assert yard.alerts() == [("webhook_silent", "stripe")]
    assert yard.posts() == 2
    yard.jump(hours=2)
    assert (yard.alerts(), yard.posts()) == ([("webhook_silent", "stripe")], 2)


@pytest.mark.rule("RENT-20.10")
def test_a_late_payment_confirms_and_is_invoiced_but_nobody_is_told_to_come(yard: Yard) -> None:
    with yard.settings(hold_minutes=1440):
        booking = yard.book(start_date=date(2026, 6, 1), end_date=date(2026, 6, 2))
    yard.conn.execute("update mainspring.waiting set due_at = 'infinity'")  # the timer of its hold never came
    yard.mainspring.clock.set(AT + 3 * DAY)

    yard.pay(booking)
    yard.drain()

    jobs = yard.jobs(booking)
    assert (yard.row(booking)["status"], yard.posts()) == ("CONFIRMED", 1)
    assert jobs["send_customer_confirmation"]["result"] == {"skipped": "RENTAL_OVER"}
    assert ("rental_over", f"booking {booking}") in yard.alerts()
    assert "Your booking is confirmed" not in {mail["subject"] for mail in yard.mails()}


@pytest.mark.rule("RENT-20.11", "RENT-20.12", "RENT-20.03")
def test_another_amount_is_accepted_by_an_admin_or_settled_elsewhere(yard: Yard) -> None:
    booking, other = yard.book(), yard.book()
    yard.pay(booking, amount_total=9000)
    yard.pay(other, amount_total=9000, currency="usd")
    rows = dict(yard.rows("select booking_id, id from rental.to_settle"))
    yard.jump(hours=3)
    assert yard.row(booking)["status"] == "PENDING"  # it does not expire while nobody has said

    with pytest.raises(NotAllowed, match="a operator may not accept_payment"):
        settling.accept_payment(yard.desk, yard.conn, rows[booking], reason="agreed", by=OLGA)
    with pytest.raises(Refused, match="can only be given back"):
        settling.accept_payment(yard.desk, yard.conn, rows[other], reason="agreed", by=ADA)
    with yard.conn.transaction():
        settling.accept_payment(yard.desk, yard.conn, rows[booking], reason="agreed", by=ADA)
        settling.settle(yard.desk, yard.conn, rows[other], reason="given back by hand", by=ADA)
        with pytest.raises(Refused, match="is settled"):
            settling.settle(yard.desk, yard.conn, rows[other], reason="again", by=ADA)
    yard.drain()

    assert (yard.row(booking)["status"], yard.row(booking)["total_minor"]) == ("CONFIRMED", 9000)
    assert yard.value("select gross_minor from rental.invoices where booking_id = %s", booking) == 9000
    assert yard.alerts() == []
    assert yard.value("select count(*) from rental.to_settle where settled_at is null") == 0


@pytest.mark.rule("RENT-20.11")
def test_a_second_payment_is_listed_and_never_invoiced(yard: Yard) -> None:
    booking = yard.paid()
    yard.pay(booking, payment_intent="pi_second")
    yard.drain()
    assert yard.posts() == 1
    assert yard.rows("select payment_intent, reason from rental.to_settle where settled_at is null") == [
        ("pi_second", "SECOND_PAYMENT")
    ]
