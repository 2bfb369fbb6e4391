"""When things fail: retries by one policy, breakers for each provider, and one id through everything of a payment."""

from __future__ import annotations

import random
from datetime import timedelta
from itertools import pairwise

import pytest
from tests.apps.staffing.test_weekly_payments import near
from tests.apps.staffing.town import MONDAY, W10, Town
from tests.apps.staffing.wednesday import charged

from mainspring_apps.staffing import tokens
from mainspring_sandbox import Fault

SECOND = timedelta(seconds=1)
#: The sections that say 3: payment after a resolution, and the queries of saved searches (STAFF-11.17, 7.02).
THREE = {"retry_payment", "put_together", "match"}


def of_ours(town: Town) -> dict[str, object]:
    """The retry policy of each task of the marketplace."""
    found = {task.name: task.retry for task in town.desk.app.registry}
    return {name: retry for name, retry in found.items() if not name.startswith("mainspring.")}


@pytest.mark.rule("STAFF-16.01")
def test_every_task_is_tried_again_by_the_constants_of_the_ledger(town: Town) -> None:
    usual, few = town.desk.settings.retry, town.desk.settings.few_tries
    for name, retry in of_ours(town).items():
        assert retry == (few if name in THREE else usual), name
    for policy, retries in ((usual, 5), (few, 3)):
        assert policy.attempts == 1 + retries
        seeded = random.Random(16)
        for attempt in range(1, 12):
            middle = min(30 * 2 ** (attempt - 1), 3600)
            gaps = {policy.delay(attempt, seeded.random).total_seconds() for _ in range(50)}
            assert len(gaps) > 1
            assert 0.8 * middle <= min(gaps) < 0.9 * middle
            assert 0.9 * middle < max(gaps) <= min(1.2 * middle, 3600)


@pytest.mark.rule("STAFF-16.01")
def test_what_the_provider_tells_is_tried_as_often_as_anything_else(town: Town) -> None:
    charged(town, town.booking())
    town.mainspring.advance(seconds=3)
    assert town.rows("select max_attempts::int from mainspring.jobs where task = 'payment_changed'") == [(6,)]


@pytest.mark.rule("STAFF-16.01")
def test_two_jobs_that_always_fail_end_after_five_retries_each_at_its_own_instants(town: Town) -> None:
    town.only()
    town.conn.execute("alter table staffing.magic_link_tokens rename to gone")
    jobs = [one.id for one in town.desk.enqueue(town.conn, *(tokens.clean_tokens.job() for _ in range(2)))]
    town.mainspring.advance(hours=1, raise_errors=False)

    starts = {
        job: [
            row[0] for row in town.rows("select started_at from mainspring.attempts where job_id = %s order by 1", job)
        ]
        for job in jobs
    }
    for job, instants in starts.items():
        gaps = [(later - sooner).total_seconds() for sooner, later in pairwise(instants)]
        assert [0.8 <= gap / (30 * 2**n) <= 1.2 for n, gap in enumerate(gaps)] == [True] * 5
        assert town.mainspring.client.get(job).state == "dead"
    assert starts[jobs[0]][1:] != starts[jobs[1]][1:]


@pytest.mark.rule("STAFF-16.02", "STAFF-16.03", "STAFF-16.04", "STAFF-20.15")
def test_five_failures_open_stripes_breaker_which_keeps_attempts_and_leaves_messages_alone(town: Town) -> None:
    borrower, lender = town.company("Borrower"), town.company("Lender")
    bookings = [town.booking(shifts=1, borrower=borrower, lender=lender) for _ in range(7)]
    town.sandbox.faults.set(Fault(provider="stripe", kind="error", path="payment_intents", method="POST"))
    near(town)

    def calls() -> int:
        return town.sandbox.faults.struck["stripe", "error"]

    def breakers() -> dict[str, str]:
        return dict(town.rows("select b.name, mainspring.breaker_state(b) from mainspring.breaker b where key = ''"))

    town.mainspring.advance(to=W10, raise_errors=False)
    assert (calls(), breakers()["stripe"]) == (5, "open")
    waiting = "select j.attempt, j.state from mainspring.jobs j where j.task = 'charge_week' order by 1, 2"
    assert town.rows(waiting)[:2] == [(0, "scheduled"), (0, "scheduled")]  # not tried, and not counted
    with town.conn.transaction():
        admin = bookings[0].borrowing_admin
        town.desk.tell(town.conn, "final_warning", [admin], {"ID": 1, "booking_id": 1}, occurrence=W10)
    town.mainspring.advance(to=W10 + 59 * SECOND, raise_errors=False)
    assert calls() == 5
    assert {(channel, status) for _, _, channel, status in town.messages()} == {("email", "Sent"), ("sms", "Sent")}

    town.mainspring.advance(to=W10 + 61 * SECOND, raise_errors=False)
    assert (calls(), breakers()["stripe"]) == (6, "open")  # one probe

    town.sandbox.faults.clear("stripe")
    town.mainspring.advance(to=W10 + timedelta(minutes=10), raise_errors=False)
    assert breakers()["stripe"] == "closed"
    assert town.rows("select status, count(*) from staffing.pending_payments group by 1") == [("Succeeded", 7)]
    attempts = town.rows(
        "select attempt, count(*) from mainspring.jobs where task = 'charge_week' group by 1 order by 1"
    )
    assert attempts == [(1, 7)]  # nobody lost one: those that failed were not answered (STAFF-20.15)


@pytest.mark.rule("STAFF-16.02", "STAFF-16.04")
def test_while_no_sms_leaves_mails_arrive_and_payments_run(town: Town) -> None:
    borrower = town.company("Borrower", card_on_file="pm_card_chargeDeclined")
    for _ in range(6):
        town.booking(shifts=1, borrower=borrower)
    paying = town.booking(shifts=1)
    town.sandbox.faults.set(Fault(provider="twilio", kind="error"))
    near(town)

    town.mainspring.advance(to=W10 + 3 * SECOND, raise_errors=False)

    assert town.sandbox.faults.struck["twilio", "error"] == 5
    states = dict(town.rows("select b.name, mainspring.breaker_state(b) from mainspring.breaker b where key = ''"))
    assert states["twilio"] == "open"
    assert {state for name, state in states.items() if name != "twilio"} <= {"closed"}
    assert town.value("select status from staffing.pending_payments where booking_id = %s", paying.id) == "Succeeded"
    sent = "select channel, status, count(*) from staffing.notification_log group by 1, 2 order by 1, 2"
    assert {(channel, status) for channel, status, _ in town.rows(sent)} >= {("email", "Sent")}
    assert not {(channel, status) for channel, status, _ in town.rows(sent)} & {("sms", "Sent"), ("email", "Queued")}


@pytest.mark.rule("STAFF-16.06")
def test_one_id_follows_a_weekly_payment_from_the_run_to_the_transfer_and_to_the_message(town: Town) -> None:
    good = town.booking(shifts=1)
    town.shift(good, MONDAY, status="Verified", verified_by="SYSTEM")  # its money goes on to the lender
    bad = town.booking(shifts=1, card="pm_card_chargeDeclined")
    near(town)
    town.mainspring.advance(to=W10 + 10 * SECOND)

    ((run,),) = town.rows("select id::text from mainspring.fire where schedule = 'weekly-payments'")
    found = town.rows("select booking_id, status, correlation_id from staffing.pending_payments order by booking_id")
    assert found == [(good.id, "Succeeded", run), (bad.id, "Failed", run)]
    jobs = town.rows("select distinct task, correlation_id = %s from mainspring.job", run)
    assert dict(jobs).keys() >= {"charge_week", "payment_changed", "pay_lender", "notify.deliver"}
    # The request that tells of the end is the provider's own; all that follows from it is the run's.
    assert {task for task, same in jobs if not same} <= {"payment_changed"}
    trail = town.rows("select distinct correlation_id from staffing.audit_log where action like 'payment\\_%%'")
    assert trail == [(run,)]
    assert {row[0] for row in town.rows("select action from staffing.audit_log")} >= {
        "payment_created", "payment_succeeded", "payment_failed", "transfer_succeeded",
    }  # fmt: skip
    assert town.rows("select distinct correlation_id from staffing.notification_log") == [(run,)]
