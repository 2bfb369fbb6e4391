"""Bookings: what is refused, who holds a machine, and what the database keeps everybody to."""

from __future__ import annotations

import threading
from datetime import date, timedelta
from typing import Any

import psycopg
import pytest
from tests.apps.rental.yard import OLGA, VIC, Yard

from mainspring_apps.frame.refusal import NotAllowed, Refused
from mainspring_apps.rental import bookings, states
from mainspring_apps.rental.people import SYSTEM


@pytest.mark.rule("RENT-1.01", "RENT-1.08", "RENT-20.06")
def test_a_booking_holds_its_machine_and_has_neither_invoice_nor_mails(yard: Yard) -> None:
    booking = yard.book(total_minor=1999)

    row = yard.row(booking)
    empty = ("invoice_number", "invoice_pdf_url", "confirmation_email_sent_at", "internal_email_sent_at",
             "invoice_email_sent_at", "stripe_payment_intent_id")  # fmt: skip
    assert [row[name] for name in empty] == [None] * 6
    assert (row["total_minor"], row["currency"], row["status"]) == (1999, "EUR", "PENDING")
    assert row["held_until"] - yard.mainspring.now() == timedelta(minutes=60)


@pytest.mark.rule("RENT-1.09", "RENT-20.12", "RENT-20.19", "RENT-11.04")
@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"end_date": date(2026, 6, 6)}, "end_date"), ({"end_date": date(2026, 6, 5)}, "end_date"),
        ({"start_date": date(2026, 5, 31)}, "start_date"), ({"total_minor": 0}, "total_minor"),
        ({"currency": "USD"}, "currency"), ({"tax_number": "123456788"}, "tax_number"),
        ({"total_minor": 100_000}, "billing_address"), ({"customer_email": "a@"}, "customer_email"),
        ({"customer_email": "a@x.pt\r\nBcc: b@x.pt"}, "customer_email"), ({"machine": 987_654}, "machine_id"),
    ],
)  # fmt: skip
def test_what_cannot_be_a_booking_is_refused_by_its_field(yard: Yard, changes: dict[str, Any], field: str) -> None:
    with pytest.raises(Refused, match=f"^{field}: ") as refused:
        yard.book(**changes)
    assert refused.value.field == field


@pytest.mark.rule("RENT-20.06")
def test_bookings_of_a_machine_never_overlap_and_may_touch(yard: Yard) -> None:
    first = yard.book(machine=yard.machine)
    for start, end in ((5, 7), (7, 9), (6, 8), (1, 20)):
        with pytest.raises(bookings.MachineTaken, match="MACHINE_TAKEN"):
            yard.book(machine=yard.machine, start_date=date(2026, 6, start), end_date=date(2026, 6, end))
    yard.book(machine=yard.machine, start_date=date(2026, 6, 8), end_date=date(2026, 6, 9))
    yard.book(machine=yard.machine, start_date=date(2026, 6, 5), end_date=date(2026, 6, 6))
    with pytest.raises(psycopg.errors.ExclusionViolation), yard.conn.transaction():  # whoever writes
        yard.conn.execute(
            "insert into rental.bookings (machine_id, start_date, end_date, customer_name, customer_email, locale,"
            " total_minor, currency, held_until) select machine_id, start_date, end_date, customer_name,"
            " customer_email, locale, total_minor, currency, held_until from rental.bookings where id = %s", [first],
        )  # fmt: skip

    yard.conn.execute("update rental.bookings set status = 'EXPIRED' where id = %s", [first])
    yard.book(machine=yard.machine)


@pytest.mark.rule("RENT-20.06")
def test_of_two_who_book_at_once_one_has_the_machine(yard: Yard) -> None:
    ready, said = threading.Barrier(2), []

    def one() -> None:
        with psycopg.connect(yard.mainspring.dsn) as conn:
            ready.wait()
            try:
                bookings.book(
                    yard.desk, conn, yard.machine, start_date=date(2026, 6, 6), end_date=date(2026, 6, 8),
                    customer_name="Jo", customer_email="jo@example.com", total_minor=100, by=SYSTEM,
                )  # fmt: skip
                said.append("booked")
            except bookings.MachineTaken:
                said.append("taken")

    threads = [threading.Thread(target=one) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(said) == ["booked", "taken"]


@pytest.mark.rule("RENT-1.03")
def test_the_database_and_the_code_allow_the_same_transitions(yard: Yard) -> None:
    known = set(yard.rows("select entity, before, after from rental.transitions"))
    assert known == {
        (entity, before, after)
        for entity, table in states.TRANSITIONS.items()
        for before, afters in table.items()
        for after in afters
    }
    booking = yard.paid()
    with pytest.raises(psycopg.errors.CheckViolation), yard.conn.transaction():
        yard.conn.execute("update rental.bookings set status = 'EXPIRED' where id = %s", [booking])


@pytest.mark.rule("RENT-20.03", "RENT-20.04")
def test_who_only_looks_changes_nothing_and_an_act_that_is_undone_leaves_no_event(yard: Yard) -> None:
    booking = yard.paid()
    with pytest.raises(NotAllowed, match=r"^by: a viewer may not correct_address$"):
        bookings.correct_address(yard.desk, yard.conn, booking, customer_email="x@example.com", reason="typo", by=VIC)
    assert yard.row(booking)["customer_email"] == "jo@example.com"

    def acts() -> list[Any]:
        return yard.rows("select actor_id, detail from mainspring.trail where event = 'rental.address_corrected'")

    with yard.conn.transaction(force_rollback=True):
        bookings.correct_address(yard.desk, yard.conn, booking, customer_email="x@example.com", reason="typo", by=OLGA)
    assert acts() == []
    with yard.conn.transaction():
        bookings.correct_address(yard.desk, yard.conn, booking, customer_email="x@example.com", reason="typo", by=OLGA)
    ((actor, detail),) = acts()
    assert (actor, detail["reason"], detail["before"], detail["after"]) == (
        "olga", "typo", "j***@example.com", "x***@example.com",
    )  # fmt: skip


@pytest.mark.rule("RENT-1.04", "RENT-8.06", "RENT-11.03")
def test_jobs_are_shown_in_the_words_of_the_source_and_people_are_masked(yard: Yard) -> None:
    booking = yard.paid()
    columns = [
        column.name for column in yard.conn.execute("select * from rental.booking_jobs limit 0").description or ()
    ]
    assert columns == ["id", "booking_id", "type", "status", "attempts", "max_attempts", "payload", "result",
                       "created_at", "updated_at", "processed_at", "round"]  # fmt: skip
    yard.drain()
    shown = bookings.shown(yard.desk, yard.conn, booking)

    assert (shown.customer, shown.status, len(shown.jobs)) == ("j***@example.com", "CONFIRMED", 4)
    assert {job["status"] for job in shown.jobs} == {"completed"}
    assert "jo@example.com" not in str(shown)
    assert "jo@example.com" not in repr(yard.desk.bookings.facts(yard.conn, booking))
