"""Money: whole minor units and a currency, never a float, never two currencies in one sum."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

from mainspring import ValidationError
from mainspring.contrib.money import DECIMALS, LARGEST_AMOUNT, CurrencyMismatch, Money, total

minors = some.integers(-(10**15), 10**15)
currencies = some.sampled_from(["EUR", "USD", "JPY", "KWD", "UGX"])
monies = some.builds(Money, minors, currencies)


@pytest.mark.rule("STAFF-19.09")
@given(some.lists(minors), currencies)
def test_a_sum_is_the_sum_of_its_minor_units(minors: list[int], currency: str) -> None:
    assert total([Money(minor, currency) for minor in minors], currency) == Money(sum(minors), currency)


@pytest.mark.rule("STAFF-19.09")
@given(monies, monies)
def test_two_currencies_are_neither_added_nor_compared(one: Money, other: Money) -> None:
    acts: list[Any] = [one.__add__, one.__sub__, one.__lt__, one.__le__, one.__gt__, one.__ge__]
    for act in acts:
        if one.currency == other.currency:
            act(other)
        else:
            with pytest.raises(CurrencyMismatch, match=f"{one.currency} and {other.currency}"):
                act(other)
    if one.currency == other.currency:
        assert (one < other, one <= other) == (one.minor < other.minor, one.minor <= other.minor)
        assert (one > other, one >= other) == (one.minor > other.minor, one.minor >= other.minor)
    assert (one == other) is ((one.minor, one.currency) == (other.minor, other.currency))


@pytest.mark.rule("STAFF-19.09")
@given(monies, some.lists(some.integers(0, 1000), min_size=1).filter(any))
def test_parts_of_a_split_are_fair_and_sum_up_to_the_whole(money: Money, weights: list[int]) -> None:
    parts = money.split(*weights)

    assert total(parts, money.currency) == money
    for part, weight in zip(parts, weights, strict=True):
        assert abs(part.minor - Decimal(money.minor) * weight / sum(weights)) < 1


@given(monies)
def test_what_is_written_is_read_again(money: Money) -> None:
    amount, currency = str(money).split(" ")

    assert Money.of(amount, currency) == Money.of(Decimal(amount), currency) == money
    assert msgspec.json.decode(msgspec.json.encode(money), type=Money) == money


@pytest.mark.rule("STAFF-19.09")
@pytest.mark.parametrize("minor", [12.5, 12.0, float("nan"), Decimal(12), "12", True, None])
def test_only_whole_numbers_are_money(minor: Any) -> None:
    with pytest.raises(ValidationError, match=f"minor: is a {type(minor).__name__}") as refused:
        Money(minor, "EUR")
    assert refused.value.field == "minor"


def test_floats_are_refused_wherever_they_come_in() -> None:
    some: Any = 1.5
    for act in (lambda: Money.of(some, "EUR"), lambda: Money(12, "EUR") * some, lambda: Money(12, "EUR") + some):
        with pytest.raises(ValidationError, match="float"):
            act()


@pytest.mark.parametrize("amount", ["12.505", "", "twelve", "NaN", "Infinity", "1e30", "1e-9", "12.5" + "0" * 30 + "1"])
def test_an_amount_is_exact_or_refused(amount: str) -> None:
    with pytest.raises(ValidationError, match="at most 2 decimals"):
        Money.of(amount, "EUR")


@pytest.mark.parametrize("currency", ["", "EU", "EURO", "E R", "€€€", "12E", None, 978])
def test_a_currency_is_three_letters(currency: Any) -> None:
    with pytest.raises(ValidationError, match="currency: is not a code of three letters"):
        Money(1, currency)


@pytest.mark.rule("STAFF-19.09")
def test_decimals_are_a_matter_of_writing_only() -> None:
    assert {str(Money(123456, code)) for code in ("EUR", "JPY", "KWD")} == {"1234.56 EUR", "123456 JPY", "123.456 KWD"}
    assert [str(Money(-5, code)) for code in ("EUR", "JPY", "KWD")] == ["-0.05 EUR", "-5 JPY", "-0.005 KWD"]
    assert Money(500, "JPY").split(1, 1, 1) == [Money(167, "JPY"), Money(167, "JPY"), Money(166, "JPY")]
    assert DECIMALS["JPY"] == 0
    assert DECIMALS["KWD"] == 3
    assert "UGX" not in DECIMALS  # two, where Stripe counts


def test_no_money_is_larger_than_the_database_holds() -> None:
    with pytest.raises(ValidationError, match="bigint"):
        Money(LARGEST_AMOUNT, "EUR") + Money(1, "EUR")


@pytest.mark.parametrize("weights", [(), (0,), (-1, 2), (1.5,), (True,)])
def test_weights_are_whole_numbers(weights: tuple[Any, ...]) -> None:
    with pytest.raises(ValidationError, match="weights"):
        Money(100, "EUR").split(*weights)
