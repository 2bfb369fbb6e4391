"""A checkout that was paid: the booking is confirmed and its three jobs are created, in one transaction, or neither."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Final

import mainspring as ms
from mainspring.contrib.stripe import CheckoutSession, StripeEvent
from mainspring_apps.rental import invoicing, mails, rounds, store
from mainspring_apps.rental.desk import Desk
from mainspring_apps.rental.rules import checkout as rules
from mainspring_apps.rental.rules import documents
from mainspring_apps.rental.rules.checkout import Priced, Unsettled
from mainspring_apps.rental.rules.documents import Facts
from mainspring_apps.rental.store import Conn

booking_of = rules.booking_of

#: What promotes; everything else is a hint (RENT-2.01, 2.09).
PROMOTING: Final = frozenset({"checkout.session.completed", "checkout.session.async_payment_succeeded"})


@dataclass(frozen=True)
class Confirmed:
    """A booking that was confirmed, and the jobs that came of it."""

    booking_id: int
    jobs: Sequence[ms.NewJob]


def take(desk: Desk, conn: Conn, event: StripeEvent) -> Confirmed | None:
    """Take an event of Stripe, once, whoever delivers it again; None: nothing is confirmed by it."""
    if not store.do(conn, "take_event", event_id=event.id, type=event.type) or event.type not in PROMOTING:
        return None
    session = event.checkout
    return None if session is None else paid(desk, conn, session, event.created)


def paid(desk: Desk, conn: Conn, session: CheckoutSession, at: datetime) -> Confirmed | None:
    """What becomes of a session as it stands now: the one command of the webhook, of polls and of whoever accepts."""
    booking_id = rules.booking_of(session)
    facts = None if booking_id is None else desk.bookings.facts(conn, booking_id, lock=True)
    match rules.verdict(None if facts is None else _priced(facts), session):
        case "unpaid" | "repeat":
            return None
        case "confirm":
            assert facts is not None
            assert session.intent is not None
            return confirm(desk, conn, facts.id, session.intent, at)
        case why:
            _settle_later(desk, conn, why, booking_id, session)
            return None


def confirm(desk: Desk, conn: Conn, booking_id: int, intent: str, at: datetime) -> Confirmed:
    """Confirm a booking that is locked and waits, and create its three jobs."""
    if not desk.bookings.confirm(conn, booking_id, intent=intent, paid_at=at):
        raise RuntimeError(f"booking {booking_id} changed while it was locked")
    jobs: list[ms.NewJob] = [
        invoicing.issue_invoice.job(booking_id=booking_id, stripe_payment_intent_id=intent, round=1),
        mails.send_customer_confirmation.job(booking_id=booking_id, round=1),
        mails.send_internal_confirmation.job(booking_id=booking_id, round=1),
    ]
    rounds.start(desk, conn, booking_id, *jobs)
    desk.record(conn, "confirmed", "booking", booking_id, booking_id=booking_id, after={"payment_intent": intent})
    facts = desk.bookings.facts(conn, booking_id)
    if facts is not None and documents.over(facts, desk.now(conn), desk.settings.zone):
        text = "it was paid for after the rental was over: what becomes of it?"
        desk.alert(conn, "rental_over", desk.subject(booking_id), text, critical=True, booking_id=booking_id)
    return Confirmed(booking_id, jobs)


def _settle_later(desk: Desk, conn: Conn, why: Unsettled, booking_id: int | None, session: CheckoutSession) -> None:
    """Money that confirms nothing is listed until somebody has settled it; it is never invoiced (RENT-20.11)."""
    intent, amount = session.intent, session.amount
    assert intent is not None
    if store.do(
        conn, "to_settle", payment_intent=intent, booking_id=booking_id, reason=why, amount_minor=amount.minor,
        currency=amount.currency,
    ):  # fmt: skip
        text = f"{rules.WHY[why]}: give {amount} back, or settle it"
        desk.alert(conn, why.lower(), intent, text, critical=True, booking_id=booking_id, amount=str(amount))


def _priced(facts: Facts) -> Priced:
    assert facts.total_minor is not None
    return Priced(
        status=facts.status, total_minor=facts.total_minor, currency=facts.currency,
        stripe_payment_intent_id=facts.stripe_payment_intent_id,
    )  # fmt: skip
