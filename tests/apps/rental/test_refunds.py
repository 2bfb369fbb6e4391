"""Refunds, cancellations and credit notes: never more than was paid, once each, and each with its document."""

from __future__ import annotations

import random
import threading
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.apps.rental.yard import ADA, OLGA, Yard

from mainspring.contrib.vendus import vat_of
from mainspring_apps.frame.refusal import NotAllowed, Refused
from mainspring_apps.rental import checkout, pages, refunds, repair
from mainspring_apps.rental.rules import refunds as rules

START = date(2026, 6, 6)
DOCUMENTS = {"method": "POST", "path": "/v1.1/documents/"}


def given_back(yard: Yard) -> list[int]:
    """What went back at Stripe, each."""
    return sorted(entry.body["amount"] for entry in yard.sandbox.ledger.find("stripe.refund"))


def notes(yard: Yard) -> list[dict[str, Any]]:
    return [paper for paper in yard.invoices() if paper["type"] == "NC"]


def ask(yard: Yard, booking: int, amount: int, by: Any = ADA) -> int:
    with yard.conn.transaction():
        return refunds.refund(yard.desk, yard.conn, booking, amount_minor=amount, reason="it rained", by=by)


@pytest.mark.rule("RENT-20.13")
def test_everything_is_proposed_to_go_back_with_48_hours_and_nothing_a_second_later() -> None:
    at = datetime(2026, 6, 5, 23, tzinfo=UTC) - timedelta(hours=48)  # the day begins an hour earlier in Lisbon
    assert rules.proposal(START, "Europe/Lisbon", at, 12_300, 48) == 12_300
    assert rules.proposal(START, "Europe/Lisbon", at + timedelta(seconds=1), 12_300, 48) == 0


@pytest.mark.rule("RENT-20.18")
def test_credit_notes_of_any_split_bring_net_and_vat_to_zero() -> None:
    left, said = vat_of(10_000), []
    for gross in (3333, 3333, 3334):
        net, vat = rules.credited(gross, 2300, left)
        left = (left[0] - net, left[1] - vat)
        said.append((net, vat))
    assert (left, sum(net for net, _ in said), sum(vat for _, vat in said)) == ((0, 0), 8130, 1870)
    for _ in range(1000):
        rest = left = vat_of(random.randint(1, 1_000_000))
        while sum(rest):
            gross = random.randint(1, sum(rest))
            net, vat = rules.credited(gross, 2300, rest)
            assert net + vat == gross
            rest = (rest[0] - net, rest[1] - vat)
        assert rest == (0, 0), left


@pytest.mark.rule("RENT-20.14")
@pytest.mark.parametrize(
    ("state", "keeps", "invoicing", "refused"),
    [
        (None, True, True, True), (None, False, True, False), ("reserved", False, True, True),
        ("unknown", False, True, True), ("issued", True, True, False), ("issued", False, True, False),
        (None, True, False, False), ("reserved", True, False, False),
    ],
)  # fmt: skip
def test_no_money_is_kept_without_a_document(state: str | None, keeps: bool, invoicing: bool, refused: bool) -> None:
    if not refused:
        rules.check_documented(state, keeps_money=keeps, invoicing=invoicing)
        return
    with pytest.raises(Refused, match="INVOICE_FIRST"):
        rules.check_documented(state, keeps_money=keeps, invoicing=invoicing)


@pytest.mark.rule("RENT-20.15", "RENT-20.17", "RENT-20.01")
def test_a_refund_goes_back_once_and_gets_one_credit_note_that_names_its_invoice(yard: Yard) -> None:
    booking = yard.paid_at_stripe()
    yard.drain()

    ask(yard, booking, 3333)
    yard.drain()

    (note,) = notes(yard)
    assert given_back(yard) == [3333]
    assert yard.rows("select state, gross_minor, net_minor, vat_minor from rental.credit_notes") == [
        ("issued", 3333, 2710, 623)
    ]
    assert yard.row(booking)["invoice_number"] in str(note["related_docs"])
    assert (yard.row(booking)["status"], len(yard.jobs(booking)), yard.alerts()) == ("CONFIRMED", 4, [])
    mail = next(mail for mail in yard.mails() if "credit note" in mail["subject"])
    assert "/api/credits/1/pdf?t=" in mail["text"]

    ask(yard, booking, 12_300 - 3333)
    yard.drain()
    assert yard.rows("select sum(net_minor), sum(vat_minor) from rental.credit_notes") == [(10_000, 2_300)]


@pytest.mark.rule("RENT-20.15")
def test_of_two_refunds_at_once_that_exceed_the_payment_one_is_refused(yard: Yard) -> None:
    booking = yard.paid_at_stripe()
    ready, said = threading.Barrier(2), []

    def one() -> None:
        with psycopg.connect(yard.mainspring.dsn) as conn:
            ready.wait()
            try:
                refunds.refund(yard.desk, conn, booking, amount_minor=7000, reason="", by=ADA)
                said.append("asked")
            except Refused as refused:
                said.append(refused.field or "")

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["amount_minor", "asked"]
    assert yard.value("select sum(amount_minor) from rental.refunds") == 7000


@pytest.mark.rule("RENT-20.15", "RENT-20.17")
def test_a_lost_answer_repeats_neither_refund_nor_credit_note(yard: Yard) -> None:
    booking = yard.paid_at_stripe()
    yard.drain()
    yard.fault("stripe", "drop", times=1, method="POST", path="/refunds")
    yard.fault("vendus", "drop", times=1, **DOCUMENTS)

    ask(yard, booking, 5000)
    yard.drain()
    yard.go_on(minutes=10)

    assert (given_back(yard), len(notes(yard))) == ([5000], 1)
    assert yard.rows(
        "select r.state, c.state from rental.refunds r join rental.credit_notes c on c.refund_id = r.id"
    ) == [("done", "issued")]


@pytest.mark.rule("RENT-20.03", "RENT-20.15")
def test_an_operator_gives_back_up_to_a_limit_of_a_booking_and_an_admin_more(yard: Yard) -> None:
    booking = yard.paid_at_stripe(total_minor=90_000)
    for amount in (50_001, 90_001, 0):
        with pytest.raises(Refused):
            ask(yard, booking, amount, OLGA)
    ask(yard, booking, 50_000, OLGA)
    with pytest.raises(NotAllowed, match="ask an admin"):
        ask(yard, booking, 1, OLGA)
    ask(yard, booking, 40_000, ADA)
    assert yard.value("select sum(amount_minor) from rental.refunds") == 90_000


@pytest.mark.rule("RENT-20.15")
def test_a_refund_that_stripe_reports_as_failed_later_was_not_given_back(yard: Yard) -> None:
    booking = yard.paid_at_stripe()
    yard.drain()
    refund = ask(yard, booking, 12_300)
    yard.drain()
    made = yard.value("select stripe_refund_id from rental.refunds")
    yard.sandbox.ledger.change("stripe.refund", made, status="failed", failure_reason="expired_or_canceled_card")

    with yard.conn.transaction():
        yard.desk.enqueue(yard.conn, refunds.look_at_refund.job(refund=made))
    yard.drain()

    assert yard.value("select state from rental.refunds where id = %s", refund) == "failed"
    assert yard.alerts() == [("refund_failed", f"refund {refund}")]
    ask(yard, booking, 12_300)  # it is there to be given back again


@pytest.mark.rule("RENT-20.16")
def test_a_refund_of_the_dashboard_is_taken_over_once_with_its_credit_note(yard: Yard) -> None:
    booking = yard.paid_at_stripe()
    yard.drain()
    yard.sandbox.stripe.refund(yard.row(booking)["stripe_payment_intent_id"], amount=2000)
    (made,) = [entry.id for entry in yard.sandbox.ledger.find("stripe.refund")]

    for _ in range(2):
        with yard.conn.transaction():
            yard.desk.enqueue(yard.conn, refunds.look_at_refund.job(refund=made))
        yard.drain()

    assert yard.rows("select state, amount_minor, stripe_refund_id from rental.refunds") == [("done", 2000, made)]
    assert (len(notes(yard)), given_back(yard), yard.row(booking)["status"]) == (1, [2000], "CONFIRMED")
    assert yard.alerts() == [("refunded_outside", f"booking {booking}")]

    ask(yard, booking, 1000)
    yard.drain()
    ours = yard.value("select stripe_refund_id from rental.refunds where amount_minor = 1000")
    with yard.conn.transaction():
        yard.desk.enqueue(yard.conn, refunds.look_at_refund.job(refund=ours))  # the event of our own refund
    yard.drain()
    assert (yard.value("select count(*) from rental.refunds"), len(notes(yard))) == (2, 2)


@pytest.mark.rule("RENT-20.17")
def test_while_vendus_is_down_money_goes_back_and_the_documents_follow_in_their_order(yard: Yard) -> None:
    yard.fault("vendus", "error")
    booking = yard.paid_at_stripe()
    yard.drain()
    ask(yard, booking, 4000)
    yard.go_on(minutes=5)
    assert (given_back(yard), yard.invoices()) == ([4000], [])

    yard.sandbox.faults.clear("vendus")
    with yard.conn.transaction():
        repair.retry_job(yard.desk, yard.conn, booking, kind="issue_invoice", reason="Vendus is back", by=OLGA)
    yard.drain()

    numbers = yard.rows(
        "select i.provider_id < c.provider_id from rental.invoices i join rental.credit_notes c using (booking_id)"
    )
    assert ([paper["type"] for paper in yard.invoices()].count("FR"), len(notes(yard)), numbers) == (1, 1, [(True,)])


@pytest.mark.rule("RENT-20.13", "RENT-1.03")
def test_a_cancelled_booking_frees_its_machine_and_sends_no_confirmation_any_more(yard: Yard) -> None:
    booking = yard.paid_at_stripe(machine=yard.machine)
    assert refunds.proposed(yard.desk, yard.conn, booking) == 12_300

    with yard.conn.transaction():
        refunds.cancel_booking(
            yard.desk, yard.conn, booking, give_back_minor=12_300, reason="it rains", by=OLGA
        )  # fmt: skip
    yard.drain()

    assert yard.row(booking)["status"] == "CANCELLED"
    assert (given_back(yard), yard.invoices()) == ([12_300], [])  # nothing was posted, so nothing needs a document
    assert [mail["subject"] for mail in yard.mails()] == ["Your booking is cancelled"]
    assert {job["status"] for job in yard.jobs(booking).values()} == {"failed"}
    yard.book(machine=yard.machine)


@pytest.mark.rule("RENT-20.14", "RENT-20.13")
def test_a_cancel_that_keeps_money_waits_for_the_invoice(yard: Yard) -> None:
    yard.fault("vendus", "error")
    booking = yard.paid_at_stripe()
    yard.drain()

    def cancel(back: int) -> None:
        with yard.conn.transaction():
            refunds.cancel_booking(yard.desk, yard.conn, booking, give_back_minor=back, reason="half", by=OLGA)

    with pytest.raises(Refused, match="INVOICE_FIRST"):
        cancel(6000)
    assert (yard.row(booking)["status"], yard.value("select count(*) from rental.refunds")) == ("CONFIRMED", 0)
    yard.sandbox.faults.clear("vendus")
    yard.go_on(minutes=2)
    cancel(6000)
    yard.drain()

    assert (yard.row(booking)["status"], given_back(yard), len(notes(yard))) == ("CANCELLED", [6000], 1)
    with pytest.raises(Refused, match="is CANCELLED, not CONFIRMED"):
        cancel(1)
    over = yard.paid_at_stripe()
    yard.jump(days=8)
    with pytest.raises(Refused, match="its rental is over"):
        refunds.cancel_booking(yard.desk, yard.conn, over, give_back_minor=0, reason="late", by=OLGA)


@pytest.mark.rule("RENT-20.11")
def test_money_that_confirmed_nothing_is_off_the_list_once_it_went_back_and_is_never_credited(yard: Yard) -> None:
    late = yard.book()
    pages.open_page(yard.desk, late)
    page = str(yard.row(late)["stripe_session_id"])
    yard.conn.execute("update rental.bookings set status = 'EXPIRED' where id = %s", [late])
    yard.sandbox.stripe.settle(page, "succeeded")
    session = yard.desk.stripe.sync.session(page)
    assert session is not None
    with yard.conn.transaction():
        checkout.paid(yard.desk, yard.conn, session, yard.mainspring.now())
    assert yard.alerts() == [("late_payment", session.intent)]

    yard.sandbox.stripe.refund(str(session.intent))
    (made,) = [entry.id for entry in yard.sandbox.ledger.find("stripe.refund")]
    with yard.conn.transaction():
        yard.desk.enqueue(yard.conn, refunds.look_at_refund.job(refund=made))
    yard.drain()

    assert yard.value("select count(*) from rental.to_settle where settled_at is null") == 0
    assert (yard.alerts(), yard.invoices(), yard.value("select count(*) from rental.refunds")) == ([], [], 0)
