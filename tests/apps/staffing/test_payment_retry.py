"""Payment after a dispute or incident is over: one retry, at once, of what is due and nothing more."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, date, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.apps.staffing.test_weekly_payments import SECOND, dispute, intents, near, payments
from tests.apps.staffing.town import NEXT_MONDAY, NEXT_WEEK, W10, Booking, Town

from mainspring_apps.staffing.conflicts import disputes, incidents
from mainspring_apps.staffing.payments import retries
from mainspring_apps.staffing.registry import PAYMENT_RETRY, limits
from mainspring_apps.staffing.rules import charge
from mainspring_sandbox import Fault

THURSDAY = datetime(2026, 6, 4, 19, tzinfo=UTC)  # 15:00 in New York
TUESDAY = datetime(2026, 6, 9, 19, tzinfo=UTC)
PAUSED = "Payment_Paused_Dispute"


def paused(town: Town, shifts: int = 2, at: datetime = THURSDAY, **values: Any) -> tuple[Booking, int]:
    """A booking whose payment pauses because of a dispute about Tuesday's shift; it is `at` now."""
    booking = town.booking(shifts=shifts, status=PAUSED, **values)
    shift = town.shift(booking, date(2026, 6, 2))
    filed = dispute(town, booking, shift)
    near(town, at)
    return booking, filed


def resolve(town: Town, dispute_id: int, status: Any = "Resolved") -> None:
    with town.conn.transaction():
        disputes.resolve_dispute(town.desk, town.conn, dispute_id, status=status, by=town.operator)


def enqueued(town: Town) -> list[tuple[Any, ...]]:
    return town.rows("select queue, payload from mainspring.jobs where task = 'retry_payment' order by id")


@pytest.mark.rule("STAFF-11.01", "STAFF-11.02", "STAFF-11.04", "STAFF-11.05")
@pytest.mark.parametrize("status", ["Settled", "Resolved", "Legal_Hold"])
def test_the_end_of_the_last_dispute_enqueues_a_retry_and_waits_for_nothing(town: Town, status: str) -> None:
    booking, filed = paused(town)
    town.sandbox.faults.set(Fault(provider="stripe", kind="timeout"))  # whoever asked it would wait

    resolve(town, filed, status)

    about = {"booking_id": booking.id, "dispute_resolved_at": "2026-06-04T19:00:00Z", "previous_status": PAUSED}
    assert enqueued(town) == [("dispute-resolution-payment-retry", about)]
    assert (town.status(booking), payments(town, booking)) == (PAUSED, [])


@pytest.mark.rule("STAFF-11.02", "STAFF-11.03")
def test_while_a_dispute_or_an_incident_is_left_nothing_is_enqueued(town: Town) -> None:
    booking, first = paused(town)
    second = dispute(town, booking, town.shift(booking, date(2026, 6, 3)))
    incident = town.insert("incident_reports", booking_id=booking.id, dispute_option="A", filed_at=town.now)

    resolve(town, first)
    assert enqueued(town) == []
    resolve(town, second)
    assert enqueued(town) == []
    with town.conn.transaction():
        incidents.resolve_incident(town.desk, town.conn, incident, by=town.operator)
    assert len(enqueued(town)) == 1


@pytest.mark.rule("STAFF-11.01")
def test_the_end_of_an_option_b_dispute_enqueues_nothing(town: Town) -> None:
    booking = town.booking(shifts=1)
    filed = dispute(town, booking, town.shift(booking, date(2026, 6, 2)), "B")
    town.conn.execute("update staffing.bookings set status = 'Cancelled'")
    resolve(town, filed)
    assert enqueued(town) == []


@pytest.mark.rule("STAFF-11.06")
def test_retries_start_ten_a_second(town: Town) -> None:
    ours = [limit for limit in limits(town.desk.settings) if limit.queue == PAYMENT_RETRY]
    assert [(limit.rate, limit.per, limit.concurrency) for limit in ours] == [(10, SECOND, None), (None, None, 10)]
    about: dict[str, Any] = {"dispute_resolved_at": THURSDAY, "previous_status": PAUSED}
    booking = town.booking(status="Cancelled")
    near(town, THURSDAY)
    jobs = [retries.retry_payment.job(booking_id=booking.id, **about).with_key(f"test:{n}") for n in range(15)]
    town.mainspring.client.enqueue_many(jobs)

    ran = [run.at for run in town.mainspring.advance(seconds=5)]

    assert len(ran) == 15
    assert max(len([at for at in ran if start <= at < start + SECOND]) for start in ran) == 10


@pytest.mark.rule("STAFF-11.07", "STAFF-11.10", "STAFF-11.12", "STAFF-11.13", "STAFF-11.15")
@pytest.mark.parametrize(
    ("at", "period", "days"),
    [
        # Next week's, and Wednesday's unpaid one; the disputed one is verified by the resolution, and joins in.
        (THURSDAY, NEXT_WEEK, [date(2026, 6, 2), date(2026, 6, 3), *(date(2026, 6, day) for day in (8, 9, 10))]),
        # The week that runs, without its Monday, which is over and nobody began, and nothing of the next.
        (TUESDAY, NEXT_WEEK, [date(2026, 6, 2), date(2026, 6, 3), *(date(2026, 6, day) for day in (9, 10))]),
    ],
)
def test_it_charges_at_once_what_the_last_wednesday_should_have_funded(
    town: Town, at: datetime, period: tuple[datetime, datetime], days: list[date]
) -> None:
    booking, filed = paused(town, shifts=3, at=at)
    town.shift(booking, date(2026, 6, 3), status="Verified", verified_by="SYSTEM")
    town.shift(booking, NEXT_MONDAY + timedelta(days=7))
    resolve(town, filed)

    town.mainspring.drain()

    assert town.status(booking) == "Active"
    assert payments(town, booking) == [(1, "Pending", 24000 * len(days), None)]
    assert town.rows("select period_start, period_end, source, created_at from staffing.pending_payments") == [
        (*period, "retry", at)
    ]
    charged = town.rows(
        "select (t.scheduled_start_time at time zone 'America/New_York')::date from staffing.payment_shifts s"
        " join staffing.time_log t on t.id = s.time_log_id order by 1"
    )
    assert [day for (day,) in charged] == days
    assert [intent.amount for intent in intents(town)] == [24000 * len(days)]
    assert town.rows("select * from staffing.transfers") == []

    town.mainspring.advance(seconds=3)
    assert payments(town, booking) == [(1, "Succeeded", 24000 * len(days), None)]
    assert town.row("bookings", booking.id)["funded_period_end"] == period[1]
    ahead = 24000 * (len(days) - 2)
    assert town.ledger(booking) == (ahead + 48000, ahead, 0, 48000, 0)  # what was verified is paid
    assert [row[:3] for row in town.audit("payment_resumed")] == [("SYSTEM", "booking", booking.id)]


@pytest.mark.rule("STAFF-11.08", "STAFF-11.14")
@pytest.mark.parametrize("status", ["Active", PAUSED, "Suspended_Insurance", "Cancelled", "Completed", "Disputed"])
def test_it_resumes_only_bookings_that_are_live_and_have_nothing_open(status: str) -> None:
    def resume(open_a: bool = False, open_b: bool = False, kind: str = "Weekly_Progress") -> str:
        return charge.resume(status, kind, open_a=open_a, open_b=open_b)

    assert resume() == ("charge" if status in ("Active", PAUSED) else "leave")
    assert {resume(open_a=True), resume(open_b=True)} == {"leave"}
    assert resume(kind="Upfront") == ("unpause" if status in ("Active", PAUSED) else "leave")


@pytest.mark.rule("STAFF-11.08")
def test_a_new_dispute_before_the_job_runs_stops_it(town: Town) -> None:
    booking, filed = paused(town)
    other = town.shift(booking, date(2026, 6, 3))
    resolve(town, filed)
    dispute(town, booking, other)

    done = town.mainspring.drain()

    assert ("retry_payment", "succeeded") in [(run.task, run.state) for run in done]
    assert (town.status(booking), payments(town, booking), intents(town)) == (PAUSED, [], [])


@pytest.mark.rule("STAFF-11.14", "STAFF-20.14")
@pytest.mark.parametrize("status", ["Suspended_Insurance", "Cancelled", "Completed"])
def test_no_week_of_a_booking_that_is_suspended_or_over_is_charged_but_what_was_worked_is(
    town: Town, status: str
) -> None:
    """Tuesday's shift is no longer disputed, and nobody has paid for it: two weeks later nobody would."""
    booking, filed = paused(town)
    resolve(town, filed)
    if status == "Completed":
        town.conn.execute("update staffing.bookings set status = 'Active'")
    before = PAUSED if status == "Suspended_Insurance" else None
    town.conn.execute("update staffing.bookings set status = %s, status_before_suspension = %s", [status, before])

    town.mainspring.advance(seconds=5)

    assert town.status(booking) == status
    ((source, amount, shifts, funded),) = town.rows(
        "select source, amount_minor, (select array_agg(time_log_id) from staffing.payment_shifts s"
        " where s.payment_id = p.id), funded_period_end from staffing.pending_payments p join staffing.bookings b"
        " on b.id = p.booking_id"
    )
    assert (source, amount, shifts, funded) == ("arrears", 24000, booking.shifts[-1:], None)
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)
    assert town.alerts() == []


@pytest.mark.rule("STAFF-11.09")
def test_several_resolutions_at_the_same_time_are_one_job(town: Town) -> None:
    booking, first = paused(town)
    second = dispute(town, booking, town.shift(booking, date(2026, 6, 3)))
    barrier, operator = threading.Barrier(2), town.operator
    wrong: list[BaseException] = []

    def end(dispute_id: int) -> None:
        try:
            with psycopg.connect(town.mainspring.dsn) as conn:
                barrier.wait()
                disputes.resolve_dispute(town.desk, conn, dispute_id, status="Resolved", by=operator)
        except BaseException as error:
            wrong.append(error)

    threads = [threading.Thread(target=end, args=[one]) for one in (first, second)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert wrong == []
    assert len(enqueued(town)) == 1
    with town.conn.transaction():  # and once more, while it waits
        retries.after_resolution(town.desk, town.conn, booking.id, resolved_at=THURSDAY + SECOND)
    assert [payload["dispute_resolved_at"] for _, payload in enqueued(town)] == ["2026-06-04T19:00:01Z"]


@pytest.mark.rule("STAFF-11.11")
def test_a_booking_that_never_paused_is_not_charged_again(town: Town) -> None:
    booking = town.booking(shifts=1)
    near(town)
    town.mainspring.advance(to=W10 + timedelta(seconds=3))
    filed = dispute(town, booking, town.shift(booking, date(2026, 6, 3)))
    town.mainspring.clock.set(THURSDAY)
    resolve(town, filed)

    town.mainspring.drain()

    assert (town.status(booking), payments(town, booking)) == ("Active", [(1, "Succeeded", 24000, None)])
    assert len(intents(town)) == 1


@pytest.mark.rule("STAFF-11.13", "STAFF-11.16")
def test_a_retry_that_fails_leaves_the_booking_active_until_next_wednesday(town: Town) -> None:
    booking, filed = paused(town, card="pm_card_chargeDeclined")
    town.shift(booking, NEXT_MONDAY + timedelta(days=7))
    resolve(town, filed)

    town.mainspring.advance(minutes=1)

    assert (town.status(booking), payments(town, booking)) == ("Active", [(1, "Failed", 72000, "generic_decline")])
    assert [row[1:3] for row in town.messages("action_required")] == [
        (booking.borrowing_admin, "email"), (booking.borrowing_admin, "sms"),
    ]  # fmt: skip
    town.conn.execute("update staffing.companies set card_on_file = 'pm_card_visa' where kind = 'Borrower'")
    town.mainspring.advance(to=W10 + timedelta(days=7, seconds=3))
    assert payments(town, booking)[1:] == [(1, "Succeeded", 48000, None)]  # the next week, and Tuesday, still unpaid


@pytest.mark.rule("STAFF-11.17", "STAFF-11.20")
def test_a_retry_that_fails_by_our_own_fault_is_tried_four_times_and_then_told(town: Town) -> None:
    booking, filed = paused(town)
    town.conn.execute("alter table staffing.payment_shifts rename to gone")
    resolve(town, filed)

    done = town.mainspring.advance(minutes=10, raise_errors=False)

    assert Counter(run.state for run in done if run.task == "retry_payment") == {"retrying": 3, "dead": 1}
    assert [row[0] for row in town.wrong("payment_retry_failed")] == [f"booking {booking.id}"]
    assert town.status(booking) == PAUSED  # nothing of it was committed

    town.conn.execute("alter table staffing.gone rename to payment_shifts")
    (dead,) = town.mainspring.client.dead.list()
    town.mainspring.client.dead.replay(dead.id, reason="the table is back")
    town.mainspring.advance(seconds=3)
    assert (town.status(booking), payments(town, booking)) == ("Active", [(1, "Succeeded", 72000, None)])
    assert town.wrong("payment_retry_failed") == []


@pytest.mark.rule("STAFF-11.18")
def test_nothing_to_pay_is_no_charge_and_the_booking_goes_on(town: Town) -> None:
    booking = town.booking(status=PAUSED)
    town.shift(booking, NEXT_MONDAY, status="Cancelled", cancelled_at=town.now)
    near(town, THURSDAY)
    with town.conn.transaction():
        assert retries.after_resolution(town.desk, town.conn, booking.id, resolved_at=THURSDAY)

    town.mainspring.drain()

    assert (town.status(booking), payments(town, booking)) == ("Active", [(1, "Not_Required", 0, None)])
    assert intents(town) == []


def waited(town: Town) -> tuple[dict[str, float], float]:
    """How many payments came within so many seconds of a resolution, and how long all of them took."""
    name = "staffing_resolution_to_payment_seconds"
    (found,) = [one.histograms for one in town.desk.app.measured() if one.measure.name == name]
    ((_, buckets, total),) = found
    return dict(buckets), total


@pytest.mark.rule("STAFF-11.19")
def test_how_retries_end_and_how_long_they_took_is_measured(town: Town) -> None:
    booking, filed = paused(town)
    _, other = paused(town, card="pm_card_chargeDeclined")
    reported = town.booking(shifts=1, status=PAUSED)
    incident = town.insert("incident_reports", booking_id=reported.id, dispute_option="A", filed_at=town.now)
    resolve(town, filed)
    resolve(town, other)
    with town.conn.transaction():
        incidents.resolve_incident(town.desk, town.conn, incident, by=town.operator)
    assert waited(town) == (dict.fromkeys(("60.0", "300.0", "3600.0", "21600.0", "86400.0", "+Inf"), 0), 0)

    town.mainspring.clock.set(THURSDAY + timedelta(seconds=70))
    town.mainspring.drain()
    town.mainspring.clock.advance(seconds=1)
    resolve(town, dispute(town, booking, town.shift(booking, date(2026, 6, 3))))  # after the charge: it waits for none
    town.mainspring.advance(seconds=3)

    assert town.measured("staffing_payments") == [("retry", "Failed", 1), ("retry", "Succeeded", 2)]
    counts, seconds = waited(town)
    assert counts == {"60.0": 0, "300.0": 2, "3600.0": 2, "21600.0": 2, "86400.0": 2, "+Inf": 2}
    assert 140 <= seconds <= 150
