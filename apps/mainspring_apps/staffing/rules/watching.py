"""When operations should hear of it: which shares, counts and delays are too much (STAFF-15)."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta

from mainspring_apps.staffing.settings import Settings


def more_than(percent: int, part: int, whole: int, *, sample: int) -> bool:
    """Whether a part is more than so many of a hundred, of a sample that is large enough to say so (G-55).

    >>> [more_than(5, *counts, sample=20) for counts in ((5, 100), (6, 100), (19, 19))]
    [False, True, False]
    """
    return whole >= sample and part * 100 > whole * percent


def failing(failed: int, payments: int, settings: Settings) -> bool:
    """Whether too many payments of a run have failed; a declined card counts as any other cause.

    >>> failing(4, 4, Settings()), failing(19, 19, Settings())
    (False, True)
    """
    return more_than(settings.failed_payments_percent, failed, payments, sample=settings.failed_payments_least)


def unsteady(retried: int, jobs: int, settings: Settings) -> bool:
    """Whether too many of an hour's jobs had to be tried again."""
    return more_than(settings.retried_jobs_percent, retried, jobs, sample=settings.alert_min_sample)


def crowded(dead: int, settings: Settings) -> bool:
    """Whether too many dead letters wait for somebody."""
    return dead > settings.dead_letters


def late(waits: timedelta, settings: Settings) -> bool:
    """Whether a due job waits too long for its start."""
    return waits > settings.late_start


def causes(failures: Mapping[str, int]) -> str:
    """Why payments failed, the most frequent cause first.

    >>> causes({"no_card": 2, "insufficient_funds": 4, "lost_card": 2})
    'insufficient_funds 4, lost_card 2, no_card 2'
    """
    return ", ".join(f"{cause} {n}" for cause, n in sorted(failures.items(), key=lambda item: (-item[1], item[0])))
