from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from datetime import date, datetime, time, timedelta
from typing import Any

import pytest
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, NEXT_WEEK, NY, T00, W10, W14, Booking, Town
from tests.apps.staffing.wednesday import MINUTE, SECOND, at, charged, deliver, pending, tried

import mainspring as ms
from mainspring_apps.staffing import bookings, shifts
from mainspring_apps.staffing.desk import Desk
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.payments import cutoff, reconcile, weekly
from mainspring_apps.staffing.rules import cutoff as rules
from mainspring_apps.staffing.rules import weeks
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Fault

REASON = "Weekly Payment Hard Cutoff - Worker Released"
SUNDAY = date(2026, 6, 7)
SATURDAY = date(2026, 6, 6)
DUE = weeks.Period(*NEXT_WEEK)
HOUR = timedelta(hours=1)
DECLINED = "pm_card_chargeDeclinedInsufficientFunds"


def released(town: Town) -> list[int]:
    return [row[2] for row in town.audit("booking_released")]


def cut(town: Town, *which: Booking, instant: datetime = T00) -> None:
    """The cutoff of these bookings, and what follows at once."""
    for booking in which:
        town.mainspring.run_one(cutoff.cut_off.job(booking_id=booking.id, instant=instant))


def asked(town: Town) -> None:
    """The provider is asked, as the cutoff wanted."""
    town.mainspring.run_one(cutoff.ask_again)


@contextmanager
def failing(town: Town, table: str, times: int) -> Iterator[None]:
    """The database refuses so many updates of a table, whatever is rolled back."""
    town.conn.execute("create sequence public.failures")
    town.conn.execute(
        "create function public.fail() returns trigger language plpgsql as $$ begin"
        f" if nextval('public.failures') <= {times:d} then raise exception 'the disk is full'; end if;"
        " return new; end $$".encode()
    )
    town.conn.execute(
        f"create trigger fail before update on staffing.{table} for each row execute function public.fail()".encode()
    )
    yield


# -- when


@pytest.mark.rule("STAFF-3.01", "STAFF-3.02", "STAFF-3.09")
@pytest.mark.parametrize(
    ("zone", "instant"),
    [
        (NY, T00),
        ("Asia/Kolkata", at("2026-06-03T18:30")),
        ("Asia/Kathmandu", at("2026-06-03T18:15")),
        ("Pacific/Chatham", at("2026-06-03T11:15")),
    ],
)
def test_it_comes_when_wednesday_ends_where_the_project_is(town: Town, zone: str, instant: datetime) -> None:
    booking = town.booking(zone=zone)
    town.mainspring.clock.set(instant - SECOND)
    tried(town, booking)
    town.mainspring.drain()
    assert town.status(booking) == "Active"

    town.mainspring.advance(to=instant)
    assert town.status(booking) == "Completed"
    assert town.row("bookings", booking.id)["end_date"] == SUNDAY  # also where UTC is still on Wednesday
    town.mainspring.clock.set(instant + timedelta(days=1))
    town.mainspring.drain()
    found = town.rows("select queue, scheduled_for from mainspring.jobs where task = 'cut_off'")
    assert found == [("weekly-hard-cutoff", instant)]


@pytest.mark.rule("STAFF-3.03")
@pytest.mark.parametrize(
    ("zone", "instant", "day"),
    [
        ("Asia/Tehran", at("2018-03-21T20:30"), date(2018, 3, 22)),
        ("Antarctica/Casey", at("2023-03-08T13:00"), date(2023, 3, 9)),
    ],
)
def test_a_midnight_that_is_missing_or_comes_twice_is_one_instant(
    mainspring_app: Market, zone: str, instant: datetime, day: date
) -> None:
    (schedule,) = [one for one in mainspring_app.registry.schedules() if one.name == "weekly-hard-cutoff"]
    assert schedule.rule == ms.weekly("thu", "00:00")
    ticks = ms.weekly("thu", "00:00", zone=zone).ticks(instant - timedelta(days=2), instant + timedelta(days=2))
    assert [tick.at for tick in ticks] == [instant]
    assert rules.moved_cutoff(instant - timedelta(hours=5), zone, Settings()) == instant


# -- who, and what becomes of it


@pytest.mark.rule("STAFF-3.05", "STAFF-3.06", "STAFF-3.15", "STAFF-3.23")
def test_only_who_is_active_and_unpaid_is_released_and_once(town: Town) -> None:
    unpaid = town.booking(shifts=1, funded_period_end=NEXT_WEEK[0])
    same: dict[str, Any] = {"borrower": unpaid.borrower, "lender": unpaid.lender, "worker": unpaid.worker, "shifts": 1}
    never = town.booking(**same)
    others = [
        town.booking(**same, funded_period_end=NEXT_WEEK[1]),
        town.booking(**same, status="Payment_Paused_Dispute"),
        town.booking(**same, payment_type="Upfront"),
        town.booking(**same, status="Suspended_Insurance", status_before_suspension="Active"),
    ]
    before = [town.status(booking) for booking in others]
    town.mainspring.clock.set(T00 - SECOND)
    for booking in (unpaid, never, *others):
        tried(town, booking)

    town.mainspring.advance(to=T00)
    cut(town, unpaid, never, *others)

    assert released(town) == [unpaid.id, never.id]
    assert [town.status(booking) for booking in others] == before
    assert [town.shift_status(booking.shifts[0]) for booking in others] == ["Scheduled"] * 4
    assert len(town.messages("worker_released")) == 12
    assert len(town.audit("cancel_shift")) == 2


@pytest.mark.rule("STAFF-3.10", "STAFF-3.11", "STAFF-3.14", "STAFF-3.16", "STAFF-3.19")
def test_the_booking_ends_on_sunday_and_what_starts_later_is_cancelled(town: Town) -> None:
    booking = town.booking()
    overnight = town.shift(booking, SUNDAY, time(23, 30), time(7))
    monday = town.shift(booking, NEXT_MONDAY, time(0), time(8))
    later = town.shift(booking, date(2026, 6, 16))
    before = town.shift(
        booking, date(2026, 6, 16), status="Cancelled", cancelled_at=town.now, cancel_reason="Dispute_Timeout"
    )
    for timer in ("reminder-5m", "reminder-30m", "ladder-0", "ladder-60m", "ladder-3h", "auto-approve"):
        job = cutoff.cancel_released.job(booking_id=1, instant=T00).at(NEXT_WEEK[1])
        town.mainspring.client.timers.set(job.with_key(f"{timer}:{later}"))
    town.mainspring.clock.set(T00)
    tried(town, booking)

    cut(town, booking)

    row = town.row("bookings", booking.id)
    assert (row["status"], row["end_date"]) == ("Completed", SUNDAY)
    assert [town.shift_status(shift) for shift in (overnight, monday, later)] == ["Scheduled", "Cancelled", "Cancelled"]
    assert town.row("time_log", monday)["cancel_reason"] == REASON
    assert town.row("time_log", before)["cancel_reason"] == "Dispute_Timeout"
    assert [key for _, _, key in town.waiting() if str(key).endswith(f":{later}")] == []
    assert town.audit("booking_released") == [("SYSTEM", "booking", booking.id, REASON, None)]
    assert town.audit("cancel_shift") == [("SYSTEM", "time_log", shift, REASON, None) for shift in (monday, later)]


@pytest.mark.rule("STAFF-3.10", "STAFF-3.11")
def test_a_booking_that_has_not_begun_ends_on_its_first_day(town: Town) -> None:
    booking = town.booking(shifts=1, start_date=NEXT_MONDAY)
    town.mainspring.clock.set(T00)
    tried(town, booking)

    cut(town, booking)

    row = town.row("bookings", booking.id)
    assert (row["status"], row["end_date"]) == ("Completed", NEXT_MONDAY)
    assert town.shift_status(booking.shifts[0]) == "Cancelled"


@pytest.mark.rule("STAFF-3.17", "STAFF-3.18", "STAFF-3.22", "STAFF-3.25")
def test_worker_and_both_admins_are_told_and_what_they_do_not_get_becomes_a_dead_letter(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.mainspring.clock.set(T00)
    tried(town, booking)
    town.conn.execute("update staffing.users set email = null where role = 'Admin'")  # one mail: no breaker opens
    town.sandbox.faults.set(Fault(provider="smtp", kind="error"))

    cut(town, booking)
    asked_for = [(who, channel) for _, who, channel, _ in town.messages("worker_released")]
    people = sorted((booking.worker_user, booking.borrowing_admin, booking.lending_admin))
    assert asked_for == [(who, channel) for who in people for channel in ("email", "sms")]
    assert len(deliver(town)) == 6  # the mail fails for a quarter of an hour; nobody's telephone rings before 07:00

    assert town.status(booking) == "Completed"
    assert ("worker_released", booking.worker_user, "email", "Failed") in town.messages()
    words = f"worker_released to user {booking.worker_user} by email"
    assert [text for _, text in town.wrong("worker_released_delivery")] == [words]
    assert len(town.sms()) == 3
    assert {entry.at for entry in town.sms()} == {T00 + timedelta(hours=7)}
    assert {text for text in town.texts("worker_released") if text} == {
        f"Booking {booking.id} ended due to non-payment. Worker released effective 2026-06-07."
    }
    assert town.measured("staffing_releases") == [(1,)]


@pytest.mark.rule("STAFF-3.12", "STAFF-3.13")
def test_shifts_up_to_sunday_are_worked_and_paid_after_the_release(town: Town) -> None:
    ready = town.booking()
    with town.conn.transaction():
        booking_id = bookings.confirm_booking(
            town.desk, town.conn, project_id=ready.project, worker_id=ready.worker, supervisor_id=ready.supervisor,
            start_date=SATURDAY, end_date=date(2026, 6, 13), start=time(9), end=time(17), weekdays=frozenset({5}),
            rate_minor=3000, currency="USD", by=ready.borrowing_admin,
        )  # fmt: skip
    rows = "select id, status, clock_in_time from staffing.time_log where booking_id = %s order by id"
    (saturday, *planned), (later, *_) = town.rows(rows, booking_id)
    assert planned == ["Scheduled", at("2026-06-06T13:00")]
    booking = Booking(**{**vars(ready), "id": booking_id, "shifts": [saturday, later]})
    town.funded(booking, saturday)
    town.mainspring.clock.set(T00)
    tried(town, Booking(**{**vars(booking), "shifts": [later]}))

    cut(town, booking)
    assert (town.status(booking), town.shift_status(later)) == ("Completed", "Cancelled")

    town.mainspring.clock.set(at("2026-06-06T13:00"))
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, saturday, by=booking.worker_user)
    town.mainspring.clock.set(at("2026-06-06T21:00"))
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, saturday, by=booking.worker_user)
    town.mainspring.clock.set(at("2026-06-07T01:00") - SECOND)
    town.mainspring.advance(minutes=1)
    assert town.shift_status(saturday) == "Verified"
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)


@pytest.mark.rule("STAFF-3.18", "STAFF-3.12")
@pytest.mark.parametrize(("paid", "effective"), [((), "2026-06-04"), ((0,), "2026-06-07"), ((0, 1), "2026-06-07")])
def test_who_is_let_in_no_more_is_released_at_once(town: Town, paid: tuple[int, ...], effective: str) -> None:
    booking = town.booking(shifts=[date(2026, 6, 5), SATURDAY, date(2026, 6, 8)])
    if paid:
        town.funded(booking, *(booking.shifts[n] for n in paid))
    town.mainspring.clock.set(T00)
    tried(town, Booking(**{**vars(booking), "shifts": booking.shifts[2:]}))
    cut(town, booking)
    town.mainspring.advance(hours=8)

    assert town.texts("worker_released") == {
        f"Booking {booking.id} ended due to non-payment. Worker released effective {effective}."
    }
    town.mainspring.clock.set(at("2026-06-05T13:00"))
    refused = pytest.raises(Refused, match="nobody has paid for the shift") if not paid else nullcontext()
    with refused, town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, booking.shifts[0], by=booking.worker_user)


@pytest.mark.rule("STAFF-3.10")
def test_money_of_a_cancelled_shift_goes_back_as_for_any_cancellation(town: Town) -> None:
    booking = town.booking(shifts=[date(2026, 6, 9)])
    town.funded(booking)
    town.mainspring.clock.set(T00)
    tried(town, booking)

    cut(town, booking)

    assert town.status(booking) == "Completed"
    assert town.ledger(booking) == (24000, 0, 0, 0, 24000)


# -- payments at the last moment


@pytest.mark.rule("STAFF-3.04", "STAFF-3.08")
def test_a_success_before_midnight_counts_whenever_its_webhook_comes(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.mainspring.clock.set(T00 - 10 * MINUTE)
    intent = pending(town, booking)
    town.mainspring.clock.set(T00 - SECOND)
    town.sandbox.stripe.settle(intent, "succeeded")
    town.mainspring.clock.set(T00)

    cut(town, booking)
    assert town.status(booking) == "Active"
    asked(town)

    assert (town.status(booking), released(town)) == ("Active", [])
    assert town.row("bookings", booking.id)["funded_period_end"] == NEXT_WEEK[1]
    assert town.waiting("ask_again") == []


@pytest.mark.rule("STAFF-3.08", "STAFF-3.25")
@pytest.mark.parametrize("paid", [False, True])
def test_a_payment_that_stays_under_way_is_asked_for_an_hour_then_given_up(
    town: Town, paid: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = town.booking(shifts=1)
    town.mainspring.clock.set(T00)
    intent = pending(town, booking)
    asks: list[datetime] = []
    ask = reconcile.ask

    def counted(desk: Desk, ctx: ms.SyncContext, payment_id: int) -> str:
        asks.append(town.mainspring.clock.at)
        status = ask(desk, ctx, payment_id)
        if paid and len(asks) == 5:  # between the last answer and the cancellation
            town.sandbox.stripe.settle(intent, "succeeded")
        return status

    monkeypatch.setattr(reconcile, "ask", counted)
    cut(town, booking)
    for _ in range(5):
        assert (town.status(booking), town.wrong("cutoff_failed")) == ("Active", [])  # it waits, and has not failed
        ((_, due, _),) = town.waiting("ask_again")
        town.mainspring.clock.set(due)
        asked(town)

    assert asks == [T00 + n * timedelta(minutes=15) for n in range(5)]
    assert town.waiting("ask_again") == []
    assert town.status(booking) == ("Active" if paid else "Completed")
    assert town.bank.v1.payment_intents.retrieve(intent).status == ("succeeded" if paid else "canceled")
    assert town.value("select status from staffing.pending_payments") == ("Succeeded" if paid else "Canceled")


@pytest.mark.rule("STAFF-3.24")
def test_money_that_comes_after_the_release_goes_back_and_revives_nothing(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.mainspring.clock.set(T00)
    payment = tried(town, booking, provider_intent_id="pi_unknown")
    cut(town, booking)
    intent = charged(town, booking)
    town.conn.execute("update staffing.pending_payments set provider_intent_id = %s where id = %s", [intent, payment])

    town.mainspring.clock.set(T00 + timedelta(hours=2))
    town.mainspring.advance(minutes=1)

    assert town.status(booking) == "Completed"
    assert town.ledger(booking) == (24000, 0, 0, 0, 24000)
    assert len(town.sandbox.ledger.find("refund")) == 1
    assert ("late_payment_refunded", f"booking {booking.id}", "warning") in town.alerts()


# -- our own fault


@pytest.mark.rule("STAFF-3.07")
def test_a_booking_that_was_confirmed_after_its_wednesday_is_charged_without_an_alarm(town: Town) -> None:
    booking = town.booking(shifts=1, created_at=W10 + MINUTE)
    town.mainspring.clock.set(W10 + 2 * MINUTE)
    town.mainspring.drain()
    late = T00 + 5 * MINUTE
    town.mainspring.clock.set(late)

    town.mainspring.advance(to=late + MINUTE)

    assert town.status(booking) == "Active"
    assert town.alerts() == []
    assert town.rows("select source, status from staffing.pending_payments") == [("late", "Succeeded")]


@pytest.mark.rule("STAFF-3.07", "STAFF-3.26")
def test_a_week_that_we_forgot_to_charge_is_charged_late_and_has_a_day(town: Town) -> None:
    booking = town.booking(shifts=1, card=DECLINED)
    paying = town.booking(shifts=1)
    town.mainspring.clock.set(W10 - timedelta(hours=1))
    town.mainspring.drain()  # the last that anybody heard of the scheduler
    late = T00 + 5 * MINUTE
    town.mainspring.clock.set(late)

    town.mainspring.advance(to=late + MINUTE)

    assert released(town) == []
    assert ("charge_missed", f"booking {booking.id}", "critical") in town.alerts()
    tries = town.rows("select booking_id, source, status, created_at from staffing.pending_payments order by 1")
    assert tries == [(booking.id, "late", "Failed", late), (paying.id, "late", "Succeeded", late)]
    midnight = T00 + timedelta(days=1)
    assert town.row("bookings", booking.id)["cutoff_at"] == midnight

    town.mainspring.clock.set(midnight - timedelta(hours=10) - SECOND)
    town.mainspring.drain()
    assert town.messages("late_warning") == []
    town.mainspring.advance(to=midnight - timedelta(hours=10))
    assert town.texts("late_warning") == {
        f"Payment required for booking {booking.id}. Final warning - payment must be completed by 2026-06-05 00:00 "
        "(America/New_York) to avoid worker release."
    }
    told = [(who, channel) for _, who, channel, _ in town.messages("late_warning")]
    assert told == [(booking.borrowing_admin, "email"), (booking.borrowing_admin, "sms")]

    town.mainspring.clock.set(midnight - SECOND)
    town.mainspring.drain()
    assert released(town) == []
    town.mainspring.advance(to=midnight)
    assert released(town) == [booking.id]
    assert (town.status(paying), town.row("bookings", booking.id)["end_date"]) == ("Active", SUNDAY)
    assert town.alerts() == []


@pytest.mark.rule("STAFF-3.07", "STAFF-3.08", "STAFF-3.26")
def test_what_came_after_the_cutoff_or_never_reached_the_provider_was_no_attempt(town: Town) -> None:
    unheard, late = town.booking(shifts=1), town.booking(shifts=1)
    town.mainspring.clock.set(T00 + MINUTE)
    tried(town, unheard, "Canceled", failure_code="never_sent")
    tried(town, late, created_at=T00)

    cut(town, unheard, late)
    cut(town, unheard, late)  # a second look at the same cutoff moves nothing

    assert [town.status(booking) for booking in (unheard, late)] == ["Active", "Active"]
    midnight = T00 + timedelta(days=1)
    moved = [("cut_off", midnight, f"late-cutoff:{booking.id}") for booking in (unheard, late)]
    assert sorted(town.waiting("cut_off"), key=str) == moved
    assert len(town.waiting("charge_week")) == 2


@pytest.mark.rule("STAFF-1.33", "STAFF-1.36", "STAFF-3.08")
def test_what_fails_after_the_cutoff_is_told_by_the_release_alone_and_cannot_be_paid_meanwhile(town: Town) -> None:
    """The bank took until past midnight to say no."""
    booking = town.booking(shifts=1)
    town.only(at=T00 - MINUTE)
    intent = pending(town, booking)
    town.mainspring.clock.set(T00)
    cut(town, booking)
    town.mainspring.drain()  # it is asked, and says that it still processes
    town.sandbox.stripe.settle(intent, "failed")
    town.mainspring.run_one(
        reconcile.reconcile_payment.job(payment_id=town.value("select id from staffing.pending_payments"))
    )
    with pytest.raises(Refused, match="the time to pay is over"):
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    town.mainspring.advance(minutes=20)
    assert (town.status(booking), {kind for kind, *_ in town.messages()}) == ("Completed", {"worker_released"})


# -- when the database fails


@pytest.mark.rule("STAFF-3.20", "STAFF-3.25")
def test_a_release_that_the_database_refuses_is_tried_again_and_done_once(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.mainspring.clock.set(T00 - SECOND)
    tried(town, booking)
    with failing(town, "bookings", 2):
        ran = list(town.mainspring.advance(to=T00 + timedelta(seconds=40), raise_errors=False))
        assert town.status(booking) == "Active"
        subjects = [subject for subject, _ in town.wrong("cutoff_failed")]
        ran += town.mainspring.advance(minutes=5, raise_errors=False)

    runs = [run for run in ran if run.job.task == "cut_off"]
    assert [run.state for run in runs] == ["retrying", "retrying", "succeeded"]
    assert runs[2].at - runs[1].at > runs[1].at - runs[0].at >= timedelta(seconds=24)
    assert (town.status(booking), released(town)) == ("Completed", [booking.id])
    assert subjects == [f"booking {booking.id}"]
    assert town.wrong("cutoff_failed") == []
    assert len(town.messages("worker_released")) == 6


@pytest.mark.rule("STAFF-3.20", "STAFF-3.25")
def test_a_release_that_the_database_always_refuses_is_told_until_somebody_has_decided(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.only(at=T00)
    tried(town, booking)
    town.desk.enqueue(town.conn, cutoff.cut_off.job(booking_id=booking.id, instant=T00))
    with failing(town, "bookings", 6):
        town.mainspring.advance(hours=1, raise_errors=False)

    assert (town.status(booking), len(town.mainspring.client.dead.list())) == ("Active", 1)
    assert town.wrong("cutoff_failed") == [(f"booking {booking.id}", "cut_off failed for good")]
    (dead,) = town.mainspring.client.dead.list()
    town.mainspring.client.dead.replay(dead.id, reason="the disk has room again")
    town.mainspring.drain()
    assert (town.status(booking), town.wrong("cutoff_failed")) == ("Completed", [])


@pytest.mark.rule("STAFF-3.21")
def test_shifts_that_cannot_be_cancelled_do_not_keep_the_booking(town: Town, caplog: pytest.LogCaptureFixture) -> None:
    booking = town.booking(shifts=2)
    town.mainspring.clock.set(T00)
    tried(town, booking)
    with failing(town, "time_log", 1), caplog.at_level(logging.ERROR, "mainspring_apps.staffing"):
        cut(town, booking)

    assert town.status(booking) == "Completed"
    assert [town.shift_status(shift) for shift in booking.shifts] == ["Scheduled", "Scheduled"]
    assert caplog.messages == [f"shifts of booking {booking.id} were not cancelled: RaiseException"]
    assert len(town.messages("worker_released")) == 6

    town.mainspring.run_one(cutoff.cancel_released)
    assert [town.shift_status(shift) for shift in booking.shifts] == ["Cancelled", "Cancelled"]
    assert len(town.messages("worker_released")) == 6


# -- the rule alone


def standing(**values: Any) -> rules.Standing:
    about: dict[str, Any] = {"status": "Active", "payment_type": "Weekly_Progress", "funded_period_end": None}
    return rules.Standing(**about | {"payment": "Failed", "heard": True} | values)


@pytest.mark.rule("STAFF-3.05", "STAFF-3.06", "STAFF-3.07", "STAFF-3.08", "STAFF-20.16")
@pytest.mark.parametrize(
    ("about", "asked", "step"),
    [
        ({}, 0, "release"),
        ({"payment": "Canceled"}, 5, "release"),
        ({"funded_period_end": DUE.end}, 0, "skip"),
        ({"funded_period_end": DUE.start}, 0, "release"),
        ({"status": "Payment_Paused_Dispute"}, 0, "skip"),
        ({"status": "Completed"}, 0, "skip"),
        ({"payment_type": "Upfront"}, 0, "skip"),
        ({"payment": None}, 0, "late charge"),
        ({"payment": None, "cutoff_at": T00 + MINUTE}, 0, "skip"),
        ({"payment": "Failed", "cutoff_at": T00}, 0, "release"),
        ({"payment": "Pending"}, 0, "ask again"),
        ({"payment": "Pending"}, 4, "ask again"),
        ({"payment": "Pending"}, 5, "give up"),
        ({"payment": "Pending", "funded_period_end": DUE.end}, 5, "skip"),
        # Nobody is released for what the provider never answered, nor within four hours of its answer (STAFF-20.16).
        ({"payment": "Pending", "heard": False}, 0, "ask again"),
        ({"payment": "Pending", "heard": False}, 1, "put off"),
        ({"payment": "Failed", "back_at": T00 - timedelta(hours=4) + SECOND}, 0, "put off"),
        ({"payment": "Failed", "back_at": T00 - timedelta(hours=4)}, 0, "release"),
        ({"payment": "Pending", "back_at": T00 + MINUTE}, 1, "put off"),
        ({"payment": "Failed", "heard": False}, 0, "release"),  # there was no card to be charged
    ],
)
def test_what_a_cutoff_does(about: dict[str, Any], asked: int, step: str) -> None:
    assert rules.decide(standing(**about), DUE, T00, grace=timedelta(hours=4), asked=asked, ask_times=4) == step


@pytest.mark.rule("STAFF-1.36", "STAFF-3.26", "STAFF-20.16")
@pytest.mark.parametrize(
    ("begun", "moved", "back", "until"),
    [
        (W10, None, None, T00),
        (W10, None, W14, T00),  # four hours after that are over by then
        (W10, None, T00 - HOUR, T00 + 3 * HOUR),  # it will be put off
        (W10, None, T00 + 9 * HOUR, T00 + 13 * HOUR),  # a charge that waited for an answer past midnight
        (W10, T00 + 13 * HOUR, T00 + 9 * HOUR, T00 + 13 * HOUR),
        (T00 + 5 * MINUTE, T00 + timedelta(days=1), None, T00 + timedelta(days=1)),
        (T00 + 15 * HOUR, None, None, T00 + timedelta(days=7)),  # a retry on Thursday
        (T00 + 15 * HOUR, T00 + 13 * HOUR, None, T00 + timedelta(days=7)),
    ],
)
def test_what_failed_may_be_paid_until_the_cutoff_that_follows_its_attempt(
    begun: datetime, moved: datetime | None, back: datetime | None, until: datetime
) -> None:
    assert rules.ahead(begun, NY, Settings(), moved=moved, back_at=back) == until


@pytest.mark.rule("STAFF-3.09", "STAFF-3.14", "STAFF-3.26")
def test_the_last_sunday_is_the_one_before_the_unpaid_week() -> None:
    later, friday = SUNDAY + 9 * weeks.DAY, SUNDAY - 2 * weeks.DAY
    assert [rules.last_day(DUE, NY, ends) for ends in (later, friday)] == [SUNDAY, friday]  # which had ended before
    assert rules.last_day_at_work([False], friday, SUNDAY) == friday
    moved = weeks.due_week(DUE.start, NY, Settings())  # of a cutoff that was moved to Monday
    assert rules.last_day(moved, NY, later) == SUNDAY
    assert [rules.stays(DUE.start - SECOND, DUE), rules.stays(DUE.start, DUE)] == [True, False]
    midnight = T00 + timedelta(days=1)
    assert rules.moved_cutoff(T00 + 5 * MINUTE, NY, Settings()) == midnight
    warned = {
        hours: rules.late_warning(midnight - timedelta(hours=hours), midnight, Settings()) for hours in (23, 4, 0)
    }
    late = {hours: midnight - at for hours, at in warned.items()}
    assert late == {23: timedelta(hours=10), 4: timedelta(hours=4) - 5 * MINUTE, 0: timedelta(0)}  # or at once
    assert weeks.monday(W14, NY) == MONDAY
