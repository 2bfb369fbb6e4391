"""How much goes back, who may say so, and what a credit note says."""

from __future__ import annotations

from datetime import date, datetime, timedelta

from mainspring.contrib.vendus import vat_of
from mainspring_apps.frame.refusal import NotAllowed, Refused
from mainspring_apps.rental.rules import days


def proposal(start: date, zone: str, now: datetime, left: int, free_hours: int) -> int:
    """What is proposed to go back: everything with enough notice, else nothing (RENT-20.13)."""
    return left if days.starts(start, zone) - now >= timedelta(hours=free_hours) else 0


def check_amount(amount: int, paid: int, given_back: int) -> None:
    """Refuse to give back what is not there: all refunds of a payment together never exceed it (RENT-20.15)."""
    if amount < 1:
        raise Refused("amount_minor: is not positive", field="amount_minor")
    if given_back + amount > paid:
        raise Refused(f"amount_minor: only {paid - given_back} of the payment are left", field="amount_minor")


def check_limit(amount: int, given_back: int, limit: int, *, unlimited: bool) -> None:
    """Refuse an operator who would give back more of a booking than operators may (RENT-20.03)."""
    if not unlimited and given_back + amount > limit:
        raise NotAllowed(f"by: an operator gives back up to {limit} of a booking: ask an admin", field="by")


def check_documented(state: str | None, *, keeps_money: bool, invoicing: bool) -> None:
    """Refuse to cancel what needs a document and has none yet (RENT-20.14)."""
    if invoicing and (state in ("reserved", "unknown") or (keeps_money and state != "issued")):
        raise Refused("booking_id: INVOICE_FIRST: its invoice must stand before it is cancelled", field="booking_id")


def credited(gross: int, bps: int, left: tuple[int, int]) -> tuple[int, int]:
    """Net and VAT of a credit note; the one that brings the invoice to zero takes what is left of both (RENT-20.18).

    >>> credited(3333, 2300, (8130, 1870)), credited(3334, 2300, (2710, 624))
    ((2710, 623), (2710, 624))
    """
    return left if gross == sum(left) else vat_of(gross, bps)
