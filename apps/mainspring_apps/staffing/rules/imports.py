"""What of a running booking can be imported: its dates, its price, and how each of its shifts is paid for."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from decimal import Decimal
from typing import Final, Literal

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring_apps.staffing.rules import names, weeks
from mainspring_apps.staffing.states import Refused

#: How a shift is paid for: its money is with us, it went by without us, or a Wednesday charges it.
Funding = Literal["held", "settled", "unpaid"]
#: No zone is further from UTC than this: a day before it is over everywhere.
_ANYWHERE: Final = timedelta(days=2)


@dataclass(frozen=True, slots=True)
class Span:
    """A shift in time, as it is called at home."""

    name: str
    start: datetime
    until: datetime


def minor(field: str, amount: Decimal, currency: str, highest: int) -> int:
    """An amount as people write it, as whole minor units.

    >>> minor("rate", Decimal("30.00"), "USD", 1_000_000)
    3000
    >>> minor("rate", Decimal("0.001"), "USD", 1_000_000)
    Traceback (most recent call last):
    mainspring_apps.staffing.states.Refused: rate: is not a positive number of USD with at most 2 decimals
    """
    if not re.fullmatch("[A-Z]{3}", currency):
        raise Refused("currency: is not three capital letters, such as USD", field="currency")
    try:
        found = Money.of(amount, currency).minor
    except ms.ValidationError:
        found = 0
    if found <= 0:
        decimals = Money(0, currency).decimals
        why = f"{field}: is not a positive number of {currency} with at most {decimals} decimals"
        raise Refused(why, field=field)
    if found > highest:
        raise Refused(f"{field}: is more than {Money(highest, currency)}", field=field)
    return found


def check_dates(first: date, last: date, today: date, *, ahead: timedelta) -> None:
    """Refuse what is over, or too far away to be meant."""
    if last < first:
        raise Refused("end_date: lies before the start", field="end_date")
    if last < today:
        raise Refused("end_date: is over: leave out what has ended", field="end_date")
    for field, day in (("start_date", first), ("end_date", last)):
        if day > today + ahead:
            raise Refused(f"{field}: lies more than {ahead.days} days ahead", field=field)


def funded_until(day: date | None, last: date, today: date) -> date | None:
    """The Monday until which weeks are paid for; None: nothing is ahead.

    >>> funded_until(date(2026, 6, 8), date(2026, 6, 30), date(2026, 6, 3))
    datetime.date(2026, 6, 8)
    >>> funded_until(date(2026, 6, 1), date(2026, 6, 30), date(2026, 6, 3)) is None
    True
    """
    if day is None:
        return None
    if day.weekday() != 0:
        raise Refused(f"funded_until: {day} is not a Monday", field="funded_until")
    if day > last + timedelta(days=7):
        raise Refused("funded_until: lies after the week in which the booking ends", field="funded_until")
    return day if day > today else None


def check_day(day: date, first: date, last: date, today: date) -> None:
    """Refuse a day that is no day of the booking, or over wherever it is."""
    if not first <= day <= last:
        raise Refused("day: lies outside the booking", field="day")
    if day < today - _ANYWHERE:
        raise Refused("day: is over: leave out what was worked before", field="day")


def check_span(day: date, start: datetime, until: datetime, now: datetime, zone: str) -> None:
    """Refuse a shift that is over, or that no clock in its zone shows."""
    if weeks.instant(day, "12:00", zone) is None:
        raise Refused(f"day: there is no {day} in {zone}", field="day")
    if until <= start:
        raise Refused("end_time: a change of the clocks leaves nothing of the shift", field="end_time")
    if until <= now:
        raise Refused("day: is over: leave out what was worked before", field="day")


def overlapping(spans: Sequence[Span]) -> dict[str, str]:
    """Shifts that begin before another one ends, each with that one.

    >>> nine = datetime(2026, 6, 8, 9)
    >>> hours = [timedelta(hours=n) for n in range(4)]
    >>> overlapping([Span("a", nine, nine + hours[2]), Span("b", nine + hours[1], nine + hours[3])])
    {'b': 'a'}
    """
    found, last = {}, None
    for span in sorted(spans, key=lambda span: (span.start, span.name)):
        if last is not None and span.start < last.until:
            found[span.name] = last.name
        if last is None or span.until > last.until:
            last = span
    return found


def funding(
    *, paid: int | None, price: int, intent: str | None, charge: str | None, settled: bool, start: datetime,
    funded_end: datetime | None, currency: str,
) -> Funding:  # fmt: skip
    """How a shift is paid for; what says two things, or nothing where a week is funded, is refused.

    >>> at = datetime(2026, 6, 8)
    >>> nothing = {"paid": None, "price": 24000, "intent": None, "charge": None, "start": at, "currency": "USD"}
    >>> funding(**nothing, settled=False, funded_end=None), funding(**nothing, settled=True, funded_end=None)
    ('unpaid', 'settled')
    """
    said = {"payment_intent": intent, "charge": charge, "paid": paid}
    if settled:
        for field, value in said.items():
            if value is not None:
                raise Refused(f"{field}: stands beside settled, and no money of that is with us", field=field)
        return "settled"
    if intent is None and charge is None and paid is None:
        if funded_end is not None and start < funded_end:
            why = (
                "payment_intent: is missing, and the shift is not settled: its week is funded, and nothing says by what"
            )
            raise Refused(why, field="payment_intent")
        return "unpaid"
    for field, value in said.items():
        if value is None:
            raise Refused(f"{field}: is missing beside the others", field=field)
    assert intent is not None
    assert charge is not None
    names.check("payment_intent", intent)
    names.check("charge", charge)
    if paid != price:
        told = Money(paid or 0, currency)
        raise Refused(f"paid: is {told}, and the shift costs {Money(price, currency)} as planned", field="paid")
    return "held"
