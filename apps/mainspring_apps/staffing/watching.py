"""What is watched: conditions that open an alert while they last, and numbers beside the engine's metrics.

What is too much is decided in `rules.watching`. Success, duration, retries and dead letters of jobs are metrics of the
engine (STAFF-15.01 to 15.04).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import Any, Literal, LiteralString

import psycopg
from psycopg.rows import tuple_row

import mainspring as ms
from mainspring.health.measure import Measure
from mainspring.health.watch import Watch
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.registry import HARD_CUTOFF
from mainspring_apps.staffing.rules import watching as rules
from mainspring_apps.staffing.rules.quiet import HOUR
from mainspring_apps.staffing.rules.wishes import WISHED
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.store import sql
from mainspring_apps.staffing.texts import insurance_warning

AsyncConn = psycopg.AsyncConnection[Any]
Wrong = list[tuple[str, str]]


async def failing_payments(settings: Settings, conn: AsyncConn) -> Wrong:
    """Weeks of which too many payments failed (STAFF-15.06)."""
    weeks: dict[str, dict[str | None, int]] = defaultdict(dict)
    for week, cause, count in await _rows(conn, sql["failed_payments"], within=settings.failed_payments_within):
        weeks[week][cause] = count
    found = []
    for week, counts in weeks.items():
        failures = {cause: n for cause, n in counts.items() if cause is not None}
        failed, payments = sum(failures.values()), sum(counts.values())
        if rules.failing(failed, payments, settings):
            found.append((f"week of {week}", f"{failed} of {payments} payments failed: {rules.causes(failures)}"))
    return found


async def crowded_dead_letter(settings: Settings, conn: AsyncConn) -> Wrong:
    """More dead letters than somebody looks through (STAFF-15.09)."""
    ((dead,),) = await _rows(conn, sql["dead_letter_size"])
    return [("dead letter", f"{dead} jobs wait for somebody to decide")] if rules.crowded(dead, settings) else []


async def late_queues(desk: Desk, conn: AsyncConn) -> Wrong:
    """Queues whose jobs are due and not started (STAFF-15.10)."""
    queues = sorted({task.queue for task in desk.app.registry})
    waits = await _rows(conn, sql["waiting_longest"], queues=queues)
    return [
        (f"queue {queue}", f"a job is due since {wait.total_seconds():.0f} s and not started")
        for queue, wait in waits
        if rules.late(wait, desk.settings)
    ]


async def unsteady_jobs(settings: Settings, conn: AsyncConn) -> Wrong:
    """An hour in which too many jobs had to be tried again (STAFF-15.11)."""
    ((retried, jobs),) = await _rows(conn, sql["retried_jobs"], within=HOUR)
    return [("all jobs", f"{retried} of {jobs} jobs were retried")] if rules.unsteady(retried, jobs, settings) else []


def asked(
    name: str, statement: str, *, every: timedelta, severity: Literal["critical", "warning"] = "warning", **params: Any
) -> Watch:
    """A watch whose statement answers (subject, text) with these parameters."""
    return ms.watch(name, sql[statement], params=params, severity=severity, every=every)


async def _rows(conn: AsyncConn, statement: LiteralString, **params: Any) -> list[tuple[Any, ...]]:
    async with conn.cursor(row_factory=tuple_row) as cursor:
        return await (await cursor.execute(statement, params)).fetchall()


def watches(desk: Desk) -> Sequence[Watch]:
    """What is watched in a marketplace."""
    s, soon = desk.settings, desk.settings.watch_every
    warnings = [insurance_warning(threshold) for threshold in s.insurance_thresholds]
    return (
        # Of all jobs.
        ms.watch("payments_failing", partial(failing_payments, s), severity="critical", every=soon),
        ms.watch("dead_letter_crowded", partial(crowded_dead_letter, s), severity="critical", every=soon),
        ms.watch("jobs_retried", partial(unsteady_jobs, s), every=soon),
        # STAFF-1.38, 11.20, 19.07: charges that were not made, and events about payments that nobody knows; a worker
        # who stays reserved for a booking that nobody confirms.
        ms.watch_dead("charge_failed", "charge_week", subject="booking {booking_id}", every=soon),
        ms.watch_dead("arrears_failed", "charge_arrears", subject="booking {booking_id}", every=soon),
        ms.watch_dead("upfront_failed", "charge_upfront", subject="booking {booking_id}", every=soon),
        ms.watch_dead("upfront_unended", "end_wait", subject="booking {booking_id}", severity="critical", every=soon),
        ms.watch_dead("payment_retry_failed", "retry_payment", subject="booking {booking_id}", every=soon),
        ms.watch_dead("unknown_payment", "payment_changed", subject="event {event_id}", every=soon),
        # STAFF-1.42: somebody is about to work, and nobody has paid for it.
        asked("unfunded_shift", "unfunded_shifts_soon", notice=s.unfunded_notice, every=soon),
        # STAFF-15.08, 9.30, 10.28: timesheets that were not approved, money that did not move, shifts that were not
        # cancelled, until somebody has decided.
        ms.watch_dead(
            "auto_approval_failed", "auto_approve", subject="time_log {time_log_id}", severity="critical", every=soon
        ),
        ms.watch_dead(
            "release_failed", "release_shift", subject="time_log {time_log_id}", severity="critical", every=soon
        ),
        ms.watch_dead(
            "transfer_failed", "pay_lender", subject="transfer {transfer_id}", severity="critical", every=soon
        ),
        ms.watch_dead(
            "refund_failed", "refund_borrower", subject="refund {refund_id}", severity="critical", every=soon
        ),
        ms.watch_dead(
            "no_show_failed", "refund_no_show", subject="time_log {time_log_id}", severity="critical", every=soon
        ),
        ms.watch_dead(
            "dispute_timeout_failed", "dispute_timeout", subject="dispute {dispute_id}", severity="critical", every=soon
        ),
        # Work that goes on uninsured, a borrower who was not warned, and what the provider said or would say of money.
        ms.watch_dead(
            "hard_stop_failed", "stop_booking", subject="booking {booking_id}", severity="critical", every=soon
        ),
        ms.watch_dead("final_warning_failed", "warn_unpaid", subject="booking {booking_id}", every=soon),
        ms.watch_dead(
            "refund_event_failed", "refund_changed", subject="event {event_id}", severity="critical", every=soon
        ),
        ms.watch_dead("refund_unasked", "charge_refunded", subject="event {event_id}", severity="critical", every=soon),
        ms.watch_dead(
            "chargeback_event_failed", "chargeback_changed", subject="event {event_id}", severity="critical", every=soon
        ),
        ms.watch_dead(
            "reversal_event_failed", "transfer_reversed", subject="event {event_id}", severity="critical", every=soon
        ),
        ms.watch_dead("account_event_failed", "account_changed", subject="event {event_id}", every=soon),
        ms.watch_dead("payout_event_failed", "payout_failed", subject="event {event_id}", every=soon),
        ms.watch_dead(
            "reversal_failed", "take_back", subject="reversal {reversal_id}", severity="critical", every=soon
        ),
        ms.watch_dead("payment_unasked", "reconcile_payment", subject="payment {payment_id}", every=soon),
        ms.watch_dead("movement_unasked", "reconcile_movement", subject="{kind} {row_id}", every=soon),
        asked(
            "money_stands_still",
            "money_standing_still",
            every=s.slow_watch_every,
            after=s.standstill_after,
            no_show=s.no_show_after,
        ),
        # STAFF-20.11: nothing ends a conflict by itself, nor moves what it has frozen.
        asked("conflict_left_open", "conflicts_left_open", every=s.slow_watch_every, after=s.conflict_open_after),
        # STAFF-20.04: somebody can still ask the borrower.
        asked(
            "extra_time_unconfirmed",
            "extra_time_unconfirmed",
            every=s.slow_watch_every,
            after=s.extra_time_after,
            within=s.looked_back,
        ),
        # STAFF-2.12, 3.25, 4.28: messages that nobody got.
        asked("final_warning_delivery", "undelivered", kinds=["final_warning", "late_warning"], every=soon),
        asked("worker_released_delivery", "undelivered", kinds=["worker_released"], every=soon),
        asked(
            "insurance_delivery", "undelivered", kinds=[*warnings, "insurance_expired", "insurance_stop"], every=soon
        ),
        # STAFF-20.18: who could not be told of what money or a job depends on, and companies where nobody can be.
        asked(
            "nobody_reached",
            "nobody_reached",
            severity="critical",
            wished=list(WISHED),
            within=s.looked_back,
            every=soon,
        ),
        asked("nobody_to_tell", "nobody_to_tell", severity="critical", every=soon),
        # STAFF-3.25: a release that failed is tried again, and somebody should know that it had to be.
        asked("cutoff_failed", "failed_in_queue", severity="critical", queue=HARD_CUTOFF, every=soon),
        # STAFF-15.07, 4.30: after the nightly run, what it has not done.
        asked(
            "insurance_warning_unsent",
            "unsent_insurance",
            kinds=warnings,
            within=s.looked_back,
            severity="critical",
            every=s.slow_watch_every,
            after=s.night_is_over,
        ),
        asked(
            "expired_policy_active",
            "expired_policies_active",
            severity="critical",
            every=s.slow_watch_every,
            after=s.night_is_over,
        ),
        # STAFF-7.10: while saved searches are left out, somebody should bring back what is missing.
        asked("saved_searches_skipped", "skipped_searches", within=s.skipped_within, every=soon),
        ms.watch("jobs_late", partial(late_queues, desk), every=soon),
        # STAFF-20.16: instead of blaming borrowers for what they were not asked.
        asked("charges_unanswered", "unanswered_charges", severity="critical", silence=s.silence, every=soon),
    )


def measures(s: Settings) -> Sequence[Measure]:
    """What is measured in a marketplace."""
    back = {"within": s.looked_back}
    return (
        # STAFF-1.37, 11.19: how payments end and why, who was told, and how long a resolution waited for its payment.
        ms.measure(
            "staffing_payments",
            "Payments that came to an end, by what began them and how they ended",
            sql["measure_payments"],
            kind="counter",
        ),
        ms.measure(
            "staffing_payment_failures",
            "Payments that failed, by cause",
            sql["measure_payment_failures"],
            kind="counter",
        ),
        ms.measure(
            "staffing_payment_failures_told",
            "Messages that a payment failed and somebody must act, by channel",
            sql["measure_failures_told"],
            kind="counter",
        ),
        ms.measure(
            "staffing_resolution_to_payment_seconds",
            "How long a resolution waited for its payment",
            sql["measure_resolution_to_payment"],
            kind="histogram",
            buckets=(60, 300, 3600, 21_600, 86_400),
        ),
        ms.measure(
            "staffing_releases", "Bookings that the hard cutoff has ended", sql["measure_releases"], kind="counter"
        ),
        ms.measure(
            "staffing_delivery_rate",
            "Of the messages that came to an end of late, how many were delivered, by kind and channel",
            sql["measure_delivery_rate"],
            params=back,
        ),
        ms.measure(
            "staffing_retry_success_rate",
            "Of the jobs that came to an end of late after a retry, how many succeeded, by task",
            sql["measure_retry_success_rate"],
            params={"within": s.retries_within},
        ),
        ms.measure(
            "staffing_policies_near_expiry",
            "Active policies that end within so many days, by the warning that they are due",
            sql["measure_policies_near_expiry"],
            params={"thresholds": list(s.insurance_thresholds)},
        ),
        # Saved searches (STAFF-7.06, 7.09, 7.20): what was skipped and why, how long it had failed, and how batches go.
        ms.measure(
            "staffing_search_skips",
            "Alerts of saved searches that were left out, by kind and reason",
            sql["measure_search_skips"],
            kind="counter",
        ),
        ms.measure(
            "staffing_search_outage_seconds",
            "How long queries had failed before their alerts were left out, in all, by kind and reason",
            sql["measure_search_outage"],
            kind="counter",
        ),
        ms.measure(
            "staffing_search_batch_failure_rate",
            "Of the batches of saved searches of late, how many failed at first, by kind",
            sql["measure_batch_failure_rate"],
            params=back,
        ),
        ms.measure(
            "staffing_search_retry_success_rate",
            "Of the saved searches of late that were tried again alone, how many were told, by kind",
            sql["measure_batch_retry_success_rate"],
            params=back,
        ),
    )
