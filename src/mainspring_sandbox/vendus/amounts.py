"""Money at Vendus: whole cents inside, texts outside, and VAT taken out of a price that holds it."""

from __future__ import annotations

from decimal import ROUND_HALF_UP, Decimal
from typing import Final

#: Rates of the mainland, by Vendus' name for them.
PERCENT: Final = {"NOR": 23, "INT": 13, "RED": 6, "ISE": 0}


def cents(amount: Decimal) -> int:
    """An amount in whole cents.

    >>> cents(Decimal("81.305"))
    8131
    """
    return int((amount * 100).quantize(Decimal(1), ROUND_HALF_UP))


def euros(minor: int) -> str:
    """Cents as Vendus writes them.

    >>> euros(8130), euros(-5)
    ('81.30', '-0.05')
    """
    return f"{'-' if minor < 0 else ''}{abs(minor) // 100}.{abs(minor) % 100:02}"


def net_of(gross: int, tax_id: str) -> int:
    """What is left of a price in cents when VAT is taken out.

    >>> net_of(12300, "NOR"), net_of(1, "NOR")
    (10000, 1)
    """
    return cents(Decimal(gross) / (100 + PERCENT[tax_id]))
