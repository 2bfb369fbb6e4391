"""Break rules of the marketplace, one at a time, and show that a marked test turns red: `make breaks`.

Each break is a small edit of a copy of the package: a constant off by one, a condition turned round, a recipient
or a guard dropped. A break that no test of a rule sees is a hole in the tests, and the command fails.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.proofs.chaos.journal import say

ROOT = Path(__file__).resolve().parents[3]
PACKAGE = ROOT / "apps" / "mainspring_apps"
#: What the plugin below prints for each failed test that is marked with rules.
RED = re.compile(r"^RED (\S+) (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Break:
    """One edit, and the tests that should see it."""

    file: str
    before: str
    after: str
    tests: str
    times: int = 1  # how often the text stands there: all of them are changed

    @property
    def name(self) -> str:
        return f"{self.file}: {self.before.strip()} → {self.after.strip() or 'nothing'}"


def _in(file: str, tests: str, *edits: tuple[str, str]) -> list[Break]:
    return [Break(file, before, after, tests) for before, after in edits]


BREAKS: Sequence[Break] = (
    *_in("settings.py", "test_weekly_payments.py test_weeks.py",
         ('charge_day: Weekday = setting("wed"', 'charge_day: Weekday = setting("tue"'),
         ('charge_at: TimeOfDay = setting("10:00"', 'charge_at: TimeOfDay = setting("10:01"')),
    *_in("sql/watching.sql", "test_reached.py",
         ("l.reason in ('no_address', ", "l.reason in ("),
         ("    and n.status = 'sent' and n.sent_at > l.asked_at)", "    and n.status = 'pending')"),
         ("from lost l\nwhere not exists", "from lost l\nwhere l.why not like '%%,%%' and not exists"),
         ("where c.kind <> 'Platform'\n", "where c.kind = 'Platform'\n")),
    *_in("../frame/desk.py", "test_reached.py", ("            self.nobody(conn, kind, about)\n", "")),
    *_in("settings.py", "test_monitoring.py",
         ("failed_payments_least: int = setting(5", "failed_payments_least: int = setting(4"),
         ('failed_payments_within: timedelta = setting(length("1d")',
          'failed_payments_within: timedelta = setting(length("7d")')),
    *_in("web.py", "test_wishes.py",
         ('if request.method != "POST":', 'if request.method == "HEAD":'),
         (" or not links.knows(user_id, kind, signature):", ":")),
    *_in("rules/wishes.py", "test_wishes.py", ("opt-out\\n{user_id}\\n{wish}", "opt-out\\n{wish}")),
    *_in("people.py", "test_wishes.py", ("opt_out=tuple(opted_out),", "")),
    *_in("searches/digest.py", "test_wishes.py",
         ("comes = any(part.workers for part in parts) or", "comes = True or")),
    *_in("rules/weeks.py", "test_weekly_payments.py test_weeks.py",
         ("else midnight(day + DAY, zone)", "else midnight(day - DAY, zone)"),
         ("charge <= at else 0", "charge < at else 0")),
    *_in("settings.py", "test_final_warning.py",
         ('warn_at: TimeOfDay = setting("14:00"', 'warn_at: TimeOfDay = setting("13:00"')),
    *_in("settings.py", "test_cutoff.py",
         ('cutoff_day: Weekday = setting("thu"', 'cutoff_day: Weekday = setting("fri"')),
    *_in("rules/weeks.py", "test_bookings.py", ("last = day if end > start else day + DAY", "last = day")),
    *_in("rules/charge.py", "test_weekly_payments.py test_payment_retry.py",
         ('UNPAID: Final = frozenset({"Cancelled", "Disputed"})', 'UNPAID: Final = frozenset({"Disputed"})'),
         ('return "pause" if source in PAUSING else "leave"', 'return "leave" if source in PAUSING else "pause"'),
         ("shift.scheduled_start_time < period.end", "shift.scheduled_start_time <= period.end"),
         ("if status not in RESUMABLE or open_a or open_b:",
          "if status not in RESUMABLE or open_b:"),
         ('FAILURE_TOLD: Final = "Borrowing Admin"', 'FAILURE_TOLD: Final = "Lending Admin"')),
    *_in("rules/charge.py", "test_arrears.py",
         ('return self.status == "Scheduled" and end <= now', 'return self.status == "Scheduled" and end < now'),
         ("if not shift.missed(now)]", "]"),
         ('if shift.status == "Verified"]', 'if shift.status not in UNPAID]'),
         ("else min(self.paid_minutes, self.planned_minutes)", "else self.planned_minutes")),
    *_in("payments/settle.py", "test_arrears.py test_upfront.py",
         ("        case source if source in rules.FOR_SHIFTS:", "        case 'work':"),
         ("    if payment.source not in rules.FOR_SHIFTS:", "    if True:"),
         ('    store.do(conn, "payment_given_back", payment_id=payment.id)\n', ""),
         ("if not confirmation.confirm(desk, conn, payment.booking_id):",
          "if confirmation.confirm(desk, conn, payment.booking_id) is None:")),
    *_in("rules/gate.py", "test_arrears.py", ("if released and not funded:", "if False:")),
    *_in("rules/gate.py", "test_outside.py", ("    if taken:", "    if False:")),
    *_in("rules/release.py", "test_outside.py", ('set(holds) <= {"Taken", "Refunded"}', "False")),
    *_in("sql/payments.sql", "test_outside.py",
         ("num_nonnulls(h.refund_id, h.chargeback_id) > 0)\n    offset 0", "false)\n    offset 0"),
         ("h.status in ('Held', 'Frozen', 'Released')), 0)", "h.status = 'Frozen'), 0)")),
    *_in("payments/arrears.py", "test_outside.py", ("taken=taken)", "taken=False)")),
    *_in("rules/charge.py", "test_outside.py",
         ("one.standing_minor + coming * one.coming_minor", "one.standing_minor + one.coming_minor")),
    *_in("payments/reserve.py", "test_outside.py", ("*, coming: bool = True)", "*, coming: bool = False)")),
    *_in("bookings.py", "test_arrears.py", ("    arrears.of_company(desk, conn, company_id)\n", "")),
    *_in("timesheets/approval.py", "test_arrears.py",
         ("            arrears.of_booking(desk, conn, shift.booking_id)  # nobody", "            pass  # nobody")),
    *_in("conflicts/disputes.py", "test_payment_retry.py", ("    if hours is not None:\n", "    if hours is None:\n")),
    *_in("rules/charge.py", "test_upfront.py",
         ("return status in UNCHARGED or payment_type != PAYMENT_TYPE", "return status in UNCHARGED")),
    *_in("sql/payments.sql", "test_upfront.py", (" or b.payment_type <> %(weekly)s)", ")")),
    *_in("payments/confirmation.py", "test_upfront.py",
         ("    cancellation.cancel_shifts(desk, conn, booking_id, planned, reason=NOT_CONFIRMED_REASON)\n", "")),
    *_in("payments/upfront.py", "test_upfront.py",
         ("desk.now(conn) + desk.settings.upfront_wait", "desk.now(conn) + 2 * desk.settings.upfront_wait"),
         ("    if waits and payment is not None", "    if payment is not None")),
    *_in("rules/penalty.py", "test_escrow.py test_dispute_timeout.py",
         ("if notice < enough else 0", "if notice <= enough else 0"),
         ("(2 * numerator + denominator)", "(2 * numerator)")),
    *_in("settings.py", "test_escrow.py test_dispute_timeout.py",
         ("short_term_penalty_bps: int = setting(5000", "short_term_penalty_bps: int = setting(5001"),
         ('long_term_notice: timedelta = setting(length("1d")', 'long_term_notice: timedelta = setting(length("23h")'),
         ('dispute_timeout: timedelta = setting(length("3h")', 'dispute_timeout: timedelta = setting(length("3h1s")')),
    *_in("rules/cutoff.py", "test_cutoff.py test_final_warning.py",
         ('("Worker", "Borrowing Admin", "Lending Admin")', '("Worker", "Borrowing Admin")'),
         ("standing.funded_period_end is None or", "standing.funded_period_end is not None and"),
         ('return "late charge"', 'return "release"'),
         ("asked <= ask_times", "asked < ask_times"),
         ("return start < due.start", "return start <= due.start")),
    # A provider's outage (STAFF-20.15 to 20.17).
    *_in("payments/patience.py", "test_errors.py",
         ('frozenset({"HttpException", "RATE_LIMITED"})', 'frozenset({"RATE_LIMITED"})')),
    *_in("payments/movements.py", "test_movements.py",
         ("        with patient(desk, ctx):\n            return move()", "        return move()")),
    *_in("payments/movements.py", "test_movements.py",
         ("        return made.key != self.key\n", "        return False\n"),
         ("        desk.calm(conn, RETURNED,", "        desk.calm(conn, NO_ACCOUNT,")),
    *_in("payments/returned.py", "test_movements.py", ("    if failed is not None:", "    if failed is None:")),
    *_in("sql/movements.sql", "test_movements.py",
         ("where id = %(id)s and try = %(try)s\nreturning", "where id = %(id)s and status = 'Pending'\nreturning")),
    *_in("payments/reconcile.py", "test_outages.py",
         ("    with patient(desk, ctx):\n        if payment.provider", "    if True:\n        if payment.provider")),
    *_in("rules/cutoff.py", "test_cutoff.py test_final_warning.py",
         ('return standing.payment == "Pending" and not standing.heard', "return False"),
         ("instant < standing.back_at + grace", "instant <= standing.back_at + grace"),
         ("standing.payment is None or unanswered(standing)", "standing.payment is None")),
    *_in("rules/cutoff.py", "test_cutoff.py",
         ("if back_at is None else max(cutoff, back_at + settings.answer_grace)", "if True else cutoff"),
         ("moved is not None and moved >= begun_at", "moved is not None and moved <= begun_at")),
    *_in("payments/settle.py", "test_cutoff.py",
         ("if payment.source not in rules.FOR_SHIFTS and cutoff <= desk.now(conn):", "if False:")),
    *_in("payments/warning.py", "test_cutoff.py",
         ("        if cutoff != usual:", "        if False:")),
    *_in("sql/payments.sql", "test_outages.py",
         ("then {schema}.now() else p.back_at end", "then p.back_at else p.back_at end")),
    *_in("rules/insurance.py", "test_insurance.py",
         ("return expires < today", "return expires <= today"),
         ('ALARMED: Final[tuple[Literal["Admin", "Manager"], ...]] = ("Admin", "Manager")',
          'ALARMED: Final[tuple[Literal["Admin", "Manager"], ...]] = ("Admin",)'),
         ('"Worker", "Supervisor", "Borrowing Admin", "Borrowing Manager", "Lending Admin", "Lending Manager",',
          '"Worker", "Borrowing Admin", "Borrowing Manager", "Lending Admin", "Lending Manager",'),
         ('return "Payment_Paused_Dispute" if option_a else "Active"', 'return "Active"')),
    *_in("settings.py", "test_insurance.py", ("setting((14, 7),", "setting((14, 6),")),
    *_in("rules/reminders.py", "test_reminders.py",
         ('"reminder_30m", ("Worker", "Supervisor"))', '"reminder_30m", ("Worker",))'),
         ("if end is None or now > end:", "if end is None or now >= end:")),
    *_in("settings.py", "test_reminders.py",
         ('reminder_a: timedelta = setting(length("5m")', 'reminder_a: timedelta = setting(length("6m")')),
    *_in("rules/ladder.py", "test_ladder.py test_auto_approval.py",
         ("deadline - now >= settings.late_edit", "deadline - now > settings.late_edit"),
         ("if extensions >= settings.max_edit_extensions:", "if extensions > settings.max_edit_extensions:"),
         ('"ladder_60m", ("Supervisor", "Borrowing Admin"))', '"ladder_60m", ("Supervisor",))')),
    *_in("rules/ladder.py", "test_pay.py",
         ("if capped is not None and end > capped:", "if capped is not None and end < capped:"),
         ("    if now < first:", "    if now <= first:"),
         ("    if cut_at is None:", "    if True:")),
    *_in("sql/shifts.sql", "test_pay.py",
         ("when %(capped)s::timestamptz is not null then cut_at end", "end"),
         ("< least(draft_end_time, %(at)s) then", "< draft_end_time then"), ("case when %(less)s or ", "case when ")),
    *_in("shifts.py", "test_pay.py",
         ('"work_end_time", shift.work_end_time, end)', '"work_end_time", end, end)'),
         ('    _clock_out(desk, conn, "force_clock_out", time_log_id, end, capped=end)',
          '    _clock_out(desk, conn, "force_clock_out", time_log_id, end)')),
    *_in("settings.py", "test_ladder.py test_auto_approval.py",
         ('auto_approval: timedelta = setting(length("4h")', 'auto_approval: timedelta = setting(length("4h1s")')),
    *_in("rules/dispute.py", "test_disputes.py test_dispute_timeout.py",
         ("    if now > deadline:", "    if now >= deadline:"),
         ('TIMEOUT_TOLD: Final[tuple[Part, ...]] = ("Borrowing Admin", "Lending Admin", "Worker")',
          'TIMEOUT_TOLD: Final[tuple[Part, ...]] = ("Borrowing Admin", "Worker")')),
    *_in("rules/parts.py", "test_disputes.py", ('"file_dispute B": _FILERS,', '"file_dispute B": _FILERS | _WORKER,')),
    *_in("rules/failures.py", "test_search_errors.py",
         ("return settings.extension_window if kind == \"digest\" else timedelta(0)",
          "return settings.extension_window"),
         ("attempt <= settings.query_retries", "attempt < settings.query_retries")),
    *_in("settings.py", "test_instant_alerts.py",
         ("instant_alerts_per_user_per_hour: int = setting(10", "instant_alerts_per_user_per_hour: int = setting(11")),
    *_in("settings.py", "test_tokens.py",
         ('magic_link_unused: timedelta = setting(length("1d")',
          'magic_link_unused: timedelta = setting(length("26h")')),
    *_in("rules/gate.py", "test_gate.py",
         ('booking == "Completed" and starts_on <= end_date', 'booking == "Completed" and starts_on < end_date')),
    *_in("../frame/events.py", "test_matrix.py",
         ("check(self.table, line, played)", "len([line]) or check(self.table, line, played)"),
         ("if not played and first", "if not first and first")),
    *_in("rules/parts.py", "test_settlements.py test_matrix.py",
         ('"resolve_dispute": _OPERATOR', '"resolve_dispute": _OPERATOR | _ADMINS'),
         ('"put_card": frozenset({"Borrowing Admin", "SYSTEM"})', '"put_card": _ADMINS | {"SYSTEM"}'),
         ('"verify_timesheet": _ON_SITE', '"verify_timesheet": _ON_SITE | _WORKER')),
    *_in("sql/people.sql", "test_matrix.py test_settlements.py",
         ("when u.company_id = c.id and u.role in ('Admin', 'Manager')", "when u.role in ('Admin', 'Manager')"),
         ("case when u.id = a.id and u.role in ('Admin', 'Manager')", "case when u.role in ('Admin', 'Manager')")),
    *_in("sql/disputes.sql", "test_settlements.py",
         ("and theirs.side <> mine.side", ""),
         ("    lender_minor = excluded.lender_minor, borrower_minor = excluded.borrower_minor,\n", "")),
    *_in("conflicts/disputes.py", "test_settlements.py",
         ('    check("disputes", dispute.status, "Settled")\n    holds', "    holds")),
    *_in("../frame/body.py", "test_who_asks.py",
         ('if "by" in known and "by" not in', 'if "by" not in known and "by" not in')),
    *_in("../frame/web.py", "test_who_asks.py",
         ("who.program == self.token else", "who.name == self.token else")),
    *_in("web.py", "test_who_asks.py", ("after=after, by=visit.by)", "after=after)")),
    *_in("show.py", "test_who_asks.py",
         ("if by is not None and not people.parts_of", "if by == 0 and not people.parts_of")),
    # One settings object, and what follows it.
    *_in("texts.py", "test_settings.py",
         ('    return Phrase(_AT_TIME, {"day": DayOfWeek(day), "at": s.cutoff_at})',
          '    return Phrase(_END_OF_DAY, {"day": DayOfWeek(2)})')),
    # Languages.
    *_in("texts.py", "test_languages.py",
         ("It covers work until [Date], by the clocks", "It ends on [Date], by the clocks"),
         ("has expired: work was allowed until [Date],", "expired on [Date],")),
    *_in("rules/insurance.py", "test_languages.py", ("expires + timedelta(days=1), time()", "expires, time()")),
    *_in("../frame/values.py", "test_languages.py",
         ("at.astimezone(ZoneInfo(zone)).isoformat", "at.isoformat"),
         ('return f"{both} ({found[\'zone\']})"', 'return both'),
         ('places = f".{\'0\' * amount.decimals}" if amount.decimals else ""', 'places = ".00"')),
    *_in("people.py", "test_languages.py", ("language=language,", 'language="en",')),
    *_in("bookings.py", "test_languages.py",
         ('    languages.check("language", language)\n    store.do', "    store.do")),
    *_in("payments/cutoff.py", "test_settings.py",
         ("ms.weekly(desk.settings.cutoff_day, desk.settings.cutoff_at)", 'ms.weekly("thu", "00:00")')),
    *_in("../frame/desk.py", "test_settings.py", ("return fitted(self.app.registry, job)", "return job")),
    *_in("market.py", "test_errors.py", ("stripe.on(*events)(ours.get(task.name))", "stripe.on(*events)(task)")),
    *_in("insurance.py", "test_settings.py",
         ("timedelta(days=max(desk.settings.insurance_thresholds))", "timedelta(days=14)")),
    *_in("shifts.py", "test_gate.py", ("    if will <= shift.planned_end:", "    if True:"),
         ("    _check_alone(conn, shift)\n", "")),
    *_in("sql/shifts.sql", "test_gate.py", ("\n  and t.scheduled_start_time < %(ends)s", "")),
    *_in("rules/gate.py", "test_gate.py", ("    if awaits_resolution:", "    if False:")),
    *_in("payments/retries.py", "test_gate.py",
         ('    store.do(conn, "resolved_since_renewal", booking_id=booking_id)\n', "")),
    *_in("insurance.py", "test_gate.py", ("in_dispute=option_a", "in_dispute=True")),
    # Guards and locks in SQL, and what only a second look shows.
    *_in("sql/bookings.sql", "test_weekly_payments.py", ("for update of b", "")),
    *_in("sql/payments.sql", "test_weekly_payments.py",
         ("s.kind = 'Shift' and p.status in ('Pending', 'Succeeded')",
          "s.kind = 'Shift' and p.status in ('Succeeded')")),
    *_in("rules/pay.py", "test_pay.py",
         ("max(clocked_in, start).astimezone(UTC)", "clocked_in.astimezone(UTC)"),
         ("_minutes(begin, min(stopped, until))", "_minutes(begin, stopped)"),
         ("price = half_up(minutes * rate_minor, 60)", "price = minutes * rate_minor // 60")),
    *_in("payments/escrow.py", "test_pay.py",
         ('elif hold.kind == "Shift":', 'elif hold.kind == "Penalty":'),
         ("owed -= kept", "owed -= 0")),
    *_in("sql/escrow.sql", "test_pay.py", ("max(o.part) + 1", "max(o.part) * 0 + 1")),
    *_in("timesheets/approval.py", "test_pay.py", ("    escrow.give_back_rest(desk, conn, shift.id)\n", "")),
    *_in("sql/shifts.sql", "test_pay.py",
         ("and extra_confirmed_at is null", ""),
         ("set work_end_time = %(end)s, auto_approval_time",
          "set draft_end_time = %(end)s, auto_approval_time")),
    *_in("sql/payments.sql", "test_pay.py",
         ("case when t.extra_confirmed_at is not null then t.extra_minutes end", "t.extra_minutes"),
         ("and s.kind = a.kind and p.status in ('Pending', 'Succeeded') and p.given_back_at is null)\norder",
          "and s.kind <> a.kind and p.status in ('Pending', 'Succeeded') and p.given_back_at is null)\norder"),
         ("and theirs.kind = mine.kind", "")),
    *_in("rules/gate.py", "test_gate.py", ("if now < first:", "if now <= first:"),
         ("if now > last:", "if now >= last:")),
    *_in("settings.py", "test_gate.py",
         ('clock_in_early: timedelta = setting(length("1h")', 'clock_in_early: timedelta = setting(length("61m")'),
         ('clock_in_open: timedelta = setting(length("1d")', 'clock_in_open: timedelta = setting(length("23h")')),
    *_in("sql/cutoff.sql", "test_cutoff.py",
         ("end_date = greatest(%(sunday)s::date, start_date)", "end_date = %(sunday)s::date")),
    *_in("timers.py", "test_cutoff.py",
         ("OF_SHIFT: Final = (*REMINDER_TIMERS, *LADDER_TIMERS, AUTO_APPROVAL_TIMER, NO_SHOW_TIMER)",
          "OF_SHIFT: Final = (*REMINDER_TIMERS,)")),
    *_in("sql/insurance.sql", "test_insurance.py",
         ("and policy_type = %(policy_type)s and id <> %(policy_id)s", "and id <> %(policy_id)s"),
         ("and is_active and expiration_date >= %(today)s", "and is_active")),
    *_in("sql/search.sql", "test_instant_alerts.py",
         ("and d.kind = 'instant' and d.status = 'Sent'", "and d.kind = 'instant'")),
    *_in("sql/disputes.sql", "test_dispute_timeout.py",
         ("and d.timed_out_at is null and d.dispute_option = 'A'", "and d.dispute_option = 'A'")),
    *_in("sql/disputes.sql", "test_disputes.py",
         ("and t.status = 'Disputed' and not d.status", "and not d.status")),
    # What happens at the provider without us, and what an operator takes back.
    *_in("sql/takings.sql", "test_outside.py",
         ("t.scheduled_start_time desc, h.id desc", "t.scheduled_start_time, h.id"),
         ("where c.payment_id = %(payment_id)s and c.status in ('Open', 'Lost')",
          "where c.payment_id = %(payment_id)s and c.status in ('Open', 'Lost', 'Inquiry')")),
    *_in("sql/payments.sql", "test_outside.py",
         ("and (account_seen_at is null or account_seen_at <= %(at)s)", "")),
    *_in("payments/chargebacks.py", "test_outside.py",
         ("    accounts.pay_out(desk, conn, payment.booking_id, payment.id)\n", "")),
    *_in("payments/returned.py", "test_outside.py",
         ('if known >= charge["amount_refunded"]:', "if known >= 0:")),
    *_in("payments/reversals.py", "test_outside.py",
         ("    takings.follow(conn, transfer.payment_id)\n    left", "    left")),
    *_in("payments/reversals.py", "test_reversals.py",
         ('aside = _transfer(conn, reversal.transfer_id), reversal.destination == "held"',
          "aside = _transfer(conn, reversal.transfer_id), False"),
         ('    store.do(conn, "reverse_transfer", transfer_id=transfer.id)\n', "")),
    *_in("sql/escrow.sql", "test_reversals.py",
         ("where time_log_id = %(time_log_id)s and status = 'Held' and not set_aside\n  and exists",
          "where time_log_id = %(time_log_id)s and status = 'Held'\n  and exists")),
    *_in("payments/reversals.py", "test_reversals.py",
         ('if transfer.status in ("Pending", "Failed"):', 'if transfer.status == "Failed":')),
    *_in("../frame/desk.py", "test_final_warning.py", ("event_at=occurrence,", "event_at=self.now(conn),")),
    *_in("payments/reversals.py", "test_outside.py",
         ("        if gone.minor == transfer.amount_minor:", "        if False:"),
         ('        if known == "Succeeded" or transfer.status != "Succeeded":', '        if known == "Failed":')),
    *_in("payments/accounts.py", "test_outside.py",
         ("                _try_again(desk, conn, company)\n", ""),
         ("    _try_again(desk, conn, company_id)\n", "")),
    *_in("rules/pay.py", "test_settlements.py",
         ("price if settled_minor is None else min(price, settled_minor)", "price if settled_minor != 1 else 1")),
    *_in("sql/watching.sql", "test_incidents.py",
         ("where d.status in ('Open', 'Legal_Hold')\n  union all", "where d.status = 'Open'\n  union all")),
    *_in("conflicts/incidents.py", "test_incidents.py",
         ('    desk.alert(conn, FILED,', '    len(text) or desk.alert(conn, FILED,')),
    *_in("sql/takings.sql", "test_outside.py",
         ("set amount_minor = amount_minor - %(part)s, taken", "set taken"),
         ("where v.status = 'Failed'\nreturning id\n\n-- name: refused_reversals\n",
          "where v.status = 'None'\nreturning id\n\n-- name: refused_reversals\n")),
    *_in("rules/no_shows.py", "test_outside.py",
         ('return TAKEN_BACK if "Taken" in holds and', 'return TAKEN_BACK if "None" in holds and')),
    *_in("conflicts/disputes.py", "test_settlements.py",
         ('"dispute_filed" if frozen else "unpaid_dispute_filed"', '"dispute_filed"'),
         ("    return owed is not None\n", "    return False\n")),
    # Who is told of what they must decide.
    *_in("conflicts/disputes.py", "test_settlements.py",
         ('    _tell(desk, conn, kind, dispute_id, booking, shift, rules.PARTIES)\n', ""),
         ("if not (divided and part in rules.DIVIDERS)", "if not divided")),
    *_in("rules/dispute.py", "test_settlements.py",
         ('DIVIDERS: Final[tuple[Part, ...]] = ("Borrowing Admin", "Lending Admin")',
          'DIVIDERS: Final[tuple[Part, ...]] = ("Borrowing Admin",)')),
    *_in("conflicts/ending.py", "test_settlements.py",
         ('people(conn, booking.id, *EVERYBODY)', 'people(conn, booking.id, "Borrowing Admin")')),
    *_in("timesheets/approval.py", "test_pay.py", ("    if not hours.extra:", "    if hours.extra:")),
    *_in("shifts.py", "test_pay.py",
         ('extends="Supervisor" in played or (pays and', 'extends="Supervisor" in played or (not pays and')),
    *_in("shifts.py", "test_shortening.py",
         ('"changed" if end != shift.scheduled_end_time else None', "None")),
    *_in("shifts.py", "test_shortening.py", ("        escrow.plan_again(desk, conn, shift.id)\n", "")),
    *_in("payments/escrow.py", "test_shortening.py",
         ("                plan_again(desk, conn, hold.time_log_id)  # its end may be later again\n", "")),
    *_in("payments/no_shows.py", "test_no_shows.py", ("        escrow.tell_unearned(desk, conn, shift.id)\n", "")),
    *_in("shifts.py", "test_pay.py", ("if shift.cut_at != now or", "if shift.cut_at == now or")),
    *_in("rules/ladder.py", "test_pay.py",
         ('UNPAID_TOLD: Final[tuple[Part, ...]] = ("Worker", ', 'UNPAID_TOLD: Final[tuple[Part, ...]] = (')),
    *_in("sql/watching.sql", "test_pay.py",
         ("t.extra_minutes > 0 and t.extra_confirmed_at is null", "t.extra_minutes > 0")),
    *_in("sql/cutoff.sql", "test_settling.py",
         ("{schema}.now() < %(until)s::timestamptz and", "%(until)s::timestamptz is not null and"),
         ("b.funded_period_end is null or b.funded_period_end < p.period_end)\nfrom", "true)\nfrom")),
    *_in("rules/cutoff.py", "test_cutoff.py",
         ("return min(weeks.local_date(due.start, zone) - weeks.DAY, ends)",
          "return weeks.local_date(due.start, zone) - weeks.DAY")),
    *_in("payments/cutoff.py", "test_cutoff.py", ("not gate.PAID.isdisjoint(", "gate.PAID.isdisjoint(")),
    *_in("bookings.py", "test_bookings.py",
         ("        weekly.begin(desk, conn, booking, min(starts))\n", ""),
         ("    if user is None or user.company_id != company_id:", "    if user is None:")),
    *_in("rules/weeks.py", "test_bookings.py",
         ("and cutoff(now, zone, settings) > due.start", "")),
    *_in("sql/watching.sql", "test_completion.py", ("where t.status = 'Working'\n", "where t.status = 'Disputed'\n")),
    # What is dropped of a shift is called off.
    *_in("rules/pay.py", "test_shortening.py",
         ("max(end.astimezone(UTC), start.astimezone(UTC) + planned)", "end.astimezone(UTC)"),
         ("return min(planned_minutes, max(1,", "return max(planned_minutes, max(1,")),
    *_in("payments/escrow.py", "test_shortening.py",
         ("            if shift.shortened_at is not None:", "            if False:")),
    *_in("sql/escrow.sql", "test_shortening.py",
         ("and o.payment_id = h.payment_id) as next_part",
          "and o.payment_id = h.payment_id and o.kind = h.kind) as next_part")),
    *_in("rules/withdrawal.py", "test_shortening.py",
         ("return BY_BORROWER if covered else UNINSURED", "return BY_BORROWER")),
    # What nobody began, what is called off, and what is over.
    *_in("settings.py", "test_no_shows.py",
         ('no_show_after: timedelta = setting(length("1d")', 'no_show_after: timedelta = setting(length("23h")')),
    *_in("rules/no_shows.py", "test_no_shows.py",
         ("    if now >= until:", "    if now > until:"),
         ('("Worker", "Supervisor", "Borrowing Admin", "Lending Admin")', '("Borrowing Admin", "Lending Admin")')),
    *_in("payments/settle.py", "test_no_shows.py",
         ("    no_shows.watch_over(desk, conn, payment.booking_id)\n", "")),
    *_in("payments/no_shows.py", "test_no_shows.py",
         ('if shift.status != "Scheduled":', 'if shift.status == "Cancelled":')),
    *_in("rules/withdrawal.py", "test_withdrawal.py test_no_shows.py",
         ("return reason == BY_BORROWER", "return reason is not None"),
         ("    if now >= planned_end:", "    if now > planned_end:"),
         ('if "Platform Operator" in parts:', "if False:")),
    *_in("payments/escrow.py", "test_withdrawal.py",
         ("            penalised = withdrawal.penalised(shift.cancel_reason)", "            penalised = False")),
    *_in("sql/shifts.sql", "test_withdrawal.py",
         ("* interval '1 minute') > %(now)s", "* interval '1 minute') is not null")),
    *_in("verbs/views.sql", "test_completion.py",
         ("and b.end_date < ({schema}.now() at time zone p.timezone)::date", ""),
         ("and h.status in ('Held', 'Frozen'))", "and h.status = 'Frozen')"),
         ("and i.status = 'Pending')", "and i.status = 'Closed')")),
    *_in("completion.py", "test_completion.py",
         ("        if reserve.owes(", "        if not reserve.owes(")),
    *_in("sql/watching.sql", "test_cutoff.py",
         ("where w.retrying and w.queue = %(queue)s", "where w.queue = %(queue)s")),
    # What companies had before.
    *_in("rules/imports.py", "test_import.py",
         ("if funded_end is not None and start < funded_end:", "if False:"),
         ("    if paid != price:", "    if False:"),
         ("span.start < last.until", "span.start > last.until")),
    *_in("rules/charge.py", "test_import.py", ('frozenset({"arrears", "imported"})', 'frozenset({"arrears"})')),
    *_in("imports/money.py", "test_import.py", ('if one.funding != "unpaid":', 'if one.funding == "held":')),
    *_in("imports/run.py", "test_import.py", ("if dry_run else nullcontext()", "if False else nullcontext()")),
    *_in("imports/known.py", "test_import.py", ("if known.source.get(field) != value:", "if False:")),
    *_in("sql/shifts.sql", "test_import.py", ("and p.source = 'imported' and p.received_at is null", "and false")),
)  # fmt: skip


def problem(broken: Break) -> str | None:
    """What is wrong with a break itself: its text must stand in its file once."""
    found = (PACKAGE / "staffing" / broken.file).read_text().count(broken.before)
    if found != broken.times:
        return f"{broken.name}: stands {found} times in {broken.file}"
    missing = [test for test in broken.tests.split() if not (Path(__file__).parent / test).is_file()]
    return f"{broken.name}: there is no {missing[0]}" if missing else None


def seen(broken: Break) -> tuple[list[str], str]:
    """The rules whose tests turn red, and what pytest said."""
    with tempfile.TemporaryDirectory(prefix="mainspring-breaks-") as folder:
        copy = Path(folder) / "mainspring_apps"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        file = copy / "staffing" / broken.file
        file.write_text(file.read_text().replace(broken.before, broken.after))
        tests = [f"tests/apps/staffing/{test}" for test in broken.tests.split()]
        command = [
            sys.executable,
            "-m",
            "pytest",
            "-q",
            "-x",
            "-p",
            "tests.apps.staffing.breaks",
            "-p",
            "no:randomly",
            *tests,
        ]
        env = os.environ | {"PYTHONPATH": f"{folder}{os.pathsep}{ROOT}", "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
    return [rule for _, rules in RED.findall(done.stdout + done.stderr) for rule in rules.split()], done.stdout


def pytest_exception_interact(node: pytest.Item, call: pytest.CallInfo[object], report: pytest.TestReport) -> None:
    """As a plugin of pytest: say which rules a failed test is marked with."""
    rules = [str(rule) for mark in node.iter_markers("rule") for rule in mark.args]
    if call.when == "call" and rules:
        print(f"\nRED {node.nodeid} {' '.join(rules)}", file=sys.__stderr__, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make breaks", description=__doc__)
    parser.add_argument("words", nargs="*", help="only breaks whose names hold one of these")
    parser.add_argument("--jobs", type=int, default=2, help="so many at once")
    options = parser.parse_args()
    chosen = [one for one in BREAKS if not options.words or any(word in one.name for word in options.words)]
    if wrong := [text for one in chosen if (text := problem(one))]:
        say("\n".join(wrong))
        return 2
    began, unseen = time.monotonic(), 0
    with ThreadPoolExecutor(options.jobs) as pool:
        for number, (broken, (rules, said)) in enumerate(zip(chosen, pool.map(seen, chosen), strict=True), 1):
            unseen += not rules
            say(f"{number:2}/{len(chosen)}  {'red' if rules else 'NOT SEEN'}  {broken.name}  {' '.join(rules)}")
            if not rules:
                say("\n".join(f"      {line}" for line in said.splitlines()[-4:]))
    say(f"breaks={len(chosen)} red={len(chosen) - unseen} unseen={unseen} in {time.monotonic() - began:.0f} s")
    return 1 if unseen else 0


if __name__ == "__main__":
    sys.exit(main())
