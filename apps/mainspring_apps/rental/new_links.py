"""A new link to an invoice, for who holds an old one: sent to the booking's own address, once an hour (RENT-7.09)."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from mainspring_apps.frame.refusal import Refused
from mainspring_apps.rental import mails, rounds, store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.events import event
from mainspring_apps.rental.people import By
from mainspring_apps.rental.store import Conn

NEW_LINK_PAUSE: Final = timedelta(hours=1)


@event
def ask_for_link(desk: Desk, conn: Conn, booking_id: int, *, by: By) -> None:
    """Send the mail with the link once more; whoever asks learns nothing of where it goes."""
    last = store.value(conn, "latest_mail_job", booking_id=booking_id)
    if last is None or desk.now(conn) - last < NEW_LINK_PAUSE:
        raise Refused("booking_id: a mail is on its way; another can be asked for in an hour", field="booking_id")
    number = rounds.next_round(conn, booking_id, "send_invoice_ready")
    desk.bookings.stamp_mail(conn, booking_id, "invoice", None)
    rounds.start(
        desk, conn, booking_id, mails.send_invoice_ready.job(booking_id=booking_id, round=number), number=number
    )  # fmt: skip
    desk.record(conn, "link_asked_for", "booking", booking_id, booking_id=booking_id)
