"""Categories of work: the queue, the retry policy and the key's life time that a task gets unless it says otherwise."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from mainspring.retry import Retry, exponential, fixed

QUEUES: Final = (
    "q:critical",
    "q:default",
    "q:notifications",
    "q:planning",
    "q:exports",
    "q:maintenance",
    "q:deadletter",
)
DEAD_LETTER: Final = "q:deadletter"


@dataclass(frozen=True, slots=True)
class Category:
    """Defaults that tasks of one kind of work share."""

    name: str
    queue: str
    retry: Retry
    key_ttl: timedelta | None  # how long a finished job's key is remembered; None: for ever


CATEGORIES: Final = {
    category.name: category
    for category in (
        Category("default", "q:default", exponential(), timedelta(days=30)),
        Category("critical", "q:critical", exponential(), timedelta(days=30)),
        Category("audit", "q:default", exponential(), timedelta(days=30)),
        Category("maintenance", "q:maintenance", exponential(), timedelta(days=7)),
        Category("notifications", "q:notifications", exponential(attempts=10, cap=1800), timedelta(days=7)),
        Category("planning", "q:planning", exponential(attempts=3, cap=120), timedelta(days=30)),
        Category("exports", "q:exports", exponential(attempts=5, cap=600), timedelta(days=30)),
        Category("rental", "q:default", fixed(60, attempts=3), None),
        Category("billing", "q:default", exponential(base=30, cap=1800, attempts=10), None),
        Category("passport", "q:default", exponential(base=2, cap=1024, jitter="none"), timedelta(days=30)),
    )
}
