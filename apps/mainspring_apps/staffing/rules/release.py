"""What becomes of the money of an approved shift."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Release = Literal["release", "nothing", "unfunded"]


def unpaid(holds: Collection[str]) -> bool:
    """Whether nobody has paid for a shift with holds in these statuses, or what they paid was taken back."""
    return not holds or ("Taken" in holds and set(holds) <= {"Taken", "Refunded"})


def release(
    *, status: str, disputed: bool, holds: Collection[str], paid_minutes: int | None = None,
    settled_minor: int | None = None,
) -> Release:  # fmt: skip
    """What to do for a shift with holds in these statuses.

    A dispute at the last instant keeps the money (G-36); what has left, left once; a shift that nobody paid
    for is told, unless nothing was worked, or it was settled that nothing is owed.

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
    if unpaid(holds):
        return "nothing" if 0 in (paid_minutes, settled_minor) else "unfunded"
    return "release" if "Held" in holds else "nothing"
