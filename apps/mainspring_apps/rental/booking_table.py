"""The one way to bookings for handlers: a port, and our own table behind it (RENT-20.32)."""

from __future__ import annotations

from datetime import datetime
from typing import Literal, Protocol

from mainspring_apps.rental import store
from mainspring_apps.rental.rules.documents import Facts
from mainspring_apps.rental.store import Conn

MailKind = Literal["confirmation", "internal", "invoice"]  # those that a booking has a stamp of


class Bookings(Protocol):
    """Bookings, wherever a company keeps them; each verb joins the transaction of its connection."""

    def facts(self, conn: Conn, booking_id: int, *, lock: bool = False) -> Facts | None:
        """What is known of a booking; held until the transaction ends, if it is to be changed."""

    def confirm(self, conn: Conn, booking_id: int, *, intent: str, paid_at: datetime) -> bool:
        """It is paid: PENDING becomes CONFIRMED; False where it was not PENDING."""

    def expire(self, conn: Conn, booking_id: int) -> bool:
        """Nobody paid: PENDING becomes EXPIRED; False where it was not PENDING."""

    def cancel(self, conn: Conn, booking_id: int) -> bool:
        """CONFIRMED becomes CANCELLED, and the machine is free; False where it was not CONFIRMED."""

    def page(self, conn: Conn, booking_id: int, session: str) -> None:
        """Where it is paid from now on."""

    def hold(self, conn: Conn, booking_id: int, until: datetime) -> None:
        """Until when it holds its machine, while it is PENDING."""

    def price(self, conn: Conn, booking_id: int, total_minor: int) -> None:
        """What it costs from now on, while it is PENDING."""

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

    def expire(self, conn: Conn, booking_id: int) -> bool:
        """Guarded by its status."""
        return store.do(conn, "expire_booking", booking_id=booking_id) == 1

    def cancel(self, conn: Conn, booking_id: int) -> bool:
        """Guarded by its status."""
        return store.do(conn, "cancel_booking", booking_id=booking_id) == 1

    def page(self, conn: Conn, booking_id: int, session: str) -> None:
        """The latest alone is kept."""
        store.do(conn, "page_of_booking", booking_id=booking_id, session=session)

    def hold(self, conn: Conn, booking_id: int, until: datetime) -> None:
        """Guarded by its status."""
        store.do(conn, "hold_booking", booking_id=booking_id, until=until)

    def price(self, conn: Conn, booking_id: int, total_minor: int) -> None:
        """Guarded by its status."""
        store.do(conn, "price_booking", booking_id=booking_id, total_minor=total_minor)

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
