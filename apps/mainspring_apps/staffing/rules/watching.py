"""When operations should hear of it: which shares, counts and delays are too much (STAFF-15)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from mainspring_apps.staffing.settings import (
    ALERT_MIN_SAMPLE,
    DEAD_LETTERS,
    FAILED_PAYMENTS_PERCENT,
    LATE_START,
    RETRIED_JOBS_PERCENT,
)


def more_than(percent: int, part: int, whole: int) -> bool:
    """Whether a part is more than so many of a hundred, of a sample that is large enough to say so (G-55).

    >>> more_than(5, 5, 100), more_than(5, 6, 100), more_than(5, 19, 19)
    (False, True, False)
    """
    return whole >= ALERT_MIN_SAMPLE and part * 100 > whole * percent


def failing(failed: int, payments: int) -> bool:
    """Whether too many payments of a run have failed; a declined card counts as any other cause."""
    return more_than(FAILED_PAYMENTS_PERCENT, failed, payments)


def unsteady(retried: int, jobs: int) -> bool:
    """Whether too many of an hour's jobs had to be tried again."""
    return more_than(RETRIED_JOBS_PERCENT, retried, jobs)


def crowded(dead: int) -> bool:
    """Whether too many dead letters wait for somebody."""
    return dead > DEAD_LETTERS


def late(waits: timedelta) -> bool:
    """Whether a due job waits too long for its start."""
    return waits > LATE_START


def causes(failures: Mapping[str, int]) -> str:
    """Why payments failed, the most frequent cause first.

    >>> causes({"no_card": 2, "insufficient_funds": 4, "lost_card": 2})
    'insufficient_funds 4, lost_card 2, no_card 2'
    """
    return ", ".join(f"{cause} {n}" for cause, n in sorted(failures.items(), key=lambda item: (-item[1], item[0])))
