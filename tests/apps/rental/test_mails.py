"""The three mails of a booking: each once, to whom it is for, in their language."""

from __future__ import annotations

import logging
from datetime import date
from typing import Any
from uuid import UUID

import pytest
from tests.apps.rental.test_invoices import error
from tests.apps.rental.yard import OLGA, Yard

from mainspring.events import JobFailed, JobStarted, JobSucceeded
from mainspring_apps.frame.refusal import Refused
from mainspring_apps.rental import checkout, mails, repair, rounds
from mainspring_apps.rental.logs import told
from mainspring_apps.rental.texts import TEMPLATES

MAILS = {"method": "POST", "path": "/emails"}


def to(yard: Yard, subject: str) -> list[Any]:
    """Whom mails of a subject went to."""
    return sorted(one for mail in yard.mails() if subject in mail["subject"] for one in mail["to"])


def events(caplog: pytest.LogCaptureFixture) -> list[tuple[str, Any]]:
    return [(one.event, one.bookingId) for one in caplog.records if hasattr(one, "event") and hasattr(one, "bookingId")]


@pytest.mark.rule("RENT-5.01", "RENT-5.02", "RENT-6.01", "RENT-6.02")
def test_customer_and_company_get_one_mail_each_and_the_stamps_are_set(yard: Yard) -> None:
    booking = yard.paid()

    yard.drain()

    assert to(yard, "Your booking is confirmed") == ["jo@example.com"]
    assert to(yard, f"A reserva {booking} está confirmada") == ["boss@rental.pt", "ops@rental.pt"]
    assert to(yard, "Your invoice") == ["jo@example.com"]
    row = yard.row(booking)
    assert {row[f"{name}_email_sent_at"] for name in ("confirmation", "internal", "invoice")} == {yard.mainspring.now()}
    internal = next(mail for mail in yard.mails() if "reserva" in mail["subject"])
    assert f"https://rental.example.com/rental/bookings/{booking}" in internal["text"]
    states = yard.rows("select kind, state from rental.emails order by kind")
    assert states == [("confirmation", "sent"), ("internal", "sent"), ("invoice", "sent")]


@pytest.mark.rule("RENT-5.08", "RENT-11.04")
def test_what_a_customer_is_called_is_text_and_no_markup_and_no_line(yard: Yard) -> None:
    booking = yard.paid(customer_name='<a href="x">Jo</a>', locale="pt-PT", total_minor=123_450, tax_number="123456789")
    yard.drain()

    mail = next(mail for mail in yard.mails() if mail["subject"] == "A sua reserva está confirmada")
    assert "&lt;a href" in mail["html"]
    assert "<a href" not in mail["html"]
    for part in (mail["text"], mail["html"]):
        assert all(said in part for said in (f"eserva: {booking}"[:6], "6 de junho de 2026", "1234,50\xa0€"))
    with pytest.raises(Refused, match="customer_name: has a line break"):
        yard.book(customer_name="Jo\r\nBcc: all@example.com")


@pytest.mark.rule("RENT-5.03", "RENT-6.03", "RENT-1.11")
@pytest.mark.parametrize("kind", ["send_customer_confirmation", "send_internal_confirmation", "send_invoice_ready"])
def test_of_two_jobs_for_one_mail_one_sends_it(yard: Yard, kind: str) -> None:
    booking = yard.paid()
    yard.drain()
    sent = len(yard.mails())
    task: Any = getattr(mails, kind)
    with yard.conn.transaction():  # a second job of the same mail, past the key of the first
        yard.desk.enqueue(yard.conn, task.job(booking_id=booking, round=1).with_key(f"twin of {kind}"))

    yard.drain()

    twin = yard.value("select result from mainspring.jobs where idempotency_key = %s", f"twin of {kind}")
    assert (twin, len(yard.mails())) == ({"skipped": "SENT_BEFORE"}, sent)


@pytest.mark.rule("RENT-5.04", "RENT-6.04", "RENT-7.10")
def test_a_mail_whose_stamp_is_set_is_skipped(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    booking = yard.paid()
    yard.conn.execute(
        "update rental.bookings set confirmation_email_sent_at = now(), internal_email_sent_at = now(),"
        " invoice_email_sent_at = now()"
    )
    with caplog.at_level(logging.INFO):
        yard.drain()

    assert yard.mails() == []
    assert {job["status"] for job in yard.jobs(booking).values()} == {"completed"}
    assert [name for name, _ in events(caplog)].count("email:skipped") == 3


@pytest.mark.rule("RENT-5.05", "RENT-5.07", "RENT-7.10", "RENT-6.04")
@pytest.mark.parametrize("fault", [{"kind": "error", "times": 4}, {"kind": "drop", "times": 2}])
def test_a_provider_that_fails_is_asked_again_under_the_same_key(yard: Yard, fault: dict[str, Any]) -> None:
    with yard.settings(invoicing_enabled=False):
        booking = yard.paid()
        yard.fault("resend", **fault, **MAILS)
        yard.drain()
        assert yard.jobs(booking)["send_customer_confirmation"]["status"] == "pending"
        yard.go_on(minutes=3)

    job = yard.jobs(booking)["send_customer_confirmation"]
    assert (job["status"], to(yard, "Your booking is confirmed")) == ("completed", ["jo@example.com"])
    assert len(to(yard, "está confirmada")) == 2


@pytest.mark.rule("RENT-5.06", "RENT-8.03")
def test_an_invalid_address_fails_at_once(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(Refused, match="customer_email: is no mail address"):
        yard.book(customer_email="a@")
    booking = yard.paid()
    yard.conn.execute("update rental.bookings set customer_email = 'a@'")

    with caplog.at_level(logging.INFO):
        yard.drain()

    job = yard.jobs(booking)["send_customer_confirmation"]
    assert (job["status"], job["attempts"]) == ("failed", 1)
    assert error(yard, booking, "send_customer_confirmation") == "EMAIL_ADDRESS_INVALID"
    assert yard.value("select state from rental.emails where kind = 'confirmation'") == "failed"
    assert ("email:error", booking) in events(caplog)


@pytest.mark.rule("RENT-6.05")
def test_without_anybody_for_internal_mails_that_is_an_error_of_the_settings(yard: Yard) -> None:
    with yard.settings(email_admin_to=()):
        booking = yard.paid()
        yard.drain()

    job = yard.jobs(booking)["send_internal_confirmation"]
    assert (job["status"], job["attempts"]) == ("failed", 1)
    assert error(yard, booking, "send_internal_confirmation") == "CONFIG_MISSING"


@pytest.mark.rule("RENT-6.06")
def test_an_internal_mail_says_what_to_look_at(yard: Yard) -> None:
    with yard.settings(invoicing_enabled=False, ops_locale="en"):
        yard.paid(start_date=date(2026, 6, 2), end_date=date(2026, 6, 3))
        yard.drain()
    text = next(
        mail["text"] for mail in yard.mails() if "is confirmed" in mail["subject"] and "Booking" in mail["subject"]
    )
    assert "invoicing is off; there is no NIF; the rental starts within a day" in text


@pytest.mark.rule("RENT-7.02", "RENT-7.03")
def test_the_mail_with_an_invoice_waits_for_it_without_an_attempt_for_a_day(yard: Yard) -> None:
    booking = yard.paid()
    yard.drain()
    yard.conn.execute("update rental.bookings set invoice_pdf_url = null, invoice_email_sent_at = null")
    with yard.conn.transaction():
        repair.resend_mail(yard.desk, yard.conn, booking, mail="invoice", reason="lost", by=OLGA)
    yard.drain()
    yard.go_on(minutes=5)
    assert yard.jobs(booking)["send_invoice_ready"]["attempts"] == 0
    assert len(to(yard, "Your invoice")) == 1

    yard.conn.execute("update rental.bookings set invoice_pdf_url = 'https://vendus.example/1.pdf'")
    yard.go_on(minutes=1)
    assert len(to(yard, "Your invoice")) == 2

    yard.conn.execute("update rental.bookings set invoice_pdf_url = null, invoice_email_sent_at = null")
    with yard.conn.transaction(), yard.settings(invoice_look=yard.desk.settings.link_life / 12) as desk:
        repair.resend_mail(desk, yard.conn, booking, mail="invoice", reason="lost", by=OLGA)
    with yard.settings(invoice_look=yard.desk.settings.invoice_wait / 4):
        yard.drain()
        yard.jump(hours=25)
        yard.go_on(minutes=3)
    assert error(yard, booking, "send_invoice_ready") == "INVOICE_NOT_READY"
    assert (
        yard.value(
            "select j.state from mainspring.jobs j join rental.rounds r on r.job_id = j.id order by r.round desc"
        )
        == "dead"
    )


@pytest.mark.rule("RENT-8.01", "RENT-8.02", "RENT-20.02")
def test_a_dry_run_sends_nothing_and_stamps_nothing_until_somebody_sends_it(yard: Yard) -> None:
    with yard.settings(send_emails=False, invoicing_enabled=False):
        booking = yard.paid()
        yard.drain()
        jobs = yard.jobs(booking)
        assert {jobs[kind]["status"] for kind in jobs} == {"completed"}
        assert jobs["send_customer_confirmation"]["result"] == {"skipped": "SEND_EMAILS"}
        assert (yard.mails(), yard.row(booking)["confirmation_email_sent_at"]) == ([], None)
        with pytest.raises(Refused, match="dry run"):
            repair.send_skipped(yard.desk, yard.conn, 10, reason="now", by=OLGA)

    with yard.settings(invoicing_enabled=False):
        with yard.conn.transaction():
            assert repair.send_skipped(yard.desk, yard.conn, 10, reason="mails are on", by=OLGA) == 2
        yard.drain()
        assert repair.send_skipped(yard.desk, yard.conn, 10, reason="again", by=OLGA) == 0

    assert to(yard, "Your booking is confirmed") == ["jo@example.com"]
    assert yard.row(booking)["confirmation_email_sent_at"] is not None


@pytest.mark.rule("RENT-8.07", "RENT-20.02", "RENT-20.04")
def test_a_mail_is_sent_again_as_one_audited_act_and_once(yard: Yard) -> None:
    booking = yard.paid()
    yard.drain()
    first = yard.jobs(booking)["send_customer_confirmation"]["id"]

    with yard.conn.transaction():
        repair.resend_mail(yard.desk, yard.conn, booking, mail="confirmation", reason="she lost it", by=OLGA)
        with pytest.raises(Refused, match="is not done yet"):
            repair.resend_mail(yard.desk, yard.conn, booking, mail="confirmation", reason="at once", by=OLGA)
    assert yard.row(booking)["confirmation_email_sent_at"] is None
    yard.drain()

    assert to(yard, "Your booking is confirmed") == ["jo@example.com"] * 2
    assert yard.jobs(booking)["send_customer_confirmation"]["round"] == 2
    assert yard.value("select state from mainspring.jobs where id = %s", first) == "succeeded"
    assert yard.rows(
        "select actor_id, detail ->> 'reason' from mainspring.trail where event = 'rental.mail_resent'"
    ) == [("olga", "she lost it")]  # fmt: skip


@pytest.mark.rule("RENT-8.08")
def test_a_retry_touches_one_booking_and_one_type(yard: Yard) -> None:
    with yard.settings(email_admin_to=()):
        yard.sandbox.vendus.register("close")
        booking, other = yard.paid(), yard.paid()
        yard.drain()
        yard.go_on(minutes=5)
    before = {one: yard.jobs(one) for one in (booking, other)}
    with yard.conn.transaction():
        repair.retry_job(yard.desk, yard.conn, booking, kind="send_internal_confirmation", reason="set", by=OLGA)
        with pytest.raises(Refused, match="no send_customer_confirmation that failed"):
            repair.retry_job(yard.desk, yard.conn, booking, kind="send_customer_confirmation", reason="no", by=OLGA)
    yard.drain()

    after = {one: yard.jobs(one) for one in (booking, other)}
    assert after[booking]["send_internal_confirmation"]["status"] == "completed"
    assert after[booking]["issue_invoice"] == before[booking]["issue_invoice"]
    assert after[other] == before[other]


@pytest.mark.rule("RENT-8.03")
def test_the_log_names_what_happens_to_jobs_and_mails(yard: Yard, caplog: pytest.LogCaptureFixture) -> None:
    booking = yard.book()
    with caplog.at_level(logging.INFO):
        with yard.conn.transaction():
            confirmed = checkout.take(yard.desk, yard.conn, yard.event(booking))
        assert confirmed is not None
        rounds.created(confirmed.booking_id, *confirmed.jobs)
        yard.drain()
        about: dict[str, Any] = {
            "job_id": UUID(int=7), "task": "issue_invoice", "queue": "booking-jobs", "org_id": "rental",
            "project_id": None, "request_id": "r", "correlation_id": "c", "attempt": 1,
            "subject": {"booking_id": booking},
        }  # fmt: skip
        told([JobStarted(**about), JobSucceeded(**about, duration=1.234), JobFailed(**about, message="closed")])

    said = events(caplog)
    assert {name for name, of in said if of == booking} == {
        "jobs:created", "job:processing", "job:completed", "job:failed", "email:sent",
    }  # fmt: skip
    ended = [one for one in caplog.records if getattr(one, "event", "") in ("job:completed", "job:failed")]
    assert [tuple(vars(one).get(name) for name in ("type", "durationMs", "error")) for one in ended] == [
        ("issue_invoice", 1234, None), ("issue_invoice", None, "closed"),
    ]  # fmt: skip
    types = [vars(one)["types"] for one in caplog.records if getattr(one, "event", "") == "jobs:created"]
    assert types == [
        ["issue_invoice", "send_customer_confirmation", "send_internal_confirmation"],
        ["send_invoice_ready"],
    ]
    assert "jo@example.com" not in caplog.text


def test_every_mail_speaks_every_language() -> None:
    assert {language for one in TEMPLATES.values() for language in one.languages} == {"pt-PT"}
