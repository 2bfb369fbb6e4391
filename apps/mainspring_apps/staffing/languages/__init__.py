"""The languages in which the marketplace speaks, with their catalogues beside this module.

Dates in English are written as the source writes them (STAFF-3.18, 14.10).
"""

from __future__ import annotations

from pathlib import Path
from typing import Final

from mainspring_apps.frame.catalogue import Languages
from mainspring_apps.frame.values import ENGLISH as ENGLISH
from mainspring_apps.frame.values import clock, day, minutes, money
from mainspring_apps.frame.values import instant_of as instant_of
from mainspring_apps.frame.values import moment as moment

SPOKEN: Final = Languages(
    Path(__file__).parent,
    {
        "Amount": money, "To lender": money, "To borrower": money, "Date": day, "Sunday date": day, "Minutes": minutes,
        "Cutoff": clock, "End": clock,
    },
)  # fmt: skip
check = SPOKEN.check
