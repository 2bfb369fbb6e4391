"""Bookings: companies, people and projects, and a worker booked for shifts, at most by one at a time.

Everything here is an event that a web application calls in its own transaction; what is refused names its field.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import date, time
from typing import Any, Final, Literal, get_args

import msgspec

from mainspring.contrib.notify import Undeliverable
from mainspring.contrib.notify.address import mail_address, phone_number
from mainspring_apps.staffing import insurance, languages, people, store
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.events import event
from mainspring_apps.staffing.payments import arrears, upfront, weekly
from mainspring_apps.staffing.people import By
from mainspring_apps.staffing.rules import names, planning, weeks, zones
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused
from mainspring_apps.staffing.store import Conn

CompanyKind = Literal["Borrower", "Lender"]  # and the one that is ours: see `add_operator`
Role = Literal["Admin", "Manager", "Supervisor", "Worker"]
PaymentType = Literal["Weekly_Progress", "Upfront"]
AlertChannel = Literal["sms", "email"]
WORK_WEEK: Final = frozenset(range(5))


class Company(msgspec.Struct, frozen=True):
    """A company, and on which side it stands."""

    id: int
    kind: Literal["Borrower", "Lender", "Platform"]


class User(msgspec.Struct, frozen=True):
    """A person, and whose."""

    id: int
    company_id: int


class Project(msgspec.Struct, frozen=True):
    """Where the work is done, and whose clocks count there."""

    id: int
    company_id: int
    timezone: str


class Worker(msgspec.Struct, frozen=True):
    """Somebody who can be booked, and who lends them."""

    id: int
    company_id: int


@event
def add_company(desk: Desk, conn: Conn, *, kind: CompanyKind, name: str, by: By) -> int:
    """Add a company, as a borrower or a lender."""
    _choice("kind", kind, CompanyKind)
    _text("name", name)
    company = int(store.value(conn, "add_company", kind=kind, name=name))
    desk.record(conn, "company_added", "company", company, after=kind)
    return company


@event
def add_operator(
    desk: Desk, conn: Conn, *, name: str, email: str | None = None, phone: str | None = None, by: By
) -> int:  # fmt: skip
    """Add somebody who runs the marketplace: who lets companies in, and decides where they cannot agree.

    The first one is added by the marketplace: `mainspring staffing operator add`.
    """
    _text("name", name)
    _reachable("email", email, mail_address)
    _reachable("phone", phone, phone_number)
    quiet = {"quiet_hours_start": desk.settings.quiet_hours_start, "quiet_hours_end": desk.settings.quiet_hours_end}
    user = int(store.value(conn, "add_operator", name=name, email=email, phone=phone, **quiet))
    desk.record(conn, "operator_added", "user", user)
    return user


@event
def let_in(desk: Desk, conn: Conn, user_id: int, *, principal: str | None, by: By) -> None:
    """Let in over HTTP, as this user, who signs in (`user:NAME`) or an access token (`token:NAME`); null: nobody."""
    if principal is not None:
        kind, _, name = principal.partition(":")
        if kind not in ("user", "token"):
            raise Refused("principal: is neither user:NAME nor token:NAME", field="principal")
        _text("principal", name)
        if people.known_as(conn, principal) not in (None, user_id):
            raise Refused("principal: is another user already", field="principal")
    store.do(conn, "let_in", user_id=user_id, principal=principal)
    desk.record(conn, "user_let_in" if principal else "user_shut_out", "user", user_id)


@event
def choose_language(desk: Desk, conn: Conn, user_id: int, *, language: str, by: By) -> None:
    """Choose the language of the messages that a user is sent."""
    languages.check("language", language)
    store.do(conn, "choose_language", user_id=user_id, language=language)
    desk.record(conn, "language_chosen", "user", user_id, after=language)


@event
def put_card(desk: Desk, conn: Conn, company_id: int, *, customer: str, payment_method: str, by: By) -> None:
    """Set the card that a borrower is charged by, as Stripe knows it; arrears are charged at once."""
    names.check("customer", customer)
    names.check("payment_method", payment_method)
    with store.no_other_company_s("customer"):
        store.do(conn, "put_card", company_id=company_id, customer=customer, payment_method=payment_method)
    desk.record(conn, "card_changed", "company", company_id)
    arrears.of_company(desk, conn, company_id)


@event
def add_user(
    desk: Desk,
    conn: Conn,
    *,
    company_id: int,
    role: Role,
    name: str,
    email: str | None = None,
    phone: str | None = None,
    timezone: str = "UTC",
    language: str = languages.ENGLISH,
    quiet_hours_start: time | None = None,
    quiet_hours_end: time | None = None,
    alert_channels: Sequence[AlertChannel] = ("sms", "email"),
    by: By,
) -> int:
    """Add a person to a company."""
    if store.needed(conn, Company, "company", company_id=company_id).kind not in get_args(CompanyKind):
        raise Refused("company_id: is the platform's, which has operators", field="company_id")
    _choice("role", role, Role)
    _text("name", name)
    zones.check("timezone", timezone)
    languages.check("language", language)
    _reachable("email", email, mail_address)
    _reachable("phone", phone, phone_number)
    for channel in alert_channels:
        _choice("alert_channels", channel, AlertChannel)
    about: dict[str, Any] = {
        "email": email,
        "phone": phone,
        "timezone": timezone,
        "language": language,
        "alert_channels": list(alert_channels),
    }
    about["quiet_hours_start"] = desk.settings.quiet_hours_start if quiet_hours_start is None else quiet_hours_start
    about["quiet_hours_end"] = desk.settings.quiet_hours_end if quiet_hours_end is None else quiet_hours_end
    user = int(store.value(conn, "add_user", company_id=company_id, role=role, name=name, **about))
    desk.record(conn, "user_added", "user", user, after=role)
    return user


@event
def add_project(desk: Desk, conn: Conn, *, company_id: int, name: str, timezone: str, by: By) -> int:
    """Add a borrower's place of work; its time zone is that of every week, shift and deadline there."""
    _text("name", name)
    zones.check("timezone", timezone)
    project = int(store.value(conn, "add_project", company_id=company_id, name=name, timezone=timezone))
    desk.record(conn, "project_added", "project", project)
    return project


@event
def add_worker(desk: Desk, conn: Conn, *, company_id: int, user_id: int, trade: str, zip_code: str, by: By) -> int:
    """Add a worker, a person of a lender who can be booked; searches find them once they are listed."""
    check_person(conn, "user_id", user_id, company_id)
    _text("trade", trade, 100)
    _text("zip_code", zip_code, 20)
    about = {"company_id": company_id, "user_id": user_id, "trade": trade, "zip_code": zip_code}
    worker = int(store.value(conn, "add_worker", **about))
    desk.record(conn, "worker_added", "worker", worker)
    return worker


@event
def add_policy(
    desk: Desk,
    conn: Conn,
    *,
    company_id: int,
    expiration_date: date,
    policy_type: str = "Liability",
    by: By,
) -> int:
    """Add an insurance policy of a company, which covers it through its last day."""
    _text("policy_type", policy_type, 100)
    about = {"company_id": company_id, "policy_type": policy_type, "expiration_date": expiration_date}
    policy = int(store.value(conn, "add_policy", **about))
    desk.record(conn, "policy_added", "policy", policy, after=str(expiration_date))
    insurance.lift_stops(desk, conn, company_id)  # as a renewal does
    return policy


@event
def confirm_booking(
    desk: Desk,
    conn: Conn,
    *,
    project_id: int,
    worker_id: int,
    supervisor_id: int | None,
    payment_type: PaymentType = "Weekly_Progress",
    start_date: date,
    end_date: date,
    start: time,
    end: time | None,
    weekdays: frozenset[int] = WORK_WEEK,
    rate_minor: int,
    currency: str,
    by: By,
) -> int:
    """Book a worker: the booking and a `Scheduled` row for each shift, if the worker is free, under a lock.

    Two who want the same worker at the same time wait for each other here: the second is told "not available". What is
    paid `Upfront` is charged whole, and confirmed once the money has come; until then it is `Pending_Payment`.
    """
    project = store.needed(conn, Project, "project", project_id=project_id)
    _choice("payment_type", payment_type, PaymentType)
    _check_price(rate_minor, currency, desk.settings.highest_rate)
    _check_dates(start_date, end_date, weeks.local_date(desk.now(conn), project.timezone), desk.settings)
    check_times(start=start, end=end)
    if supervisor_id is not None:
        check_person(conn, "supervisor_id", supervisor_id, project.company_id)
    when = (start_date, end_date, start, end, weekdays, project.timezone)
    plan = list(planning.shifts(*when, desk.settings.open_shift))
    if not plan:
        raise Refused("weekdays: there is no such day between the two dates", field="weekdays")
    worker = store.needed(conn, Worker, "lock_worker", worker_id=worker_id)
    starts, busy = [shift.start for shift in plan], [shift.busy_until for shift in plan]
    if store.value(conn, "shifts_in_the_way", worker_id=worker_id, starts=starts, ends=busy):
        raise Refused("worker_id: not available", field="worker_id")
    about: dict[str, Any] = {"project_id": project_id, "worker_id": worker_id, "supervisor_id": supervisor_id}
    about |= {"borrower_id": project.company_id, "lender_id": worker.company_id, "payment_type": payment_type}
    about |= {"start_date": start_date, "end_date": end_date, "start": start, "end": end}
    about |= {"status": "Pending_Payment" if payment_type == "Upfront" else "Active"}
    booking = int(store.value(conn, "add_booking", **about, rate_minor=rate_minor, currency=currency))
    store.do(
        conn, "add_shifts", booking_id=booking, worker_id=worker_id, starts=starts,
        ends=[shift.end for shift in plan], minutes=[shift.minutes for shift in plan],
    )  # fmt: skip
    if payment_type == "Upfront":
        desk.record(conn, "booking_asked_for", "booking", booking, after="Pending_Payment")
        upfront.begin(desk, conn, booking, weeks.days(start_date, end_date, project.timezone))
    else:
        desk.record(conn, "booking_confirmed", "booking", booking, after="Active")
        weekly.begin(desk, conn, booking, min(starts))
    return booking


def _check_price(rate_minor: int, currency: str, highest: int) -> None:
    if type(rate_minor) is not int or not 0 < rate_minor <= highest:
        raise Refused(f"rate_minor: is not a positive number of minor units, up to {highest}", field="rate_minor")
    if not re.fullmatch("[A-Z]{3}", currency):
        raise Refused("currency: is not three capital letters, such as USD", field="currency")


def _check_dates(first: date, last: date, today: date, settings: Settings) -> None:
    if first < today:
        raise Refused("start_date: lies in the past", field="start_date")
    if first > today + settings.earliest_booking:
        raise Refused(f"start_date: lies more than {settings.earliest_booking.days} days ahead", field="start_date")
    if last < first:
        raise Refused("end_date: lies before the start", field="end_date")
    if last > first + settings.longest_booking:
        raise Refused(
            f"end_date: lies more than {settings.longest_booking.days} days after the start", field="end_date"
        )


def check_times(**times: time | None) -> None:
    """Refuse what nobody writes on a plan."""
    for field, at in times.items():
        if at is not None and (at.tzinfo or at.second or at.microsecond):
            raise Refused(f"{field}: is not hours and minutes of the project's own clocks", field=field)


def check_kind(conn: Conn, field: str, company_id: int, kind: CompanyKind) -> None:
    """Refuse a company that stands on the other side."""
    if store.needed(conn, Company, "company", company_id=company_id).kind != kind:
        raise Refused(f"{field}: is no {kind.lower()}", field=field)


def check_person(conn: Conn, field: str, user_id: int, company_id: int) -> None:
    """Refuse who is nobody of this company, in the same words whether another has them or not."""
    user = store.one(conn, User, "user_of_company", user_id=user_id)
    if user is None or user.company_id != company_id:
        raise Refused(f"{field}: is nobody of this company", field=field)


def _reachable(field: str, address: str | None, check: Callable[[str], str]) -> None:
    """Nobody is told of an address that they gave long ago and that never worked."""
    try:
        if address is not None:
            check(address)
    except Undeliverable as wrong:
        raise Refused(str(wrong).replace("to:", f"{field}:", 1), field=field) from None


def _choice(field: str, value: object, choices: object) -> None:
    if value not in get_args(choices):
        raise Refused(f"{field}: is not one of {', '.join(get_args(choices))}", field=field)


def _text(field: str, value: str, longest: int = 200) -> None:
    if not 1 <= len(value.strip()) <= longest:
        raise Refused(f"{field}: is not a text of 1 to {longest} characters", field=field)
