"""Which failures pass by themselves, and how soon their work is created again."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

#: Time-outs, 5xx, 429, a register that is closed, permissions, a document of which nobody knows yet.
PASSING: Final = frozenset({
    "HttpException", "TIMEOUT", "RATE_LIMITED", "REGISTER_CLOSED", "INVOICING_DENIED", "INVOICE_OUTCOME_UNKNOWN",
    "DB_UNAVAILABLE", "LEASE_EXPIRED", "SENDER_MISSING",
})  # fmt: skip
_FIRST: Final = timedelta(minutes=5)
_LONGEST: Final = timedelta(minutes=20)  # the sweep comes within five more


def distance(healed: int) -> timedelta:
    """How long after its failure work is created again that was created again so often.

    >>> [distance(times) // timedelta(minutes=1) for times in (0, 1, 2, 3, 1000)]
    [5, 10, 20, 20, 20]
    """
    return min(_FIRST * (1 << min(healed, 10)), _LONGEST)
