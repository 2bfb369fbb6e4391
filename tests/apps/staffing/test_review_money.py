"""Races, late answers and bad input that cost money: what a careful reviewer tried, kept as tests."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import psycopg
import pytest
from tests.apps.staffing.quarrels import T, filed, moved, submitted
from tests.apps.staffing.test_movements import refunded, released, verified
from tests.apps.staffing.test_settling import charged, told
from tests.apps.staffing.test_weekly_payments import dispute, intents, job, near, payments
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, NY, T00, W10, Town
from tests.apps.staffing.wednesday import tried

from mainspring.contrib.money import Money
from mainspring.contrib.stripe import Charge, Refund
from mainspring_apps.staffing import bookings, insurance
from mainspring_apps.staffing.conflicts import disputes
from mainspring_apps.staffing.payments import accounts, movements, settle, weekly
from mainspring_apps.staffing.rules import charge, planning
from mainspring_apps.staffing.searches import listings, search
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Fault

SECOND, MINUTE, HOUR, DAY = timedelta(seconds=1), timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
WEEK_AFTER = (datetime(2026, 6, 15, 4, tzinfo=UTC), datetime(2026, 6, 22, 4, tzinfo=UTC))


def held_by(town: Town, shift: int) -> list[tuple[int, str]]:
    """(amount, status) of every hold of a shift."""
    return town.rows(
        "select amount_minor::int, status from staffing.escrow_holds where time_log_id = %s order by id", shift
    )


def succeeded(town: Town, payment: int) -> Charge:
    """The provider's word that a payment has come."""
    row = town.row("pending_payments", payment)
    return Charge(
        id=row["provider_intent_id"], status="succeeded", amount=Money(row["amount_minor"], "USD"), charge="ch_1",
        customer=None, key=row["idempotency_key"], created=town.now,
    )  # fmt: skip


@contextmanager
def elsewhere(town: Town) -> Iterator[psycopg.Connection[Any]]:
    """Somebody else's connection, in a transaction that commits at the end of the block."""
    with psycopg.connect(town.mainspring.dsn, options="-c lock_timeout=10s") as conn:
        yield conn


# -- charged twice


@pytest.mark.rule("STAFF-1.32", "STAFF-19.06", "STAFF-19.16")
def test_what_a_later_week_has_paid_for_is_not_funded_again_by_an_old_success(town: Town) -> None:
    """Thursday's retry failed, the next Wednesday charged its shift along, and then the old intent succeeds."""
    booking = town.booking(shifts=[NEXT_MONDAY, NEXT_MONDAY + 7 * DAY])
    old = tried(town, booking, "Failed", provider_intent_id="pi_old", source="retry")
    town.mainspring.client.enqueue(
        job(town, booking, period_start=WEEK_AFTER[0], period_end=WEEK_AFTER[1], occurrence=W10 + 7 * DAY)
    )
    town.unheard()
    town.mainspring.drain()
    new = town.value("select max(id) from staffing.pending_payments")
    assert town.row("pending_payments", new)["amount_minor"] == 48000  # both shifts

    told(town, new, "succeeded")
    told(town, old, "succeeded")

    assert held_by(town, booking.shifts[0]) == [(24000, "Held"), (24000, "Refunded")]
    assert town.ledger(booking) == (72000, 48000, 0, 0, 24000)
    assert town.row("pending_payments", old)["status"] == "Failed"
    assert ("late_payment_refunded", f"booking {booking.id}", "warning") in town.alerts()


@pytest.mark.rule("STAFF-19.01", "STAFF-19.03", "STAFF-19.08")
def test_another_card_between_two_attempts_charges_nobody_twice_and_loses_no_charge(town: Town) -> None:
    """The first attempt charged and its answer was lost; then the borrower gave another customer and card."""
    booking = town.booking(shifts=1)
    town.unheard()
    near(town, W10 - SECOND, "payment-reconciliation")
    town.sandbox.faults.set(Fault(provider="stripe", kind="drop", times=1, path="payment_intents", method="POST"))
    town.mainspring.advance(to=W10, raise_errors=False)
    with town.conn.transaction():
        bookings.put_card(
            town.desk,
            town.conn,
            booking.borrower,
            customer=town.bank.v1.customers.create().id,
            payment_method="pm_card_mastercard",
            by=booking.borrowing_admin,
        )

    town.mainspring.advance(minutes=40, raise_errors=False)

    assert [(one.status, one.amount) for one in intents(town)] == [("succeeded", 24000)]
    assert payments(town, booking) == [(1, "Succeeded", 24000, None)]
    assert town.ledger(booking) == (24000, 24000, 0, 0, 0)


@pytest.mark.rule("STAFF-19.02")
def test_a_failure_that_is_told_again_leads_to_no_second_refund(town: Town) -> None:
    """Stripe tells of one failure by several events; one comes late, while the second try is under way."""
    booking = verified(town)
    town.unheard()
    paid = town.bank.v1.payment_intents.create(
        {"amount": 48000, "currency": "usd", "customer": town.bank.v1.customers.create().id, "off_session": True,
         "payment_method": "pm_card_pendingRefund", "confirm": True,
         "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"}},
    )  # fmt: skip
    town.conn.execute("update staffing.pending_payments set provider_intent_id = %s", [paid.id])
    refund = refunded(town, booking)
    town.mainspring.drain()
    (made,) = town.sandbox.ledger.find("refund")
    town.sandbox.stripe.settle(made.id, "failed")
    failed = Refund.read(town.bank.v1.refunds.retrieve(made.id).to_dict())
    tell(town, refund, failed)
    assert town.row("refunds", refund)["status"] == "Failed"

    town.sandbox.faults.set(Fault(provider="stripe", kind="drop", times=1, path="refunds", method="POST"))
    with town.conn.transaction():
        movements.repeat_refund(town.desk, town.conn, refund, by=town.operator)
    town.mainspring.drain(raise_errors=False)  # made, and nobody knows
    tell(town, refund, failed)
    town.mainspring.advance(minutes=2, raise_errors=False)

    assert sorted(one.body["status"] for one in town.sandbox.ledger.find("refund")) == ["failed", "pending"]


def tell(town: Town, refund: int, said: Refund) -> None:
    """What an event says of a refund is written."""
    with town.conn.transaction():
        movements.settle(town.desk, town.conn, "refunds", movements.to_make(town.conn, "refunds", refund), said)


# -- money that stays


@pytest.mark.rule("STAFF-1.41")
def test_an_account_that_is_opened_while_the_money_comes_is_paid(town: Town) -> None:
    booking = town.booking(lender=town.company("Lender", stripe_account_id=None))
    town.shift(booking, MONDAY, status="Verified", verified_by="7", auto_approval_time=town.now)
    payment = tried(town, booking, "Pending", provider_intent_id="pi_1")
    account = town.account()

    def connect() -> None:
        with elsewhere(town) as conn:
            accounts.connect_account(town.desk, conn, booking.lender, account=account, by=town.admin(booking.lender))

    opens = threading.Thread(target=connect)
    with elsewhere(town) as conn:
        settle.settle(town.desk, conn, payment, succeeded(town, payment))
        opens.start()
        opens.join(0.5)  # it waits for the booking, or is done
    opens.join()

    assert held_by(town, booking.shifts[0]) == [(24000, "Released")]
    assert town.alerts() == []


@pytest.mark.rule("STAFF-3.24")
def test_a_success_after_the_release_of_a_booking_that_had_not_begun_is_one_refund_and_told(town: Town) -> None:
    booking = town.booking(shifts=2, start_date=NEXT_MONDAY)
    town.unheard()
    payment = charged(town, booking)
    told(town, payment, "failed")
    town.only("weekly-hard-cutoff", at=T00 - SECOND)
    town.mainspring.advance(to=T00 + SECOND)
    assert town.status(booking) == "Completed"

    told(town, payment, "succeeded")
    town.mainspring.drain()

    assert moved(town, "refund") == [48000]
    assert town.ledger(booking) == (48000, 0, 0, 0, 48000)
    assert ("late_payment_refunded", f"booking {booking.id}", "warning") in town.alerts()


def test_a_booking_that_had_not_begun_when_it_was_released_is_too_late_and_one_that_runs_out_is_not() -> None:
    monday = datetime(2026, 6, 8, tzinfo=UTC)
    begins = date(2026, 6, 8)
    assert charge.too_late("Completed", begins, monday, "UTC", start_date=begins)
    assert charge.too_late("Completed", date(2026, 6, 7), monday, "UTC", start_date=MONDAY)
    assert not charge.too_late("Completed", date(2026, 6, 14), monday, "UTC", start_date=date(2026, 6, 10))
    assert not charge.too_late("Active", date(2026, 6, 7), monday, "UTC", start_date=MONDAY)


# -- a dispute and an approval


@pytest.mark.rule("STAFF-9.22")
def test_money_that_comes_in_the_instant_of_an_approval_does_not_leave_before_a_dispute_of_that_instant(
    town: Town,
) -> None:
    booking, shift = submitted(town, funded=False)
    payment = tried(town, booking, "Pending", provider_intent_id="pi_1")
    town.mainspring.clock.set(T + 4 * HOUR)
    town.mainspring.drain(queue="timesheet-auto-approval")
    assert town.shift_status(shift) == "Verified"
    told(town, payment, "succeeded")

    dispute = filed(town, shift, by=booking.supervisor or 0)
    town.mainspring.advance(seconds=5)

    assert town.shift_status(shift) == "Disputed"
    assert (held_by(town, shift), moved(town, "transfer")) == ([(24000, "Frozen")], [])
    assert town.value("select dispute_id from staffing.escrow_holds") == dispute


@pytest.mark.rule("STAFF-10.01", "STAFF-9.22")
def test_a_dispute_that_had_to_wait_for_the_row_was_filed_when_it_came(town: Town) -> None:
    booking, shift = submitted(town)
    town.mainspring.clock.set(T + 4 * HOUR)
    ended: list[object] = []

    def dispute() -> None:
        try:
            with elsewhere(town) as conn:
                ended.append(disputes.file_dispute(town.desk, conn, shift, option="A", by=booking.borrowing_admin))
        except Refused as refused:
            ended.append(refused)

    files = threading.Thread(target=dispute)
    with elsewhere(town) as conn:
        conn.execute("select from staffing.bookings where id = %s for update", [booking.id])
        files.start()
        files.join(0.5)
        town.mainspring.clock.set(T + 4 * HOUR + SECOND)
    files.join()

    assert [type(one) for one in ended] == [int], ended
    assert town.value("select dispute_filed_at from staffing.disputes") == T + 4 * HOUR


# -- insurance


@pytest.mark.rule("STAFF-4.14", "STAFF-4.27")
def test_who_is_stopped_twice_in_a_quarter_of_an_hour_hears_of_it_twice(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY])
    policy = town.value("select min(id) from staffing.insurance_policies where company_id = %s", booking.lender)
    for _ in range(2):
        with town.conn.transaction():
            insurance.deactivate_insurance(town.desk, town.conn, policy, by=town.admin_of("insurance_policies", policy))
        town.mainspring.drain()
        assert town.status(booking) == "Suspended_Insurance"
        with town.conn.transaction():
            insurance.renew_insurance(
                town.desk,
                town.conn,
                policy,
                expiration_date=date(2027, 1, 1),
                by=town.admin_of("insurance_policies", policy),
            )
        town.mainspring.clock.set(town.now + MINUTE)
    assert len(town.messages("insurance_stop")) == 24


@pytest.mark.rule("STAFF-4.13", "STAFF-19.14")
def test_a_stop_that_waits_for_a_new_policy_finds_it(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY])
    policy = town.value("select min(id) from staffing.insurance_policies where company_id = %s", booking.lender)
    with town.conn.transaction():
        insurance.deactivate_insurance(town.desk, town.conn, policy, by=town.admin_of("insurance_policies", policy))
    stops = threading.Thread(target=town.mainspring.drain)
    with elsewhere(town) as conn:
        about: dict[str, Any] = {
            "company_id": booking.lender,
            "expiration_date": date(2027, 1, 1),
            "by": booking.lending_admin,
        }
        bookings.add_policy(town.desk, conn, **about)
        stops.start()
        stops.join(0.5)
    stops.join()
    assert town.status(booking) == "Active"


@pytest.mark.rule("STAFF-19.14")
def test_two_policies_of_a_company_are_renewed_at_once_without_a_deadlock(town: Town) -> None:
    company = town.company("Lender")
    first = town.policy(company, policy_type="Liability")
    second = town.policy(company, policy_type="Accident")
    ended: list[object] = []

    def renew() -> None:
        try:
            with elsewhere(town) as conn:
                insurance.renew_insurance(
                    town.desk,
                    conn,
                    second,
                    expiration_date=date(2027, 1, 1),
                    by=town.admin_of("insurance_policies", second),
                )
            ended.append("renewed")
        except psycopg.Error as error:
            ended.append(error)

    renews = threading.Thread(target=renew)
    with elsewhere(town) as conn:
        conn.execute("select from staffing.insurance_policies where id = %s for update", [first])
        renews.start()
        renews.join(0.5)
        insurance.renew_insurance(
            town.desk, conn, first, expiration_date=date(2027, 1, 1), by=town.admin_of("insurance_policies", first)
        )
    renews.join()
    assert ended == ["renewed"]


# -- whose hand


def test_only_the_borrower_pays_by_hand(town: Town) -> None:
    booking, other = town.booking(shifts=1), town.booking()
    town.mainspring.clock.set(W10)
    parties, strangers = (booking.worker_user, booking.lending_admin), (other.borrowing_admin, 999_999)
    for who in (*parties, *strangers):
        with pytest.raises(Refused) as refused, town.conn.transaction():
            weekly.pay_by_hand(town.desk, town.conn, booking.id, by=who)
        assert refused.value.field == ("by" if who in parties else "booking_id")
    for payer in (booking.borrowing_admin, booking.borrowing_manager):
        with town.conn.transaction():
            weekly.pay_by_hand(town.desk, town.conn, booking.id, by=payer)


# -- nobody was told


@pytest.mark.rule("STAFF-5.12")
def test_a_worker_who_is_listed_again_within_a_quarter_of_an_hour_is_told_again(town: Town) -> None:
    user = town.user(town.company("Borrower"), "Admin", quiet_hours_start="00:00", quiet_hours_end="00:00")
    worker = town.worker(town.company("Lender"))
    with town.conn.transaction():
        search.save_search(town.desk, town.conn, user_id=user, criteria={"trade": "welder"}, by=user)
    for _ in range(2):
        with town.conn.transaction():
            listings.list_worker(town.desk, town.conn, worker, by=town.admin_of("workers", worker))
        town.mainspring.drain()
        with town.conn.transaction():
            listings.unlist_worker(town.desk, town.conn, worker, by=town.admin_of("workers", worker))
        town.mainspring.clock.set(town.now + MINUTE)
    assert len(town.messages("instant_alert")) == 4


def test_money_that_nothing_moves_any_more_is_told_after_a_day(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY, MONDAY, MONDAY])
    waits, works, ends = booking.shifts  # that nobody begins, submits, or is paid for
    town.conn.execute("update staffing.time_log set status = 'Working' where id = %s", [works])
    town.funded(booking)
    town.conn.execute("update staffing.time_log set status = 'Working' where id = %s", [ends])
    for status in ("Pending_Verification", "Verified"):
        change = "update staffing.time_log set status = %s, auto_approval_time = mainspring.now() where id = %s"
        town.conn.execute(change, [status, ends])
    payment = tried(town, town.booking(), "Pending", provider_intent_id="pi_1", created_at=town.now)
    over = datetime(2026, 6, 2, 21, tzinfo=UTC)  # a day after Monday 17:00
    town.mainspring.clock.set(over - 17 * HOUR)
    assert town.wrong("money_stands_still") == []

    town.mainspring.clock.set(over + SECOND)
    found = [subject for subject, _ in town.wrong("money_stands_still")]
    assert found == [f"payment {payment}", f"shift {works}", f"shift {ends}"]
    town.mainspring.clock.set(over + 24 * HOUR + SECOND)  # a day after it should have been refunded
    assert f"shift {waits}" in [subject for subject, _ in town.wrong("money_stands_still")]


# -- what makes no sense


def test_a_shift_that_falls_into_the_hour_that_is_left_out_does_not_take_place() -> None:
    spring = date(2027, 3, 14)
    found = planning.shifts(spring - DAY, spring + DAY, time(2), time(3), frozenset(range(7)), NY, 8 * HOUR)
    assert [(plan.start.day, plan.minutes) for plan in found] == [(13, 60), (15, 60)]


@pytest.mark.rule("STAFF-10.33")
def test_no_part_of_a_settlement_is_negative(town: Town) -> None:
    booking, shift = submitted(town)
    dispute = filed(town, shift, by=booking.borrowing_admin)
    with pytest.raises(Refused) as refused, town.conn.transaction():
        disputes.resolve_dispute(
            town.desk, town.conn, dispute, status="Settled", lender_minor=24001, borrower_minor=-1, by=town.operator
        )
    assert refused.value.field == "settlement"
    assert town.row("disputes", dispute)["status"] == "Open"


@pytest.mark.rule("STAFF-19.02", "STAFF-19.03")
def test_another_account_between_two_attempts_pays_no_lender_twice(town: Town) -> None:
    """The first attempt paid and its answer was lost; then the lender gave another account."""
    booking = verified(town)
    transfer = released(town, booking)
    old = town.row("companies", booking.lender)["stripe_account_id"]
    town.sandbox.faults.set(Fault(provider="stripe", kind="drop", times=1, path="transfers", method="POST"))
    town.mainspring.drain(raise_errors=False)
    with town.conn.transaction():
        accounts.connect_account(
            town.desk, town.conn, booking.lender, account=town.account(), by=town.admin(booking.lender)
        )

    town.mainspring.clock.set(town.now + 2 * MINUTE)
    town.mainspring.drain(raise_errors=False)

    assert town.row("transfers", transfer)["status"] == "Succeeded"
    assert [made.body["destination"] for made in town.sandbox.ledger.find("transfer")] == [old]


def test_what_an_account_does_not_take_goes_to_the_next_one(town: Town) -> None:
    booking = verified(town)
    town.conn.execute("update staffing.companies set stripe_account_id = 'acct_gone' where id = %s", [booking.lender])
    transfer = released(town, booking)
    town.mainspring.drain(raise_errors=False)
    assert town.row("transfers", transfer)["status"] == "Failed"
    account = town.account()
    with town.conn.transaction():
        accounts.connect_account(town.desk, town.conn, booking.lender, account=account, by=town.admin(booking.lender))
        town.desk.enqueue(town.conn, movements.carry_out("transfers", transfer))
    town.mainspring.drain()

    assert town.row("transfers", transfer)["status"] == "Succeeded"
    assert [made.body["destination"] for made in town.sandbox.ledger.find("transfer")] == [account]


@pytest.mark.rule("STAFF-1.33", "STAFF-1.38")
def test_a_customer_whom_the_provider_cannot_even_be_asked_about_is_a_failed_payment(town: Town) -> None:
    booking = town.booking(shifts=1, borrower=town.company("Borrower", stripe_customer_id="not an id"))
    near(town, W10 - SECOND)
    town.mainspring.advance(to=W10 + SECOND, raise_errors=False)

    assert payments(town, booking) == [(1, "Failed", 24000, "customer")]
    assert len(town.messages("action_required")) == 2
    assert town.alerts() == [("payment_needs_a_person", f"booking {booking.id}", "warning")]


def test_what_is_no_name_at_the_provider_is_refused_at_once(town: Town) -> None:
    borrower, lender = town.company("Borrower"), town.company("Lender", stripe_account_id=None)
    for customer, card, field in (("not an id", "pm_1", "customer"), ("cus_1", "pm/1", "payment_method")):
        with pytest.raises(Refused) as refused, town.conn.transaction():
            bookings.put_card(
                town.desk, town.conn, borrower, customer=customer, payment_method=card, by=town.admin(borrower)
            )
        assert refused.value.field == field
    with pytest.raises(Refused) as refused, town.conn.transaction():
        accounts.connect_account(town.desk, town.conn, lender, account="acct 1", by=town.admin(lender))
    assert refused.value.field == "account"


# -- a way round the cutoff


@pytest.mark.rule("STAFF-3.05", "STAFF-10.09")
def test_a_payment_by_hand_beside_a_dispute_does_not_save_an_unpaid_booking_from_the_cutoff(town: Town) -> None:
    """Only Wednesday's own charge pauses: else whoever cannot pay would dispute, ask to pay, and keep the worker."""
    booking = town.booking(shifts=1, card="pm_card_chargeDeclined")
    worked = town.shift(booking, MONDAY)
    near(town, W10 - SECOND, "weekly-hard-cutoff")
    town.mainspring.advance(to=W10 + SECOND)
    with town.conn.transaction():
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    dispute(town, booking, worked)
    with pytest.raises(Refused) as refused, town.conn.transaction():
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    assert refused.value.field == "payment"

    town.mainspring.drain()
    assert town.status(booking) == "Active"
    town.mainspring.advance(to=T00 + SECOND)
    assert town.status(booking) == "Completed"
