"""Amounts and currencies, as requests must give them."""

from __future__ import annotations

import re
from typing import Final

from mainspring_sandbox.stripe.errors import invalid, missing
from mainspring_sandbox.stripe.form import FormParams

MOST_CHARGE: Final = 99_999_999
#: The least that can be charged, in minor units; others have no least here.
LEAST: Final = {"usd": 50, "eur": 50, "gbp": 30, "chf": 50, "cad": 50, "aud": 50, "jpy": 50, "sek": 300, "dkk": 250}


def amount(params: FormParams, name: str = "amount") -> int:
    """An amount in minor units, which must be there and above nothing."""
    value = params.integer(name)
    if value is None:
        raise missing(name)
    if value < 1:
        raise invalid("This value must be greater than or equal to 1.", param=name, code="parameter_invalid_integer")
    if value > MOST_CHARGE:
        raise invalid(f"Amount must be no more than {MOST_CHARGE}", param=name, code="amount_too_large")
    return value


def currency(params: FormParams) -> str:
    """A currency in lower case, which must be there."""
    value = params.required("currency").lower()
    if not re.fullmatch("[a-z]{3}", value):
        raise invalid(f"Invalid currency: {value[:20]}", param="currency")
    return value
