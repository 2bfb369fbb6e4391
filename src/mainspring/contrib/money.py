"""Money: a whole number of minor units and a currency. No floats, and currencies are never added together."""

from __future__ import annotations

from collections.abc import Iterable
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Final

import msgspec

from mainspring.errors import ValidationError

#: How many decimals people write, where it is not two; as Stripe counts (UGX and ISK have two there).
DECIMALS: Final = dict.fromkeys(
    ("BIF", "CLP", "DJF", "GNF", "JPY", "KMF", "KRW", "MGA", "PYG", "RWF", "VND", "VUV", "XAF", "XOF", "XPF"), 0
) | dict.fromkeys(("BHD", "JOD", "KWD", "OMR", "TND"), 3)
LARGEST_AMOUNT: Final = 2**63 - 1  # what a bigint holds
_EXACT: Final = Context(traps=[InvalidOperation, Inexact])  # the usual one rounds what has many digits


class CurrencyMismatch(ValidationError):
    """Two currencies cannot be added or compared."""


class Money(msgspec.Struct, frozen=True):
    """So many minor units of a currency: cents, pence, or yen, which have none.

    >>> Money(1250, "EUR") + Money(50, "eur")
    Money(minor=1300, currency='EUR')
    >>> str(Money(1250, "EUR")), str(Money(1250, "JPY")), str(Money(-1250, "KWD"))
    ('12.50 EUR', '1250 JPY', '-1.250 KWD')
    """

    minor: int
    currency: str

    def __post_init__(self) -> None:
        if isinstance(self.minor, bool) or not isinstance(self.minor, int):
            raise ValidationError(
                f"minor: is a {type(self.minor).__name__}; money is a whole number of minor units", field="minor"
            )
        if abs(self.minor) > LARGEST_AMOUNT:
            raise ValidationError("minor: is larger than a bigint holds", field="minor")
        code = self.currency
        if not (isinstance(code, str) and len(code) == 3 and code.isascii() and code.isalpha()):
            raise ValidationError("currency: is not a code of three letters, such as EUR", field="currency")
        msgspec.structs.force_setattr(self, "currency", code.upper())

    @classmethod
    def of(cls, amount: str | int | Decimal, currency: str) -> Money:
        """From what people write, exactly or not at all.

        >>> Money.of("12.50", "EUR").minor, Money.of(1250, "JPY").minor, Money.of("1.5", "KWD").minor
        (1250, 1250, 1500)
        """
        if isinstance(amount, bool) or not isinstance(amount, str | int | Decimal):
            raise ValidationError(f"amount: is a {type(amount).__name__}; write a text or a Decimal", field="amount")
        unit = cls(1, currency)
        try:
            minor = Decimal(amount).scaleb(unit.decimals, _EXACT)
            exact = minor.is_finite() and abs(minor) <= LARGEST_AMOUNT and minor == int(minor)
        except (DecimalException, ValueError):
            exact = False
        if not exact:
            raise ValidationError(f"amount: is not a number with at most {unit.decimals} decimals", field="amount")
        return cls(int(minor), currency)

    @property
    def decimals(self) -> int:
        """How many decimals people write."""
        return DECIMALS.get(self.currency, 2)

    def __str__(self) -> str:
        whole, part = divmod(abs(self.minor), 10**self.decimals)
        sign, fraction = "-" if self.minor < 0 else "", f".{part:0{self.decimals}}" if self.decimals else ""
        return f"{sign}{whole}{fraction} {self.currency}"

    def __add__(self, other: Money) -> Money:
        return Money(self.minor + self._same(other), self.currency)

    def __sub__(self, other: Money) -> Money:
        return Money(self.minor - self._same(other), self.currency)

    def __neg__(self) -> Money:
        return Money(-self.minor, self.currency)

    def __mul__(self, times: int) -> Money:
        if isinstance(times, bool) or not isinstance(times, int):
            raise ValidationError(f"times: is a {type(times).__name__}; use split for parts", field="times")
        return Money(self.minor * times, self.currency)

    def __lt__(self, other: Money) -> bool:
        return self.minor < self._same(other)

    def __le__(self, other: Money) -> bool:
        return self.minor <= self._same(other)

    def __gt__(self, other: Money) -> bool:
        return self.minor > self._same(other)

    def __ge__(self, other: Money) -> bool:
        return self.minor >= self._same(other)

    def __bool__(self) -> bool:
        return self.minor != 0

    def split(self, *weights: int) -> list[Money]:
        """Divide without losing a unit: what cannot be divided goes to the largest remainders, the first of equals.

        >>> [str(part) for part in Money(101, "EUR").split(1, 1)]
        ['0.51 EUR', '0.50 EUR']
        """
        if (
            not weights
            or any(isinstance(w, bool) or not isinstance(w, int) or w < 0 for w in weights)
            or not any(weights)
        ):
            raise ValidationError("weights: are not whole numbers from 0, one of them above", field="weights")
        whole, sign, total = abs(self.minor), -1 if self.minor < 0 else 1, sum(weights)
        parts = [whole * weight // total for weight in weights]
        by_remainder = sorted(range(len(weights)), key=lambda i: -(whole * weights[i] % total))
        for i in by_remainder[: whole - sum(parts)]:
            parts[i] += 1
        return [Money(sign * part, self.currency) for part in parts]

    def _same(self, other: Money) -> int:
        if not isinstance(other, Money):
            raise ValidationError(f"money: a {type(other).__name__} is no money", field="money")
        if other.currency != self.currency:
            raise CurrencyMismatch(f"currency: {self.currency} and {other.currency} do not mix", field="currency")
        return other.minor


def total(amounts: Iterable[Money], currency: str) -> Money:
    """The sum; of nothing, zero of the currency.

    >>> str(total([Money(100, "EUR"), Money(250, "EUR")], "EUR")), str(total([], "JPY"))
    ('3.50 EUR', '0 JPY')
    """
    sum_ = Money(0, currency)
    for amount in amounts:
        sum_ += amount
    return sum_
