"""What a cancelled shift costs: formula P (G-43)."""

from __future__ import annotations

from datetime import timedelta

from mainspring_apps.staffing.settings import (
    LONG_TERM_NOTICE_HOURS,
    LONG_TERM_PENALTY_BPS,
    NOTICE_HOURS,
    SHORT_TERM_PENALTY_BPS,
)


def half_up(numerator: int, denominator: int) -> int:
    """A fraction of minor units as a whole number, halves up.

    >>> half_up(101 * 5000, 10000), half_up(1, 3)
    (51, 0)
    """
    return (2 * numerator + denominator) // (2 * denominator)


def penalty(held: int, *, notice: timedelta, long_term: bool) -> int:
    """The part of a cancelled shift's hold that is owed; the rest goes back.

    >>> penalty(24000, notice=timedelta(hours=23, minutes=59), long_term=False)
    12000
    >>> penalty(24000, notice=timedelta(hours=24), long_term=False)
    0
    """
    hours, bps = (
        (LONG_TERM_NOTICE_HOURS, LONG_TERM_PENALTY_BPS) if long_term else (NOTICE_HOURS, SHORT_TERM_PENALTY_BPS)
    )
    return half_up(held * bps, 10_000) if notice < timedelta(hours=hours) else 0
