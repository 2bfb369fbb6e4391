"""A small rental company for tests: a machine, bookings, payments as Stripe tells them, and what became of them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta
from itertools import count
from typing import Any

import msgspec
import psycopg

from mainspring.contrib.stripe import StripeEvent
from mainspring.testing import Harness
from mainspring_apps.rental import bookings, checkout, pages, store
from mainspring_apps.rental.app import Rental
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.people import SYSTEM, Staff
from mainspring_sandbox import Fault, Sandbox

BEGIN = datetime(2026, 6, 1, 8, tzinfo=UTC)
ENV = {
    "RENTAL_LINK_SECRET": "a secret of the tests, that is long enough",
    "RESEND_API_KEY": "re_sandbox",
    "EMAIL_ADMIN_TO": "ops@rental.pt, boss@rental.pt,",
    "RENTAL_VENDUS_PER_SECOND": "1000",
    "INVOICING_ENABLED": "on",
}
OLGA, ADA, VIC = Staff("olga", "operator"), Staff("ada", "admin"), Staff("vic", "viewer")


class Yard:
    """The company, and what is seen of it."""

    def __init__(self, mainspring: Harness, sandbox: Sandbox, app: Rental) -> None:
        self.mainspring, self.sandbox, self.desk = mainspring, sandbox, app.desk
        self.conn: psycopg.Connection[Any] = mainspring.conn
        self._numbers = count(1)
        mainspring.clock.set(BEGIN)
        self.machine = bookings.add_machine(self.desk, self.conn, "Digger 3 t", by=SYSTEM)

    def book(self, **changes: Any) -> int:
        """A booking of 123.00 for two days, five days ahead."""
        about: dict[str, Any] = {
            "start_date": date(2026, 6, 6), "end_date": date(2026, 6, 8), "customer_name": "Jo Doe",
            "customer_email": "jo@example.com", "total_minor": 12_300, "locale": "en", "by": SYSTEM,
        }  # fmt: skip
        machine = changes.pop("machine", None) or self.new_machine()
        return bookings.book(self.desk, self.conn, machine, **about | changes)

    def new_machine(self) -> int:
        return bookings.add_machine(self.desk, self.conn, f"Machine {next(self._numbers)}", by=SYSTEM)

    def event(self, booking: object, type_: str = "checkout.session.completed", **changes: Any) -> StripeEvent:
        """What Stripe says of a paid session of a booking."""
        number, at = next(self._numbers), int(self.mainspring.now().timestamp())
        session = {
            "id": f"cs_{number}", "object": "checkout.session", "status": "complete", "payment_status": "paid",
            "amount_total": 12_300, "currency": "eur", "payment_intent": f"pi_{booking}", "created": at,
            "client_reference_id": str(booking), "expires_at": at + 3600,
        }  # fmt: skip
        said = {"id": f"evt_{number}", "type": type_, "created": at, "data": {"object": session | changes}}
        return StripeEvent.read(msgspec.json.encode(said).decode())

    def pay(self, booking: int, **changes: Any) -> StripeEvent:
        """Take the event of a booking that is paid."""
        event = self.event(booking, **changes)
        with self.conn.transaction():
            checkout.take(self.desk, self.conn, event)
        return event

    def paid(self, **changes: Any) -> int:
        """A booking that is paid for."""
        booking = self.book(**changes)
        self.pay(booking, amount_total=changes.get("total_minor", 12_300))
        return booking

    def paid_at_stripe(self, **changes: Any) -> int:
        """A booking that is paid for on a page of the sandbox, so that Stripe knows its payment."""
        booking = self.book(**changes)
        pages.open_page(self.desk, booking)
        page = str(self.row(booking)["stripe_session_id"])
        self.sandbox.stripe.settle(page, "succeeded")
        session = self.desk.stripe.sync.session(page)
        assert session is not None
        with self.conn.transaction():
            assert checkout.paid(self.desk, self.conn, session, self.mainspring.now()) is not None
        return booking

    # -- what became of it

    def rows(self, query: str, *params: Any) -> list[Any]:
        return self.conn.execute(query.encode(), params).fetchall()

    def value(self, query: str, *params: Any) -> Any:
        return self.rows(query, *params)[0][0]

    def row(self, booking: int) -> dict[str, Any]:
        return store.needed(self.conn, dict[str, Any], "booking", booking_id=booking)

    def jobs(self, booking: int) -> dict[str, dict[str, Any]]:
        """The jobs of a booking as the view shows them, by type."""
        found = store.many(self.conn, dict[str, Any], "jobs_of_booking", booking_id=booking)
        return {one["type"]: one for one in found}

    def alerts(self) -> list[tuple[str, str]]:
        return self.rows(
            "select name, subject from mainspring.alert where closed_at is null order by opened_at, name, subject"
        )

    def mails(self) -> list[dict[str, Any]]:
        return [entry.body for entry in self.sandbox.ledger.find("mail")]

    def invoices(self) -> list[dict[str, Any]]:
        return [entry.body for entry in self.sandbox.ledger.find("invoice")]

    def posts(self) -> int:
        """How many documents Vendus was asked for."""
        return len(self.sandbox.ledger.find("vendus.request", method="POST", path="/v1.1/documents/"))

    def fault(self, provider: str, kind: Any, **more: Any) -> None:
        self.sandbox.faults.set(Fault(provider=provider, kind=kind, **more))

    def drain(self) -> None:
        """Run what is due; what fails is for the test to see."""
        self.mainspring.drain(raise_errors=False)

    def go_on(self, **units: Any) -> None:
        """Let time pass, and run what becomes due."""
        self.mainspring.advance(raise_errors=False, limit=100_000, **units)

    def jump(self, **units: float) -> None:
        """Come back after a while in which nobody worked, and run what has become due by then."""
        self.mainspring.clock.set(self.mainspring.now() + timedelta(**units))
        self.drain()

    @contextmanager
    def settings(self, **changes: Any) -> Iterator[Desk]:
        """Other settings inside the block."""
        before = self.desk.settings
        object.__setattr__(self.desk, "settings", replace(before, **changes))
        try:
            yield self.desk
        finally:
            object.__setattr__(self.desk, "settings", before)
