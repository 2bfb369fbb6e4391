"""Machines, and bookings that hold them: made by a shop for its customers, corrected by people of the company."""

from __future__ import annotations

from datetime import date, timedelta
from typing import Any

import msgspec
import psycopg

from mainspring.contrib.notify import Undeliverable
from mainspring.contrib.notify.address import mail_address
from mainspring_apps.frame.refusal import Refused, missing
from mainspring_apps.rental import holds, store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.events import event
from mainspring_apps.rental.languages import SPOKEN
from mainspring_apps.rental.people import By
from mainspring_apps.rental.rules import customers, days
from mainspring_apps.rental.store import Conn


class MachineTaken(Refused):
    """The machine is held by another booking on one of these days."""


@event
def add_machine(desk: Desk, conn: Conn, name: str, *, by: By) -> int:
    """Add a machine that can be rented."""
    customers.check_line("name", name)
    machine: int = store.value(conn, "add_machine", name=name)
    desk.record(conn, "machine_added", "machine", machine)
    return machine


@event
def book(
    desk: Desk,
    conn: Conn,
    machine_id: int,
    *,
    start_date: date,
    end_date: date,
    customer_name: str,
    customer_email: str,
    total_minor: int,
    currency: str = "EUR",
    billing_address: str | None = None,
    tax_number: str | None = None,
    tax_country: str = "PT",
    locale: str | None = None,
    by: By,
) -> int:
    """Hold a machine for a customer until the payment comes, or the hold ends; the end is the day after the last."""
    if not start_date < end_date:
        raise Refused("end_date: is not after start_date", field="end_date")
    if start_date < days.day_of(desk.now(conn), desk.settings.zone):
        raise Refused("start_date: is past", field="start_date")
    if total_minor < 1:
        raise Refused("total_minor: is not positive", field="total_minor")
    if currency != desk.settings.currency:
        raise Refused(f"currency: only {desk.settings.currency} is sold", field="currency")
    for name, text in (("customer_name", customer_name), ("billing_address", billing_address or "")):
        customers.check_line(name, text)
    _check_address(customer_email)
    customers.check_tax_number(tax_country, tax_number)
    customers.check_named(
        total_minor, desk.settings.name_required_cents, tax_number, customer_name, billing_address
    )  # fmt: skip
    if store.value(conn, "lock_machine", machine_id=machine_id) is None:
        raise missing("machine_id", machine_id)
    held_until = desk.now(conn) + timedelta(minutes=desk.settings.hold_minutes)
    values: dict[str, Any] = {
        "machine_id": machine_id, "start_date": start_date, "end_date": end_date, "customer_name": customer_name,
        "customer_email": customer_email, "billing_address": billing_address, "tax_number": tax_number,
        "tax_country": tax_country, "locale": spoken(locale, desk.settings.locale), "total_minor": total_minor,
        "currency": currency, "held_until": held_until,
    }  # fmt: skip
    try:
        with conn.transaction():
            booking: int = store.value(conn, "add_booking", **values)
    except psycopg.errors.ExclusionViolation:
        raise MachineTaken("machine_id: MACHINE_TAKEN: it is booked on these days", field="machine_id") from None
    holds.begin(desk, conn, booking, held_until)
    desk.record(conn, "booked", "booking", booking, booking_id=booking, after={"machine_id": machine_id})
    return booking


@event
def correct_address(desk: Desk, conn: Conn, booking_id: int, *, customer_email: str, reason: str, by: By) -> None:
    """Correct where the mails of a booking go; what is sent from now on goes there."""
    _check_address(customer_email)
    facts = desk.bookings.facts(conn, booking_id, lock=True)
    if facts is None:
        raise missing("booking_id", booking_id)
    store.do(conn, "correct_address", booking_id=booking_id, customer_email=customer_email)
    about = {"before": customers.masked(facts.customer_email or ""), "after": customers.masked(customer_email)}
    desk.record(conn, "address_corrected", "booking", booking_id, booking_id=booking_id, reason=reason, **about)


def spoken(locale: str | None, usual: str) -> str:
    """The language of a booking: its checkout's, if we speak it."""
    return locale if locale in SPOKEN.known else usual


def _check_address(address: str) -> None:
    try:
        mail_address(address)
    except Undeliverable as wrong:
        raise Refused(f"customer_email: {str(wrong).removeprefix('to: ')}", field="customer_email") from None


class ShownBooking(msgspec.Struct, frozen=True, kw_only=True):
    """A booking as somebody sees it, with personal data masked (RENT-20.03)."""

    id: int
    machine: str | None
    start_date: date | None
    end_date: date | None
    status: str
    customer: str
    total_minor: int | None
    currency: str
    invoice_number: str | None
    confirmation_email_sent_at: Any
    internal_email_sent_at: Any
    invoice_email_sent_at: Any
    jobs: list[dict[str, Any]]
    dry_run: bool


def shown(desk: Desk, conn: Conn, booking_id: int) -> ShownBooking:
    """A booking with its stamps and the history of its jobs (RENT-8.06)."""
    facts = desk.bookings.facts(conn, booking_id)
    if facts is None:
        raise missing("booking_id", booking_id)
    said = {name: getattr(facts, name) for name in ShownBooking.__struct_fields__ if hasattr(facts, name)}
    jobs = store.many(conn, dict[str, Any], "jobs_of_booking", booking_id=booking_id)
    address = customers.masked(facts.customer_email or "")
    return ShownBooking(**said, customer=address, jobs=jobs, dry_run=not desk.settings.send_emails)
