"""What a cancelled shift costs: formula P (G-43)."""

from __future__ import annotations

from datetime import timedelta

from mainspring_apps.staffing.settings import Settings


def half_up(numerator: int, denominator: int) -> int:
    """A fraction of minor units as a whole number, halves up.

    >>> half_up(101 * 5000, 10000), half_up(1, 3)
    (51, 0)
    """
    return (2 * numerator + denominator) // (2 * denominator)


def penalty(held: int, settings: Settings, *, notice: timedelta, long_term: bool) -> int:
    """The part of a cancelled shift's hold that is owed; the rest goes back.

    >>> penalty(24000, Settings(), notice=timedelta(hours=23, minutes=59), long_term=False)
    12000
    >>> penalty(24000, Settings(), notice=timedelta(hours=24), long_term=False)
    0
    """
    enough, bps = (
        (settings.long_term_notice, settings.long_term_penalty_bps)
        if long_term
        else (settings.short_term_notice, settings.short_term_penalty_bps)
    )
    return half_up(held * bps, 10_000) if notice < enough else 0
