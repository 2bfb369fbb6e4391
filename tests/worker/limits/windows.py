"""What a rate limit promises, checked on instants that handlers wrote down themselves."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable


def largest(instants: Iterable[float], per: float) -> int:
    """The most that lie in any window of this length: each window that starts with an instant is looked at."""
    ordered = sorted(instants)
    return max((bisect_left(ordered, start + per) - n for n, start in enumerate(ordered)), default=0)
