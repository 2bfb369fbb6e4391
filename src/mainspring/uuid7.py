"""UUID version 7: ids that sort by time, so that inserts stay at the right edge of an index."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from uuid import UUID

#: Fewer digits of an id name too much: with eight it is what one minute made.
FEWEST_DIGITS = 8
_clock: Callable[[], int] = time.time_ns
_draw: Callable[[int], bytes] = os.urandom


def uuid7() -> UUID:
    """A fresh id: 48 bits of milliseconds, 12 of their fraction, then random bits.

    The fraction is finer than one call is short, so the jobs of a batch sort in the order in which they were made.
    The worker's clock only helps locality and this order; nothing else is decided by it.
    """
    ticks = _clock() * 4096 // 1_000_000
    random = int.from_bytes(_draw(8), "big") >> 2
    return UUID(int=(ticks >> 12 & 0xFFFF_FFFF_FFFF) << 80 | 0x7 << 76 | (ticks & 0xFFF) << 64 | 0b10 << 62 | random)


def beginning_with(digits: str) -> tuple[UUID, UUID]:
    """The lowest and the highest id that begin with these digits; ValueError: they do not name few enough.

    >>> [str(end) for end in beginning_with("0199d2f6-7a")]
    ['0199d2f6-7a00-0000-0000-000000000000', '0199d2f6-7aff-ffff-ffff-ffffffffffff']
    """
    hexadecimal = digits.replace("-", "")
    if not FEWEST_DIGITS <= len(hexadecimal) <= 32 or not set(hexadecimal.lower()) <= set("0123456789abcdef"):
        raise ValueError(f"is neither an id nor its first {FEWEST_DIGITS} digits or more")
    return UUID(hexadecimal.ljust(32, "0")), UUID(hexadecimal.ljust(32, "f"))


@contextmanager
def drawn_from(clock: Callable[[], int], draw: Callable[[int], bytes]) -> Iterator[None]:
    """Inside the block, ids come from a clock (in nanoseconds) and from random bytes that somebody else gives."""
    global _clock, _draw
    before = _clock, _draw
    _clock, _draw = clock, draw
    try:
        yield
    finally:
        _clock, _draw = before
