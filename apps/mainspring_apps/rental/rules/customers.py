"""What is asked of a customer: a tax number that can be one, and a name where the law wants it (RENT-20.19)."""

from __future__ import annotations

import re
from typing import Final

from mainspring_apps.frame.refusal import Refused

_NIF: Final = re.compile(r"[0-9]{9}")
_BREAK: Final = re.compile(r"[\x00-\x1f\x7f\u2028\u2029]")


def nif_holds(number: str) -> bool:
    """Whether a Portuguese tax number has its check digit.

    >>> nif_holds("123456789"), nif_holds("123456788")
    (True, False)
    """
    if not _NIF.fullmatch(number):
        return False
    rest = sum(int(digit) * weight for digit, weight in zip(number, range(9, 1, -1), strict=False)) % 11
    return int(number[8]) == (0 if rest < 2 else 11 - rest)


def check_tax_number(country: str, number: str | None) -> None:
    """Refuse a Portuguese number that is none; another country's is printed as it is given."""
    if number is not None and country == "PT" and not nif_holds(number):
        raise Refused("tax_number: is not a NIF: its check digit is wrong", field="tax_number")


def check_named(total: int, required: int, number: str | None, name: str, address: str | None) -> None:
    """Refuse to sell for so much to somebody whom nobody can name on the invoice."""
    if total >= required and number is None:
        if not name.strip():
            raise Refused("customer_name: is needed from this total on, without a NIF", field="customer_name")
        if not address or not address.strip():
            raise Refused("billing_address: is needed from this total on, without a NIF", field="billing_address")


def check_line(field: str, text: str) -> None:
    """Refuse what would begin another line, of a header or a document (RENT-11.04)."""
    if _BREAK.search(text):
        raise Refused(f"{field}: has a line break or a control character", field=field)


def masked(address: str) -> str:
    """A mail address as who only looks sees it (RENT-11.03).

    >>> masked("jo.doe@example.com")
    'j***@example.com'
    """
    local, _, domain = address.rpartition("@")
    return f"{local[:1]}***@{domain}"
