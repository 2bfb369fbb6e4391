"""When a hold ends: with the payment, with the page, or with the last day that a voucher may take (RENT-20.07)."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Literal

import msgspec


class Held(msgspec.Struct, frozen=True, kw_only=True):
    """A booking, and how its page stands at Stripe."""

    status: str
    held_until: datetime
    paid: bool
    waits_since: datetime | None  # since when a voucher is out, or a bank decides
    ended: bool  # the page has expired, or its payment has failed
    disputed: bool  # another amount was paid, and nobody has said yet what becomes of it


def ending(held: Held, now: datetime, delayed_days: int) -> Literal["paid", "expire", "leave"] | datetime:
    """What becomes of a booking; an instant says when to look again.

    >>> from datetime import UTC
    >>> at = datetime(2026, 6, 1, tzinfo=UTC)
    >>> held = Held(status="PENDING", held_until=at, paid=False, waits_since=None, ended=False, disputed=False)
    >>> ending(held, at, 8), ending(held, at - timedelta(seconds=1), 8)
    ('expire', 'leave')
    """
    if held.paid:
        return "paid"
    if held.status != "PENDING":
        return "leave"
    if held.disputed:
        return now + timedelta(hours=1)
    if held.waits_since is not None:
        last = held.waits_since + timedelta(days=delayed_days)
        return "expire" if now >= last else last
    return "expire" if held.ended or now >= held.held_until else "leave"
