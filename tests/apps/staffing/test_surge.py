"""Charges that are all due at once, by two workers in real time; `make surge` does it with processes, and 10,000."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import stripe
from tests.apps.staffing.surge import CONNECTIONS, PROGRESS, ZONE, seed
from tests.worker.limits.windows import largest

import mainspring as ms
from mainspring.testing import Harness
from mainspring.testing.working import Working
from mainspring.virtual.tasks import DeclaredTasks
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.payments import weekly
from mainspring_apps.staffing.registry import WEEKLY_PAYMENTS
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.settings import Settings
from mainspring_sandbox import Sandbox

BOOKINGS = 130
POOL = {"threads": 4, "transactions": 2, "exchanges": 1, "scheduler": False}
#: Of two workers: exchanges, transactions, threads, and one each for services and hints.
POOLS = 2 * (4 + 2 + 1 + 2)


@pytest.fixture
def bank(mainspring: Harness, mainspring_sandbox_server: Sandbox) -> Iterator[stripe.StripeClient]:
    """In real time, and no webhooks."""
    mainspring.conn.execute("update mainspring.clock set at = null")
    sandbox = mainspring_sandbox_server
    sandbox.reset()
    yield stripe.StripeClient("sk_test_sandbox", base_addresses={"api": f"{sandbox.url}/stripe"})
    sandbox.reset()


@pytest.mark.rule("STAFF-0.03", "STAFF-0.04", "STAFF-0.06", "STAFF-1.07")
def test_charges_that_are_due_at_once_start_fifty_a_second_within_the_pools(
    mainspring: Harness,
    mainspring_app: Market,
    mainspring_sandbox_server: Sandbox,
    bank: stripe.StripeClient,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    task = mainspring_app.registry.get("charge_week")
    entered, handler = list[float](), task.fn

    def charge_week(*args: Any, **kwargs: Any) -> None:
        entered.append(time.monotonic())
        handler(*args, **kwargs)

    monkeypatch.setattr(task, "fn", charge_week)
    conn, now = mainspring.conn, mainspring.clock.now()
    conn.execute("set application_name = 'surge'")
    seed(conn, bank, BOOKINGS)
    due = weeks.due_week(now, ZONE, Settings())
    about: Any = {"period_start": due.start, "period_end": due.end, "occurrence": now}
    jobs = [weekly.charge_week.job(booking_id=number, **about).at(now) for number in range(1, BOOKINGS + 1)]
    assert {job.queue for job in jobs} == {WEEKLY_PAYMENTS}
    most = 0
    with ExitStack() as stack:
        with ms.Client(mainspring.dsn) as client:
            client.enqueue_many(jobs)
        for _ in range(2):
            stack.enter_context(Working(mainspring.dsn, DeclaredTasks.by(mainspring_app), POOL))
        deadline = time.monotonic() + 60
        while conn.execute(PROGRESS).fetchone() != (BOOKINGS, 0):
            most = max(most, *(row[0] for row in conn.execute(CONNECTIONS)))
            assert time.monotonic() < deadline
            time.sleep(0.05)

    assert len(entered) == BOOKINGS  # none twice
    assert largest(entered, 1.0) <= 50
    assert max(entered) - min(entered) >= BOOKINGS / 50 - 1
    assert 2 <= most <= POOLS
    intents = mainspring_sandbox_server.ledger.find("stripe.payment_intent")
    assert sorted(int(entry.body["metadata"]["booking_id"]) for entry in intents) == list(range(1, BOOKINGS + 1))
