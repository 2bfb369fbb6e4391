"""Wednesday's run: when, which bookings, which week, which shifts, and one charge whatever happens on the way."""

from __future__ import annotations

import threading
from collections import Counter
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import psycopg
import pytest
from tests.apps.staffing.town import NEXT_MONDAY, NEXT_WEEK, NY, T00, W10, Booking, Town

import mainspring as ms
from mainspring.testing import Crash, Harness
from mainspring_apps.staffing import shifts
from mainspring_apps.staffing.payments import send, weekly
from mainspring_apps.staffing.registry import WEEKLY_PAYMENTS, limits
from mainspring_apps.staffing.rules import charge, weeks
from mainspring_sandbox import Fault

SECOND = timedelta(seconds=1)
WEEK = weeks.Period(*NEXT_WEEK)


def near(town: Town, at: datetime = W10 - SECOND, *schedules: str) -> None:
    """Right before an instant; of all schedules only these fire, besides Wednesday's."""
    town.only("weekly-payments", *schedules, at=at)


def jobs(town: Town) -> list[tuple[int, datetime, str]]:
    """(booking, scheduled for, state) of every charge that was enqueued, in order."""
    return town.rows(
        "select (payload ->> 'booking_id')::int, scheduled_for, state from mainspring.jobs"
        " where task = 'charge_week' order by scheduled_for, 1"
    )


def payments(town: Town, booking: Booking) -> list[tuple[Any, ...]]:
    """(try, status, amount, why it failed) of a booking, in order."""
    return town.rows(
        "select try, status, amount_minor, failure_code from staffing.pending_payments"
        " where booking_id = %s order by id",
        booking.id,
    )


def intents(town: Town) -> list[Any]:
    return town.bank.v1.payment_intents.list().data


def dispute(town: Town, booking: Booking, shift: int, option: str = "A", filed_at: datetime | None = None) -> int:
    """A shift that was worked is disputed."""
    town.conn.execute("update staffing.time_log set status = 'Working' where id = %s and status = 'Scheduled'", [shift])
    town.conn.execute(
        "update staffing.time_log set status = 'Pending_Verification', auto_approval_time = mainspring.now(),"
        " clock_out_time = scheduled_end_time where id = %s",
        [shift],
    )
    town.conn.execute("update staffing.time_log set status = 'Disputed' where id = %s", [shift])
    return town.insert(
        "disputes", booking_id=booking.id, time_log_id=shift, dispute_option=option,
        dispute_filed_at=filed_at or town.now,
    )  # fmt: skip


def job(town: Town, booking: Booking, **values: Any) -> ms.NewJob:
    about: dict[str, Any] = {"period_start": WEEK.start, "period_end": WEEK.end, "occurrence": W10}
    return weekly.charge_week.job(booking_id=booking.id, **about | values)


# -- when


@pytest.mark.rule("STAFF-1.01", "STAFF-1.02", "STAFF-1.03", "STAFF-1.04", "STAFF-1.05")
def test_it_fires_once_a_week_on_wednesday_at_ten_where_the_project_is(town: Town) -> None:
    zones = (NY, "America/Los_Angeles", "Asia/Kolkata", "Asia/Kathmandu")
    borrower, lender = town.company("Borrower"), town.company("Lender")
    town.user(borrower, "Admin", timezone="Asia/Tokyo")
    ny, la, kolkata, kathmandu = (town.booking(zone=zone, borrower=borrower, lender=lender).id for zone in zones)
    near(town, datetime(2026, 6, 1, 4, tzinfo=UTC))

    town.mainspring.advance(to=W10 - SECOND)
    assert ny not in {booking for booking, _, _ in jobs(town)}
    town.mainspring.advance(to=datetime(2026, 6, 8, 4, tzinfo=UTC))

    assert [(booking, at) for booking, at, _ in jobs(town)] == [
        (kathmandu, datetime(2026, 6, 3, 4, 15, tzinfo=UTC)),
        (kolkata, datetime(2026, 6, 3, 4, 30, tzinfo=UTC)),
        (ny, datetime(2026, 6, 3, 14, tzinfo=UTC)),
        (la, datetime(2026, 6, 3, 17, tzinfo=UTC)),
    ]


@pytest.mark.rule("STAFF-0.08")
@pytest.mark.parametrize(
    ("back", "expected"), [(timedelta(hours=1, minutes=10), 1), (timedelta(hours=14, seconds=1), 0)]
)
def test_a_run_that_was_missed_is_made_up_for_once_until_the_cutoff(town: Town, back: timedelta, expected: int) -> None:
    first, second = town.booking(shifts=1), town.booking(shifts=1)
    near(town, W10 - timedelta(minutes=10))
    town.mainspring.drain()

    town.mainspring.clock.set(W10 + back)  # nobody fired anything meanwhile
    town.mainspring.drain()
    town.mainspring.drain()

    assert [booking for booking, _, _ in jobs(town)] == [first.id, second.id] * expected
    assert len(intents(town)) == 2 * expected
    periods = town.rows("select distinct period_start, period_end from staffing.pending_payments")
    assert periods == [NEXT_WEEK] * expected  # of the Wednesday that was missed


@pytest.mark.rule("STAFF-0.09")
def test_two_schedulers_make_one_job_a_booking(town: Town, mainspring_app: ms.App) -> None:
    found = [town.booking(shifts=1).id for _ in range(3)]
    near(town)
    town.mainspring.drain()
    town.mainspring.clock.set(W10)
    barrier = threading.Barrier(2)

    def schedule() -> None:
        with Harness(town.mainspring.dsn, mainspring_app) as other:
            barrier.wait()
            other.drain(queue="nobody-serves-it")  # fires what is due, and runs nothing

    threads = [threading.Thread(target=schedule) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert jobs(town) == [(booking, W10, "ready") for booking in found]


@pytest.mark.rule("STAFF-19.17")
def test_instants_carry_the_version_of_the_zone_data_and_are_computed_anew_when_it_changes(town: Town) -> None:
    town.booking()
    near(town)
    town.mainspring.advance(to=W10)
    later = W10 + timedelta(days=7)
    query = "select next_at, tzdata from mainspring.schedule_zone where schedule = 'weekly-payments' and zone = %s"
    ((at, version),) = town.rows(query, NY)
    assert (at, bool(version)) == (later, True)

    # As another version of the data had it: New York an hour further west.
    town.conn.execute(
        "update mainspring.schedule_zone set tzdata = 'older', next_at = %s where schedule = 'weekly-payments'",
        [later + timedelta(hours=1)],
    )
    town.mainspring.advance(to=later)

    assert [at for _, at, _ in jobs(town)] == [W10, later]
    assert town.rows(query, NY) == [(later + timedelta(days=7), version)]


# -- which bookings


def many(town: Town, count: int) -> None:
    """So many bookings without shifts."""
    booking = town.booking()
    town.conn.execute(
        """
        insert into staffing.bookings (project_id, borrower_company_id, lender_company_id, worker_id, payment_type,
                                       start_date, end_date, scheduled_start_time, rate_minor, currency)
        select b.project_id, b.borrower_company_id, b.lender_company_id, b.worker_id, b.payment_type,
               b.start_date, b.end_date, b.scheduled_start_time, b.rate_minor, b.currency
        from staffing.bookings b cross join generate_series(2, %s) where b.id = %s""",
        [count, booking.id],
    )


@pytest.mark.rule("STAFF-0.01", "STAFF-1.12")
def test_the_schedule_only_enqueues_a_job_a_booking_in_pages_of_100(town: Town) -> None:
    many(town, 250)
    near(town)

    town.mainspring.run_until(lambda: town.now == W10)

    assert [(at, state) for _, at, state in jobs(town)] == [(W10, "ready")] * 250
    assert len({booking for booking, _, _ in jobs(town)}) == 250
    pages = "select count(*) from mainspring.job where task = 'charge_week' group by xmin::text order by min(id::text)"
    assert town.rows(pages) == [(100,), (100,), (50,)]
    assert (town.value("select count(*) from staffing.pending_payments"), intents(town)) == (0, [])


@pytest.mark.rule("STAFF-0.04", "STAFF-1.07")
def test_what_is_due_at_one_instant_starts_50_a_second(town: Town) -> None:
    many(town, 60)
    near(town)
    town.mainspring.run_until(lambda: town.now == W10)
    town.conn.execute("update staffing.bookings set status = 'Cancelled'")  # so that they end at once

    ran = [run.at for run in town.mainspring.advance(seconds=5)]

    assert len(ran) == 60
    assert max(len([at for at in ran if start <= at < start + SECOND]) for start in ran) == 50
    assert timedelta(seconds=1) <= max(ran) - min(ran) <= timedelta(seconds=3)
    ours = [limit for limit in limits(town.desk.settings) if limit.queue == WEEKLY_PAYMENTS]
    assert [(limit.rate, limit.per, limit.concurrency) for limit in ours] == [(50, SECOND, None), (None, None, 20)]


@pytest.mark.rule("STAFF-1.08", "STAFF-1.09", "STAFF-1.10", "STAFF-1.11")
def test_only_active_weekly_bookings_are_enqueued(town: Town) -> None:
    borrower, lender = town.company("Borrower"), town.company("Lender")
    chosen = town.booking(borrower=borrower, lender=lender)
    town.booking(borrower=borrower, lender=lender, payment_type="Upfront")
    town.booking(borrower=borrower, lender=lender, status="Suspended_Insurance", status_before_suspension="Active")
    for status in ("Payment_Paused_Dispute", "Cancelled", "Completed", "Disputed"):
        town.booking(borrower=borrower, lender=lender, status=status)
    near(town)

    town.mainspring.advance(to=W10)

    assert [booking for booking, _, _ in jobs(town)] == [chosen.id]


@pytest.mark.rule("STAFF-1.06", "STAFF-1.13")
def test_a_job_names_the_booking_the_week_and_the_occurrence_and_carries_the_id_of_the_run(town: Town) -> None:
    booking = town.booking(shifts=1)
    near(town)
    town.mainspring.advance(to=W10)

    ((queue, payload, correlation),) = town.rows(
        "select queue, payload, correlation_id from mainspring.jobs where task = 'charge_week'"
    )
    assert queue == "weekly-payments"
    assert payload == {
        "booking_id": booking.id,
        "period_start": "2026-06-08T04:00:00Z",
        "period_end": "2026-06-15T04:00:00Z",
        "occurrence": "2026-06-03T14:00:00Z",
    }
    assert town.rows("select id::text from mainspring.fire where schedule = 'weekly-payments'") == [(correlation,)]
    assert town.rows("select period_start, period_end, correlation_id from staffing.pending_payments") == [
        (*NEXT_WEEK, correlation)
    ]


# -- whether


@pytest.mark.rule("STAFF-1.16", "STAFF-1.17", "STAFF-1.18", "STAFF-1.20", "STAFF-1.22")
@pytest.mark.parametrize(
    ("status", "open_a", "open_b", "act"),
    [
        ("Active", False, False, "charge"),
        ("Active", True, False, "pause"),
        ("Active", False, True, "leave"),
        ("Active", True, True, "leave"),
        *[
            (status, open_a, open_b, "leave")
            for status in ("Payment_Paused_Dispute", "Suspended_Insurance", "Cancelled", "Completed", "Disputed")
            for open_a in (False, True)
            for open_b in (False, True)
        ],
    ],
)
def test_a_charge_is_made_only_while_nothing_is_open(status: str, open_a: bool, open_b: bool, act: str) -> None:
    assert charge.decide(status, "Weekly_Progress", open_a=open_a, open_b=open_b) == act
    assert charge.decide(status, "Upfront", open_a=open_a, open_b=open_b) == "leave"


@pytest.mark.rule("STAFF-1.16", "STAFF-1.22")
@pytest.mark.parametrize("option", [None, "B"])
def test_a_booking_that_was_cancelled_after_the_enqueue_is_not_charged(town: Town, option: str | None) -> None:
    booking = town.booking(shifts=2)
    near(town)
    town.mainspring.client.enqueue(job(town, booking))
    if option:
        dispute(town, booking, booking.shifts[0], option)
    town.conn.execute("update staffing.bookings set status = 'Cancelled'")

    done = town.mainspring.drain()

    assert [(run.task, run.state) for run in done] == [("charge_week", "succeeded")]
    assert (town.status(booking), payments(town, booking), intents(town)) == ("Cancelled", [], [])


@pytest.mark.rule("STAFF-1.16")
def test_a_charge_waits_for_whoever_changes_the_booking_and_looks_again(town: Town) -> None:
    booking = town.booking(shifts=1)
    near(town)
    town.mainspring.client.enqueue(job(town, booking))
    held, over = threading.Event(), threading.Event()
    blocked = "select exists (select from pg_stat_activity where cardinality(pg_blocking_pids(pid)) > 0)"

    def cancel() -> None:
        with psycopg.connect(town.mainspring.dsn) as other, psycopg.connect(town.mainspring.dsn) as watch:
            other.execute("update staffing.bookings set status = 'Cancelled'")
            held.set()
            while not over.is_set() and watch.execute(blocked).fetchone() == (False,):
                watch.rollback()

    thread = threading.Thread(target=cancel)
    thread.start()
    held.wait(60)
    town.mainspring.drain()
    over.set()
    thread.join()

    assert (town.status(booking), payments(town, booking), intents(town)) == ("Cancelled", [], [])


@pytest.mark.rule("STAFF-1.17", "STAFF-1.18", "STAFF-1.20", "STAFF-1.23")
@pytest.mark.parametrize("what", ["dispute", "incident"])
def test_an_open_dispute_or_incident_of_any_age_pauses_the_whole_booking(town: Town, what: str) -> None:
    booking = town.booking(shifts=3)
    near(town, W10 - timedelta(minutes=1))
    if what == "dispute":
        dispute(town, booking, town.shift(booking, date(2026, 6, 2)))
    else:
        town.insert("incident_reports", booking_id=booking.id, dispute_option="A", filed_at=town.now)

    done = town.mainspring.advance(to=W10)

    assert [(run.task, run.state) for run in done] == [("charge_week", "succeeded")]
    assert (town.status(booking), payments(town, booking), intents(town)) == ("Payment_Paused_Dispute", [], [])
    reason = "an option A dispute or incident is open"
    assert town.audit("payment_paused") == [("SYSTEM", "booking", booking.id, reason, None)]


@pytest.mark.rule("STAFF-1.17")
@pytest.mark.parametrize("status", ["Settled", "Resolved", "Legal_Hold"])
def test_a_dispute_that_is_closed_stops_no_payment(town: Town, status: str) -> None:
    booking = town.booking(shifts=1)
    disputed = dispute(town, booking, town.shift(booking, date(2026, 6, 2)))
    town.conn.execute("update staffing.disputes set status = %s where id = %s", [status, disputed])
    near(town)

    town.mainspring.advance(to=W10)

    assert town.status(booking) == "Active"
    assert payments(town, booking) == [(1, "Pending", 24000, None)]  # without the disputed shift


@pytest.mark.rule("STAFF-1.19")
@pytest.mark.parametrize(("change", "error"), [
    ({"time_log_id": None}, psycopg.errors.NotNullViolation),
    ({"dispute_option": "C"}, psycopg.errors.CheckViolation),
])  # fmt: skip
def test_a_dispute_is_about_one_shift_and_has_an_option(town: Town, change: dict[str, Any], error: Any) -> None:
    booking = town.booking(shifts=1)
    about = {"booking_id": booking.id, "time_log_id": booking.shifts[0], "dispute_option": "A"}
    town.insert("disputes", **about, dispute_filed_at=town.now)
    with pytest.raises(error):
        town.insert("disputes", **about | change, dispute_filed_at=town.now)


@pytest.mark.rule("STAFF-1.21")
def test_while_payment_is_paused_the_worker_may_work(town: Town) -> None:
    booking = town.booking(status="Payment_Paused_Dispute")
    shift = town.shift(booking, date(2026, 6, 3))
    near(town, datetime(2026, 6, 3, 13, tzinfo=UTC))

    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)

    assert town.shift_status(shift) == "Working"
    assert [key for _, _, key in town.waiting()] == [f"reminder-5m:{shift}", f"reminder-30m:{shift}"]


@pytest.mark.rule("STAFF-1.24")
def test_a_charge_never_asks_for_insurance(town: Town) -> None:
    booking = town.booking(shifts=1, insured=False)
    town.policy(booking.borrower, date(2026, 5, 1))
    town.policy(booking.lender, date(2026, 5, 1))
    near(town)

    town.mainspring.advance(to=W10)

    assert payments(town, booking) == [(1, "Pending", 24000, None)]


# -- how much


@pytest.mark.rule("STAFF-1.25")
def test_unfunded_shifts_before_the_end_of_the_week_are_owed_but_not_cancelled_or_disputed_ones() -> None:
    def shift(id: int, status: str, at: datetime, minutes: int = 480) -> charge.UnpaidShift:
        return charge.UnpaidShift(id=id, status=status, scheduled_start_time=at, planned_minutes=minutes)

    found = [
        shift(1, "Scheduled", WEEK.start),
        shift(2, "Scheduled", WEEK.end - SECOND),
        shift(3, "Scheduled", WEEK.end),
        shift(4, "Cancelled", WEEK.start),
        shift(5, "Disputed", WEEK.start - timedelta(days=5)),
        shift(6, "Verified", WEEK.start - timedelta(days=5), 50),  # older, and unpaid: it joins in
        shift(7, "Working", WEEK.start - timedelta(hours=1)),
        shift(8, "Pending_Verification", WEEK.start - timedelta(hours=9)),
    ]
    now = WEEK.start - timedelta(days=5)
    assert charge.amounts(found, 3000, WEEK, 0, now=now) == {1: 24000, 2: 24000, 6: 2500, 7: 24000, 8: 24000}
    assert charge.amounts([shift(1, "Scheduled", WEEK.start, 1)], 29, WEEK, 0, now=now) == {}  # rounds to nothing


@pytest.mark.rule("STAFF-1.25", "STAFF-1.27")
def test_the_card_on_file_is_charged_for_what_is_not_paid_yet(town: Town) -> None:
    booking = town.booking(shifts=5, card="pm_card_mastercard")
    town.shift(booking, NEXT_MONDAY + timedelta(days=5), status="Cancelled", cancelled_at=town.now)
    town.shift(booking, NEXT_MONDAY + timedelta(days=7))
    town.funded(booking, town.shift(booking, date(2026, 6, 2)))
    before = {intent.id for intent in intents(town)}
    near(town)

    town.mainspring.advance(to=W10)

    (intent,) = [intent for intent in intents(town) if intent.id not in before]
    assert (intent.amount, intent.currency) == (120000, "usd")
    assert intent.customer == town.row("companies", booking.borrower)["stripe_customer_id"]
    assert intent.status == "succeeded"  # confirmed at once
    taken: Any = town.bank.v1.charges.retrieve(intent.latest_charge)
    assert taken.payment_method_details.card.brand == "mastercard"
    paid = town.rows(
        "select s.time_log_id, s.amount_minor from staffing.payment_shifts s join staffing.pending_payments p"
        " on p.id = s.payment_id where p.status = 'Pending' order by 1"
    )
    assert paid == [(shift, 24000) for shift in booking.shifts[:5]]


@pytest.mark.rule("STAFF-1.25", "STAFF-11.11")
def test_what_an_earlier_charge_is_still_paying_is_not_charged_by_the_next_one(town: Town) -> None:
    booking = town.booking(shifts=2, card="pm_card_processing")
    near(town)
    town.mainspring.advance(to=W10)
    later = town.shift(booking, NEXT_MONDAY + timedelta(days=7))
    town.mainspring.client.enqueue(
        job(town, booking, period_start=WEEK.end, period_end=WEEK.end + timedelta(days=7), occurrence=town.now)
    )

    town.mainspring.drain()

    assert payments(town, booking) == [(1, "Pending", 48000, None), (1, "Pending", 24000, None)]
    paid = town.rows("select time_log_id from staffing.payment_shifts order by payment_id, time_log_id")
    assert [shift for (shift,) in paid] == [*booking.shifts[:2], later]


@pytest.mark.rule("STAFF-1.26")
def test_nothing_to_pay_is_recorded_and_counts_as_funded(town: Town) -> None:
    booking = town.booking(shifts=[date(2026, 6, 5)])
    town.funded(booking)
    before = len(intents(town))
    near(town, W10 - SECOND, "weekly-final-warning", "weekly-hard-cutoff")

    town.mainspring.advance(to=T00 + timedelta(minutes=1))

    assert payments(town, booking)[1:] == [(1, "Not_Required", 0, None)]
    assert town.row("bookings", booking.id)["funded_period_end"] == WEEK.end
    assert (len(intents(town)), town.messages(), town.status(booking)) == (before, [], "Active")


# -- once


@pytest.mark.rule("STAFF-1.28", "STAFF-19.01")
def test_a_job_that_dies_before_the_call_goes_on_with_its_row_and_key(
    town: Town, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = town.booking(shifts=1)
    near(town)

    def die(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(send, "send", die)
        town.mainspring.advance(to=W10)
    assert payments(town, booking) == [(1, "Pending", 24000, None)]
    (key,) = town.rows("select idempotency_key from staffing.pending_payments")
    assert key == (f"charge:{booking.id}:2026-06-08T04:00:00+00:00:1",)
    assert intents(town) == []

    town.mainspring.expire_leases()
    town.mainspring.drain()

    assert payments(town, booking) == [(1, "Pending", 24000, None)]
    assert [intent.metadata["mainspring_key"] for intent in intents(town)] == list(key)


@pytest.mark.rule("STAFF-1.32", "STAFF-19.01")
def test_the_same_week_five_times_is_one_charge(town: Town) -> None:
    booking = town.booking(shifts=1)
    near(town)
    town.mainspring.client.enqueue_many([job(town, booking) for _ in range(5)])

    done = town.mainspring.drain()

    assert done.counts == {"succeeded": 5}
    assert (len(intents(town)), payments(town, booking)) == (1, [(1, "Pending", 24000, None)])
    with pytest.raises(psycopg.errors.UniqueViolation):  # whoever writes it
        town.conn.execute(
            "insert into staffing.pending_payments (booking_id, period_start, period_end, try, amount_minor, currency,"
            " source, idempotency_key, created_at) select booking_id, period_start, period_end, 2, 1, currency, source,"
            " 'another', created_at from staffing.pending_payments"
        )


@pytest.mark.rule("STAFF-1.34", "STAFF-19.03")
@pytest.mark.parametrize("fault", [
    Fault(provider="stripe", kind="error", status=503, path="payment_intents", method="POST", times=2),
    Fault(provider="stripe", kind="drop", path="payment_intents", method="POST", times=2),  # charged, and no answer
], ids=["unavailable", "no answer"])  # fmt: skip
def test_trouble_that_passes_is_tried_again_with_the_same_key(town: Town, fault: Fault) -> None:
    booking = town.booking(shifts=1)
    near(town)
    town.sandbox.faults.set(Fault(**{name: getattr(fault, name) for name in fault.__struct_fields__}))
    town.sandbox.stripe.post.manners.append(_held())

    done = town.mainspring.advance(to=W10 + timedelta(minutes=5), raise_errors=False)

    assert Counter((run.task, run.state) for run in done) == {
        ("charge_week", "scheduled"): 2, ("charge_week", "succeeded"): 1,
    }  # fmt: skip
    (first, second, third) = (run.at for run in done)
    assert timedelta(seconds=24) <= second - first <= timedelta(seconds=36)  # 30 s, and a fifth of it
    assert timedelta(seconds=48) <= third - second <= timedelta(seconds=72)
    assert len(intents(town)) == len(town.sandbox.ledger.find("charge")) == 1
    assert (payments(town, booking), town.messages("action_required")) == ([(1, "Pending", 24000, None)], [])


@pytest.mark.rule("STAFF-1.29")
def test_no_job_waits_for_the_webhook(town: Town) -> None:
    booking = town.booking(shifts=1, card="pm_card_processing")
    near(town)

    town.mainspring.advance(to=W10 + timedelta(hours=2))

    assert payments(town, booking) == [(1, "Pending", 24000, None)]
    assert town.value("select count(*) from mainspring.jobs where state not in ('succeeded', 'scheduled')") == 0


def _held() -> Any:
    from mainspring_sandbox import Manner

    return Manner(hold=True)


# -- by other ways than Wednesday's


@pytest.mark.rule("STAFF-1.32")
def test_the_due_week_is_enqueued_once_unless_it_is_funded_or_in_charge(town: Town) -> None:
    booking = town.booking(shifts=1)
    near(town, W10 + timedelta(hours=1))

    def due() -> bool:
        with town.conn.transaction():
            return weekly.enqueue_due(town.desk, town.conn, booking.id, source="renewal")

    assert due()
    assert due()
    assert [row[2] for row in town.waiting("charge_week")] == [f"charge:renewal:{booking.id}"]
    town.mainspring.drain()
    assert not due()  # in charge
    town.mainspring.advance(seconds=3)
    assert not due()  # funded
    assert town.rows("select source, status from staffing.pending_payments") == [("renewal", "Succeeded")]


@pytest.mark.rule("STAFF-1.35", "STAFF-1.36")
def test_after_a_failure_the_borrower_may_pay_by_hand_until_the_cutoff(town: Town) -> None:
    booking = town.booking(shifts=1, card="pm_card_chargeDeclined")
    near(town, W10 - SECOND, "weekly-final-warning", "weekly-hard-cutoff")

    def pay() -> None:
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)

    town.mainspring.advance(to=datetime(2026, 6, 4, 0, tzinfo=UTC))  # 20:00 in New York
    assert (payments(town, booking), town.status(booking)) == ([(1, "Failed", 24000, "generic_decline")], "Active")

    town.conn.execute("update staffing.companies set card_on_file = 'pm_card_visa' where kind = 'Borrower'")
    with town.conn.transaction():
        pay()
    town.mainspring.advance(seconds=3)

    assert payments(town, booking)[1:] == [(2, "Succeeded", 24000, None)]
    with pytest.raises(ms.ValidationError, match="is paid, or being paid"):
        pay()
    assert town.audit("payment_by_hand") == [(str(booking.borrowing_admin), "booking", booking.id, None, None)]
    town.mainspring.advance(to=T00 + timedelta(minutes=1))
    assert (town.status(booking), town.messages("worker_released")) == ("Active", [])


@pytest.mark.rule("STAFF-1.36")
def test_at_the_cutoff_it_is_too_late_to_pay_by_hand(town: Town) -> None:
    booking = town.booking(shifts=1, card="pm_card_chargeDeclined")
    near(town)
    town.mainspring.advance(to=T00)
    with pytest.raises(ms.ValidationError, match="the time to pay is over"):
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    town.conn.execute("update staffing.bookings set status = 'Completed'")
    with pytest.raises(ms.ValidationError, match="booking: is Completed"):
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)


@pytest.mark.rule("STAFF-1.36", "STAFF-3.26")
def test_what_failed_after_the_cutoff_may_be_paid_by_hand_until_the_cutoff_that_was_moved(town: Town) -> None:
    friday = T00 + timedelta(days=1)
    booking = town.booking(shifts=1, card="pm_card_chargeDeclined", cutoff_at=friday)
    near(town, T00 + timedelta(minutes=5))
    town.mainspring.client.enqueue(job(town, booking, source="late"))
    town.mainspring.drain()
    assert payments(town, booking) == [(1, "Failed", 24000, "generic_decline")]

    town.mainspring.clock.set(friday)
    with pytest.raises(ms.ValidationError, match="the time to pay is over"):
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    town.mainspring.clock.set(friday - SECOND)
    with town.conn.transaction():
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    assert len(town.waiting("charge_week")) == 1


@pytest.mark.rule("STAFF-1.42")
def test_an_unpaid_shift_is_told_a_day_before_it(town: Town) -> None:
    booking = town.booking(shifts=1, status="Payment_Paused_Dispute")
    active = town.booking(shifts=1, start=time(9, 30))
    town.booking(shifts=1, start=time(8), status="Completed")  # that of a released one: nobody is let in
    paid = town.booking(shifts=1, status="Payment_Paused_Dispute", start=time(8))
    town.funded(paid)
    town.shift(booking, NEXT_MONDAY, status="Cancelled", cancelled_at=town.now)
    sunday = datetime(2026, 6, 7, 13, tzinfo=UTC)  # the shift begins on Monday at 09:00 in New York

    town.mainspring.clock.set(sunday - SECOND)
    assert town.wrong("unfunded_shift") == []
    town.mainspring.clock.set(sunday)
    text = f"booking {booking.id} is paused, and the shift is not paid for"
    assert town.wrong("unfunded_shift") == [(f"shift {booking.shifts[0]}", text)]
    town.mainspring.clock.set(sunday + timedelta(days=1, seconds=1))  # it has begun
    text = f"booking {active.id} goes on, and the shift is not paid for"
    assert town.wrong("unfunded_shift") == [(f"shift {active.shifts[0]}", text)]
    town.mainspring.clock.set(sunday + timedelta(days=1, hours=1))
    assert town.wrong("unfunded_shift") == []
