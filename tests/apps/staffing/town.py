"""A small marketplace for tests: companies, people and bookings by direct inserts, and what tests look at."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, time, timedelta
from functools import cached_property
from itertools import count
from typing import Any

import psycopg
import stripe as sdk

from mainspring.testing import Harness
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.watching import measures, watches
from mainspring_sandbox import Sandbox
from mainspring_sandbox.post import Manner

NY = "America/New_York"
#: The instants of the ledger: Wednesday 10:00 and 14:00, and Thursday 00:00, in New York.
BEGIN = datetime(2026, 6, 1, 4, tzinfo=UTC)
W10 = datetime(2026, 6, 3, 14, tzinfo=UTC)
W14 = datetime(2026, 6, 3, 18, tzinfo=UTC)
T00 = datetime(2026, 6, 4, 4, tzinfo=UTC)
MONDAY = date(2026, 6, 1)
NEXT_MONDAY = date(2026, 6, 8)
NEXT_WEEK = (datetime(2026, 6, 8, 4, tzinfo=UTC), datetime(2026, 6, 15, 4, tzinfo=UTC))


@dataclass
class Booking:
    """A booking with everybody in it, by id; `shifts` in order of their start."""

    id: int
    project: int
    borrower: int
    lender: int
    worker: int
    worker_user: int
    supervisor: int | None
    borrowing_admin: int
    borrowing_manager: int
    lending_admin: int
    lending_manager: int
    zone: str
    shifts: list[int] = field(default_factory=list)


class Town:
    """Who lives there, and what became of them."""

    def __init__(self, mainspring: Harness, sandbox: Sandbox, desk: Desk, *, begin: datetime = BEGIN) -> None:
        self.mainspring, self.sandbox, self.desk = mainspring, sandbox, desk
        self.conn: psycopg.Connection[Any] = mainspring.conn
        self._numbers = count(1)
        self._lines: list[sdk.RequestsClient] = []
        mainspring.clock.set(begin)

    @cached_property
    def bank(self) -> sdk.StripeClient:
        line = sdk.RequestsClient()
        self._lines.append(line)
        return sdk.StripeClient(
            "sk_test_sandbox", base_addresses={"api": f"{self.sandbox.url}/stripe"}, http_client=line
        )

    def close(self) -> None:
        """Hang up at the bank and at the desk: a socket that is left open is told of in somebody else's test."""
        for line in self._lines:
            line.close()  # type: ignore[no-untyped-call]  # the SDK says nothing of it
        self.desk.close()

    # -- people

    def insert(self, table: str, **values: Any) -> int:
        names, places = ", ".join(values), ", ".join(f"%({name})s" for name in values)
        query = f"insert into staffing.{table} ({names}) values ({places}) returning id"
        row = self.conn.execute(query.encode(), values).fetchone()
        assert row is not None
        return int(row[0])

    def company(self, kind: str, **values: Any) -> int:
        """With a customer and a card, or a connected account; say None to have none."""
        about: dict[str, Any] = {"kind": kind, "name": f"{kind} {next(self._numbers)}"}
        if kind == "Borrower":
            about["card_on_file"] = "pm_card_visa"
            if "stripe_customer_id" not in values:
                about["stripe_customer_id"] = self.bank.v1.customers.create().id
        elif "stripe_account_id" not in values:
            about["stripe_account_id"] = self.account()
        return self.insert("companies", **about | values)

    def account(self) -> str:
        return self.bank.v1.accounts.create({"type": "express"}).id

    def user(self, company: int, role: str, **values: Any) -> int:
        number = next(self._numbers)
        about: dict[str, Any] = {
            "name": f"Person {number}",
            "email": f"p{number}@example.com",
            "phone": f"+1555{number:07}",
        }
        about |= {"quiet_hours_start": time(22), "quiet_hours_end": time(7)}
        return self.insert("users", **{"company_id": company, "role": role, "timezone": NY} | about | values)

    @property
    def operator(self) -> int:
        """Somebody of the platform, who may come now."""
        known = self.value("select min(id) from staffing.users where role = 'Operator'")
        return known or self.user(self.insert("companies", kind="Platform", name="Platform"), "Operator")

    def admin(self, company: int) -> int:
        """The admin of a company, who may come now."""
        return self._somebody(company, "Admin")

    def admin_of(self, table: str, id_: int) -> int:
        """The admin of the company that a row belongs to."""
        return self.admin(self.row(table, id_)["company_id"])

    def worker(self, lender: int, **values: Any) -> int:
        about = {"trade": "welder", "zip_code": "10001", "user_id": values.pop("user_id", None)}
        about["user_id"] = about["user_id"] or self.user(lender, "Worker")
        return self.insert("workers", company_id=lender, **about | values)

    def booking(
        self,
        *,
        zone: str = NY,
        shifts: Sequence[date] | int = 0,
        start: time = time(9),
        end: time | None = time(17),
        borrower: int | None = None,
        lender: int | None = None,
        worker: int | None = None,
        card: str | None = "pm_card_visa",
        insured: bool = True,
        **values: Any,
    ) -> Booking:
        """An `Active` weekly booking at 30.00 an hour; `shifts` are days, or how many from next Monday on.

        Each company has an admin, a manager and a policy for a year.
        """
        borrower = borrower or self.company("Borrower", card_on_file=card)
        lender = lender or self.company("Lender")
        people = {(company, role): self._somebody(company, role) for company in (borrower, lender)
                  for role in ("Admin", "Manager")}  # fmt: skip
        supervisor = values.pop("supervisor_id", 0)
        supervisor = self.user(borrower, "Supervisor") if supervisor == 0 else supervisor
        worker = worker or self.worker(lender)
        project = self.insert("projects", company_id=borrower, name=f"Project {next(self._numbers)}", timezone=zone)
        if insured:
            for company in (borrower, lender):
                self.policy(company)
        days = [NEXT_MONDAY + timedelta(days=n) for n in range(shifts)] if isinstance(shifts, int) else list(shifts)
        about = {"payment_type": "Weekly_Progress", "status": "Active", "rate_minor": 3000, "currency": "USD"}
        about |= {"start_date": min([MONDAY, *days]), "end_date": max([date(2026, 12, 31), *days])}
        about |= {"scheduled_start_time": start, "scheduled_end_time": end, "supervisor_id": supervisor}
        booking = self.insert(
            "bookings", project_id=project, borrower_company_id=borrower, lender_company_id=lender, worker_id=worker,
            **about | values,
        )  # fmt: skip
        user = self.value("select user_id from staffing.workers where id = %s", worker)
        found = Booking(
            booking, project, borrower, lender, worker, user, supervisor, people[borrower, "Admin"],
            people[borrower, "Manager"], people[lender, "Admin"], people[lender, "Manager"], zone,
        )  # fmt: skip
        for day in days:
            self.shift(found, day, start, end)
        return found

    def _somebody(self, company: int, role: str) -> int:
        known = self.value("select min(id) from staffing.users where company_id = %s and role = %s", company, role)
        return known or self.user(company, role)

    def policy(self, company: int, expires: date = date(2027, 6, 1), **values: Any) -> int:
        known = self.value("select min(id) from staffing.insurance_policies where company_id = %s", company)
        if known and not values and expires == date(2027, 6, 1):
            return int(known)
        return self.insert("insurance_policies", company_id=company, expiration_date=expires, **values)

    def shift(
        self, booking: Booking, day: date, start: time = time(9), end: time | None = time(17), **values: Any
    ) -> int:
        """A `Scheduled` shift; other statuses by `values`."""
        begins, ends = weeks.shift(day, start, end, booking.zone)
        minutes = int((ends - begins).total_seconds() // 60) if ends else 480
        about: dict[str, Any] = {"clock_in_time": begins, "scheduled_start_time": begins, "scheduled_end_time": ends}
        about |= {"planned_minutes": minutes}
        shift = self.insert("time_log", booking_id=booking.id, worker_id=booking.worker, **about | values)
        booking.shifts.append(shift)
        return shift

    def funded(self, booking: Booking, *shifts: int) -> int:
        """The shifts are paid for: a `Succeeded` payment, and a hold for each. Answers the payment."""
        shifts = shifts or tuple(booking.shifts)
        period = weeks.week(weeks.monday(self.now, booking.zone), booking.zone)
        number = next(self._numbers)
        amounts = {
            shift: self.value(
                "select t.planned_minutes * b.rate_minor / 60 from staffing.time_log t"
                " join staffing.bookings b on b.id = t.booking_id where t.id = %s", shift,
            )
            for shift in shifts
        }  # fmt: skip
        total = int(sum(amounts.values()))
        paid = self.bank.v1.payment_intents.create(
            {"amount": total, "currency": "usd",
             "customer": self.row("companies", booking.borrower)["stripe_customer_id"],
             "payment_method": "pm_card_visa", "confirm": True, "off_session": True,
             "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"}},
        )  # fmt: skip
        now = self.now
        with self.conn.transaction():
            payment = self._payment(booking, period, total, paid, number)
            for shift, amount in amounts.items():
                self.conn.execute(
                    "insert into staffing.payment_shifts values (%s, %s, %s)", [payment, shift, int(amount)]
                )
                self.insert(
                    "escrow_holds", booking_id=booking.id, time_log_id=shift, payment_id=payment,
                    amount_minor=int(amount), currency="USD", created_at=now,
                )  # fmt: skip
        self.conn.execute(
            "update staffing.bookings set funded_period_end = greatest(funded_period_end, %s) where id = %s",
            [period.end, booking.id],
        )
        return payment

    def _payment(self, booking: Booking, period: weeks.Period, total: int, paid: Any, number: int) -> int:
        return self.insert(
            "pending_payments", booking_id=booking.id, period_start=period.start, period_end=period.end,
            amount_minor=total, currency="USD", status="Succeeded", source="weekly", provider_intent_id=paid.id,
            provider_charge_id=str(paid.latest_charge), idempotency_key=f"town:{number}", created_at=self.now,
            settled_at=self.now, received_at=self.now,
        )  # fmt: skip

    def unheard(self) -> None:
        """From now on no webhook of Stripe arrives."""
        self.sandbox.stripe.post.manners.append(Manner(drop=True))

    def only(self, *schedules: str, at: datetime | None = None) -> None:
        """From here on (or from `at` on, where time jumps to) only these schedules fire: time then passes quickly."""
        if at is not None:
            self.mainspring.clock.set(at)
        self.mainspring.client.schedules.sync(self.desk.app.registry)
        for change in (
            "update mainspring.schedule set paused_at = case when name <> all(%(names)s) then mainspring.now() end",
            "update mainspring.schedule_zone set next_at = null where schedule <> all(%(names)s)",
            "update mainspring.schedule_zone set next_at = mainspring.now(), after = mainspring.now()"
            " where schedule = any(%(names)s) and next_at is null",
        ):
            self.conn.execute(change.encode(), {"names": list(schedules)})

    # -- what tests look at

    @property
    def now(self) -> datetime:
        return self.mainspring.now()

    def value(self, query: str, *params: Any) -> Any:
        row = self.conn.execute(query.encode(), params).fetchone()
        return row[0] if row else None

    def rows(self, query: str, *params: Any) -> list[tuple[Any, ...]]:
        return self.conn.execute(query.encode(), params).fetchall()

    def row(self, table: str, id_: int) -> Mapping[str, Any]:
        from psycopg.rows import dict_row

        with self.conn.cursor(row_factory=dict_row) as cursor:
            row = cursor.execute(f"select * from staffing.{table} where id = %s".encode(), [id_]).fetchone()
        assert row is not None, f"there is no row {id_} in {table}"
        return row

    def status(self, booking: Booking) -> str:
        return str(self.row("bookings", booking.id)["status"])

    def shift_status(self, shift: int) -> str:
        return str(self.row("time_log", shift)["status"])

    def messages(self, kind: str | None = None) -> list[tuple[str, int, str, str]]:
        """What was sent or is to be: (kind, recipient, channel, status), sorted."""
        query = "select kind, recipient_id, channel, status from staffing.notification_log"
        return sorted(self.rows(query + (" where kind = %s" if kind else ""), *([kind] if kind else [])))

    def texts(self, kind: str) -> set[str]:
        """What messages of a kind said."""
        return {row[0] for row in self.rows("select message from staffing.notification_log where kind = %s", kind)}

    def sms(self) -> list[Any]:
        """What left by SMS: the entries of the sandbox."""
        return self.sandbox.ledger.find("sms")

    def audit(self, action: str) -> list[tuple[Any, ...]]:
        """(actor, entity, entity_id, reason, dispute_id) of an action, in order."""
        return self.rows(
            "select actor, entity, entity_id, reason, dispute_id from staffing.audit_log where action = %s order by id",
            action,
        )

    def waiting(self, task: str | None = None) -> list[tuple[str, datetime, str | None]]:
        """(task, due, key) of what waits, in order of time."""
        query = """select task, due_at, idempotency_key from mainspring.jobs
                   where state in ('scheduled', 'ready', 'retrying')"""
        return self.rows(query + (" and task = %s" if task else "") + " order by due_at, id", *([task] if task else []))

    def alerts(self) -> list[tuple[str, str, str]]:
        """(name, subject, severity) of open alerts."""
        return sorted(self.rows("select name, subject, severity from mainspring.alert where closed_at is null"))

    def wrong(self, name: str) -> list[tuple[str, str]]:
        """What a watch finds now: (subject, text) of each alert that it opens or keeps open."""
        (one,) = [one for one in watches(self.desk) if one.name == name]
        if isinstance(one.condition, str):
            params = one.params() if callable(one.params) else one.params
            query = one.condition.replace("{schema}", "mainspring").encode()
            return [row[:2] for row in self.conn.execute(query, params)]
        return asyncio.run(self._asked(one.condition))

    async def _asked(self, condition: Callable[..., Any]) -> list[tuple[str, str]]:
        async with await psycopg.AsyncConnection.connect(self.mainspring.dsn) as conn:
            return list(await condition(conn))

    def measured(self, name: str) -> list[tuple[Any, ...]]:
        """(labels…, value) of a measure, now."""
        (one,) = [one for one in measures(self.desk.settings) if one.name == name]
        query, params = one.sql.replace("{schema}", "mainspring"), one.params or None
        assert not callable(params)
        return sorted(self.conn.execute(query.encode(), params).fetchall())

    def ledger(self, booking: Booking) -> tuple[int, int, int, int, int]:
        """(charged, held, frozen, released, refunded); with what is charged back it always adds up."""
        query = (
            "select charged, held, frozen, released, refunded, charged_back from staffing.escrow where booking_id = %s"
        )
        ((charged, held, frozen, released, refunded, back),) = self.rows(query, booking.id)
        assert charged == held + frozen + released + refunded + back, "money does not add up"
        return charged, held, frozen, released, refunded
