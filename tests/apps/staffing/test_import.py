"""A company with tables of its own, Acme of examples/staffing_import, comes in with bookings that run."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable
from typing import Any, get_args

import psycopg
import pytest
from tests.apps.staffing import invariants
from tests.apps.staffing.test_weekly_payments import near
from tests.apps.staffing.town import W10, Town
from tests.apps.staffing.wednesday import MINUTE, at
from tests.docs.pages import ROOT, table

from mainspring.cli import main
from mainspring_apps.staffing import shifts
from mainspring_apps.staffing.imports.columns import Noun, columns
from mainspring_apps.staffing.imports.report import RowReport
from mainspring_apps.staffing.imports.run import run
from mainspring_apps.staffing.imports.source import read

ACME = ROOT / "examples" / "staffing_import"
PAGE = ROOT / "docs" / "apps" / "staffing-import.md"
Bring = Callable[..., tuple[int, dict[str, int], dict[tuple[str, str], tuple[str, str | None, str | None]]]]


@pytest.fixture
def acme(town: Town) -> Town:
    """Acme beside us, with a customer, an account and a charge at the provider."""
    for file in ("acme.sql", "views.sql", "week.sql"):
        town.conn.execute((ACME / file).read_text().encode())
    town.unheard()
    hudson, bronx, account = (town.bank.v1.customers.create().id, town.bank.v1.customers.create().id, town.account())
    paid = town.bank.v1.payment_intents.create(
        {"amount": 49500, "currency": "usd", "customer": hudson, "payment_method": "pm_card_visa", "confirm": True,
         "off_session": True, "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"}},
    )  # fmt: skip
    town.sandbox.stripe.post.manners.clear()
    town.conn.execute(
        "update acme.customers set stripe_id = case firm when 'hudson' then %s else %s end", [hudson, bronx]
    )
    town.conn.execute(
        "update acme.turns set charged_by = %s, charge = %s where charged_by = 'pi_june'",
        [paid.id, str(paid.latest_charge)],
    )
    view = town.value("select pg_get_viewdef('to_mainspring.companies'::regclass)")
    town.conn.execute(
        f"create or replace view to_mainspring.companies as {view.replace('acct_acme', account)}".encode()
    )
    return town


@pytest.fixture
def bring(acme: Town, capsys: pytest.CaptureFixture[str]) -> Bring:
    """Type the command: its exit code, its counts, and what became of each row."""

    def bring(*words: str) -> Any:
        capsys.readouterr()
        code = main(["staffing", "import", "--from", "to_mainspring", "--json", *words, "--dsn", acme.mainspring.dsn])
        told = json.loads(capsys.readouterr().out)
        rows = {(r["view"], r["external_id"]): (r["became"], r["field"], r["reason"]) for r in told["rows"]}
        return code, told["counts"], rows

    return bring


def everything(town: Town) -> dict[str, Any]:
    """Every row of every table of the marketplace, and every job."""
    tables = town.rows("select quote_ident(table_name) from information_schema.tables"
                       " where table_schema = 'staffing' and table_type = 'BASE TABLE' order by 1")  # fmt: skip
    found = {name: town.rows(f"select t::text from staffing.{name} t order by 1") for (name,) in tables}
    return found | {"jobs": town.rows("select id from mainspring.jobs order by 1")}


def shift(town: Town, name: str) -> int:
    return int(town.value("select id from staffing.imported where kind = 'shifts' and external_id = %s", name))


def booking(town: Town, name: str) -> int:
    return int(town.value("select id from staffing.imported where kind = 'bookings' and external_id = %s", name))


def worked(town: Town, name: str, worker: str) -> None:
    """A shift is begun, submitted and verified on time, and its money moved."""
    row = town.row("time_log", shift(town, name))
    user = town.value("select id from staffing.imported where kind = 'users' and external_id = %s", worker)
    borrower = town.row("bookings", row["booking_id"])["borrower_company_id"]
    acts: list[tuple[Any, str, int]] = [
        (shifts.clock_in, "scheduled_start_time", user), (shifts.submit_timesheet, "scheduled_end_time", user),
        (shifts.verify_timesheet, "scheduled_end_time", town.admin(borrower)),
    ]  # fmt: skip
    for act, when, by in acts:
        town.mainspring.clock.set(row[when])
        with town.conn.transaction():
            act(town.desk, town.conn, row["id"], by=by)
    town.mainspring.drain()


@pytest.mark.rule("STAFF-20.28")
def test_acme_goes_on_here_and_what_it_was_paid_for_is_not_charged_again(acme: Town, bring: Bring) -> None:
    nothing = everything(acme)
    dry = bring("--dry-run")
    assert everything(acme) == nothing
    code, counts, rows = bring()
    assert (code, counts, rows) == (0, {"imported": 25}, dry[2])
    assert {view for view, _ in rows} == set(get_args(Noun))

    once = everything(acme)
    again = bring()
    assert again[:2] == (0, {"unchanged": 25})
    assert everything(acme) == once

    a1, a2 = booking(acme, "A-1"), booking(acme, "A-2")
    ledgers = "select charged, held, released, refunded from staffing.escrow where booking_id = %s"
    assert acme.rows(ledgers, a1) == [(49500, 49500, 0, 0)]
    assert acme.rows(ledgers, a2) == [(0, 0, 0, 0)], "an invoice is no money of ours"
    begins = [row[0] for row in acme.rows("select scheduled_start_time from staffing.time_log where booking_id = %s"
                                          " order by 1", a1)]  # fmt: skip
    assert begins == [at("2026-06-02T12:00"), at("2026-06-03T12:00"), at("2026-06-08T12:00"), at("2026-06-10T02:00")]
    assert acme.value("select array_agg(distinct funded_period_end) from staffing.bookings") == [at("2026-06-08T04:00")]

    worked(acme, "3", "11")
    transfers = "select amount_minor, status from staffing.transfers order by id"
    assert acme.rows(transfers) == [(24000, "Succeeded")]
    near(acme)
    acme.mainspring.advance(to=W10 + MINUTE)
    charged = (
        "select booking_id, amount_minor, status from staffing.pending_payments where source = 'weekly' order by 1"
    )
    assert acme.rows(charged) == [(a1, 48000, "Succeeded"), (a2, 22000, "Succeeded")], "the week from 8 June, no other"
    assert acme.rows(ledgers, a1) == [(97500, 73500, 24000, 0)]

    worked(acme, "7", "12")
    assert acme.rows(transfers) == [(24000, "Succeeded")], "the worker of a shift that was settled is paid by Acme"
    assert acme.alerts() == []
    assert acme.value("select sum(amount_minor) from staffing.pending_payments where source <> 'imported'") == 70000
    assert list(invariants.broken(acme)) == []


NO_RATE = "rate: is not a positive number of USD with at most 2 decimals"
NO_MINUTES = "is not hours and minutes of the project's own clocks"
OVER = "day: is over: leave out what was worked before"
#: A view, a row of Acme's, what another one like it says instead, and why that is refused.
WRONG: list[tuple[Noun, str, dict[str, str | None], str]] = [
    ("companies", "hudson", {"payment_method": None}, "payment_method: is missing beside the other"),
    ("companies", "hudson", {"customer": "cus 1"}, "customer: is not an id of the payment provider"),
    ("companies", "hudson", {"account": "acct_1"}, "account: is for a lender"),
    ("companies", "hudson", {}, "customer: is not one that this company can use"),
    ("companies", "acme", {}, "account: is not one that this company can use"),
    ("companies", "acme", {"customer": "cus_1", "payment_method": "pm_1"}, "customer: is for a borrower"),
    ("companies", "acme", {"kind": "Bank"}, "kind: is not one of Borrower, Lender"),
    ("companies", "acme", {"name": " "}, "name: is missing"),
    ("companies", "acme", {"name": "x" * 201}, "name: is not a text of 1 to 200 characters"),
    ("companies", "acme", {"external_id": None}, "external_id: is missing"),
    ("companies", "acme", {"external_id": "x" * 201}, "external_id: is longer than 200 characters"),
    ("users", "2", {"company_id": "nobody"}, "company_id: nobody of companies is not imported"),
    ("users", "2", {"role": "cook"}, "role: is not one of Admin, Manager, Supervisor, Worker"),
    ("users", "2", {"email": "ada"}, "email: is no mail address: it has no @"),
    ("users", "2", {"timezone": "Mars/Phobos"}, "timezone: is not a time zone"),
    ("users", "2", {"name": "a\0b"}, "None: PostgreSQL text fields cannot contain NUL (0x00) bytes"),
    ("policies", "bronx", {"expiration_date": "2026-05-31"}, "expiration_date: 2026-05-31 has passed"),
    ("policies", "bronx", {"expiration_date": "infinity"},
     "expiration_date: infinity is not a date, such as 2026-06-01"),
    ("projects", "100", {"company_id": "acme"}, "company_id: is no borrower"),
    ("projects", "100", {"timezone": "america/new_york"},
     "timezone: is not a time zone (did you mean 'America/New_York'?)"),
    ("workers", "11", {"company_id": "hudson"}, "company_id: is no lender"),
    ("workers", "11", {"user_id": "1"}, "user_id: is nobody of this company"),
    ("bookings", "A-1", {"project_id": "poor", "supervisor_id": None},
     "project_id: its company has no customer and card to be charged"),
    ("bookings", "A-1", {"supervisor_id": "3"}, "supervisor_id: is nobody of this company"),
    ("bookings", "A-1", {"start_time": "08:00:20"}, f"start_time: {NO_MINUTES}"),
    ("bookings", "A-1", {"rate": "0"}, NO_RATE),
    ("bookings", "A-1", {"rate": "30.005"}, NO_RATE),
    ("bookings", "A-1", {"rate": "NaN"}, NO_RATE),
    ("bookings", "A-1", {"rate": "1e999999999"}, NO_RATE),
    ("bookings", "A-1", {"rate": "10000.01"}, "rate: is more than 10000.00 USD"),
    ("bookings", "A-1", {"rate": "thirty"}, "rate: thirty is not a number"),
    ("bookings", "A-1", {"currency": "usd"}, "currency: is not three capital letters, such as USD"),
    ("bookings", "A-1", {"end_date": "2026-05-31"}, "end_date: is over: leave out what has ended"),
    ("bookings", "A-1", {"end_date": "2026-05-01"}, "end_date: lies before the start"),
    ("bookings", "A-1", {"end_date": "9999-12-31"}, "end_date: lies more than 366 days ahead"),
    ("bookings", "A-1", {"funded_until": "2026-06-07"}, "funded_until: 2026-06-07 is not a Monday"),
    ("bookings", "A-1", {"funded_until": "2026-07-06"}, "funded_until: lies after the week in which the booking ends"),
    ("shifts", "5", {"end_time": "16:00:00.5"}, f"end_time: {NO_MINUTES}"),
    ("shifts", "5", {"day": "2026-05-29"}, OVER),
    ("shifts", "5", {"day": "2026-05-31"}, OVER),
    ("shifts", "5", {"day": "0001-01-01"}, "day: lies outside the booking"),
    ("shifts", "5", {"day": "2026-06-03", "payment_intent": "pi_2", "charge": "ch_2", "paid": "240"},
     "day: overlaps {4}"),
    ("shifts", "5", {"settled": "perhaps"}, "settled: perhaps is not true or false"),
    ("shifts", "5", {"booking_id": "A-0"}, "booking_id: there is no booking A-0 that it could be of"),
    ("shifts", "4", {"payment_intent": None, "charge": None, "paid": None},
     "payment_intent: is missing, and the shift is not settled: its week is funded, and nothing says by what"),
    ("shifts", "4", {"charge": None}, "charge: is missing beside the others"),
    ("shifts", "4", {"charge": "ch 1"}, "charge: is not an id of the payment provider"),
    ("shifts", "4", {"settled": "true"}, "payment_intent: stands beside settled, and no money of that is with us"),
    ("shifts", "4", {"paid": "254.995"}, "paid: is not a positive number of USD with at most 2 decimals"),
    ("shifts", "4", {"paid": "254.99"}, "paid: is 254.99 USD, and the shift costs 255.00 USD as planned"),
    ("shifts", "4", {}, "payment_intent: has paid for something else already"),
    ("shifts", "4", {"charge": "ch_3"}, "charge: is another one than that of the same payment_intent"),
    ("shifts", "5", {"worker": "11"}, "day: the worker is booked then already"),
]  # fmt: skip


def like(source: dict[Noun, list[Any]], view: Noun, which: str, number: int, /, **says: str | None) -> Any:
    """Another row like one of Acme's that says something else; answers its id."""
    row = next(row for row in source[view] if row["external_id"] == which)
    source[view].append(row | {"external_id": f"{which}-{number}"} | says)
    return source[view][-1]["external_id"]


@pytest.mark.rule("STAFF-20.28")
def test_each_wrong_row_is_refused_with_its_field_and_reason_and_keeps_its_booking_out(acme: Town) -> None:
    source: dict[Noun, list[Any]] = {view: list(rows) for view, rows in read(acme.conn, "to_mainspring").items()}
    like(source, "companies", "hudson", 0, external_id="poor", customer=None, payment_method=None)
    like(source, "projects", "100", 0, external_id="poor", company_id="poor")
    acts = [row["external_id"] for row in source["shifts"] if row["booking_id"] == "A-1"]
    wanted: dict[tuple[Noun, str | None], str] = {}
    for number, (view, name, says, why) in enumerate(WRONG, 1):
        says = dict(says)
        if view == "shifts":  # beside the other shifts of a booking like A-1, whose worker has nothing else to do
            booking = like(source, "bookings", "A-1", number, worker_id=says.pop("worker", "13"), supervisor_id=None)
            own = "pi_own" if says.get("charge") == "ch_3" else None
            for other in acts:
                said: dict[str, str | None] = {"booking_id": booking} | (says if other == name else {})
                if own and other in ("3", "4"):
                    said["payment_intent"] = own
                like(source, view, other, number, **said)
            wanted[view, f"{name}-{number}"] = why.replace("{4}", f"4-{number}")
        else:
            wanted[view, like(source, view, name, number, **says)] = why

    reports = run(acme.desk, acme.conn, source, dry_run=True, tell=lambda *_: None)
    rows = {(row.view, row.external_id): row for row in reports}
    assert {place: f"{rows[place].field}: {rows[place].reason}" for place in wanted} == wanted
    assert {rows[place].became for place in wanted} == {"refused"}
    assert len(reports) == sum(map(len, source.values()))
    assert sum(row.became == "imported" for row in reports) == 27, "what is right goes on"
    assert all(
        row.became == "refused"
        for row in reports
        if row.view in ("bookings", "shifts") and "-" in (row.external_id or "")[2:]
    )


@pytest.mark.rule("STAFF-20.28")
def test_an_import_that_is_killed_goes_on_where_it_was_and_two_at_once_bring_each_row_once(acme: Town) -> None:
    source = read(acme.conn, "to_mainspring")
    size = sum(map(len, source.values()))

    def kill(_: RowReport, number: int, of: int) -> None:
        assert of == size
        if number == 20:  # a shift of the first booking
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run(acme.desk, acme.conn, source, tell=kill)
    assert acme.value("select count(*) from staffing.bookings") == 1
    assert list(invariants.broken(acme)) == []

    acme.conn.execute(b"create function staffing.away() returns trigger language plpgsql as"
                      b" 'begin raise exception ''away''; end'")  # fmt: skip
    acme.conn.execute(b"create trigger away before insert on staffing.payment_shifts"
                      b" for each row execute function staffing.away()")  # fmt: skip
    with pytest.raises(psycopg.errors.RaiseException):
        run(acme.desk, acme.conn, source, tell=lambda *_: None)
    assert acme.value("select count(*) from staffing.bookings") == 1, "a booking comes whole or not at all"
    acme.conn.execute(b"drop trigger away on staffing.payment_shifts")

    like(dict(source), "companies", "acme", 1, account=None)  # which is the first one's
    told: list[RowReport] = []

    def bring() -> None:
        with psycopg.connect(acme.mainspring.dsn) as conn:
            told.extend(run(acme.desk, conn, source, tell=lambda *_: None))

    threads = [threading.Thread(target=bring) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert {row.became for row in told} == {"imported", "unchanged"}
    assert len({(row.view, row.external_id) for row in told}) == size + 1
    assert sum(row.became == "imported" for row in told) == 4, "a booking, two shifts and a company, by one of them"
    assert acme.value("select count(*) from staffing.imported") == size + 1


@pytest.mark.rule("STAFF-20.28")
def test_what_has_changed_at_home_is_told_and_further_shifts_come_in(acme: Town, bring: Bring) -> None:
    bring()
    acme.conn.execute("update acme.assignments set hourly = 31 where code = 'A-1'")
    acme.conn.execute(
        "insert into acme.turns values (9, 'A-1', '2026-06-15 08:00', '2026-06-15 16:00', 'planned', 'pi_9', 'ch_9')"
    )
    before = everything(acme)
    code, counts, rows = bring("--dry-run")
    assert (code, counts) == (1, {"changed": 3, "imported": 1, "unchanged": 22})
    assert rows["bookings", "A-1"] == ("changed", "rate", "was 30.00, is 31")
    assert everything(acme) == before
    assert bring()[0] == 1
    assert acme.value("select rate_minor from staffing.bookings where id = %s", booking(acme, "A-1")) == 3000
    assert acme.row("time_log", shift(acme, "9"))["scheduled_start_time"] == at("2026-06-15T12:00")
    row = acme.row("bookings", booking(acme, "A-1"))
    assert row["funded_period_end"] == at("2026-06-08T04:00"), "a shift that is paid for ahead funds no week"


def test_what_is_no_schema_with_the_views_is_said_in_one_line(acme: Town, capsys: pytest.CaptureFixture[str]) -> None:
    def say(schema: str) -> tuple[int, str]:
        code = main(["staffing", "import", "--from", schema, "--dsn", acme.mainspring.dsn])
        return code, capsys.readouterr().err

    views = "companies, users, policies, projects, workers, bookings, shifts"
    assert say("nowhere") == (2, f"mainspring: there is no view nowhere.companies: an import reads {views}\n")
    assert say("a\0b") == (2, "mainspring: schema: is not the name of a schema of yours\n")
    assert say("staffing")[0] == 2
    acme.conn.execute(b"alter view to_mainspring.bookings rename rate to rates")
    assert say("to_mainspring") == (
        2, "mainspring: to_mainspring.bookings has no column rate (did you mean 'rates'?)\n",
    )  # fmt: skip
    acme.conn.execute(b"alter view to_mainspring.bookings rename rates to rate")
    acme.conn.execute(b"create or replace view to_mainspring.projects as select (1 / (site_no - 100)) as external_id,"
                      b" firm as company_id, street as name, zone as timezone from acme.sites")  # fmt: skip
    assert say("to_mainspring") == (2, "mainspring: to_mainspring.projects cannot be read: division by zero\n")
    acme.conn.execute(b"update acme.people set full_name = E'Ada\\x1b[2J', person_no = 20 where person_no = 13")
    assert acme.value("select count(*) from staffing.imported") == 0


@pytest.mark.parametrize("view", get_args(Noun))
def test_the_page_says_every_column_of_every_view(view: Noun) -> None:
    rows = [[f"`{one.name}`", one.sql + (", or null" if one.nullable else ""), one.about]
            for one in columns(view).values()]  # fmt: skip
    assert table(PAGE, f"### {view}") == rows, "\n".join(f"| {' | '.join(row)} |" for row in rows)
