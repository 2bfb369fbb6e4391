"""The views that an import reads: a class for each, a field for each column, with what it means.

The page docs/apps/staffing-import.md shows them as tables; a test compares.
"""

from __future__ import annotations

import types
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date, time
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Final, Literal, TypeVar, get_args, get_type_hints

import msgspec

from mainspring.text.texts import shown
from mainspring_apps.staffing.states import Refused

#: The views, in the order in which they are read: each names only what stands in those before it.
Noun = Literal["companies", "users", "policies", "projects", "workers", "bookings", "shifts"]
T = TypeVar("T", bound=msgspec.Struct)
Raw = Mapping[str, str | None]


def _about(words: str) -> msgspec.Meta:
    return msgspec.Meta(description=words)


Id = Annotated[str, _about("your own id for it, by which it is recognised when you import again")]


class CompanyRow(msgspec.Struct, frozen=True, kw_only=True):
    """A company."""

    external_id: Id
    kind: Annotated[str, _about("`Borrower` or `Lender`")]
    name: Annotated[str, _about("what it is called")]
    customer: Annotated[str | None, _about("of a borrower: its customer in your Stripe account, `cus_…`")]
    payment_method: Annotated[str | None, _about("of a borrower: the card charged on Wednesdays, `pm_…`")]
    account: Annotated[str | None, _about("of a lender: its Connected Account, `acct_…`; money waits for one")]


class UserRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person of a company."""

    external_id: Id
    company_id: Annotated[str, _about("the company's `external_id`")]
    role: Annotated[str, _about("`Admin`, `Manager`, `Supervisor` or `Worker`")]
    name: Annotated[str, _about("what they are called")]
    email: Annotated[str | None, _about("where mail reaches them")]
    phone: Annotated[str | None, _about("where text messages reach them, such as `+15550000001`")]
    timezone: Annotated[str, _about("where they live, such as `America/New_York`")]


class PolicyRow(msgspec.Struct, frozen=True, kw_only=True):
    """An insurance of a company."""

    external_id: Id
    company_id: Annotated[str, _about("the company's `external_id`")]
    policy_type: Annotated[str, _about("such as `Liability`; a company without one of a type is not asked for it")]
    expiration_date: Annotated[date, _about("the last day that it covers; today or later")]


class ProjectRow(msgspec.Struct, frozen=True, kw_only=True):
    """A place of a borrower."""

    external_id: Id
    company_id: Annotated[str, _about("the borrower's `external_id`")]
    name: Annotated[str, _about("what it is called")]
    timezone: Annotated[str, _about("time zone of all its bookings and shifts, such as `America/New_York`")]


class WorkerRow(msgspec.Struct, frozen=True, kw_only=True):
    """A person of a lender who can be booked."""

    external_id: Id
    company_id: Annotated[str, _about("the lender's `external_id`")]
    user_id: Annotated[str, _about("the person's `external_id`")]
    trade: Annotated[str, _about("such as `welder`")]
    zip_code: Annotated[str, _about("where they work")]


class BookingRow(msgspec.Struct, frozen=True, kw_only=True):
    """A booking that runs, or that is to begin, and is paid by the week."""

    external_id: Id
    project_id: Annotated[str, _about("the project's `external_id`; its company is the borrower, and has a card")]
    worker_id: Annotated[str, _about("the worker's `external_id`; their company is the lender")]
    supervisor_id: Annotated[str | None, _about("`external_id` of a user of the borrower")]
    start_date: Annotated[date, _about("its first day, also a past one")]
    end_date: Annotated[date, _about("its last day, today or later")]
    start_time: Annotated[time, _about("when its shifts usually start, in the project's zone, whole minutes")]
    end_time: Annotated[time | None, _about("when they usually end; null: open")]
    rate: Annotated[Decimal, _about("price of an hour, such as `30.00`")]
    currency: Annotated[str, _about("such as `USD`, for all its money")]
    funded_until: Annotated[
        date | None, _about("the Monday before which everything is charged already; null: nothing is")
    ]


class ShiftRow(msgspec.Struct, frozen=True, kw_only=True):
    """A shift that is not over; what was worked before stays with you."""

    external_id: Id
    booking_id: Annotated[str, _about("the booking's `external_id`")]
    day: Annotated[date, _about("on which it starts")]
    start_time: Annotated[time, _about("in the project's zone, whole minutes")]
    end_time: Annotated[time | None, _about("if not after the start, on the next day; null: open")]
    payment_intent: Annotated[str | None, _about("if you hold its money: the intent that charged it, `pi_…`,")]
    charge: Annotated[str | None, _about("its charge, `ch_…`, from which the lender is paid,")]
    paid: Annotated[Decimal | None, _about("and this shift's share of it: planned hours at the rate")]
    settled: Annotated[bool, _about("whether it was paid elsewhere, and its lender too: no money moves here")]


TYPES: Final[Mapping[Noun, type[msgspec.Struct]]] = {
    "companies": CompanyRow, "users": UserRow, "policies": PolicyRow, "projects": ProjectRow, "workers": WorkerRow,
    "bookings": BookingRow, "shifts": ShiftRow,
}  # fmt: skip
#: What a type is in SQL, and what a text is not that cannot be read as one.
_SQL: Final[Mapping[Any, tuple[str, str]]] = {
    str: ("text", "a text"), date: ("date", "a date, such as 2026-06-01"), time: ("time", "a time, such as 09:00"),
    Decimal: ("numeric", "a number"), bool: ("boolean", "true or false"),
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Column:
    """A column of a view."""

    name: str
    type: Any
    nullable: bool
    about: str

    @property
    def sql(self) -> str:
        """Its type, as SQL calls it."""
        return _SQL[self.type][0]

    def value(self, text: str | None) -> Any:
        """What a text says; what is missing or cannot be read is refused."""
        if text is None or not text.strip():
            if self.nullable:
                return None
            raise Refused(f"{self.name}: is missing", field=self.name)
        try:
            return msgspec.convert(text, self.type, strict=False)
        except msgspec.ValidationError:
            why = f"{self.name}: {shown(text)} is not {_SQL[self.type][1]}"
            raise Refused(why, field=self.name) from None


@cache
def columns(noun: Noun) -> Mapping[str, Column]:
    """The columns of a view, by name."""
    return {column.name: column for column in _columns(TYPES[noun])}


def _columns(type_: type[msgspec.Struct]) -> Iterator[Column]:
    for name, hint in get_type_hints(type_, include_extras=True).items():
        said, meta = get_args(hint)
        kinds = get_args(said) if isinstance(said, types.UnionType) else (said,)
        yield Column(name, kinds[0], type(None) in kinds, meta.description)


def row(type_: type[T], noun: Noun, raw: Raw) -> T:
    """A row of a view as a value; the first column that makes no sense is refused by its name."""
    return type_(**{name: column.value(raw[name]) for name, column in columns(noun).items()})
