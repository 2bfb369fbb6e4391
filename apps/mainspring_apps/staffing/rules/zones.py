"""Names of time zones, as people write them."""

from __future__ import annotations

from functools import lru_cache

import mainspring as ms
from mainspring.when import check_zone
from mainspring_apps.staffing.states import Refused


@lru_cache(maxsize=1024)
def problem(name: str) -> str | None:
    """Why a name is no zone; None: it is one.

    >>> problem("Asia/Kathmandu"), problem("europe/london")
    (None, "is not a time zone (did you mean 'Europe/London'?)")
    """
    try:
        check_zone(name)
    except ms.ValidationError as error:
        return str(error).removeprefix("zone: ")
    return None


def check(field: str, name: str) -> None:
    """Refuse what is not the exact name of a zone."""
    if found := problem(name):
        raise Refused(f"{field}: {found}", field=field)
