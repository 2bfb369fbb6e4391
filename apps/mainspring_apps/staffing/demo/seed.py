"""The people of the demo, as they are when time begins: a borrower and a lender in each of many zones."""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import datetime, time, timedelta
from typing import Any, Final

import stripe as sdk

from mainspring_apps.staffing import bookings, store
from mainspring_apps.staffing.demo.people import plan_day
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.payments import accounts, weekly
from mainspring_apps.staffing.people import SYSTEM
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.searches import search
from mainspring_apps.staffing.store import Conn

#: Where clocks are odd: quarters of an hour, half-hour changes, missing midnights, the first and the last zone.
ODD_ZONES: Final = (
    "America/New_York", "Europe/London", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "Pacific/Apia",
    "Africa/Cairo", "America/Havana", "Australia/Sydney", "Pacific/Honolulu", "Pacific/Kiritimati", "Asia/Tehran",
    "Asia/Beirut", "America/Los_Angeles",
)  # fmt: skip
TRADES: Final = ("welder", "electrician", "carpenter", "plumber")
FIRST: Final = ("Ada", "Ben", "Cleo", "Dan", "Eva", "Finn", "Gita", "Hugo", "Ines", "Jon", "Kim", "Lea", "Max", "Nora")
DECLINED: Final = "pm_card_chargeDeclinedInsufficientFunds"
_BOOKING_WEEKS: Final = 8  # that bookings last
#: Who come in over HTTP where the demo is shown: of New York, and the operator.
PEOPLE_HERE: Final = ("platform", "borrower", "supervisor", "worker", "lender")
#: By day, and over midnight on every day of the week.
SHIFTS: Final = ((time(8), time(16, 30), bookings.WORK_WEEK), (time(22), time(6), frozenset(range(7))))


def seed(desk: Desk, conn: Conn, zones: Sequence[str] = ODD_ZONES) -> None:
    """Settle everybody in, unless somebody lives here already."""
    if store.value(conn, "anybody"):
        return
    bank = desk.stripe
    now = desk.now(conn)
    operator = bookings.add_operator(desk, conn, name="Otto 1", email="user1@example.com", by=SYSTEM)
    for number, zone in enumerate(zones):
        _settle(desk, conn, bank, now, number, zone, operator)


def _settle(desk: Desk, conn: Conn, bank: Any, now: datetime, number: int, zone: str, operator: int) -> None:
    city = zone.rpartition("/")[2].replace("_", " ")
    borrower = bookings.add_company(desk, conn, kind="Borrower", name=f"{city} Builders", by=operator)
    lender = bookings.add_company(desk, conn, kind="Lender", name=f"{city} Staff", by=operator)
    payer = _user(desk, conn, borrower, "Admin", zone, operator)
    supervisor = _user(desk, conn, borrower, "Supervisor", zone, payer)
    _user(desk, conn, borrower, "Manager", zone, payer)
    owner = _user(desk, conn, lender, "Admin", zone, operator)
    _user(desk, conn, lender, "Manager", zone, owner)
    card = DECLINED if number % 5 == 3 else "pm_card_visa"
    customer = bank.sync.customer(key=f"demo:customer:{borrower}", name=f"{city} Builders")
    bookings.put_card(desk, conn, borrower, customer=customer, payment_method=card, by=payer)
    accounts.connect_account(desk, conn, lender, account=_account(lender), by=owner)
    project = bookings.add_project(
        desk, conn, company_id=borrower, name=f"{city} Tower", timezone=zone, by=payer
    )  # fmt: skip
    today = weeks.local_date(now, zone)
    bookings.add_policy(desk, conn, company_id=borrower, expiration_date=today + timedelta(days=365), by=payer)
    bookings.add_policy(desk, conn, company_id=lender, expiration_date=today + timedelta(days=2 + 3 * number), by=owner)
    for place, (start, end, weekdays) in enumerate(SHIFTS):
        first = today if weeks.shift(today, start, end, zone)[0] > now else today + weeks.DAY
        worker = _worker(desk, conn, lender, zone, TRADES[(number + place) % 4], owner)
        booking = bookings.confirm_booking(
            desk,
            conn,
            project_id=project,
            worker_id=worker,
            supervisor_id=supervisor,
            start_date=first,
            end_date=first + timedelta(days=7 * _BOOKING_WEEKS - 1),
            start=start,
            end=end,
            weekdays=weekdays,
            rate_minor=2500 + 100 * number + 33 * place,
            currency="USD" if number % 3 else "JPY" if number % 2 else "EUR",
            by=payer,
        )
        if not weeks.begins_unpaid(weeks.shift(first, start, end, zone)[0], now, zone, desk.settings):
            weekly.pay_by_hand(desk, conn, booking, by=payer)  # else it is charged as it is made
    free = _worker(desk, conn, lender, zone, TRADES[number % 4], owner)
    if number == 0:
        people = {"platform": operator, "borrower": payer, "supervisor": supervisor, "lender": owner}
        people["worker"] = store.value(conn, "demo_user_of_worker", worker_id=free)
        for name in PEOPLE_HERE:
            bookings.let_in(desk, conn, people[name], principal=f"token:demo {name}", by=operator)
    desk.enqueue(conn, plan_day.job(zone=zone, instant=now))  # the rest of today
    wanted = {"trade": TRADES[number % 4]}
    search.save_search(desk, conn, user_id=payer, name="Anybody near", criteria=wanted, by=payer)


def _user(desk: Desk, conn: Conn, company: int, role: Any, zone: str, by: int) -> int:
    number = store.value(conn, "how_many_users")
    name = f"{FIRST[number % len(FIRST)]} {number}"
    address, phone = f"user{number}@example.com", f"+1555{number:07}"
    return bookings.add_user(
        desk, conn, company_id=company, role=role, name=name, email=address, phone=phone, timezone=zone, by=by
    )


def _worker(desk: Desk, conn: Conn, lender: int, zone: str, trade: str, by: int) -> int:
    user = _user(desk, conn, lender, "Worker", zone, by)
    about: dict[str, Any] = {"company_id": lender, "user_id": user, "trade": trade, "zip_code": f"{10000 + lender}"}
    return bookings.add_worker(desk, conn, **about, by=by)


def _account(lender: int) -> str:
    """A connected account at the sandbox; real ones are opened by their owners, in Stripe's own pages."""
    key, base = os.environ["STRIPE_API_KEY"], os.environ["MAINSPRING_STRIPE_BASE"]
    line = sdk.RequestsClient()
    try:
        client = sdk.StripeClient(key, base_addresses={"api": base}, http_client=line)
        return client.v1.accounts.create({"type": "express", "metadata": {"company": str(lender)}}).id
    finally:
        line.close()  # type: ignore[no-untyped-call]  # the SDK says nothing of it
