from __future__ import annotations

import re
import threading
from datetime import UTC, date, datetime, time, timedelta
from typing import Any, Final

import psycopg
import pytest
from tests.apps.staffing.town import BEGIN, Town

from mainspring_apps.staffing import bookings
from mainspring_apps.staffing.payments import accounts
from mainspring_apps.staffing.people import SYSTEM
from mainspring_apps.staffing.registry import tasks
from mainspring_apps.staffing.rules import planning
from mainspring_apps.staffing.rules.matching import Asked
from mainspring_apps.staffing.searches import search
from mainspring_apps.staffing.states import Refused

NY = "America/New_York"


class Office:
    """A project and a worker, and a booking to be confirmed."""

    def __init__(self, town: Town) -> None:
        self.desk = town.desk
        self.borrower = town.company("Borrower", stripe_customer_id=None)
        self.lender = town.company("Lender", stripe_account_id=None)
        self.project = town.insert("projects", company_id=self.borrower, name="Bridge", timezone=NY)
        self.supervisor = town.user(self.borrower, "Supervisor")
        self.manager = town.user(self.borrower, "Manager")
        self.worker = town.worker(self.lender, state="Listed", listed_at=BEGIN)

    def booking(self, **changes: Any) -> dict[str, Any]:
        about: dict[str, Any] = {"project_id": self.project, "worker_id": self.worker, "supervisor_id": self.supervisor}
        about |= {"start_date": date(2026, 6, 8), "end_date": date(2026, 6, 12), "start": time(9), "end": time(17)}
        return about | {"rate_minor": 3000, "currency": "USD", "by": self.manager} | changes

    def confirm(self, conn: psycopg.Connection[Any], **changes: Any) -> int:
        with conn.transaction():
            return bookings.confirm_booking(self.desk, conn, **self.booking(**changes))


@pytest.fixture
def office(town: Town) -> Office:
    return Office(town)


def shifts(town: Town, booking: int) -> list[tuple[Any, ...]]:
    return town.rows(
        "select status, clock_in_time, scheduled_start_time, scheduled_end_time, planned_minutes from staffing.time_log"
        " where booking_id = %s order by scheduled_start_time", booking,
    )  # fmt: skip


@pytest.mark.rule("STAFF-3.13")
@pytest.mark.rule("STAFF-8.02")
def test_a_booking_plans_every_shift_before_anybody_clocks_in(town: Town, office: Office) -> None:
    booking = office.confirm(town.conn)
    days = [datetime(2026, 6, day, 13, tzinfo=UTC) for day in range(8, 13)]  # Monday to Friday, 09:00 in New York
    assert shifts(town, booking) == [("Scheduled", at, at, at + timedelta(hours=8), 480) for at in days]
    row = town.row("bookings", booking)
    assert (row["status"], row["borrower_company_id"], row["lender_company_id"]) == (
        "Active",
        office.borrower,
        office.lender,
    )
    assert town.audit("booking_confirmed") == [(str(office.manager), "booking", booking, None, None)]

    night = office.confirm(
        town.conn, start_date=date(2026, 6, 15), end_date=date(2026, 6, 15), start=time(22), end=time(6)
    )
    ((_, _, start, end, minutes),) = shifts(town, night)
    assert (start, end, minutes) == (
        datetime(2026, 6, 16, 2, tzinfo=UTC), datetime(2026, 6, 16, 10, tzinfo=UTC), 480,
    )  # fmt: skip
    unknown = office.confirm(town.conn, start_date=date(2026, 6, 17), end_date=date(2026, 6, 17), end=None)
    ((_, _, _, end, minutes),) = shifts(town, unknown)
    assert (end, minutes) == (None, 480)


OPEN = timedelta(hours=8)


def test_a_night_in_which_clocks_go_back_is_an_hour_longer_and_a_date_left_out_has_no_shift() -> None:
    week = frozenset(range(7))
    (plan,) = planning.shifts(date(2026, 10, 31), date(2026, 10, 31), time(22), time(6), week, NY, OPEN)
    assert plan.minutes == 540
    apia = list(planning.shifts(date(2011, 12, 29), date(2011, 12, 31), time(9), time(17), week, "Pacific/Apia", OPEN))
    assert [shift.start.day for shift in apia] == [29, 30]  # 09:00 on the 29th and on the 31st there


@pytest.mark.rule("STAFF-12.02")
@pytest.mark.rule("STAFF-12.03")
def test_two_who_book_the_same_worker_at_once_wait_for_each_other_and_one_is_refused(
    town: Town, office: Office
) -> None:
    outcome: list[object] = []

    def second() -> None:
        with psycopg.connect(town.mainspring.dsn, autocommit=True) as conn:
            try:
                outcome.append(office.confirm(conn, start=time(16), end=time(23)))
            except Refused as error:
                outcome.append(error)

    want = Asked("welder", None, datetime(2026, 6, 8, tzinfo=UTC), datetime(2026, 6, 13, tzinfo=UTC))
    with psycopg.connect(town.mainspring.dsn) as first:
        bookings.confirm_booking(town.desk, first, **office.booking())
        other = threading.Thread(target=second)
        other.start()
        while not town.value(
            "select exists (select from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0)"
        ):
            assert other.is_alive()
        # Somebody is about to take the worker: until that is confirmed everybody finds them.
        ((found,),) = search.find(town.conn, want)
        assert found.id == office.worker
        first.commit()
    other.join()
    (refused,) = outcome
    assert isinstance(refused, Refused)
    assert (str(refused), refused.field) == ("worker_id: not available", "worker_id")
    assert town.value("select count(*) from staffing.bookings") == 1
    assert search.find(town.conn, want) == [[]]
    office.confirm(town.conn, start=time(17), end=time(20))  # right after: nobody is in the way
    office.confirm(town.conn, start=time(6), end=time(9))  # and right before


@pytest.mark.rule("STAFF-12.01")
def test_there_is_no_cart(town: Town) -> None:
    town.mainspring.drain()
    declared = tasks.bound(town.desk)
    named = {task.name for task in declared} | {task.queue for task in declared}
    named |= {schedule.name for schedule in declared.schedules()}
    named |= {name for (name,) in town.rows(
        "select column_name from information_schema.columns where table_schema = 'staffing'"
        " union select table_name from information_schema.tables where table_schema = 'staffing'"
        " union select indexname from pg_indexes where schemaname = 'staffing' union select name from mainspring.queue"
        " union select name from mainspring.schedule"
    )}  # fmt: skip
    assert len(named) > 100
    assert not [name for name in named if re.search(r"cart|locked_at|reserv", name)]


@pytest.mark.parametrize(
    ("changes", "field", "says"),
    [
        ({"project_id": 99}, "project_id", "there is no project 99"),
        ({"worker_id": 99}, "worker_id", "there is no worker 99"),
        ({"supervisor_id": 99}, "supervisor_id", "is nobody of this company"),
        ({"payment_type": "Cash"}, "payment_type", "is not one of Weekly_Progress, Upfront"),
        ({"start_date": date(2026, 5, 31)}, "start_date", "lies in the past"),
        ({"start_date": date(2028, 6, 1), "end_date": date(2028, 6, 2)}, "start_date", "lies more than 366 days ahead"),
        ({"end_date": date(2026, 6, 7)}, "end_date", "lies before the start"),
        ({"end_date": date(2027, 6, 10)}, "end_date", "lies more than 366 days after the start"),
        ({"start": time(9, 0, 30)}, "start", "is not hours and minutes"),
        ({"end": time(17, tzinfo=UTC)}, "end", "is not hours and minutes"),
        ({"weekdays": frozenset({6})}, "weekdays", "there is no such day"),
        ({"rate_minor": 0}, "rate_minor", "is not a positive number"),
        ({"currency": "usd"}, "currency", "is not three capital letters"),
    ],
)
def test_what_is_refused_names_its_field_and_writes_nothing(
    town: Town, office: Office, changes: dict[str, Any], field: str, says: str
) -> None:
    with pytest.raises(Refused, match=f"^{field}: {says}") as refused:
        office.confirm(town.conn, **changes)
    assert refused.value.field == field
    assert town.value("select count(*) from staffing.bookings") == 0


@pytest.mark.rule("STAFF-20.10")
def test_companies_people_and_projects_join_by_events_that_name_what_is_wrong(town: Town) -> None:
    conn = town.conn
    operator = bookings.add_operator(town.desk, conn, name="Otto", by="SYSTEM")
    borrower = bookings.add_company(town.desk, conn, kind="Borrower", name="Builders", by=operator)
    lender = bookings.add_company(town.desk, conn, kind="Lender", name="Lenders", by=operator)
    admin = bookings.add_user(
        town.desk, conn, company_id=borrower, role="Admin", name="Ada", email="a@example.com", timezone=NY, by=operator
    )
    owner = bookings.add_user(town.desk, conn, company_id=lender, role="Admin", name="Olga", by=operator)
    bookings.put_card(town.desk, conn, borrower, customer="cus_1", payment_method="pm_card_visa", by=admin)
    worker_user: dict[str, Any] = {"company_id": lender, "role": "Worker", "name": "Wim", "alert_channels": ["sms"]}
    person = bookings.add_user(town.desk, conn, **worker_user, by=owner)
    project = bookings.add_project(
        town.desk, conn, company_id=borrower, name="Bridge", timezone="Asia/Kathmandu", by=admin
    )
    about: dict[str, Any] = {"company_id": lender, "trade": "welder", "zip_code": "10001"}
    worker = bookings.add_worker(town.desk, conn, **about, user_id=person, by=owner)
    bookings.add_policy(town.desk, conn, company_id=lender, expiration_date=date(2027, 1, 1), by=owner)
    criteria = {"trade": "welder", "from": "2026-06-08"}
    user = search.save_search(town.desk, conn, user_id=admin, criteria=criteria, by=admin)
    assert town.row("companies", borrower)["card_on_file"] == "pm_card_visa"
    assert town.row("projects", project)["timezone"] == "Asia/Kathmandu"
    assert town.row("workers", worker)["state"] == "Unlisted"
    assert town.row("saved_searches", user)["criteria"] == {"trade": "welder", "from": "2026-06-08"}
    assert town.audit("project_added") == [(str(admin), "project", project, None, None)]

    def refused(text: str, event: Any, *args: Any, by: int = operator, **about: Any) -> None:
        with pytest.raises(Refused, match=f"^{re.escape(text)}"):
            event(town.desk, conn, *args, **about, by=by)

    refused("kind: is not one of Borrower, Lender", bookings.add_company, kind="Bank", name="B")
    refused("name: is not a text of 1 to 200", bookings.add_company, kind="Lender", name=" ")
    refused("by: a Lending Admin", bookings.add_project, company_id=lender, name="P", timezone=NY, by=owner)
    ours = town.row("users", operator)["company_id"]
    refused("company_id: is the platform's", bookings.add_user, company_id=ours, role="Admin", name="X")
    refused("company_id: there is no company 99", bookings.add_policy, company_id=99, expiration_date=date(2027, 1, 1))
    zone = "timezone: is not a time zone (did you mean 'Asia/Kathmandu'?)"
    refused(zone, bookings.add_project, company_id=borrower, name="P", timezone="asia/kathmandu", by=admin)
    refused(
        "timezone: is not a time zone",
        bookings.add_user,
        company_id=borrower,
        role="Admin",
        name="X",
        timezone="Mars/Base",
    )
    fax: dict[str, Any] = {"role": "Admin", "name": "X", "alert_channels": ["fax"]}
    refused("alert_channels: is not one of sms, email", bookings.add_user, company_id=borrower, **fax)
    refused("user_id: is nobody of this company", bookings.add_worker, user_id=admin, **about, by=owner)
    about = {"user_id": admin, "by": admin}
    refused("criteria: ends before", search.save_search, criteria={"from": "2026-06-09", "to": "2026-06-08"}, **about)
    refused("criteria: Object contains unknown field `colour`", search.save_search, criteria={"colour": 1}, **about)


#: The preamble of the ledger, by table and column.
STATUSES: Final = {
    (
        "bookings",
        "status",
    ): "Pending_Payment Active Payment_Paused_Dispute Suspended_Insurance Cancelled Completed Disputed",
    ("time_log", "status"): "Scheduled Working Pending_Verification Verified Disputed Cancelled",
    ("disputes", "status"): "Open Settled Resolved Legal_Hold",
    ("disputes", "dispute_option"): "A B",
    ("incident_reports", "status"): "Pending Closed",
    ("incident_reports", "dispute_option"): "A B",
    ("pending_payments", "status"): "Pending Succeeded Failed Canceled Not_Required",
    ("escrow_holds", "status"): "Held Frozen Released Refunded ChargedBack",
    ("escrow_holds", "kind"): "Shift Longer Extra Penalty",
    ("payment_shifts", "kind"): "Shift Longer Extra",
    ("transfers", "status"): "Pending Succeeded Failed Reversed",
    ("refunds", "status"): "Pending Succeeded Failed",
    ("reversals", "status"): "Pending Succeeded Failed",
    ("chargebacks", "status"): "Inquiry Open Won Lost",
    ("workers", "state"): "Listed Unlisted",
    ("alert_deliveries", "status"): "Sent Failed Skipped Empty",
    ("bookings", "payment_type"): "Weekly_Progress Upfront",
}


@pytest.mark.rule("STAFF-0.10")
def test_every_status_column_refuses_what_the_ledger_does_not_know(town: Town) -> None:
    known = set(town.rows(
        "select table_name, column_name from information_schema.columns c join information_schema.tables t"
        " using (table_schema, table_name) where table_schema = 'staffing' and table_type = 'BASE TABLE'"
        " and column_name in ('status', 'state')"
    ))  # fmt: skip
    assert known <= STATUSES.keys()
    for (table, column), words in STATUSES.items():
        check = town.value(
            "select pg_get_constraintdef(oid) from pg_constraint where conrelid = %s::regclass and conname = %s",
            f"staffing.{table}", f"{table}_{column}_check",
        )  # fmt: skip
        assert set(re.findall("'([A-Za-z_]+)'", check)) == set(words.split()), table
        town.conn.execute(f"create temp table copy (like staffing.{table} including constraints)".encode())
        required = town.rows(
            "select attname from pg_attribute where attrelid = 'copy'::regclass and attnum > 0 and attnotnull"
        )
        for (name,) in required:
            town.conn.execute(f"alter table copy alter column {name} drop not null".encode())
        others = (
            "select conname from pg_constraint where conrelid = 'copy'::regclass and contype = 'c' and conname <> %s"
        )
        for (name,) in town.rows(others, f"{table}_{column}_check"):
            town.conn.execute(f"alter table copy drop constraint {name}".encode())
        with pytest.raises(psycopg.errors.CheckViolation):
            town.conn.execute(f"insert into copy ({column}) values ('Unknown')".encode())
        for word in words.split():
            town.conn.execute(f"insert into copy ({column}) values ('{word}')".encode())
        town.conn.execute("drop table copy")


@pytest.mark.rule("STAFF-17.03")
@pytest.mark.rule("STAFF-17.06")
@pytest.mark.rule("STAFF-17.07")
def test_indexes_are_there_and_their_predicates_do_not_move_with_time(town: Town) -> None:
    found = {row[0] for row in town.rows("select indexdef from pg_indexes where schemaname = 'staffing'")}
    assert any(one.endswith("ON staffing.saved_searches USING btree (user_id, is_active)") for one in found)
    assert any(one.endswith("ON staffing.magic_link_tokens USING btree (expires_at, used)") for one in found)
    moving = town.rows(
        "select i.indexrelid::regclass, p.proname from pg_index i join pg_class c on c.oid = i.indrelid"
        " join pg_depend d on d.objid = i.indexrelid and d.refclassid = 'pg_proc'::regclass"
        " join pg_proc p on p.oid = d.refobjid where c.relnamespace = 'staffing'::regnamespace and p.provolatile <> 'i'"
    )
    assert moving == []
    predicates = [one.partition(" WHERE ")[2].lower() for one in found]
    assert not [one for one in predicates if re.search(r"\bnow\(|current_|timestamp\(", one)]


@pytest.mark.rule("STAFF-20.06", "STAFF-1.25", "STAFF-1.41")
@pytest.mark.parametrize(
    ("made", "first", "charged"),
    [
        (datetime(2026, 6, 4, 16, tzinfo=UTC), date(2026, 6, 8), 24000),  # on Thursday, for Monday
        (datetime(2026, 6, 8, 12, tzinfo=UTC), date(2026, 6, 8), 24000),  # in the morning, for the same day
        (datetime(2026, 6, 4, 16, tzinfo=UTC), date(2026, 6, 15), None),  # Wednesday charges it
        (datetime(2026, 6, 3, 15, tzinfo=UTC), date(2026, 6, 8), None),  # the cutoff finds it, and gives it a day
        (datetime(2026, 6, 2, 15, tzinfo=UTC), date(2026, 6, 8), None),
    ],
)
def test_a_booking_that_came_too_late_for_its_charge_is_charged_when_it_is_made(
    town: Town, made: datetime, first: date, charged: int | None
) -> None:
    office = Office(town)
    customer = town.bank.v1.customers.create().id
    town.conn.execute("update staffing.companies set stripe_customer_id = %s where kind = 'Borrower'", [customer])
    town.only(at=made)
    booking = office.confirm(town.conn, start_date=first, end_date=first)
    town.mainspring.advance(minutes=1)

    rows = town.rows("select amount_minor::int, status, source from staffing.pending_payments")
    assert rows == ([(charged, "Succeeded", "late")] if charged else [])
    assert town.value("select held::int from staffing.escrow where booking_id = %s", booking) == (charged or 0)


@pytest.mark.rule("STAFF-20.13")
@pytest.mark.parametrize("field", ["customer", "account"])
def test_what_is_another_company_s_at_the_provider_is_nobody_else_s_to_name(town: Town, field: str) -> None:
    kind = "Borrower" if field == "customer" else "Lender"
    theirs, ours = town.company(kind), town.company(kind)
    before = town.row("companies", ours)
    named = town.row("companies", theirs)[f"stripe_{field}_id"]

    def name_it() -> None:
        with town.conn.transaction():
            if field == "customer":
                card = {"customer": named, "payment_method": "pm_card_visa"}
                bookings.put_card(town.desk, town.conn, ours, **card, by=SYSTEM)
            else:
                accounts.connect_account(town.desk, town.conn, ours, account=named, by=SYSTEM)

    with pytest.raises(Refused) as refused:
        name_it()
    assert (refused.value.field, str(refused.value)) == (field, f"{field}: is not one that this company can use")
    assert town.row("companies", ours) == before


@pytest.mark.rule("STAFF-1.41", "STAFF-1.42")
def test_who_cannot_pay_for_a_booking_that_begins_soon_hears_it_at_once(town: Town) -> None:
    office = Office(town)  # has no customer at the provider
    admin = town.user(office.borrower, "Admin")
    town.only(at=datetime(2026, 6, 4, 16, tzinfo=UTC))
    booking = office.confirm(town.conn)
    town.mainspring.drain()
    assert {who for _, who, *_ in town.messages("action_required")} == {admin}
    town.mainspring.clock.set(datetime(2026, 6, 7, 14, tzinfo=UTC))
    (first, *_) = town.rows("select id from staffing.time_log where booking_id = %s order by id", booking)
    assert [subject for subject, _ in town.wrong("unfunded_shift")] == [f"shift {first[0]}"]


@pytest.mark.rule("STAFF-20.10")
def test_a_person_of_another_company_and_nobody_at_all_are_refused_in_the_same_words(
    town: Town, office: Office
) -> None:
    said = set()
    for supervisor in (town.user(town.company("Borrower"), "Supervisor"), 999):
        with pytest.raises(Refused) as refused:
            office.confirm(town.conn, supervisor_id=supervisor)
        said.add(str(refused.value))
    assert said == {"supervisor_id: is nobody of this company"}
