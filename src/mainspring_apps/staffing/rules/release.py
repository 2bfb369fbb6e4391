"""What becomes of the money of an approved shift."""

from __future__ import annotations

from collections.abc import Collection
from typing import Literal

Release = Literal["release", "nothing", "unfunded", "no_account"]


def release(*, status: str, disputed: bool, holds: Collection[str], account: str | None) -> Release:
    """What to do for a shift with holds in these statuses, whose lender is paid there.

    A dispute at the last instant keeps the money (G-36); what has left, left once; a shift that nobody paid for is
    told; a lender without an account waits (G-65).

    >>> release(status="Verified", disputed=False, holds={"Held"}, account="acct_1")
    'release'
    >>> release(status="Verified", disputed=False, holds={"Released"}, account="acct_1")
    'nothing'
    """
    if status != "Verified" or disputed:
        return "nothing"
    if not holds:
        return "unfunded"
    if "Held" not in holds:
        return "nothing"
    return "release" if account else "no_account"
