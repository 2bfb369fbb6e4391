"""What the marketplace asks of the platform: limits of what it calls, catch-up, statuses, the provider's webhooks."""

from __future__ import annotations

import ast
import re
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import psycopg
import pytest
from tests.apps.staffing.test_weekly_payments import near
from tests.apps.staffing.town import NEXT_WEEK, W10, Town

from mainspring.declare.block import SignatureRefused
from mainspring.limit import Limit
from mainspring_apps.staffing import registry
from mainspring_apps.staffing.market import Market
from mainspring_sandbox.environment import WEBHOOK_SECRET
from mainspring_sandbox.post import Manner
from mainspring_sandbox.stripe.post import signature

TESTS = Path(__file__).parents[2]
SECOND = timedelta(seconds=1)
#: What the source asks of other systems, and the tests that show it of the engine.
ABILITIES = {
    "delayed jobs": "worker/test_exchange.py::test_the_clock_of_the_database_decides_what_is_due",
    "rates": "worker/limits/test_claim.py::test_no_window_lets_in_more_than_its_rate_and_nearly_as_many",
    "concurrency": "worker/limits/test_claim.py::test_no_more_run_at_once_than_the_limit",
    "cron": "worker/schedules/test_schedule.py::test_cron_entry_makes_one_job_a_tick_for_the_system",
    "cancel by id": "db/test_cancel.py::test_a_job_that_waits_is_cancelled_at_once_and_never_starts",
    "all": "proofs/platform/test_abilities.py::test_delays_rates_order_cron_and_cancellation_need_no_other_system",
}
#: The statuses of each table, and no others; the ledger's preamble.
STATUSES = {
    "bookings": "Pending_Payment Active Payment_Paused_Dispute Suspended_Insurance Cancelled Completed Disputed",
    "time_log": "Scheduled Working Pending_Verification Verified Disputed Cancelled",
    "disputes": "Open Settled Resolved Legal_Hold",
    "incident_reports": "Pending Closed",
    "pending_payments": "Pending Succeeded Failed Canceled Not_Required",
    "escrow_holds": "Held Frozen Released Refunded ChargedBack",
    "transfers": "Pending Succeeded Failed Reversed",
    "refunds": "Pending Succeeded Failed",
    "reversals": "Pending Succeeded Failed",
    "chargebacks": "Inquiry Open Won Lost",
    "alert_deliveries": "Sent Failed Skipped Empty",
}


#: The queues of the ledger, and what is ours beside them: the provider's events, and the engine's for sweeps.
QUEUES = {
    "weekly-payments", "timesheet-notifications", "timesheet-auto-approval", "dispute-timeout",
    "dispute-resolution-payment-retry", "weekly-final-warning", "weekly-hard-cutoff", "insurance-monitoring",
    "insurance-hard-stop", "saved-search-instant", "saved-search-digest", "clock-out-reminders", "magic-link-cleanup",
    "lender-transfers", "refunds", "payment-reconciliation", "payment-events", "q:maintenance",
    "no-shows", "booking-completion",
}  # fmt: skip


@pytest.mark.rule("STAFF-1.06", "STAFF-9.03", "STAFF-10.05", "STAFF-11.02")
def test_every_queue_is_called_as_the_ledger_calls_it(mainspring_app: Market) -> None:
    assert {task.queue for task in registry.tasks.bound(mainspring_app.desk)} == QUEUES
    assert registry.NOTIFICATIONS == "q:notifications"


@pytest.mark.rule("STAFF-0.02")
@pytest.mark.parametrize("ability", ABILITIES)
def test_each_ability_of_other_systems_has_a_marked_test_of_the_engine(ability: str) -> None:
    file, _, name = ABILITIES[ability].partition("::")
    tree = ast.parse((TESTS / file).read_text())
    found = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    (test,) = [node for node in found if node.name == name]
    assert any("mark.rule" in ast.unparse(mark) for mark in test.decorator_list)
    assert not any("skip" in ast.unparse(mark) or "xfail" in ast.unparse(mark) for mark in test.decorator_list)


@pytest.mark.rule("STAFF-0.03", "STAFF-1.07", "STAFF-11.06")
def test_every_queue_that_calls_somebody_outside_has_a_rate_and_a_concurrency(town: Town) -> None:
    app = town.desk.app
    limits = [limit for limit in app.limits if isinstance(limit, Limit)]
    # Whoever asks the provider waits for its answer, however long it is away (STAFF-20.15).
    outside = {task.queue for task in app.registry if task.snooze_limit is None or task.name == "notify.deliver"}
    rates = {limit.queue: (limit.rate, limit.per) for limit in limits if limit.rate is not None}
    places = {limit.queue: limit.concurrency for limit in limits if limit.concurrency is not None}
    assert outside <= rates.keys() & places.keys()
    assert (rates[registry.WEEKLY_PAYMENTS], rates[registry.PAYMENT_RETRY]) == ((50, SECOND), (10, SECOND))
    assert {limit.by for limit in limits} == {"all"}
    known = town.rows("select queue, rate, concurrency from mainspring.limit where queue is not null")
    assert Counter(queue for queue, _, _ in known) == Counter(limit.queue for limit in limits)


@pytest.mark.rule("STAFF-0.03", "STAFF-0.04")
def test_messages_that_are_due_at_one_instant_leave_fifty_a_second(town: Town) -> None:
    town.only(at=W10)
    company = town.company("Borrower")
    people = [town.user(company, "Admin") for _ in range(60)]
    with town.conn.transaction():
        town.desk.tell(town.conn, "reminder_5m", people, {"time_log_id": 1}, occurrence=W10)

    town.mainspring.advance(seconds=5)

    starts = [at for (at,) in town.rows("select started_at from mainspring.jobs where task = 'notify.deliver'")]
    assert len(starts) == 60
    assert max(sum(1 for at in starts if begin <= at < begin + SECOND) for begin in starts) <= 50
    assert max(starts) - min(starts) >= SECOND


@pytest.mark.rule("STAFF-0.08")
def test_what_was_missed_is_caught_up_while_it_makes_sense(town: Town) -> None:
    hours = {one.name: one.within for one in town.desk.app.registry.schedules() if one.within is not None}
    assert {name: within // timedelta(hours=1) for name, within in hours.items()} == {
        "weekly-payments": 14,  # until the cutoff
        "weekly-final-warning": 10,
        "weekly-hard-cutoff": 96,  # until the week that it is about
        "insurance-monitoring": 24,  # the same day of UTC
        "magic-link-cleanup": 22,
        "saved-search-digest": 20,  # the same local day, which may have an hour more
    }
    assert {one.catch_up for one in town.desk.app.registry.schedules() if one.within is not None} == {"latest"}


@pytest.mark.rule("STAFF-0.10")
def test_no_table_takes_a_status_that_the_ledger_does_not_know(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.funded(booking)
    now = town.now
    hold = town.value("select id from staffing.escrow_holds")
    about: dict[str, Any] = {"booking_id": booking.id, "dispute_option": "A"}
    town.insert("disputes", **about, time_log_id=booking.shifts[0], dispute_filed_at=now)
    town.insert("incident_reports", **about, filed_at=now)
    for table in ("transfers", "refunds"):
        moved = {"escrow_hold_id": hold, "amount_minor": 1, "currency": "USD", "created_at": now}
        row = town.insert(table, **moved, idempotency_key=table)
        if table == "transfers":
            sent = {"destination": "held", "reason": "x", "amount_minor": 1, "currency": "USD", "created_at": now}
            town.insert("reversals", transfer_id=row, idempotency_key="reversals", **sent)
    payment = town.value("select id from staffing.pending_payments")
    about_it = {"amount_minor": 1, "currency": "USD", "reason": "fraudulent", "created_at": now}
    town.insert("chargebacks", payment_id=payment, provider_id="dp_1", status="Open", **about_it)
    search = town.insert("saved_searches", user_id=booking.borrowing_admin)
    town.conn.execute(
        "insert into staffing.alert_deliveries values (%s, 'x', 'digest', 'Sent', null, null, %s)", [search, now]
    )

    for table, statuses in STATUSES.items():
        name = f"{table}_status_check"
        town.conn.execute(f"drop trigger if exists transition on staffing.{table}".encode())  # the constraint itself
        with pytest.raises(psycopg.errors.CheckViolation, match=name):
            town.conn.execute(f"update staffing.{table} set status = 'Unheard_Of'".encode())
        text = town.value("select pg_get_constraintdef(oid) from pg_constraint where conname = %s", name)
        assert set(re.findall(r"'(\w+)'", text)) == set(statuses.split())


@pytest.mark.rule("STAFF-19.05")
def test_an_event_that_comes_three_times_is_applied_once(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.sandbox.stripe.post.manners.append(Manner(copies=3))
    near(town)
    town.mainspring.advance(to=W10 + timedelta(minutes=1))

    carried = town.sandbox.ledger.find("webhook")
    succeeded = [entry for entry in carried if entry.body["type"] == "payment_intent.succeeded"]
    assert [entry.body["state"] for entry in succeeded] == ["delivered"] * 3
    assert town.value("select count(*) from staffing.stripe_events where type = 'payment_intent.succeeded'") == 1
    assert town.value("select count(*) from mainspring.job where task = 'payment_changed'") == 1
    assert (town.ledger(booking), len(town.audit("payment_succeeded"))) == ((24000, 24000, 0, 0, 0), 1)


@pytest.mark.rule("STAFF-19.04")
def test_a_webhook_is_believed_only_with_our_secret_and_a_stamp_of_these_five_minutes(town: Town) -> None:
    booking = town.booking(shifts=1)
    for endpoint in town.sandbox.ledger.find("stripe.webhook_endpoint"):
        town.sandbox.ledger.change("stripe.webhook_endpoint", endpoint.id, _secret="whsec_somebody_else")
    near(town)
    town.mainspring.advance(to=W10 + timedelta(minutes=1))

    assert {entry.body["status"] for entry in town.sandbox.ledger.find("webhook") if entry.body["attempts"]} == {400}
    assert town.rows("select * from staffing.stripe_events") == []
    assert town.value("select status from staffing.pending_payments where booking_id = %s", booking.id) == "Pending"

    (source,) = town.desk.stripe.inbound
    body = '{"id": "evt_1", "type": "payment_intent.succeeded", "data": {"object": {}}}'

    def verified(age: int, secret: str = WEBHOOK_SECRET) -> bool:
        headers = {"stripe-signature": signature(secret, int(NEXT_WEEK[0].timestamp()), body)}
        now: datetime = NEXT_WEEK[0] + age * SECOND
        try:
            return source.verify(headers, body.encode(), now).event_id == "evt_1"
        except SignatureRefused:
            return False

    assert [verified(age) for age in (-301, -300, 0, 300, 301)] == [False, True, True, True, False]
    assert not verified(0, "whsec_somebody_else")
