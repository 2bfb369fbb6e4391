"""The one way to bookings for handlers: a port, and our own table behind it (RENT-20.32)."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Protocol

from mainspring_apps.rental import store
from mainspring_apps.rental.rules.documents import Facts
from mainspring_apps.rental.store import Conn

MailKind = Literal["confirmation", "internal", "invoice"]


class Bookings(Protocol):
    """Bookings, wherever a company keeps them; each verb joins the transaction of its connection."""

    def facts(self, conn: Conn, booking_id: int, *, lock: bool = False) -> Facts | None:
        """What is known of a booking; held until the transaction ends, if it is to be changed."""

    def confirm(self, conn: Conn, booking_id: int, *, intent: str, paid_at: datetime) -> bool:
        """It is paid: PENDING becomes CONFIRMED; False where it was not PENDING."""

    def invoiced(self, conn: Conn, booking_id: int, *, number: str, pdf_url: str) -> None:
        """Its invoice stands."""

    def stamp_mail(self, conn: Conn, booking_id: int, kind: MailKind, at: datetime | None) -> None:
        """When a mail was sent; None: it is to be sent anew."""


class BookingTable:
    """Bookings in our own table."""

    def facts(self, conn: Conn, booking_id: int, *, lock: bool = False) -> Facts | None:
        """By primary key."""
        return store.one(conn, Facts, "lock_booking" if lock else "booking", booking_id=booking_id)

    def confirm(self, conn: Conn, booking_id: int, *, intent: str, paid_at: datetime) -> bool:
        """Guarded by its status."""
        return store.do(conn, "confirm_booking", booking_id=booking_id, intent=intent, paid_at=paid_at) == 1

    def invoiced(self, conn: Conn, booking_id: int, *, number: str, pdf_url: str) -> None:
        """On the booking, for whoever shows it."""
        store.do(conn, "invoiced", booking_id=booking_id, number=number, pdf_url=pdf_url)

    def stamp_mail(self, conn: Conn, booking_id: int, kind: MailKind, at: datetime | None) -> None:
        """One of the three columns."""
        store.do(conn, "stamp_mail", booking_id=booking_id, kind=kind, at=at)


def sent_at(facts: Facts, kind: MailKind) -> datetime | None:
    """When a mail of a booking was sent."""
    return {
        "confirmation": facts.confirmation_email_sent_at,
        "internal": facts.internal_email_sent_at,
        "invoice": facts.invoice_email_sent_at,
    }[kind]
