"""A week that is not paid for, for tests: attempts to charge it, and what the provider knows of them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any, Final

from tests.apps.staffing.town import NEXT_WEEK, NY, Booking, Town

from mainspring_apps.staffing.rules import weeks

SECOND: Final = timedelta(seconds=1)
MINUTE: Final = timedelta(minutes=1)


def at(text: str) -> datetime:
    """An instant in UTC, `at("2026-06-03T08:30")`."""
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def tried(town: Town, booking: Booking, status: str = "Failed", **values: Any) -> int:
    """An attempt to charge next week, an hour ago, for the booking's first shift."""
    period = weeks.Period(*NEXT_WEEK) if booking.zone == NY else weeks.next_week(town.now, booking.zone)
    about = {"amount_minor": 24000, "currency": "USD", "source": "weekly", "created_at": town.now - timedelta(hours=1)}
    about |= {"idempotency_key": f"test:{booking.id}", "period_start": period.start, "period_end": period.end}
    payment = town.insert("pending_payments", booking_id=booking.id, status=status, **about | values)
    for shift in booking.shifts[:1]:
        town.conn.execute("insert into staffing.payment_shifts values (%s, %s, 24000)", [payment, shift])
    return payment


def pending(town: Town, booking: Booking, card: str = "pm_card_processing") -> str:
    """The charge of next week is under way, and no webhook tells how it ends; answers its intent."""
    town.unheard()
    intent = charged(town, booking, card)
    tried(town, booking, "Pending", provider_intent_id=intent, heard_at=town.now)
    return intent


def charged(town: Town, booking: Booking, card: str = "pm_card_visa") -> str:
    """The provider has a charge of this booking; answers its intent."""
    paid = town.bank.v1.payment_intents.create(
        {"amount": 24000, "currency": "usd",
         "customer": town.row("companies", booking.borrower)["stripe_customer_id"],
         "payment_method": card, "confirm": True, "off_session": True,
         "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"}},
    )  # fmt: skip
    return paid.id


def deliver(town: Town) -> list[datetime]:
    """Let every message that waits be tried when it is due, until none waits; answers when one was not delivered.

    Where several fail together the breaker opens, and nothing dies.
    """
    failed: list[datetime] = []
    while waiting := town.waiting("notify.deliver"):
        assert len(failed) < 10, "the breaker is open"
        town.mainspring.clock.set(max(town.now, waiting[0][1]))
        ran = town.mainspring.drain(queue="q:notifications", raise_errors=False)
        failed += [run.at for run in ran if run.state in ("retrying", "dead")]
    return failed
