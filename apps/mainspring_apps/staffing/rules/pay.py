"""What a shift costs, and what a week does (G-10)."""

from __future__ import annotations

from mainspring_apps.staffing.rules.penalty import half_up
from mainspring_apps.staffing.settings import PLATFORM_FEE_BPS


def shift_pay(planned_minutes: int, rate_minor: int) -> int:
    """The price of a shift in minor units: planned minutes at an hourly rate, half a unit up, and the platform's fee.

    >>> shift_pay(480, 3000), shift_pay(50, 1001)
    (24000, 834)
    """
    price = half_up(planned_minutes * rate_minor, 60)
    return price + half_up(price * PLATFORM_FEE_BPS, 10_000)
