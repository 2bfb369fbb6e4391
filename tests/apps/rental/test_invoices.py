"""A paid booking gets one invoice, whatever crashes, whoever answers late, and whatever is asked for again."""

from __future__ import annotations

from datetime import date
from typing import Any

import psycopg
import pytest
from tests.apps.rental.yard import OLGA, Yard

from mainspring_apps.frame.refusal import Refused
from mainspring_apps.rental import checking, invoicing, repair, rounds
from mainspring_apps.rental.app import WATCHES, Rental
from mainspring_apps.rental.registry import desk_tasks, tasks
from mainspring_apps.rental.rounds import JobKind

DOCUMENTS = {"method": "POST", "path": "/v1.1/documents/"}


def error(yard: Yard, booking: int, kind: str = "issue_invoice") -> str | None:
    """The code with which the job of a booking failed last."""
    found: str | None = yard.value(
        "select j.error ->> 'code' from mainspring.jobs j join rental.rounds r on r.job_id = j.id"
        " where r.booking_id = %s and r.type = %s order by r.round desc", booking, kind,
    )  # fmt: skip
    return found


@pytest.mark.rule("RENT-3.01", "RENT-20.01", "RENT-1.12")
def test_the_registry_of_rental_holds_exactly_the_four_kinds(mainspring_app: Rental) -> None:
    ours = {task.name for task in tasks.bound(mainspring_app.desk)}
    assert ours == set(JobKind.__args__)  # type: ignore[attr-defined]  # of a Literal
    assert ours.isdisjoint(task.name for task in desk_tasks.bound(mainspring_app.desk))


@pytest.mark.rule("RENT-4.05", "RENT-4.06", "RENT-4.08", "RENT-4.09", "RENT-4.10")
def test_an_invoice_is_issued_stored_and_followed_by_its_mail(yard: Yard) -> None:
    booking = yard.paid(tax_number="123456789")

    yard.drain()

    (paper,) = yard.invoices()
    row = yard.row(booking)
    assert (paper["type"], paper["external_reference"]) == ("FR", f"rental-{booking}")
    assert (row["invoice_number"], row["invoice_pdf_url"].rpartition("/")[0]) == (
        paper["number"], yard.desk.vendus.pdf_address(1).rpartition("/")[0],
    )  # fmt: skip
    assert yard.rows(
        "select state, document_type, net_minor, vat_minor, gross_minor, vat_bps from rental.invoices"
    ) == [("issued", "FR", 10_000, 2_300, 12_300, 2_300)]
    assert yard.jobs(booking)["send_invoice_ready"]["status"] == "completed"
    assert (yard.posts(), yard.alerts()) == (1, [])


@pytest.mark.rule("RENT-4.01", "RENT-4.18", "RENT-20.02")
def test_with_invoicing_off_nothing_is_issued_until_somebody_asks_for_it(yard: Yard) -> None:
    with yard.settings(invoicing_enabled=False):
        skipped = [yard.paid() for _ in range(3)]
        yard.drain()
    for booking in skipped:
        job = yard.jobs(booking)["issue_invoice"]
        assert (job["status"], job["result"]) == ("completed", {"skipped": "INVOICING_DISABLED"})
        assert "send_invoice_ready" not in yard.jobs(booking)
    assert len(yard.sandbox.ledger.find("vendus.request")) == 0

    with yard.conn.transaction():
        assert repair.issue_skipped(yard.desk, yard.conn, 10, reason="the flag is on", by=OLGA) == 3
    yard.drain()

    assert yard.posts() == 3
    assert {yard.jobs(booking)["issue_invoice"]["round"] for booking in skipped} == {2}
    assert {yard.jobs(booking)["send_invoice_ready"]["status"] for booking in skipped} == {"completed"}


@pytest.mark.rule("RENT-4.03", "RENT-20.19")
def test_the_client_is_that_of_the_tax_number_else_of_the_address_else_made(yard: Yard) -> None:
    vendus = yard.desk.vendus.sync
    by_number = vendus.create_client(name="Obra Lda", fiscal_id="501442600")
    by_address = vendus.create_client(name="Jo", email="jo@example.com")

    cases: list[dict[str, Any]] = [
        {"tax_number": "501442600"}, {"tax_number": "123456789", "customer_email": "x@example.com"},
        {}, {"customer_email": "new@example.com"},
    ]  # fmt: skip
    booked = [yard.paid(**about) for about in cases]
    yard.drain()

    found = {paper["external_reference"]: paper["client"]["id"] for paper in yard.invoices()}
    clients = [found[f"rental-{booking}"] for booking in booked]
    assert (clients[0], clients[2]) == (by_number.id, by_address.id)
    assert len(set(clients)) == 4  # a number that is not known is never printed as somebody else's


@pytest.mark.rule("RENT-4.04", "RENT-4.14", "RENT-3.07")
def test_a_closed_register_is_tried_again_after_a_minute_three_times(yard: Yard) -> None:
    yard.sandbox.vendus.register("close")
    booking = yard.paid()
    yard.drain()
    job = yard.jobs(booking)["issue_invoice"]
    assert (job["status"], job["attempts"], set(job["result"])) == ("pending", 1, {"error", "retriedAt"})
    assert error(yard, booking) == "REGISTER_CLOSED"

    yard.go_on(seconds=59)
    assert yard.jobs(booking)["issue_invoice"]["attempts"] == 1
    yard.go_on(minutes=3)

    job = yard.jobs(booking)["issue_invoice"]
    assert (job["status"], job["attempts"], set(job["result"])) == ("failed", 3, {"error", "failedAt"})
    assert yard.posts() == 0


@pytest.mark.rule("RENT-4.11", "RENT-3.03", "RENT-4.10")
def test_an_invoice_that_is_stored_is_not_posted_again_but_its_mail_is_made_sure_of(yard: Yard) -> None:
    booking = yard.paid()
    yard.drain()
    yard.conn.execute("delete from rental.rounds where booking_id = %s and type = 'send_invoice_ready'", [booking])
    again: Any = invoicing.issue_invoice.job(
        booking_id=booking, stripe_payment_intent_id=f"pi_{booking}", round=2
    )  # fmt: skip
    with yard.conn.transaction():
        rounds.start(yard.desk, yard.conn, booking, again, number=2)

    yard.drain()

    assert yard.posts() == 1
    assert yard.jobs(booking)["send_invoice_ready"]["status"] == "completed"
    assert len([mail for mail in yard.mails() if "invoice" in mail["subject"]]) == 1


@pytest.mark.rule("RENT-4.12", "RENT-1.10")
def test_after_a_lost_answer_the_document_is_looked_up_and_adopted(yard: Yard) -> None:
    yard.fault("vendus", "drop", times=1, **DOCUMENTS)
    booking = yard.paid()

    yard.drain()
    yard.go_on(minutes=2)

    (paper,) = yard.invoices()
    assert yard.row(booking)["invoice_number"] == paper["number"]
    assert yard.posts() == 1


@pytest.mark.rule("RENT-4.13")
def test_while_nobody_can_be_asked_nothing_is_posted_a_second_time(yard: Yard) -> None:
    yard.fault("vendus", "drop", times=1, **DOCUMENTS)
    yard.fault("vendus", "error", method="GET", path="/v1.1/documents/")
    booking = yard.paid()

    yard.drain()
    yard.go_on(minutes=5)

    assert error(yard, booking) == "INVOICE_OUTCOME_UNKNOWN"
    assert yard.value("select state from rental.invoices") == "unknown"
    assert yard.value("select state from mainspring.jobs where task = 'issue_invoice'") == "dead"
    assert yard.posts() == 1


@pytest.mark.rule("RENT-4.15")
def test_a_rejected_document_is_for_a_person_at_once(yard: Yard) -> None:
    yard.fault("vendus", "error", status=422, times=1, **DOCUMENTS)
    booking = yard.paid()

    yard.drain()

    assert error(yard, booking) == "INVOICE_REJECTED"
    assert (yard.jobs(booking)["issue_invoice"]["status"], yard.jobs(booking)["issue_invoice"]["attempts"]) == (
        "failed",
        1,
    )


@pytest.mark.rule("RENT-4.16", "RENT-4.17", "RENT-4.02")
@pytest.mark.parametrize(
    ("change", "code", "said"),
    [
        ("status = 'CANCELLED'", "BOOKING_NOT_CONFIRMED", "is CANCELLED"),
        ("stripe_payment_intent_id = 'pi_other'", "VALIDATION_ERROR", "stripePaymentIntentId"),
        ("customer_name = ''", "VALIDATION_ERROR", "customer_name"),
    ],
)
def test_what_is_not_as_it_was_paid_for_is_not_invoiced(yard: Yard, change: str, code: str, said: str) -> None:
    booking = yard.paid()
    yard.conn.execute(f"update rental.bookings set {change} where id = {booking}".encode())

    yard.drain()

    assert error(yard, booking) == code
    assert said in yard.jobs(booking)["issue_invoice"]["result"]["error"]
    assert yard.posts() == 0


@pytest.mark.rule("RENT-20.24")
def test_other_amounts_in_an_answer_are_stored_and_told_of(yard: Yard) -> None:
    yard.sandbox.vendus.settings = type(yard.sandbox.vendus.settings)(vat_off_by=1)
    booking = yard.paid()

    yard.drain()

    assert yard.row(booking)["invoice_number"] is not None
    assert yard.alerts() == [("invoice_differs", f"booking {booking}")]
    assert yard.posts() == 1


@pytest.mark.rule("RENT-20.21", "RENT-20.05")
def test_an_invoice_of_a_later_day_names_the_day_of_payment(yard: Yard) -> None:
    yard.sandbox.vendus.register("close")
    yard.paid()
    yard.drain()
    yard.go_on(minutes=5)
    yard.jump(days=1)
    yard.sandbox.vendus.register("open")
    yard.go_on(minutes=30)

    (paper,) = yard.invoices()
    assert "2026-06-01" in paper["notes"]
    assert date.fromisoformat(str(paper["date"])[:10]) == date(2026, 6, 2)


@pytest.mark.rule("RENT-3.05")
def test_a_broken_invoice_stops_no_mail(yard: Yard) -> None:
    yard.fault("vendus", "error")
    booking = yard.paid()

    yard.drain()

    jobs = yard.jobs(booking)
    assert {jobs[name]["status"] for name in jobs if name != "issue_invoice"} == {"completed"}
    assert jobs["issue_invoice"]["status"] == "pending"


@pytest.mark.rule("RENT-1.07")
def test_a_booking_with_a_job_that_has_not_ended_is_not_deleted_and_a_document_never_changes(yard: Yard) -> None:
    booking = yard.paid()
    with pytest.raises(psycopg.errors.RestrictViolation), yard.conn.transaction():
        yard.conn.execute("delete from rental.bookings where id = %s", [booking])
    yard.drain()
    with pytest.raises(psycopg.errors.RestrictViolation), yard.conn.transaction():
        yard.conn.execute("update rental.invoices set net_minor = net_minor + 1, vat_minor = vat_minor - 1")
    acts = yard.value("select count(*) from mainspring.trail where subject = %s", f"booking {booking}")
    with yard.conn.transaction():
        yard.conn.execute("delete from rental.bookings where id = %s", [booking])
    assert yard.value("select count(*) from mainspring.trail where subject = %s", f"booking {booking}") == acts > 0


@pytest.mark.rule("RENT-9.05", "RENT-4.13")
def test_a_failure_for_good_is_seen_and_a_replay_after_the_repair_completes_the_chain(yard: Yard) -> None:
    yard.fault("vendus", "error")
    booking = yard.paid()
    yard.drain()
    yard.go_on(minutes=5)

    assert yard.jobs(booking)["issue_invoice"]["status"] == "failed"
    assert yard.rows("select task from mainspring.dead_letters") == [("issue_invoice",)]
    query = str(WATCHES[0].condition).replace("{schema}", "mainspring")
    assert [row[0] for row in yard.rows(query)] == [f"booking {booking}"]

    yard.sandbox.faults.clear("vendus")
    with yard.conn.transaction():
        repair.retry_job(yard.desk, yard.conn, booking, kind="issue_invoice", reason="Vendus is back", by=OLGA)
    yard.drain()

    assert {job["status"] for job in yard.jobs(booking).values()} == {"completed"}
    assert (len(yard.jobs(booking)), yard.posts(), yard.rows(query)) == (4, 1, [])


@pytest.mark.rule("RENT-3.04")
def test_an_unknown_type_of_job_is_named(yard: Yard) -> None:
    booking = yard.paid()
    with pytest.raises(Refused, match=r"^Unknown job type: foo$"):
        repair.retry_job(yard.desk, yard.conn, booking, kind="foo", reason="", by=OLGA)  # type: ignore[arg-type]  # by force
    with pytest.raises(psycopg.errors.CheckViolation), yard.conn.transaction():
        yard.conn.execute("insert into rental.rounds values (%s, 'foo', 1, gen_random_uuid())", [booking])


@pytest.mark.rule("RENT-11.01")
def test_a_booking_that_lacks_something_without_a_reason_is_told_of(yard: Yard) -> None:
    well, failing, lacking = yard.paid(), yard.paid(customer_email="x@example.com"), yard.paid()
    with yard.settings(invoicing_enabled=False):
        off = yard.paid()
        yard.mainspring.run_one(yard.jobs(off)["issue_invoice"]["id"])
    yard.conn.execute("update rental.bookings set customer_email = 'x@' where id = %s", [failing])
    yard.drain()
    yard.conn.execute("update rental.bookings set invoice_number = null where id = %s", [lacking])
    yard.conn.execute("delete from rental.rounds where booking_id = %s and type = 'issue_invoice'", [lacking])

    with yard.conn.transaction():
        yard.desk.enqueue(yard.conn, checking.check_bookings.job())
    yard.drain()

    assert yard.alerts() == [("booking_incomplete", f"booking {lacking}")]
    assert yard.jobs(well)["issue_invoice"]["status"] == "completed"
