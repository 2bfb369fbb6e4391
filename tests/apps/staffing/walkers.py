"""The people of a random walk: what anybody in a marketplace may do next, by chance."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from typing import Any, Final, Literal, NamedTuple

from tests.apps.staffing.town import Town

from mainspring_apps.staffing import bookings, insurance, withdrawal
from mainspring_apps.staffing import shifts as sheets
from mainspring_apps.staffing.conflicts import disputes, incidents
from mainspring_apps.staffing.payments import accounts, arrears, escrow, movements, reversals, weekly
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.searches import listings
from mainspring_apps.staffing.searches import search as searches
from mainspring_apps.staffing.states import Refused

ZONES: Final = (
    "America/New_York", "Europe/London", "Asia/Kathmandu", "Australia/Lord_Howe", "Africa/Cairo", "Pacific/Kiritimati",
)  # fmt: skip
CURRENCIES: Final = ("USD", "EUR", "JPY")
HOURS: Final = ((time(8), time(16)), (time(22), time(6)), (time(0, 30), time(7, 15)), (time(12), None))
GOOD: Final = ("pm_card_visa", "pm_card_mastercard", "pm_card_pendingRefund")
BAD: Final = ("pm_card_chargeDeclined", "pm_card_chargeDeclinedInsufficientFunds", "pm_card_authenticationRequired")
SLOW: Final = "pm_card_processing"
OUTCOMES: Final[tuple[Literal["succeeded", "failed"], ...]] = ("succeeded", "failed")
VERDICTS: Final[tuple[Literal["won", "lost"], ...]] = ("won", "lost")
DAY: Final = timedelta(days=1)
ADMIN: Final = """(select min(u.id) from staffing.users u
    where u.company_id = b.borrower_company_id and u.role = 'Admin')"""
INSURED: Final = """not exists (select from staffing.insurance_policies p where p.company_id = x.company_id
    and not (p.is_active and p.expiration_date > mainspring.now() + interval '1 day'))"""

Act = Callable[[], str | None]


class Shift(NamedTuple):
    """A shift, and who may act on it; nobody is 0."""

    id: int
    worker: int
    supervisor: int
    admin: int


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
            expires = weeks.local_date(town.now, zone) + self.chance.choice((4, 12, 20, 365)) * DAY
            town.policy(company, expires, policy_type="Liability")
        admin, *_ = [
            town.user(company, role, timezone=zone) for company in (borrower, lender) for role in ("Admin", "Manager")
        ]
        town.user(borrower, "Supervisor", timezone=zone)
        town.insert("projects", company_id=borrower, name=f"Project {number}", timezone=zone)
        for _ in range(3):
            user = town.user(lender, "Worker", timezone=zone)
            self.workers.append(town.worker(lender, user_id=user))
        searches.save_search(town.desk, town.conn, user_id=admin, criteria={"trade": "welder"}, by=admin)

    def acts(self) -> Sequence[tuple[int, Act]]:
        """Everything that may be done, and how often it is."""
        return (
            (6, self.book), (30, self.clock_in), (3, self.draft), (22, self.submit), (5, self.force), (7, self.edit),
            (14, self.verify), (6, self.confirm), (7, self.dispute), (9, self.resolve), (2, self.incident),
            (3, self.close_incident), (5, self.renew), (1, self.deactivate), (1, self.insure), (2, self.change_end),
            (4, self.card), (4, self.pay), (3, self.pay_arrears), (1, self.account), (2, self.show),
            (4, self.bank_decides), (2, self.bank_refunds), (2, self.by_hand), (3, self.repeat), (2, self.charge_back),
            (3, self.bank_closes), (2, self.reverse), (3, self.divide),
            (3, self.was_worked), (3, self.cancel_shift), (1, self.cancel_booking),
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
        project, company, zone = place
        start, end = self.chance.choice(HOURS)
        first = weeks.local_date(self.town.now, zone) + self.chance.randrange(4) * DAY
        supervisor = self._maybe("select id from staffing.users where company_id = %s and role = 'Supervisor'", company)
        about: dict[str, Any] = {"project_id": project, "worker_id": found[0], "start": start, "end": end}
        about |= {"supervisor_id": supervisor[0] if supervisor and self.chance.random() < 0.9 else None}
        about |= {"start_date": first, "end_date": first + self.chance.randrange(1, 25) * DAY}
        about |= {"weekdays": frozenset(range(self.chance.choice((5, 7)))), "currency": CURRENCIES[company % 3]}
        about |= {"by": self.town.admin(company)}
        about |= {"payment_type": "Upfront" if self.chance.random() < 0.15 else "Weekly_Progress"}
        return self._try("book", bookings.confirm_booking, rate_minor=self.chance.randrange(1000, 4000), **about)

    def clock_in(self) -> str | None:
        soon = self.town.now + timedelta(minutes=70)  # some are too early, or too late
        found = self._maybe(
            "select t.id, w.user_id from staffing.time_log t join staffing.workers w on w.id = t.worker_id"
            " where t.status = 'Scheduled' and t.scheduled_start_time between %s and %s",
            soon - timedelta(hours=4),
            soon,
        )
        return self._try("clock in", sheets.clock_in, found[0], by=found[1]) if found else None

    def draft(self) -> str | None:
        found = self._shift("Working")
        return self._try("draft", sheets.save_draft, found.id, end=self.town.now, by=found.worker) if found else None

    def submit(self) -> str | None:
        over = "and t.scheduled_end_time < mainspring.now() + interval '20 minutes'"
        found = self._shift("Working", "" if self.chance.random() < 0.1 else over)
        return self._try("submit", sheets.submit_timesheet, found.id, by=found.worker) if found else None

    def force(self) -> str | None:
        found = self._shift("Working")
        if not found or not found.supervisor:
            return None
        return self._try("force", sheets.force_clock_out, found.id, by=found.supervisor)

    def edit(self) -> str | None:
        found = self._shift("Pending_Verification")
        if not found:
            return None
        by = self.chance.choice((found.supervisor or found.admin, found.worker, found.admin))
        return self._try("edit", sheets.edit_timesheet, found.id, end=self.town.now, by=by)

    def verify(self) -> str | None:
        found = self._shift("Pending_Verification")
        if not found:
            return None
        return self._try("verify", sheets.verify_timesheet, found.id, by=found.supervisor or found.admin)

    def confirm(self) -> str | None:
        found = self._shift("Verified", "and t.extra_minutes > 0")
        if not found:
            return None
        by = self.chance.choice((found.supervisor or found.admin, found.admin, found.worker))
        return self._try("confirm extra time", sheets.confirm_extra_time, found.id, by=by)

    def was_worked(self) -> str | None:
        """Of what began by its plan within the day; whatever is too early or too late is refused."""
        begun = "and t.scheduled_start_time between mainspring.now() - interval '40 hours' and mainspring.now()"
        found = self._shift("Scheduled", begun)
        if not found:
            return None
        start = self.town.row("time_log", found.id)["scheduled_start_time"]
        end = min(self.town.now, start + timedelta(minutes=self.chance.randrange(1, 600)))
        return self._try("was worked", sheets.was_worked, found.id, start=start, end=end, by=found.admin)

    def cancel_shift(self) -> str | None:
        ahead = "and t.scheduled_start_time < mainspring.now() + interval '3 days'"
        found = self._shift("Scheduled", "" if self.chance.random() < 0.3 else ahead)
        if not found:
            return None
        by = self.chance.choice((found.admin, found.admin, self.town.operator))
        return self._try("cancel shift", withdrawal.cancel_shift, found.id, by=by)

    def cancel_booking(self) -> str | None:
        found = self._maybe(f"select id, {ADMIN} from staffing.bookings b where status <> 'Cancelled'")
        if not found:
            return None
        by = self.chance.choice((found[1], found[1], self.town.operator))
        return self._try("cancel booking", withdrawal.cancel_booking, found[0], by=by)

    def change_end(self) -> str | None:
        booking = self._maybe(f"select id, {ADMIN} from staffing.bookings b where status in ('Active', 'Completed')")
        shift = self._shift("Working")
        if shift and self.chance.random() < 0.5:
            end = self.town.now + timedelta(minutes=self.chance.randrange(-30, 240))
            return self._try("change end of shift", sheets.change_shift_end, shift.id, end, by=shift.admin)
        until = self.chance.choice((time(15), time(17, 30), time(4), None))
        if not booking:
            return None
        return self._try("change end", sheets.change_scheduled_end, booking[0], until, by=booking[1])

    # -- disputes and incidents

    def dispute(self) -> str | None:
        found = self._shift("Pending_Verification")
        if not found:
            return None
        option = "B" if self.chance.random() < 0.15 else "A"
        by = self.chance.choice((found.supervisor or found.admin, found.admin, found.worker))
        if self.chance.random() < 0.2:  # in the very instant in which it approves itself
            at = self.town.value("select auto_approval_time from staffing.time_log where id = %s", found.id)
            if self.town.now < at < self.town.now + timedelta(hours=1):
                self.town.mainspring.clock.set(at)
        return self._try(f"dispute {option}", disputes.file_dispute, found.id, option=option, by=by)

    def resolve(self) -> str | None:
        found = self._maybe("select id, status from staffing.disputes where status in ('Open', 'Legal_Hold')")
        if not found:
            return None
        endings = ("Settled", "Resolved") if found[1] == "Legal_Hold" else ("Settled", "Resolved", "Legal_Hold")
        status = self.chance.choice(endings)
        with self.town.conn.transaction():
            total = disputes.at_stake(self.town.desk, self.town.conn, found[0])
        split = self._split(total) if status != "Legal_Hold" else {}
        if status == "Settled" and self.chance.random() < 0.5:
            return self._agree(found[0], split)
        about = {"status": status, **split, "by": self.town.operator}
        return self._try(f"resolve as {status}", disputes.resolve_dispute, found[0], **about)

    def _agree(self, dispute: int, split: dict[str, int]) -> str:
        """The admins of both sides propose the same."""
        sides = "select borrower_company_id, lender_company_id from staffing.bookings b join staffing.disputes d"
        companies = self._one(f"{sides} on d.booking_id = b.id where d.id = %s", dispute)
        told = [
            self._try("propose", disputes.propose_settlement, dispute, **split, by=self.town.admin(company))
            for company in companies
        ]
        return "; ".join(told)

    def incident(self) -> str | None:
        query = "select id, supervisor_id from staffing.bookings where status <> 'Cancelled' and supervisor_id > 0"
        found, option = self._maybe(query), "B" if self.chance.random() < 0.25 else "A"
        if not found:
            return None
        return self._try(f"incident {option}", incidents.file_incident, found[0], option=option, by=found[1])

    def close_incident(self) -> str | None:
        found = self._maybe("select id from staffing.incident_reports where status = 'Pending'")
        if not found:
            return None
        split = self._split(escrow.total_of(escrow.frozen(self.town.conn, incident_id=found[0])))
        return self._try("close incident", incidents.resolve_incident, found[0], **split, by=self.town.operator)

    # -- insurance, money, listings

    def renew(self) -> str | None:
        today = self.town.now.date()
        query = "select id from staffing.insurance_policies where expiration_date < %s or not is_active"
        found, until = self._maybe(query, today + 3 * DAY), today + self.chance.choice((2, 9, 60)) * DAY
        return self._renew(found[0], until) if found else None

    def _renew(self, policy: int, until: date) -> str:
        by = self.town.admin_of("insurance_policies", policy)
        return self._try("renew", insurance.renew_insurance, policy, expiration_date=until, by=by)

    def deactivate(self) -> str | None:
        found = self._maybe("select id from staffing.insurance_policies where is_active")
        if not found:
            return None
        by = self.chance.choice((self.town.operator, self.town.admin_of("insurance_policies", found[0])))
        return self._try("deactivate", insurance.deactivate_insurance, found[0], by=by)

    def insure(self) -> str | None:
        company, until = (
            self._one("select id from staffing.companies where kind <> 'Platform'")[0],
            self.chance.choice((1, 30)) * DAY,
        )
        about = {"company_id": company, "expiration_date": self.town.now.date() + until}
        return self._try("insure", bookings.add_policy, **about, by=self.town.admin(company))

    def card(self) -> str | None:
        company, customer = self._one("select id, stripe_customer_id from staffing.companies where kind = 'Borrower'")
        return self._card(company, customer, self.chance.choice((*GOOD, *GOOD, *BAD, SLOW)))

    def _card(self, company: int, customer: str, card: str) -> str:
        about = {"customer": customer, "payment_method": card, "by": self.town.admin(company)}
        return self._try(f"card {card}", bookings.put_card, company, **about)

    def pay(self) -> str | None:
        found = self._maybe(f"select b.id, {ADMIN} from staffing.bookings b where status = 'Active'")
        return self._try("pay by hand", weekly.pay_by_hand, found[0], by=found[1]) if found else None

    def pay_arrears(self) -> str | None:
        over = (
            "b.status in ('Completed', 'Cancelled', 'Suspended_Insurance')"
            " or exists (select from staffing.escrow_holds h"
            " where h.booking_id = b.id and num_nonnulls(h.refund_id, h.chargeback_id) > 0)"
        )
        found = self._maybe(f"select b.id, {ADMIN} from staffing.bookings b where {over}")
        return self._try("pay arrears", arrears.pay_arrears, found[0], by=found[1]) if found else None

    def account(self) -> str | None:
        company = self._one("select id from staffing.companies where kind = 'Lender'")[0]
        if self.town.row("companies", company)["stripe_account_id"] is None:
            return self._connect(company)
        if self.chance.random() < 0.3:
            self.town.conn.execute("update staffing.companies set stripe_account_id = null where id = %s", [company])
            return f"account of {company} is gone"
        return None

    def show(self) -> str | None:
        verb = self.chance.choice((listings.list_worker, listings.unlist_worker))
        worker = self.chance.choice(self.workers)
        return self._try(verb.__name__, verb, worker, by=self.town.admin_of("workers", worker))

    def _connect(self, company: int) -> str:
        about = {"account": self.town.account(), "by": self.town.admin(company)}
        return self._try("connect account", accounts.connect_account, company, **about)

    def bank_decides(self) -> str | None:
        """What is processing ends."""
        intents = [entry.id for entry in self.town.sandbox.ledger.find("stripe.payment_intent", status="processing")]
        if not intents:
            return None
        intent, outcome = self.chance.choice(sorted(intents)), self.chance.choice(OUTCOMES)
        self.town.sandbox.stripe.settle(intent, outcome)
        return f"bank: {intent} {outcome}"

    def bank_refunds(self, outcome: Literal["succeeded", "failed"] | None = None) -> str | None:
        """What is refunded arrives, or comes back."""
        refunds = [entry.id for entry in self.town.sandbox.ledger.find("stripe.refund", status="pending")]
        if not refunds:
            return None
        refund = self.chance.choice(sorted(refunds))
        ended = self.chance.choice((*OUTCOMES, OUTCOMES[0])) if outcome is None else outcome
        self.town.sandbox.stripe.settle(refund, ended)
        return f"bank: {refund} {ended}"

    def repeat(self) -> str | None:
        """An operator has a refund made again."""
        found = self._maybe("select id from staffing.refunds where status = 'Failed'")
        return self._try("repeat", movements.repeat_refund, found[0], by=self.town.operator) if found else None

    # -- what happens at the provider without us, which we hear of before anybody moves the same money

    def by_hand(self) -> str | None:
        """Somebody refunds a part of a payment in the provider's dashboard."""
        found, faults = self._untouched(), self.town.sandbox.faults.on
        if not found or any(fault.provider == "stripe" and fault.times != 0 for fault in faults):
            return None
        amount = self.chance.randrange(1, found[1] + 1)
        with self._told():
            self.town.bank.v1.refunds.create({"charge": found[0], "amount": amount})
        return f"by hand: {amount} of {found[0]}"

    def charge_back(self) -> str | None:
        found = self._untouched()
        if not found:
            return None
        with self._told():
            dispute = self.town.sandbox.stripe.dispute(found[0], inquiry=self.chance.random() < 0.2)
        return f"bank: {dispute['id']} {dispute['status']} about {found[0]}"

    def bank_closes(self) -> str | None:
        """A chargeback is won or lost, or an inquiry becomes one."""
        statuses = ("needs_response", "warning_needs_response")
        found = [e for status in statuses for e in self.town.sandbox.ledger.find("stripe.dispute", status=status)]
        if not found:
            return None
        dispute, verdict = self.chance.choice(sorted(found, key=lambda entry: entry.id)), self.chance.choice(VERDICTS)
        with self._told():
            if dispute.body["status"] == "warning_needs_response":
                self.town.sandbox.stripe.escalate(dispute.id)
            else:
                self.town.sandbox.stripe.close_dispute(dispute.id, verdict)
        return f"bank: {dispute.id} was {dispute.body['status']}, {verdict}"

    def _untouched(self) -> tuple[str, int] | None:
        """A charge that somebody may want back, and how much is left of it: no refund of ours is on its way."""
        found = self._maybe("""
            select p.provider_charge_id from staffing.pending_payments p
            where p.status = 'Succeeded' and p.provider_charge_id is not null and not exists (
              select from staffing.refunds r left join staffing.escrow_holds h on h.id = r.escrow_hold_id
              where coalesce(r.payment_id, h.payment_id) = p.id and r.provider_id is null)
            and not exists (select from staffing.chargebacks c where c.payment_id = p.id)""")
        if not found:
            return None
        (charge,) = self.town.sandbox.ledger.find("stripe.charge", id=found[0])
        left = charge.body["amount_captured"] - charge.body["amount_refunded"]
        return (found[0], left) if left else None

    @contextmanager
    def _told(self) -> Iterator[None]:
        """What the provider tells of it arrives before anything else happens."""
        manners = self.town.sandbox.stripe.post.manners
        kept, manners[:] = manners[:], []
        yield
        self.town.mainspring.advance(seconds=5, raise_errors=False, limit=20_000)
        manners[:] = kept

    def reverse(self) -> str | None:
        found = self._maybe("select id from staffing.transfers where status = 'Succeeded'")
        if not found:
            return None
        to: Literal["borrower", "held"] = "borrower" if self.chance.random() < 0.5 else "held"
        about = {"to": to, "reason": "by chance", "by": self.town.operator}
        return self._try(f"reverse to {to}", reversals.reverse_transfer, found[0], **about)

    def divide(self) -> str | None:
        found = self._maybe("""select booking_id, sum(amount_minor)::bigint from staffing.escrow_holds
            where set_aside group by booking_id""")
        if not found:
            return None
        lender = self.chance.choice((0, found[1], found[1] // 3))
        about = {"lender_minor": lender, "borrower_minor": found[1] - lender, "reason": "by chance"}
        return self._try("divide", reversals.divide_set_aside, found[0], **about, by=self.town.operator)

    # -- the end

    def repair(self) -> Iterator[str]:
        """Whoever lacks an account, a good card or insurance gets it."""
        poor = "select id from staffing.companies where kind = 'Lender' and stripe_account_id is null order by id"
        for (company,) in self.town.rows(poor):
            yield self._connect(company)
        cards = "select id, stripe_customer_id from staffing.companies where kind = 'Borrower' order by id"
        for company, customer in self.town.rows(cards):
            yield self._card(company, customer, GOOD[0])
        for (policy,) in self.town.rows("select id from staffing.insurance_policies order by id"):
            yield self._renew(policy, self.town.now.date() + 365 * DAY)

    def conclude(self) -> Iterator[str]:
        """Whoever works goes home, what is open is closed, and every booking ends."""
        while found := self._shift("Working"):
            yield self._try("force", sheets.force_clock_out, found.id, by=found.admin)
        while found := self._shift("Pending_Verification"):
            said = self._try("verify", sheets.verify_timesheet, found.id, by=found.admin)
            yield said
            if "can be verified from" in said:  # the worker has nothing to object
                end = self.town.row("time_log", found.id)["work_end_time"]
                yield self._try("edit", sheets.edit_timesheet, found.id, end=end, by=found.worker)
        ahead = "exists (select from staffing.time_log t where t.booking_id = b.id and t.status = 'Scheduled')"
        for booking, by in self.town.rows(f"select b.id, {ADMIN} from staffing.bookings b where {ahead} order by 1"):
            yield self._try("end", incidents.file_incident, booking, option="B", by=by)
        while resolved := self.resolve():
            yield resolved
        while closed := self.close_incident():
            yield closed
        while divided := self.divide():
            yield divided
        for (refund,) in self.town.rows("select id from staffing.refunds where status = 'Failed' order by id"):
            yield self._try("repeat", movements.repeat_refund, refund, by=self.town.operator)

    # -- parts

    def _try(self, what: str, event: Callable[..., object], *about: Any, **how: Any) -> str:
        """Somebody lets an event happen, or is refused."""
        words = f"{what} {about[0] if about else ''}".rstrip()
        try:
            with self.town.conn.transaction():
                event(self.town.desk, self.town.conn, *about, **how)
        except Refused as refused:
            return f"{words}: refused, {refused}"
        return words

    def _split(self, total: int) -> dict[str, int]:
        lender = self.chance.choice((0, total, total // 3))
        return {"lender_minor": lender, "borrower_minor": total - lender}

    def _maybe(self, query: str, *params: Any) -> tuple[Any, ...] | None:
        rows = sorted(self.town.rows(query, *params))
        return self.chance.choice(rows) if rows else None

    def _one(self, query: str, *params: Any) -> tuple[Any, ...]:
        found = self._maybe(query, *params)
        assert found is not None, query
        return found

    def _shift(self, status: str, more: str = "") -> Shift | None:
        found = self._maybe(
            f"select t.id, w.user_id, coalesce(b.supervisor_id, 0), {ADMIN} from staffing.time_log t"
            " join staffing.workers w on w.id = t.worker_id join staffing.bookings b on b.id = t.booking_id"
            f" where t.status = %s {more}",
            status,
        )
        return Shift(*found) if found else None
