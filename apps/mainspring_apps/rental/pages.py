"""The page on which a booking is paid: Stripe's own, open as long as the hold lasts (RENT-20.06, 20.11)."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring_apps.frame.refusal import Refused, missing
from mainspring_apps.rental import holds
from mainspring_apps.rental.desk import Desk

#: Half an hour is the least that Stripe takes, by its own clock.
SHORTEST_PAGE: Final = timedelta(minutes=31)


def open_page(desk: Desk, booking_id: int) -> str:
    """The address of a page on which a booking is paid; one that is open already is opened no second time.

    It calls Stripe, so it is no event: a shop calls it after its booking has committed. An older page of the booking
    is closed first, so that nobody pays twice. Stripe takes no page for less than half an hour: a hold that ends before
    goes on as long.
    """
    with desk.connection() as conn, ms.calling(ms.Caller()):
        facts = desk.bookings.facts(conn, booking_id, lock=True)
        now = desk.now(conn)
        if facts is None:
            raise missing("booking_id", booking_id)
        if facts.status != "PENDING" or facts.held_until is None or facts.held_until <= now:
            raise Refused(f"booking_id: is not held any more: {facts.status}", field="booking_id")
        until = max(facts.held_until, now + SHORTEST_PAGE)
        if until > facts.held_until:
            desk.bookings.hold(conn, booking_id, until)
            holds.begin(desk, conn, booking_id, until)
    assert facts.total_minor is not None
    stripe, before = desk.stripe.sync, facts.stripe_session_id
    if before is not None and stripe.expire_session(before, key=f"rental:expire:{before}").status == "complete":
        raise Refused("booking_id: is paid for, or a voucher is out for it", field="booking_id")
    session = stripe.checkout(
        Money(facts.total_minor, facts.currency),
        title=facts.machine or f"{booking_id}",
        success_url=f"{desk.settings.app_url}/bookings/{booking_id}",
        key=f"rental:page:{booking_id}:{before}",
        reference=str(booking_id),
        expires_at=until,
        email=facts.customer_email,
        methods=desk.settings.payment_methods or None,
        locale="pt" if facts.locale == "pt-PT" else facts.locale,
    )
    with desk.connection() as conn, ms.calling(ms.Caller()):
        desk.bookings.page(conn, booking_id, session.id)
    return session.url or ""
