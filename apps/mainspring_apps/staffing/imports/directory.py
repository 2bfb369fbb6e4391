"""Companies, and who and what belongs to them: each row is the event that would have made it here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from mainspring_apps.staffing import bookings, insurance
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.imports import known
from mainspring_apps.staffing.imports.columns import (
    CompanyRow,
    Noun,
    PolicyRow,
    ProjectRow,
    Raw,
    UserRow,
    WorkerRow,
    row,
)
from mainspring_apps.staffing.payments import accounts
from mainspring_apps.staffing.people import SYSTEM
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn


def add_company(desk: Desk, conn: Conn, raw: Raw) -> int:
    """A company, with the card that pays or the account that is paid."""
    one = row(CompanyRow, "companies", raw)
    company = bookings.add_company(desk, conn, kind=cast("Any", one.kind), name=one.name, by=SYSTEM)
    for field, value, side in (("customer", one.customer, "Borrower"), ("account", one.account, "Lender")):
        if value is not None and one.kind != side:
            raise Refused(f"{field}: is for a {side.lower()}", field=field)
    if (one.customer is None) != (one.payment_method is None):
        field = "customer" if one.customer is None else "payment_method"
        raise Refused(f"{field}: is missing beside the other", field=field)
    if one.customer is not None and one.payment_method is not None:
        bookings.put_card(desk, conn, company, customer=one.customer, payment_method=one.payment_method, by=SYSTEM)
    if one.account is not None:
        accounts.connect_account(desk, conn, company, account=one.account, by=SYSTEM)
    return company


def add_user(desk: Desk, conn: Conn, raw: Raw) -> int:
    """A person."""
    one = row(UserRow, "users", raw)
    company = known.id_of(conn, "company_id", "companies", one.company_id)
    about: dict[str, Any] = {"role": one.role, "email": one.email, "phone": one.phone}
    return bookings.add_user(desk, conn, company_id=company, name=one.name, timezone=one.timezone, **about, by=SYSTEM)


def add_policy(desk: Desk, conn: Conn, raw: Raw) -> int:
    """An insurance that is valid."""
    one = row(PolicyRow, "policies", raw)
    company = known.id_of(conn, "company_id", "companies", one.company_id)
    insurance.check_valid(desk, conn, one.expiration_date)
    about: dict[str, Any] = {"policy_type": one.policy_type, "expiration_date": one.expiration_date}
    return bookings.add_policy(desk, conn, company_id=company, **about, by=SYSTEM)


def add_project(desk: Desk, conn: Conn, raw: Raw) -> int:
    """A place of a borrower."""
    one = row(ProjectRow, "projects", raw)
    company = known.id_of(conn, "company_id", "companies", one.company_id)
    bookings.check_kind(conn, "company_id", company, "Borrower")
    return bookings.add_project(desk, conn, company_id=company, name=one.name, timezone=one.timezone, by=SYSTEM)


def add_worker(desk: Desk, conn: Conn, raw: Raw) -> int:
    """Somebody of a lender who can be booked."""
    one = row(WorkerRow, "workers", raw)
    company = known.id_of(conn, "company_id", "companies", one.company_id)
    bookings.check_kind(conn, "company_id", company, "Lender")
    user = known.id_of(conn, "user_id", "users", one.user_id)
    about = {"trade": one.trade, "zip_code": one.zip_code}
    return bookings.add_worker(desk, conn, company_id=company, user_id=user, **about, by=SYSTEM)


#: How a row of each view comes in; bookings come with their shifts.
MAKERS: Final[Mapping[Noun, Callable[[Desk, Conn, Raw], int]]] = {
    "companies": add_company, "users": add_user, "policies": add_policy, "projects": add_project, "workers": add_worker,
}  # fmt: skip
