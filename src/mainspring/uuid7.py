"""UUID version 7: ids that sort by time, so that inserts stay at the right edge of an index."""

from __future__ import annotations

import os
import time
from uuid import UUID


def uuid7() -> UUID:
    """A fresh id: 48 bits of milliseconds, then random bits.

    The worker's clock only helps locality here; nothing is decided by it.
    """
    millis = time.time_ns() // 1_000_000
    random = int.from_bytes(os.urandom(10), "big")
    value = (millis & 0xFFFF_FFFF_FFFF) << 80 | random
    value = value & ~(0xF000 << 64) | (0x7000 << 64)
    value = value & ~(0xC000 << 48) | (0x8000 << 48)
    return UUID(int=value)
