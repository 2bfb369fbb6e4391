"""The people of a random walk: what anybody in a marketplace may do next, by chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from datetime import date, datetime, time, timedelta
from typing import Any, Final, Literal

from tests.staffing.town import Town

from mainspring_apps.staffing import accounts, bookings, charging, disputes, escrow, incidents, insurance, listings
from mainspring_apps.staffing import search as searches
from mainspring_apps.staffing import shifts as sheets
from mainspring_apps.staffing.desk import acting
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.states import Refused

ZONES: Final = (
    "America/New_York", "Europe/London", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Kiritimati",
)  # fmt: skip
CURRENCIES: Final = ("USD", "EUR", "JPY")
HOURS: Final = ((time(8), time(16)), (time(22), time(6)), (time(0, 30), time(7, 15)), (time(12), None))
GOOD: Final = ("pm_card_visa", "pm_card_mastercard", "pm_card_pendingRefund")
BAD: Final = ("pm_card_chargeDeclined", "pm_card_chargeDeclinedInsufficientFunds", "pm_card_authenticationRequired")
SLOW: Final = "pm_card_processing"
DAY: Final = timedelta(days=1)

Act = Callable[[], str | None]


class People:
    """Who lives in a town, and what they do. Each act says what was done, or None where there was nothing to do."""

    def __init__(self, town: Town, chance: random.Random) -> None:
        self.town, self.chance = town, chance
        self.workers: list[int] = []
        for number, zone in enumerate(ZONES):
            self._settle(number, zone)

    def _settle(self, number: int, zone: str) -> None:
        town = self.town
        borrower, lender = town.company("Borrower"), town.company("Lender")
        if number == 2:
            town.conn.execute("update staffing.companies set stripe_account_id = null where id = %s", [lender])
        for company in (borrower, lender):
            for role in ("Admin", "Manager"):
                town.user(company, role, timezone=zone)
            town.policy(
                company,
                weeks.local_date(town.now, zone) + self.chance.choice((4, 12, 20, 365)) * DAY,
                policy_type="Liability",
            )
        town.user(borrower, "Supervisor", timezone=zone)
        town.insert("projects", company_id=borrower, name=f"Project {number}", timezone=zone)
        for _ in range(3):
            user = town.user(lender, "Worker", timezone=zone)
            self.workers.append(town.worker(lender, user_id=user))
        (admin,) = self._ids("select min(id) from staffing.users where company_id = %s", borrower)
        searches.save_search(town.conn, user_id=admin, criteria={"trade": "welder"})

    def acts(self) -> Sequence[tuple[int, Act]]:
        """Everything that may be done, and how often it is."""
        return (
            (6, self.book), (30, self.clock_in), (3, self.draft), (22, self.submit), (5, self.force), (7, self.edit),
            (14, self.verify), (7, self.dispute), (9, self.resolve), (2, self.incident), (3, self.close_incident),
            (5, self.renew), (1, self.deactivate), (1, self.insure), (2, self.change_end), (4, self.card),
            (4, self.pay), (1, self.account), (2, self.list), (4, self.bank_decides), (2, self.bank_refunds),
        )  # fmt: skip

    def next_at(self) -> datetime:
        """When there will be something to do: a shift begins or ends; else in half a day."""
        query = """
            select min(at) from (
              select scheduled_start_time as at from staffing.time_log where status = 'Scheduled' union all
              select scheduled_end_time from staffing.time_log where status = 'Working') next
            where at > mainspring.now()"""
        later = self.town.now + timedelta(hours=12)
        return min(self.town.value(query) or later, later)

    # -- bookings and work

    def book(self) -> str | None:
        place = self._maybe(f"select id, company_id, timezone from staffing.projects x where {INSURED}")
        found = self._maybe(f"select id from staffing.workers x where {INSURED}")
        if not place or not found:
            return None
        (project, company, zone), (worker,) = place, found
        start, end = self.chance.choice(HOURS)
        first = weeks.local_date(self.town.now, zone) + self.chance.randrange(4) * DAY
        supervisor = self._maybe("select id from staffing.users where company_id = %s and role = 'Supervisor'", company)
        return self._try(
            "book", worker,
            lambda: bookings.confirm_booking(
                self.town.conn, project_id=project, worker_id=worker, start_date=first,
                supervisor_id=supervisor[0] if supervisor and self.chance.random() < 0.9 else None,
                end_date=first + self.chance.randrange(1, 25) * DAY, start=start, end=end,
                weekdays=frozenset(range(self.chance.choice((5, 7)))), rate_minor=self.chance.randrange(1000, 4000),
                currency=CURRENCIES[company % 3], payment_type="Upfront" if self.chance.random() < 0.05 else "Weekly_Progress",
            ),
        )  # fmt: skip

    def clock_in(self) -> str | None:
        soon = self.town.now + timedelta(minutes=30)
        found = self._maybe(
            "select t.id, w.user_id from staffing.time_log t join staffing.workers w on w.id = t.worker_id"
            " where t.status = 'Scheduled' and t.scheduled_start_time between %s and %s", soon - timedelta(hours=3), soon,
        )  # fmt: skip
        return found and self._try("clock in", found[0], lambda: sheets.clock_in(self._c, found[0], by=found[1]))

    def draft(self) -> str | None:
        found = self._shift("Working")
        return found and self._try(
            "draft", found.id, lambda: sheets.save_draft(self._c, found.id, end=self.town.now, by=found.worker)
        )

    def submit(self) -> str | None:
        over = (
            "" if self.chance.random() < 0.1 else "and t.scheduled_end_time < mainspring.now() + interval '20 minutes'"
        )
        found = self._shift("Working", over)
        return found and self._try(
            "submit", found.id, lambda: sheets.submit_timesheet(self._c, found.id, by=found.worker)
        )

    def force(self) -> str | None:
        found = self._shift("Working")
        if not found or not found.supervisor:
            return None
        return self._try("force", found.id, lambda: sheets.force_clock_out(self._c, found.id, by=found.supervisor))

    def edit(self) -> str | None:
        found = self._shift("Pending_Verification")
        if not found:
            return None
        by = self.chance.choice((found.supervisor or found.admin, found.worker, found.admin))
        return self._try("edit", found.id, lambda: sheets.edit_timesheet(self._c, found.id, end=self.town.now, by=by))

    def verify(self) -> str | None:
        found = self._shift("Pending_Verification")
        return found and self._try(
            "verify", found.id, lambda: sheets.verify_timesheet(self._c, found.id, by=found.supervisor or found.admin)
        )

    def change_end(self) -> str | None:
        (booking,) = self._maybe("select id from staffing.bookings where status in ('Active', 'Completed')") or (None,)
        shift = self._shift("Working")
        if shift and self.chance.random() < 0.5:
            end = self.town.now + timedelta(minutes=self.chance.randrange(-30, 240))
            return self._try("change end of shift", shift.id, lambda: sheets.change_shift_end(self._c, shift.id, end))
        end_of_day = self.chance.choice((time(15), time(17, 30), time(4), None))
        return booking and self._try(
            "change end", booking, lambda: sheets.change_scheduled_end(self._c, booking, end_of_day)
        )

    # -- disputes and incidents

    def dispute(self) -> str | None:
        found = self._shift("Pending_Verification")
        if not found:
            return None
        option: Literal["A", "B"] = "B" if self.chance.random() < 0.15 else "A"
        by = self.chance.choice((found.supervisor or found.admin, found.admin, found.worker))
        if self.chance.random() < 0.2:  # in the very instant in which it approves itself
            at = self.town.value("select auto_approval_time from staffing.time_log where id = %s", found.id)
            if at - self.town.now < timedelta(hours=1):
                self._at(at)
        return self._try(
            f"dispute {option}", found.id, lambda: disputes.file_dispute(self._c, found.id, option=option, by=by)
        )

    def resolve(self) -> str | None:
        found = self._maybe("select id, status from staffing.disputes where status in ('Open', 'Legal_Hold')")
        if not found:
            return None
        status: Any = self.chance.choice(
            ("Settled", "Resolved") if found[1] == "Legal_Hold" else ("Settled", "Resolved", "Legal_Hold")
        )
        split = self._split(escrow.frozen(self._c, dispute_id=found[0])) if status != "Legal_Hold" else {}
        return self._try(
            f"resolve as {status}",
            found[0],
            lambda: disputes.resolve_dispute(self._c, found[0], status=status, **split),
        )

    def incident(self) -> str | None:
        found = self._maybe(
            "select id, supervisor_id from staffing.bookings where status <> 'Cancelled' and supervisor_id is not null"
        )
        option: Literal["A", "B"] = "B" if self.chance.random() < 0.25 else "A"
        return found and self._try(
            f"incident {option}",
            found[0],
            lambda: incidents.file_incident(self._c, found[0], option=option, by=found[1]),
        )

    def close_incident(self) -> str | None:
        found = self._maybe("select id from staffing.incident_reports where status = 'Pending'")
        if not found:
            return None
        split = self._split(escrow.frozen(self._c, incident_id=found[0]))
        return self._try("close incident", found[0], lambda: incidents.resolve_incident(self._c, found[0], **split))

    # -- insurance, money, listings

    def renew(self) -> str | None:
        today = self.town.now.date()
        found = self._maybe(
            "select id from staffing.insurance_policies where expiration_date < %s or not is_active", today + 3 * DAY
        )
        until = today + self.chance.choice((2, 9, 60)) * DAY
        return found and self._try(
            "renew", found[0], lambda: insurance.renew_insurance(self._c, found[0], expiration_date=until)
        )

    def deactivate(self) -> str | None:
        found = self._maybe("select id from staffing.insurance_policies where is_active")
        return found and self._try("deactivate", found[0], lambda: insurance.deactivate_insurance(self._c, found[0]))

    def insure(self) -> str | None:
        company = self._one("select id from staffing.companies")[0]
        until = self.town.now.date() + self.chance.choice((1, 30)) * DAY
        return self._try(
            "insure", company, lambda: bookings.add_policy(self._c, company_id=company, expiration_date=until)
        )

    def card(self) -> str | None:
        company, customer = self._one("select id, stripe_customer_id from staffing.companies where kind = 'Borrower'")
        card = self.chance.choice((*GOOD, *GOOD, *BAD, SLOW))
        return self._try(
            f"card {card}", company, lambda: bookings.put_card(self._c, company, customer=customer, payment_method=card)
        )

    def pay(self) -> str | None:
        found = self._maybe("select id, borrower_company_id from staffing.bookings where status = 'Active'")
        if not found:
            return None
        (admin,) = self._ids("select min(id) from staffing.users where company_id = %s and role = 'Admin'", found[1])
        return self._try("pay by hand", found[0], lambda: charging.pay_by_hand(self._c, found[0], by=admin))

    def account(self) -> str | None:
        company, account = self._one("select id, stripe_account_id from staffing.companies where kind = 'Lender'")
        if account is None:
            new = self.town.account()
            return self._try(
                "connect account", company, lambda: accounts.connect_account(self._c, company, account=new)
            )
        if self.chance.random() < 0.3:
            self._c.execute("update staffing.companies set stripe_account_id = null where id = %s", [company])
            return f"account of {company} is gone"
        return None

    def list(self) -> str | None:
        worker = self.chance.choice(self.workers)
        verb = self.chance.choice((listings.list_worker, listings.unlist_worker))
        return self._try(verb.__name__, worker, lambda: verb(self._c, worker))

    def bank_decides(self) -> str | None:
        """What is processing ends."""
        intents = [entry.id for entry in self.town.sandbox.ledger.find("stripe.payment_intent", status="processing")]
        if not intents:
            return None
        intent, outcome = self.chance.choice(sorted(intents)), self.chance.choice(("succeeded", "failed"))
        self.town.sandbox.stripe.settle(intent, outcome)  # type: ignore[arg-type] # one of the two
        return f"bank: {intent} {outcome}"

    def bank_refunds(self) -> str | None:
        refunds = [entry.id for entry in self.town.sandbox.ledger.find("stripe.refund", status="pending")]
        if not refunds:
            return None
        refund = self.chance.choice(sorted(refunds))
        self.town.sandbox.stripe.settle(refund, "succeeded")
        return f"bank: {refund} succeeded"

    # -- the end

    def repair(self) -> Iterator[str]:
        """Whoever lacks an account or insurance gets it."""
        for company in self._ids(
            "select id from staffing.companies where kind = 'Lender' and stripe_account_id is null"
        ):
            account = self.town.account()
            yield self._try("connect", company, lambda: accounts.connect_account(self._c, company, account=account))
        for policy in self._ids("select id from staffing.insurance_policies order by id"):
            until = self.town.now.date() + 365 * DAY
            yield self._try("renew", policy, lambda: insurance.renew_insurance(self._c, policy, expiration_date=until))

    def conclude(self) -> Iterator[str]:
        """Whoever works goes home, what is open is closed, and every booking ends."""
        while found := self._shift("Working"):
            yield self._try("force", found.id, lambda: sheets.force_clock_out(self._c, found.id, by=found.admin))
        while found := self._shift("Pending_Verification"):
            yield self._try("verify", found.id, lambda: sheets.verify_timesheet(self._c, found.id, by=found.admin))
        admin = (
            "(select min(u.id) from staffing.users u where u.company_id = b.borrower_company_id and u.role = 'Admin')"
        )
        ahead = "exists (select from staffing.time_log t where t.booking_id = b.id and t.status = 'Scheduled')"
        for booking, by in self.town.rows(f"select b.id, {admin} from staffing.bookings b where {ahead} order by 1"):
            yield self._try("end", booking, lambda: incidents.file_incident(self._c, booking, option="B", by=by))
        while self._maybe("select id from staffing.disputes where status in ('Open', 'Legal_Hold')"):
            yield str(self.resolve())
        while closed := self.close_incident():
            yield closed

    # -- parts

    @property
    def _c(self) -> Any:
        return self.town.conn

    def _at(self, instant: datetime) -> None:
        """Time moves there, and nobody works on the way."""
        if instant > self.town.now:
            self.town.mainspring.clock.set(instant)

    def _try(self, what: str, about: int, event: Callable[[], object]) -> str:
        try:
            with self._c.transaction(), acting(None):
                event()
        except Refused as refused:
            return f"{what} {about}: refused, {refused}"
        return f"{what} {about}"

    def _split(self, frozen: list[escrow.Hold]) -> dict[str, int]:
        total = sum(hold.amount_minor for hold in frozen)
        lender = self.chance.choice((0, total, total // 3))
        return {"lender_minor": lender, "borrower_minor": total - lender}

    def _ids(self, query: str, *params: Any) -> list[int]:
        return [row[0] for row in self.town.rows(query, *params)]

    def _maybe(self, query: str, *params: Any) -> tuple[Any, ...] | None:
        rows = sorted(self.town.rows(query, *params))
        return self.chance.choice(rows) if rows else None

    def _one(self, query: str) -> tuple[Any, ...]:
        found = self._maybe(query)
        assert found is not None, query
        return found

    def _shift(self, status: str, more: str = "") -> Shift | None:
        found = self._maybe(
            "select t.id, w.user_id, coalesce(b.supervisor_id, 0), (select min(u.id) from staffing.users u"
            " where u.company_id = b.borrower_company_id and u.role = 'Admin') from staffing.time_log t"
            " join staffing.workers w on w.id = t.worker_id join staffing.bookings b on b.id = t.booking_id"
            f" where t.status = %s {more}", status,
        )  # fmt: skip
        return found and Shift(*found)


class Shift:
    def __init__(self, id: int, worker: int, supervisor: int, admin: int) -> None:
        self.id, self.worker, self.supervisor, self.admin = id, worker, supervisor, admin


INSURED: Final = """not exists (select from staffing.insurance_policies p where p.company_id = x.company_id
    and not (p.is_active and p.expiration_date > mainspring.now() + interval '1 day'))"""
