"""What must hold in a marketplace at every moment, whatever happens: each rule is a query that finds nothing.

Clocks are the database's. Rules about the provider's own books compare them with ours, row by row.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any, Final

import psycopg
from tests.apps.staffing.town import Town

from mainspring_sandbox.ledger import Ledger

#: A movement that nobody settles is asked for within 20 minutes (STAFF-19.08); a provider that is away gets more.
PATIENCE: Final = timedelta(minutes=35)

#: Jobs that are under way, by key, and when they are due.
_TIMER = "select from mainspring.timer('default', {key}) k where {so}"
_LIVE = """select from mainspring.job j
    where j.task = any('{{{tasks}}}') and {so}
      and (exists (select from mainspring.waiting w where w.id = j.id)
           or exists (select from mainspring.running r where r.id = j.id))"""
_DEAD = """select from mainspring.dead_letters d join mainspring.job j on j.id = d.id
    where j.task = any('{{{tasks}}}') and {so}"""


_TIMEOUT = "d.dispute_filed_at + interval '3 hours'"
_ENDS = "coalesce(t.scheduled_end_time, t.scheduled_start_time + t.planned_minutes * interval '1 minute')"


def timer(key: str, so: str = "true") -> str:
    return f"exists ({_TIMER.format(key=key, so=so)})"


def job(tasks: str, so: str, *, dead: bool = False) -> str:
    live = f"exists ({_LIVE.format(tasks=tasks, so=so)})"
    return f"({live} or exists ({_DEAD.format(tasks=tasks, so=so)}))" if dead else live


#: What the provider took of a shift without us, or a bank has given back after all: it may be paid again, by hand.
_TAKEN: Final = """(
    exists (select from staffing.escrow_holds h where h.payment_id = p.id and h.time_log_id = s.time_log_id
            and h.kind = s.kind and num_nonnulls(h.refund_id, h.chargeback_id) > 0)
    or exists (select from staffing.chargebacks c where c.payment_id = p.id and c.status = 'Won'))"""
MONEY: Final = {
    "escrow adds up and nothing is negative": """
        select * from staffing.escrow
        where charged <> held + frozen + released + refunded + charged_back
           or least(charged, held, frozen, released, refunded, charged_back) < 0""",
    "a booking has one currency": """
        select b.id from staffing.bookings b
        join (select booking_id, currency from staffing.pending_payments
              union select booking_id, currency from staffing.escrow_holds) m on m.booking_id = b.id
        where m.currency <> b.currency""",
    "no week is charged twice": """
        select p.booking_id, p.period_start, array_agg(p.id) from staffing.pending_payments p
        where p.received_at is not null and p.source <> 'arrears'
          and not exists (select from staffing.refunds r where r.payment_id = p.id and not r.elsewhere)
        group by 1, 2 having count(*) > 1""",
    "no part of a shift is charged twice, unless its money was taken back": f"""
        select s.time_log_id, s.kind, array_agg(p.id) from staffing.payment_shifts s
        join staffing.pending_payments p on p.id = s.payment_id
        where p.received_at is not null and not {_TAKEN}
          and not exists (select from staffing.refunds r where r.payment_id = p.id and not r.elsewhere)
        group by 1, 2 having count(*) > 1""",
    "nobody is paid for time that was not worked, or not agreed to": """
        select t.id, t.paid_minutes, sum(h.amount_minor) from staffing.time_log t
        join staffing.bookings b on b.id = t.booking_id join staffing.escrow_holds h on h.time_log_id = t.id
        where h.kind <> 'Penalty' and h.status in ('Held', 'Released') and t.paid_minutes is not null
        group by t.id, b.id having sum(h.amount_minor) > (
          2 * b.rate_minor * (t.paid_minutes + case when t.extra_confirmed_at is null then 0 else t.extra_minutes end)
          + 60) / 120""",
    "a shift is begun within its window": """
        select t.id, t.clock_in_time from staffing.time_log t
        where t.status in ('Working', 'Pending_Verification') and t.clock_in_time not between
          t.scheduled_start_time - interval '1 hour' and t.scheduled_start_time + interval '24 hours'""",
    "nobody is charged for what was over and never begun": """
        select p.id, t.id from staffing.payment_shifts s
        join staffing.pending_payments p on p.id = s.payment_id join staffing.time_log t on t.id = s.time_log_id
        where t.status = 'Scheduled' and p.created_at
          >= coalesce(t.scheduled_end_time, t.scheduled_start_time + t.planned_minutes * interval '1 minute')""",
    "arrears are for verified work, or for what was taken back": f"""
        select q.id, t.id, t.status from staffing.payment_shifts y
        join staffing.pending_payments q on q.id = y.payment_id join staffing.time_log t on t.id = y.time_log_id
        where q.source = 'arrears' and t.status not in ('Verified', 'Disputed') and not exists (
          select from staffing.payment_shifts s join staffing.pending_payments p on p.id = s.payment_id
          where s.time_log_id = t.id and p.id < q.id and {_TAKEN})""",
    "what waits for its money is asked for, and has none": f"""
        select b.id from staffing.bookings b where b.status = 'Pending_Payment' and (
          not {timer("'upfront:' || b.id")} or exists (select from staffing.escrow_holds h where h.booking_id = b.id)
          or exists (select from staffing.time_log t where t.booking_id = b.id and t.status <> 'Scheduled'))""",
    "what was released or refunded has its row, of the same amount": """
        select h.id, h.status, h.amount_minor from staffing.escrow_holds h
        left join staffing.transfers t on t.escrow_hold_id = h.id and t.status <> 'Reversed'
        left join staffing.refunds r on r.escrow_hold_id = h.id
        where h.status = 'Released' and h.amount_minor is distinct from t.amount_minor
           or h.status = 'Refunded' and h.refund_id is null and h.amount_minor is distinct from r.amount_minor
              and not exists (select from staffing.refunds w where w.payment_id = h.payment_id and not w.elsewhere)
           or h.status in ('Held', 'Frozen', 'ChargedBack') and (t.id is not null or r.id is not null)""",
    "what the provider took is taken out of holds, as far as it is with us, and never more": """
        select x.* from (
          select 'refund' as kind, r.id, r.payment_id, r.amount_minor from staffing.refunds r
          where r.elsewhere and r.status <> 'Failed'
          union all
          select 'chargeback', c.id, c.payment_id, c.amount_minor from staffing.chargebacks c
          where c.status in ('Open', 'Lost')) x
        cross join lateral (
          select coalesce(sum(h.amount_minor) filter (where
                   case x.kind when 'refund' then h.refund_id else h.chargeback_id end = x.id), 0) as followed,
                 bool_or(h.status in ('Held', 'Frozen')) as more
          from staffing.escrow_holds h where h.payment_id = x.payment_id) f
        where f.followed > x.amount_minor or f.followed < x.amount_minor and f.more""",
    "what is charged back is with a bank": """
        select h.id, c.status from staffing.escrow_holds h join staffing.chargebacks c on c.id = h.chargeback_id
        where c.status not in ('Open', 'Lost')""",
    "a transfer that was taken back says so": """
        select t.id, t.status, v.status from staffing.transfers t
        left join staffing.reversals v on v.transfer_id = t.id and v.status = 'Succeeded'
        where (t.status = 'Reversed') <> (v.id is not null)""",
    "money is held only for work that is to come, or to be verified, or on its way": f"""
        select h.id, t.id, t.status from staffing.escrow_holds h join staffing.time_log t on t.id = h.time_log_id
        join staffing.bookings b on b.id = h.booking_id join staffing.companies c on c.id = b.lender_company_id
        where h.status = 'Held' and not h.set_aside
        and not (t.status in ('Scheduled', 'Working', 'Pending_Verification')
          or t.status = 'Verified' and (c.stripe_account_id is null
             or {timer("'release-shift:' || t.id")}
             or {job("release_shift", "j.payload ->> 'time_log_id' = t.id::text", dead=True)}))""",
    "nobody is paid for a shift that nobody began or said was worked": """
        select h.id, h.time_log_id from staffing.escrow_holds h where h.status = 'Released' and h.kind = 'Shift'
        and not exists (select from mainspring.audit a where a.subject = 'booking ' || h.booking_id
          and a.event in ('staffing.clock_in', 'staffing.was_worked')
          and a.detail ->> 'entity_id' = h.time_log_id::text)""",
    "money is frozen only for what is disputed": """
        select h.id from staffing.escrow_holds h
        left join staffing.disputes d on d.id = h.dispute_id
        left join staffing.incident_reports i on i.id = h.incident_id
        where h.status = 'Frozen'
          and not coalesce(d.status in ('Open', 'Legal_Hold') or i.status = 'Pending', false)""",
}
TIMERS: Final = {
    "a pending timesheet has its approval": f"""
        select t.id, t.auto_approval_time from staffing.time_log t where t.status = 'Pending_Verification'
        and not {timer("'auto-approve:' || t.id", "k.state <> 'scheduled' or k.due_at = t.auto_approval_time")}
        and not t.auto_approval_time between mainspring.now() - interval '1 hour' and mainspring.now()""",
    "an open dispute has its timeout": f"""
        select d.id, d.dispute_filed_at from staffing.disputes d join staffing.bookings b on b.id = d.booking_id
        where d.status = 'Open' and d.dispute_option = 'A' and d.timed_out_at is null and b.status <> 'Cancelled'
        and not {timer("'dispute-timeout:' || d.id", f"k.state <> 'scheduled' or k.due_at = {_TIMEOUT}")}""",
    "a working shift has its reminders": f"""
        select t.id, t.scheduled_end_time from staffing.time_log t
        where t.status = 'Working' and t.scheduled_end_time > mainspring.now() and not (
          {timer("'reminder-5m:' || t.id", "k.due_at = t.scheduled_end_time + interval '5 minutes'")}
          and {timer("'reminder-30m:' || t.id", "k.due_at = t.scheduled_end_time + interval '30 minutes'")})""",
    "what is held for a shift that nobody began has its refund": f"""
        select t.id, {_ENDS} from staffing.escrow_holds h join staffing.time_log t on t.id = h.time_log_id
        where h.status = 'Held' and t.status = 'Scheduled'
        and not {timer("'no-show:' || t.id", f"k.state <> 'scheduled' or k.due_at = {_ENDS} + interval '24 hours'")}
        and not {job("refund_no_show", "j.payload ->> 'time_log_id' = t.id::text", dead=True)}""",
    "a shift that is over has no timers": f"""
        select t.id, t.status, key from staffing.time_log t
        cross join unnest('{{reminder-5m,reminder-30m,ladder-0,ladder-60m,ladder-3h,auto-approve}}'::text[]) key
        where t.status in ('Scheduled', 'Verified', 'Disputed', 'Cancelled') and {timer("key || ':' || t.id")}
        union all
        select t.id, t.status, 'no-show' from staffing.time_log t
        where t.status <> 'Scheduled' and {timer("'no-show:' || t.id")}""",
    "a paused booking with nothing open is on its way back": f"""
        select b.id from staffing.bookings b where b.status = 'Payment_Paused_Dispute'
        and not exists (select from staffing.disputes d
                        where d.booking_id = b.id and d.dispute_option = 'A' and d.status = 'Open')
        and not exists (select from staffing.incident_reports i
                        where i.booking_id = b.id and i.dispute_option = 'A' and i.status = 'Pending')
        and not {job("retry_payment", "j.payload ->> 'booking_id' = b.id::text", dead=True)}""",
    "a suspended booking lacks insurance": """
        select b.id from staffing.bookings b where b.status = 'Suspended_Insurance' and not exists (
          select from staffing.insurance_policies p
          where p.company_id in (b.borrower_company_id, b.lender_company_id) and not exists (
            select from staffing.insurance_policies v
            where v.company_id = p.company_id and v.policy_type = p.policy_type and v.is_active
              and v.expiration_date >= (mainspring.now() at time zone 'UTC')::date))""",
    "a booking that goes on is insured, or about to stop": f"""
        select b.id, p.id from staffing.bookings b
        join staffing.insurance_policies p on p.company_id in (b.borrower_company_id, b.lender_company_id)
        where b.status in ('Active', 'Payment_Paused_Dispute') and not exists (
          select from staffing.insurance_policies v
          where v.company_id = p.company_id and v.policy_type = p.policy_type and v.is_active
            and v.expiration_date >= (mainspring.now() at time zone 'UTC')::date)
        and not {timer("'insurance-stop:' || b.id")}
        and not {job("look_at_policy", "j.payload ->> 'policy_id' = p.id::text", dead=True)}""",
    "a message that is to be sent has its job": """
        select n.id, n.template, n.status from mainspring.notification n where n.status in ('pending', 'sending')
        and not exists (select from mainspring.waiting w where w.id = n.job_id)
        and not exists (select from mainspring.running r where r.id = n.job_id)
        and not exists (select from mainspring.dead_letters d where d.id = n.job_id)""",
}
MESSAGES: Final = {
    # Each of these is told once in the life of its row; the others once an occasion.
    "nobody is told the same twice": """
        select template, recipient_id, channel, about, array_agg(id) from (
          select n.id, n.template, n.recipient_id, n.channel, case
            when n.template like 'ladder%%' or n.template in ('auto_approved', 'no_show', 'shift_cancelled')
              then 'shift ' || (n.data ->> 'time_log_id')
            when n.template in ('refund_made', 'transfer_reversed')
              then concat_ws(' ', 'refund', n.data ->> 'refund_id', 'reversal', n.data ->> 'reversal_id')
            when n.template in (
              'extra_time', 'extra_time_unpaid', 'shift_shortened', 'shift_end_changed', 'hours_cut')
              then concat_ws(' ', 'shift', n.data ->> 'time_log_id', n.bucket, n.data ->> 'End')
            when n.template in ('dispute_filed', 'unpaid_dispute_filed', 'dispute_settled', 'unpaid_dispute_settled',
                                'dispute_over', 'dispute_on_hold')
              then 'dispute ' || (n.data ->> 'dispute_id')
            when n.template in ('settlement_proposed', 'unpaid_settlement_proposed', 'shifts_shortened',
                                'shifts_end_changed')
              then n.data::text || n.bucket
            when n.template in ('action_required', 'arrears_failed') then 'payment ' || (n.data ->> 'payment_id')
            when n.template = 'dispute_timeout' then 'dispute ' || (n.data ->> 'dispute_id')
            when n.template in ('worker_released', 'not_confirmed') then 'booking ' || (n.data ->> 'booking_id')
            when n.template like 'reminder%%'
              then 'shift ' || (n.data ->> 'time_log_id') || ' until ' || (n.data ->> 'scheduled_end_time')
            when n.template = 'instant_alert'
              then concat_ws(' ', n.data ->> 'saved_search_id', n.data ->> 'worker_id', n.data ->> 'listed_at')
            when n.template = 'insurance_stop' then concat_ws(' ', n.data ->> 'booking_id', n.data ->> 'stopped_at')
            else coalesce(n.data ->> 'booking_id', n.data ->> 'policy_id', n.data ->> 'user_id', '') || n.bucket
          end as about from mainspring.notification n where n.status in ('sent', 'sending')) told
        group by 1, 2, 3, 4 having count(*) > 1""",
    "nobody is blamed while the provider has not answered": """
        select n.id, n.template, p.id from mainspring.notification n
        join staffing.pending_payments p on p.booking_id = (n.data ->> 'booking_id')::bigint
        where n.template in ('final_warning', 'late_warning', 'worker_released')
          and n.created_at > p.created_at and n.created_at < p.period_start + interval '1 day'
          and p.heard_at is null and n.created_at < coalesce(p.settled_at, mainspring.now())
          and not exists (select from staffing.pending_payments o  -- an older attempt of that week was answered
                          where o.booking_id = p.booking_id and o.id < p.id and o.period_start = p.period_start)""",
    "no text message left twice": """
        select provider_id, array_agg(id) from mainspring.notification
        where status = 'sent' and channel = 'sms' group by 1 having count(*) > 1 or provider_id is null""",
}
RULES: Final = MONEY | TIMERS | MESSAGES


class Violation(AssertionError):
    """Something does not hold that must."""


def broken(town: Town) -> Iterator[tuple[str, Any]]:
    """What does not hold now: the rule and the rows."""
    for name, query in RULES.items():
        if rows := town.rows(query):
            yield name, rows[:5]


class Books:
    """What the provider has, beside what we have."""

    def __init__(self, ledger: Ledger) -> None:
        self._mails = [entry.body["message_id"] for entry in ledger.find("mail")]
        self.intents = [entry.body for entry in ledger.find("stripe.payment_intent")]
        self.transfers = [entry.body for entry in ledger.find("stripe.transfer")]
        self.refunds = [entry.body for entry in ledger.find("stripe.refund")]
        self.reversals = [entry.body for entry in ledger.find("stripe.transfer_reversal")]

    def broken(self, conn: psycopg.Connection[Any], *, settled: bool) -> Iterator[tuple[str, Any]]:
        """Where they differ; once everything is `settled`, in anything at all."""
        self._conn = conn
        ((now,),) = self._rows("select mainspring.now()")
        yield from self._payments(now, settled)
        yield from self._moved("transfers", self.transfers, now, settled)
        yield from self._moved("refunds", self.refunds, now, settled)
        yield from self._moved("reversals", self.reversals, now, settled)

    def _payments(self, now: datetime, settled: bool) -> Iterator[tuple[str, Any]]:
        rows = {
            row[0]: row
            for row in self._rows(
                "select id, booking_id, case when source = 'arrears' then created_at else period_start end,"
                " amount_minor, currency, status, received_at, created_at, provider_intent_id,"
                " exists (select from staffing.refunds r where r.payment_id = p.id and not r.elsewhere),"
                f" {job(_CHARGING, _OF_PAYMENT, dead=True)}"
                " from staffing.pending_payments p"
            )
        }
        weeks: Counter[tuple[int, datetime]] = Counter()
        taken = set()
        for intent in self.intents:
            payment = rows.get(int(intent["metadata"]["payment_id"]))
            if payment is None or (intent["amount"], intent["currency"].upper()) != payment[3:5]:
                yield "every charge has its payment, of the same amount", (intent["id"], payment)
                continue
            if intent["status"] == "succeeded":
                if payment[0] in taken:
                    yield "a payment is charged once", payment
                taken.add(payment[0])
                weeks[payment[1], payment[2]] += not payment[9]
                old = settled or payment[7] < now - PATIENCE
                if payment[6] is None and old and not payment[10]:
                    yield "what the provider took is known", (intent["id"], payment)
            elif payment[6] is not None:
                yield "what was received was taken", (intent["id"], intent["status"], payment)
        yield from (("no week is taken twice", week) for week, times in weeks.items() if times > 1)
        held = {int(intent["metadata"]["payment_id"]) for intent in self.intents if intent["status"] == "processing"}
        for payment in rows.values():
            if payment[6] is not None and payment[0] not in taken:
                yield "what was received was taken", payment
            waits = payment[5] == "Pending" and payment[0] not in held
            if waits and (settled or (payment[7] < now - PATIENCE and not payment[10])):
                yield "a pending payment is looked after", payment

    def _moved(self, kind: str, made: list[dict[str, Any]], now: datetime, settled: bool) -> Iterator[tuple[str, Any]]:
        entity = kind.removesuffix("s")
        tasks = f"{CARRIED_OUT[kind]},reconcile_movement"
        so = f"j.payload ->> '{entity}_id' = m.id::text or j.payload ->> 'row_id' = m.id::text"
        rows = self._rows(
            f"select id, amount_minor, currency, status, provider_id, idempotency_key, created_at,"
            f" {job(tasks, f'({so})', dead=True)} from staffing.{kind} m"
        )
        keys, ids = {row[5] for row in rows}, {row[4]: row[5] for row in rows}
        by_key: dict[str, list[dict[str, Any]]] = defaultdict(list)
        for one in made:
            tries: tuple[str, ...] = (f"refund:{one['id']}", one["_key"])  # by hand, or ours
            if one["id"] in ids:  # by hand instead of ours
                tries = (ids[one["id"]],)
            later = one["_key"].rpartition(":")[0]  # a later try has its number
            key = next((key for key in tries if key in keys), later)
            if one.get("status") not in ("failed", "canceled"):
                by_key[key].append(one)
        for row in rows:
            found = by_key.pop(row[5], [])
            if len(found) > 1 or any((one["amount"], one["currency"].upper()) != row[1:3] for one in found):
                yield f"{kind} are made once, of the right amount", (row, [one["id"] for one in found])
            if row[3] == "Succeeded" and [one["id"] for one in found] != [row[4]]:
                yield f"{kind} that succeeded were made", (row, [one["id"] for one in found])
            pending = any(one.get("status") == "pending" for one in found)
            if row[3] == "Pending" and not pending and (settled or (row[6] < now - PATIENCE and not row[7])):
                yield f"{kind} that are pending are looked after", row
            returned = kind == "refunds" and row[4] is not None  # an alert is open
            if row[3] == "Failed" and (settled or not (row[7] or returned)):
                yield f"{kind} that failed wait for somebody", row
        if by_key:
            yield (
                f"{kind} at the provider are ours",
                {key: [one["id"] for one in found] for key, found in by_key.items()},
            )

    def _rows(self, query: str) -> list[tuple[Any, ...]]:
        return self._conn.execute(query.encode()).fetchall()

    def doubled(self) -> int:
        """Mails that left more than once."""
        return len(self._mails) - len(set(self._mails))


_CHARGING: Final = "charge_week,charge_upfront,charge_arrears,retry_payment,reconcile_payment"
CARRIED_OUT: Final = {"transfers": "pay_lender", "refunds": "refund_borrower", "reversals": "take_back"}
_OF_PAYMENT: Final = "(j.payload ->> 'payment_id' = p.id::text or j.id = p.job_id)"
