"""What becomes of the money of an approved shift."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Release = Literal["release", "nothing", "unfunded"]


def release(*, status: str, disputed: bool, holds: Collection[str], paid_minutes: int | None = None) -> Release:
    """What to do for a shift with holds in these statuses.

    A dispute at the last instant keeps the money (G-36); what has left, left once; a shift that nobody paid
    for is told, unless nothing was worked.

    >>> release(status="Verified", disputed=False, holds={"Held"})
    'release'
    >>> release(status="Verified", disputed=False, holds={"Released"})
    'nothing'
    >>> release(status="Verified", disputed=False, holds={"Paid_Outside"})
    'nothing'
    >>> release(status="Verified", disputed=False, holds={"Taken", "Refunded"})
    'unfunded'
    """
    if status != "Verified" or disputed:
        return "nothing"
    if not holds or ("Taken" in holds and set(holds) <= {"Taken", "Refunded"}):
        return "nothing" if paid_minutes == 0 else "unfunded"
    return "release" if "Held" in holds else "nothing"
