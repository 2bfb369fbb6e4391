"""What the applications' documents call their work and their queues, declared as those applications will."""

from __future__ import annotations

import mainspring as ms
from mainspring.category import CATEGORIES, Category

RENTAL = ms.Category("rental", retry=ms.fixed(60, attempts=3), key_ttl=None)
BILLING = ms.Category("billing", retry=ms.exponential(base=30, cap=1800, attempts=10), key_ttl=None)
PLANNING = ms.Category("planning", queue="q:planning", retry=ms.exponential(attempts=3, cap=120))
EXPORTS = ms.Category("exports", queue="q:exports", retry=ms.exponential(attempts=5, cap=600))
PASSPORT = ms.Category("passport", retry=ms.exponential(base=2, cap=1024, jitter="none"))

#: The engine's and theirs.
ALL_CATEGORIES: dict[str, Category] = CATEGORIES | {
    category.name: category for category in (RENTAL, BILLING, PLANNING, EXPORTS, PASSPORT)
}

PLANNING_QUEUES = (ms.Queue("q:planning", start_target="2m"), ms.Queue("q:exports", start_target="5m"))
