"""Names of things at the payment provider, as it writes them."""

from __future__ import annotations

import re
from typing import Final

from mainspring_apps.staffing.states import Refused

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,255}")


def check(field: str, name: str) -> None:
    """Refuse what cannot be a customer, a card or an account there: nobody could be charged or paid by it.

    >>> check("account", "acct_1")
    >>> check("account", "acct 1")
    Traceback (most recent call last):
    mainspring_apps.staffing.states.Refused: account: is not an id of the payment provider
    """
    if not _NAME.fullmatch(name):
        raise Refused(f"{field}: is not an id of the payment provider", field=field)
