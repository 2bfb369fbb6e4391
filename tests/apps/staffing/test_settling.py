"""What the provider says about a payment: applied once, in any order, and followed by what it means."""

from __future__ import annotations

from contextlib import nullcontext
from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from itertools import permutations
from typing import Any

import pytest
from tests.apps.staffing.test_weekly_payments import dispute, intents, near, payments
from tests.apps.staffing.town import T00, W10, Booking, Town

from mainspring.contrib.money import Money
from mainspring.contrib.stripe import Charge
from mainspring_apps.staffing import bookings
from mainspring_apps.staffing.payments import accounts, escrow, reconcile, settle, weekly
from mainspring_apps.staffing.rules import charge, weeks
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Fault
from mainspring_sandbox.post import Manner

SECOND = timedelta(seconds=1)
FUNDED = datetime(2026, 6, 15, 4, tzinfo=UTC)


def charged(town: Town, booking: Booking, *schedules: str) -> int:
    """Wednesday's run has charged, and no event has arrived yet. Answers the payment."""
    near(town, W10 - SECOND, *schedules)
    town.mainspring.advance(to=W10)
    return int(town.value("select max(id) from staffing.pending_payments where booking_id = %s", booking.id))


def told(town: Town, payment: int, status: Any, **values: Any) -> str:
    """The provider says something about a payment; answers its status afterwards."""
    row = town.row("pending_payments", payment)
    about: dict[str, Any] = {"decline_code": "insufficient_funds"} if status == "failed" else {}
    found = Charge(
        id=row["provider_intent_id"] or f"pi_{payment}", status=status, amount=Money(row["amount_minor"], "USD"),
        charge=f"ch_{payment}", customer=None, key=row["idempotency_key"], created=town.now, **about | values,
    )  # fmt: skip
    with town.conn.transaction():
        return settle.settle(town.desk, town.conn, payment, found)


def funded(town: Town, booking: Booking) -> datetime | None:
    found: datetime | None = town.row("bookings", booking.id)["funded_period_end"]
    return found


@pytest.fixture
def on_webhook(town: Town, monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole week goes to the lender with the webhook (G-13)."""
    monkeypatch.setitem(vars(town.desk), "settings", replace(town.desk.settings, transfer_timing="on_webhook"))


# -- success


@pytest.mark.rule("STAFF-1.15", "STAFF-1.30", "STAFF-1.31")
def test_the_webhook_funds_escrow_moves_the_week_and_pays_what_is_verified_in_one_transaction(town: Town) -> None:
    booking = town.booking(shifts=2)
    worked = town.shift(booking, date(2026, 6, 2), status="Verified", verified_by="SYSTEM")  # unpaid, as after a pause
    payment = charged(town, booking)
    assert town.bank.v1.payment_intents.list().data[0].status == "succeeded"  # at once; it changes nothing
    assert (payments(town, booking), funded(town, booking)) == ([(1, "Pending", 72000, None)], None)
    assert (town.ledger(booking), town.rows("select * from staffing.transfers")) == ((0, 0, 0, 0, 0), [])

    town.mainspring.advance(to=W10 + timedelta(seconds=2))

    row = town.row("pending_payments", payment)
    assert (row["status"], row["received_at"], row["settled_at"]) == ("Succeeded", town.now, town.now)
    assert row["provider_charge_id"].startswith("ch_")
    assert funded(town, booking) == FUNDED
    assert town.ledger(booking) == (72000, 48000, 0, 24000, 0)
    holds = town.rows("select time_log_id, amount_minor, status from staffing.escrow_holds order by time_log_id")
    assert holds == [
        (booking.shifts[0], 24000, "Held"),
        (booking.shifts[1], 24000, "Held"),
        (worked, 24000, "Released"),
    ]
    assert town.rows("select amount_minor from staffing.transfers") == [(24000,)]
    writers = town.rows(
        "select xmin::text from staffing.bookings where id = %s union select xmin::text from staffing.escrow_holds"
        " union select xmin::text from staffing.pending_payments"
        " union select xmin::text from mainspring.audit where event = 'staffing.payment_succeeded'",
        booking.id,
    )
    assert len(writers) == 1


@pytest.mark.rule("STAFF-1.31")
def test_with_on_webhook_the_whole_week_is_one_transfer_and_nothing_follows_it(town: Town, on_webhook: None) -> None:
    booking = town.booking(shifts=3)
    charged(town, booking)
    assert town.rows("select * from staffing.transfers") == []

    town.mainspring.advance(seconds=3)

    assert town.ledger(booking) == (72000, 0, 0, 72000, 0)
    assert town.rows("select amount_minor, escrow_hold_id from staffing.transfers") == [(72000, None)]
    with town.conn.transaction():
        escrow.release(town.desk, town.conn, booking.shifts[0])  # as after its approval
    town.mainspring.drain()
    assert [entry.body["amount"] for entry in town.sandbox.ledger.find("transfer")] == [72000]


@pytest.mark.rule("STAFF-1.40")
def test_what_was_disputed_after_the_charge_is_funded_and_frozen(town: Town) -> None:
    booking = town.booking(shifts=2)
    worked = town.shift(booking, date(2026, 6, 2), status="Working")
    charged(town, booking)
    dispute(town, booking, worked)

    town.mainspring.advance(seconds=3)

    assert town.ledger(booking) == (72000, 48000, 24000, 0, 0)
    frozen = town.rows("select time_log_id from staffing.escrow_holds where status = 'Frozen'")
    assert (frozen, town.rows("select * from staffing.transfers")) == ([(worked,)], [])


# -- failure


@pytest.mark.rule("STAFF-1.33", "STAFF-1.34", "STAFF-1.27")
@pytest.mark.parametrize(
    ("card", "code"),
    [
        ("pm_card_chargeDeclinedInsufficientFunds", "insufficient_funds"),
        ("pm_card_authenticationRequired", "action_required"),
    ],
)
def test_a_card_that_is_refused_is_tried_once_and_the_borrower_is_told_once(town: Town, card: str, code: str) -> None:
    booking = town.booking(shifts=1, card=card)
    near(town)

    done = town.mainspring.advance(to=W10 + timedelta(minutes=1))

    assert [(run.attempt, run.state) for run in done if run.task == "charge_week"] == [(1, "succeeded")]
    assert [run.state for run in done if run.task == "payment_changed"] == ["succeeded"]  # which says the same again
    assert (payments(town, booking), town.status(booking)) == ([(1, "Failed", 24000, code)], "Active")
    assert [intent.status for intent in intents(town)] == ["requires_payment_method"]  # nobody is asked to come back
    assert town.messages() == [
        ("action_required", booking.borrowing_admin, "email", "Sent"),
        ("action_required", booking.borrowing_admin, "sms", "Sent"),
    ]
    assert town.texts("action_required") == {
        f"Action Required: the weekly payment of $240.00 for booking {booking.id} failed. Please pay manually before"
        " 2026-06-04 00:00 (America/New_York), with another payment method if necessary."
    }
    assert town.alerts() == []
    assert [row[:4] for row in town.audit("payment_failed")] == [
        ("SYSTEM", "payment", town.value("select id from staffing.pending_payments"), code)
    ]


@pytest.mark.rule("STAFF-14.07", "STAFF-1.36")
def test_nobody_is_woken_to_what_is_paid_or_too_late(town: Town) -> None:
    late, paid, due = (town.booking(shifts=1, card="pm_card_chargeDeclinedInsufficientFunds") for _ in range(3))
    for booking, until in ((late, time(8)), (paid, time(21)), (due, time(21))):
        query = "update staffing.users set quiet_hours_start = '09:00', quiet_hours_end = %s where id = %s"
        town.conn.execute(query, [until, booking.borrowing_admin])
    near(town)
    town.mainspring.advance(to=W10 + timedelta(minutes=1))
    with town.conn.transaction():
        customer = town.row("companies", paid.borrower)["stripe_customer_id"]
        about: dict[str, Any] = {"customer": customer, "payment_method": "pm_card_visa", "by": paid.borrowing_admin}
        bookings.put_card(town.desk, town.conn, paid.borrower, **about)
        weekly.pay_by_hand(town.desk, town.conn, paid.id, by=paid.borrowing_admin)
    town.mainspring.advance(minutes=1)

    for morning in (T00 - timedelta(hours=3), T00 + timedelta(hours=8)):
        town.mainspring.clock.set(morning)
        town.mainspring.advance(minutes=1)
    query = """select recipient_id, status, reason from mainspring.notification_log
               where template = 'action_required' and channel = %s"""
    mails, sms = ({int(who): rest for who, *rest in town.rows(query, channel)} for channel in ("email", "sms"))
    assert {status for status, _ in mails.values()} == {"sent"}
    skipped = ["skipped", "no_longer_holds"]
    assert [sms[one.borrowing_admin] for one in (late, paid, due)] == [skipped, skipped, ["sent", None]]


@pytest.mark.rule("STAFF-1.33")
def test_a_failure_that_comes_later_is_told_in_the_same_way(town: Town) -> None:
    booking = town.booking(shifts=1, card="pm_card_processing")
    payment = charged(town, booking)

    assert [told(town, payment, "failed") for _ in range(2)] == ["Failed", "Failed"]

    assert payments(town, booking) == [(1, "Failed", 24000, "insufficient_funds")]
    assert (town.status(booking), funded(town, booking)) == ("Active", None)
    assert [(kind, channel) for kind, _, channel, _ in town.messages()] == [
        ("action_required", "email"), ("action_required", "sms"),
    ]  # fmt: skip


@pytest.mark.rule("STAFF-1.38", "STAFF-1.41")
@pytest.mark.parametrize(
    ("column", "value", "code"),
    [("card_on_file", None, "no_card"), ("stripe_customer_id", None, "no_customer"),
     ("card_on_file", "pm_gone", "resource_missing")],
)  # fmt: skip
def test_without_a_card_the_payment_fails_and_a_person_is_needed(
    town: Town, column: str, value: str | None, code: str
) -> None:
    booking = town.booking(shifts=1)
    town.conn.execute(f"update staffing.companies set {column} = %s where kind = 'Borrower'".encode(), [value])
    near(town)

    done = town.mainspring.advance(to=W10)

    assert [run.state for run in done if run.task == "charge_week"] == ["succeeded"]
    assert (payments(town, booking), intents(town)) == ([(1, "Failed", 24000, code)], [])
    assert len(town.messages("action_required")) == 2
    assert town.alerts() == [("payment_needs_a_person", f"booking {booking.id}", "warning")]
    assert town.status(booking) == "Active"

    customer = town.bank.v1.customers.create().id
    with town.conn.transaction():
        about: dict[str, Any] = {"customer": customer, "payment_method": "pm_card_visa", "by": booking.borrowing_admin}
        bookings.put_card(town.desk, town.conn, booking.borrower, **about)
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    town.mainspring.advance(seconds=5)
    assert payments(town, booking)[1:] == [(2, "Succeeded", 24000, None)]
    assert town.alerts() == []


@pytest.mark.rule("STAFF-1.38")
def test_a_charge_that_nobody_could_send_is_an_alert(town: Town) -> None:
    booking = town.booking(shifts=1)
    near(town)
    town.sandbox.faults.set(Fault(provider="stripe", kind="error", status=401, path="payment_intents"))

    town.mainspring.advance(to=W10, raise_errors=False)

    ((subject, text, *_),) = town.wrong("charge_failed")
    assert subject == f"booking {booking.id}"
    assert "charge_week: PROVIDER_CONFIGURATION" in text
    assert (payments(town, booking), town.messages()) == ([(1, "Pending", 24000, None)], [])  # it is not the borrower's


@pytest.mark.rule("STAFF-1.39")
def test_a_message_that_cannot_be_sent_does_not_keep_the_payment(town: Town) -> None:
    booking = town.booking(shifts=1, card="pm_card_chargeDeclined")
    town.sandbox.faults.set(Fault(provider="twilio", kind="error", status=503))
    near(town)

    done = town.mainspring.advance(to=W10, raise_errors=False)

    assert [run.state for run in done if run.task == "charge_week"] == ["succeeded"]
    assert payments(town, booking) == [(1, "Failed", 24000, "generic_decline")]
    assert {(channel, status) for _, _, channel, status in town.messages()} == {("email", "Sent"), ("sms", "Queued")}


@pytest.mark.rule("STAFF-1.37")
def test_payments_and_failures_that_were_told_are_counted(town: Town) -> None:
    lender = town.company("Lender")
    good, bad = town.company("Borrower"), town.company("Borrower", card_on_file="pm_card_chargeDeclined")
    for borrower in [good] * 8 + [bad] * 2:
        town.booking(shifts=1, borrower=borrower, lender=lender)
    slow = town.booking(shifts=1, card="pm_card_processing", lender=lender)  # not at its end
    with town.conn.transaction():
        about = {"ID": slow.id, "booking_id": slow.id}
        town.desk.tell(town.conn, "final_warning", [slow.borrowing_admin], about, occurrence=W10)  # no failure
    near(town)

    town.mainspring.advance(to=W10 + timedelta(seconds=5))

    assert town.measured("staffing_payments") == [("weekly", "Failed", 2), ("weekly", "Succeeded", 8)]
    assert town.measured("staffing_payment_failures_told") == [("email", 2), ("sms", 2)]


# -- no account


@pytest.mark.rule("STAFF-1.41")
@pytest.mark.parametrize("timing", ["on_verification", "on_webhook"])
def test_without_an_account_the_money_stays_held_and_is_paid_when_one_appears(
    town: Town, timing: str, request: pytest.FixtureRequest
) -> None:
    if timing == "on_webhook":
        request.getfixturevalue("on_webhook")
    lender = town.company("Lender", stripe_account_id=None)
    booking = town.booking(lender=lender)
    town.shift(booking, date(2026, 6, 2), status="Verified", verified_by="SYSTEM")
    charged(town, booking)
    town.mainspring.advance(seconds=3)
    assert town.ledger(booking) == (24000, 24000, 0, 0, 0)
    assert town.rows("select * from staffing.transfers") == []
    assert town.alerts() == [("lender_without_account", f"company {lender}", "warning")]

    account = town.account()
    with town.conn.transaction():
        accounts.connect_account(town.desk, town.conn, lender, account=account, by=booking.lending_admin)
    town.mainspring.drain()

    assert (town.ledger(booking), town.alerts()) == ((24000, 0, 0, 24000, 0), [])
    assert [(entry.body["amount"], entry.body["destination"]) for entry in town.sandbox.ledger.find("transfer")] == [
        (24000, account)
    ]
    with pytest.raises(Refused, match="company_id"):
        accounts.connect_account(town.desk, town.conn, lender, account=account, by=town.admin(lender))


# -- any order, any number


@pytest.mark.rule("STAFF-19.06")
@pytest.mark.parametrize("order", list(permutations(["pending", "failed", "succeeded"])))
def test_events_in_any_order_lead_to_the_same_end(town: Town, order: tuple[str, ...]) -> None:
    booking = town.booking(shifts=1, card="pm_card_processing")
    payment = charged(town, booking)

    for status in order * 2:
        told(town, payment, status)

    assert payments(town, booking) == [(1, "Succeeded", 24000, None)]
    assert (town.ledger(booking), funded(town, booking)) == ((24000, 24000, 0, 0, 0), FUNDED)


@pytest.mark.rule("STAFF-19.06")
def test_an_event_before_our_own_answer_is_applied(town: Town) -> None:
    booking = town.booking(shifts=1)
    near(town)
    # Charged, and the line breaks before the answer: the webhook comes while we know no intent yet.
    town.sandbox.faults.set(Fault(provider="stripe", kind="drop", path="payment_intents", method="POST", times=1))

    town.mainspring.advance(to=W10 + timedelta(seconds=2), raise_errors=False)
    assert payments(town, booking) == [(1, "Succeeded", 24000, None)]
    town.mainspring.advance(to=W10 + timedelta(minutes=2))  # the charge's next attempt finds it done

    assert (len(intents(town)), town.ledger(booking)) == (1, (24000, 24000, 0, 0, 0))
    assert town.value("select state from mainspring.jobs where task = 'charge_week'") == "succeeded"


@pytest.mark.rule("STAFF-1.34", "STAFF-19.06")
def test_a_decline_that_only_the_webhook_told_is_not_charged_again(town: Town) -> None:
    booking = town.booking(shifts=1, card="pm_card_chargeDeclined")
    near(town)
    town.sandbox.faults.set(Fault(provider="stripe", kind="drop", path="payment_intents", method="POST", times=1))

    town.mainspring.advance(to=W10 + timedelta(minutes=2), raise_errors=False)

    assert payments(town, booking) == [(1, "Failed", 24000, "generic_decline")]
    assert (len(intents(town)), len(town.messages("action_required"))) == (1, 2)


@pytest.mark.rule("STAFF-19.07")
def test_events_that_nobody_wants_are_ignored_and_unknown_payments_are_told(town: Town) -> None:
    near(town)
    customer = town.bank.v1.customers.create().id  # `customer.created`
    town.mainspring.advance(seconds=3)
    assert town.value("select count(*) from staffing.stripe_events where type = 'customer.created'") == 1
    assert town.value("select count(*) from mainspring.jobs where task = 'payment_changed'") == 0

    made = town.bank.v1.payment_intents.create({
        "amount": 500, "currency": "usd", "customer": customer, "payment_method": "pm_card_visa", "confirm": True,
        "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"},
    })  # fmt: skip
    town.only(at=town.now)
    town.mainspring.advance(seconds=5)
    assert town.wrong("unknown_payment") == []  # its row may still come
    town.mainspring.clock.set(town.now + town.desk.settings.unknown_payment_after)
    town.mainspring.drain(raise_errors=False)

    query = "select event_id from staffing.stripe_events where type = 'payment_intent.succeeded'"
    ((event,),) = town.rows(query)
    assert [row[0] for row in town.wrong("unknown_payment")] == [f"event {event}"]
    assert made.status == "succeeded"


# -- asking


@pytest.mark.rule("STAFF-19.08")
def test_a_payment_whose_webhook_was_lost_is_right_within_20_minutes(town: Town) -> None:
    booking = town.booking(shifts=1)
    near(town, W10 - SECOND, "payment-reconciliation")
    town.sandbox.stripe.post.manners.append(Manner(drop=True))

    town.mainspring.advance(to=W10 + timedelta(minutes=15) - SECOND)
    assert payments(town, booking) == [(1, "Pending", 24000, None)]
    town.mainspring.advance(to=W10 + timedelta(minutes=20))

    assert payments(town, booking) == [(1, "Succeeded", 24000, None)]
    assert (town.ledger(booking), funded(town, booking)) == ((24000, 24000, 0, 0, 0), FUNDED)


@pytest.mark.rule("STAFF-19.08")
def test_a_payment_whose_timer_is_missing_is_asked_for_by_the_sweep_of_the_hour_once_it_is_old(town: Town) -> None:
    hour = W10 + timedelta(hours=1)
    old, young = town.booking(shifts=1), town.booking(shifts=1)
    near(town, W10 - SECOND, "payment-reconciliation")
    town.sandbox.stripe.post.manners.append(Manner(drop=True))
    town.mainspring.advance(to=W10)
    for _, _, key in town.waiting("reconcile_payment"):
        town.mainspring.client.timers.cancel(str(key), reason="lost")
    for booking, age in ((old, timedelta(minutes=15)), (young, timedelta(minutes=15) - SECOND)):
        query = "update staffing.pending_payments set created_at = %s where booking_id = %s"
        town.conn.execute(query, [hour - age, booking.id])

    town.mainspring.clock.set(hour - SECOND)
    town.mainspring.drain()
    assert payments(town, old) == [(1, "Pending", 24000, None)]
    town.mainspring.advance(to=hour)

    assert payments(town, old) == [(1, "Succeeded", 24000, None)]
    assert payments(town, young) == [(1, "Pending", 24000, None)]


@pytest.mark.rule("STAFF-19.08")
def test_a_payment_that_was_never_sent_is_let_go_when_its_job_is_over(town: Town) -> None:
    booking = town.booking(shifts=1)
    near(town)
    town.sandbox.faults.set(Fault(provider="stripe", kind="error", status=401, path="payment_intents", times=1))
    town.mainspring.advance(to=W10, raise_errors=False)

    town.only("payment-reconciliation", at=W10 + timedelta(minutes=16))
    town.mainspring.advance(minutes=5)
    assert payments(town, booking) == [(1, "Canceled", 24000, "never_sent")]

    (dead,) = town.mainspring.client.dead.list()
    town.mainspring.client.dead.replay(dead.id, reason="the key is right again")
    town.mainspring.advance(seconds=3)
    assert payments(town, booking)[1:] == [(2, "Succeeded", 24000, None)]
    assert len(intents(town)) == 1


def _asking(town: Town, payment: int, verb: str) -> str:
    """Call a verb of `reconcile` as a job does."""

    class Ctx:
        attempt = 1
        job = type("job", (), {"id": "job"})
        transaction = staticmethod(lambda: _Committed(town))
        breaker = staticmethod(nullcontext)

    return str(getattr(reconcile, verb)(town.desk, Ctx(), payment))


class _Committed:
    def __init__(self, town: Town) -> None:
        self._transaction = town.conn.transaction()
        self._conn = town.conn

    def __enter__(self) -> Any:
        self._transaction.__enter__()
        return self._conn

    def __exit__(self, *error: Any) -> None:
        self._transaction.__exit__(*error)


@pytest.mark.rule("STAFF-3.08", "STAFF-3.24")
def test_a_payment_is_given_up_unless_it_was_paid_meanwhile(town: Town) -> None:
    slow, paid = town.booking(shifts=1, card="pm_card_processing"), town.booking(shifts=1)
    town.sandbox.stripe.post.manners.append(Manner(drop=True))
    first, second = charged(town, slow), charged(town, paid)

    assert (_asking(town, first, "ask"), _asking(town, second, "give_up")) == ("Pending", "Succeeded")
    assert town.ledger(paid) == (24000, 24000, 0, 0, 0)
    assert told(town, first, "canceled") == "Canceled"
    assert _asking(town, first, "give_up") == "Canceled"

    assert told(town, first, "succeeded") == "Canceled"  # the money came all the same: it goes back
    assert town.ledger(slow) == (24000, 0, 0, 0, 24000)
    assert ("late_payment_refunded", f"booking {slow.id}", "warning") in town.alerts()
    assert funded(town, slow) is None


@pytest.mark.rule("STAFF-3.24")
@pytest.mark.parametrize("status", ["Completed", "Suspended_Insurance"])
def test_a_payment_after_the_release_is_refunded_and_revives_nothing(town: Town, status: str) -> None:
    booking = town.booking(shifts=2, card="pm_card_processing")
    payment = charged(town, booking)
    town.mainspring.clock.set(T00 + timedelta(hours=2))
    town.conn.execute("update staffing.bookings set status = 'Completed', end_date = '2026-06-07'")
    before = "Completed" if status == "Suspended_Insurance" else None
    town.conn.execute("update staffing.bookings set status = %s, status_before_suspension = %s", [status, before])

    assert told(town, payment, "succeeded") == "Succeeded"

    assert (town.status(booking), funded(town, booking)) == (status, None)
    assert town.ledger(booking) == (48000, 0, 0, 0, 48000)
    assert town.rows("select payment_id, amount_minor from staffing.refunds") == [(payment, 48000)]
    assert town.alerts() == [("late_payment_refunded", f"booking {booking.id}", "warning")]


@pytest.mark.rule("STAFF-3.24")
def test_a_week_that_was_paid_twice_is_given_back_once(town: Town) -> None:
    booking = town.booking(shifts=1, card="pm_card_chargeDeclined")
    first = charged(town, booking)
    town.conn.execute("update staffing.companies set card_on_file = 'pm_card_visa' where kind = 'Borrower'")
    with town.conn.transaction():
        weekly.pay_by_hand(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    town.mainspring.advance(seconds=5)
    assert town.ledger(booking) == (24000, 24000, 0, 0, 0)

    assert [told(town, first, "succeeded") for _ in range(2)] == ["Failed", "Failed"]

    assert town.ledger(booking) == (48000, 24000, 0, 0, 24000)
    assert town.value("select count(*) from staffing.refunds") == 1


@pytest.mark.rule("STAFF-3.24")
@pytest.mark.parametrize(
    ("status", "end", "late"),
    [("Completed", "2026-06-07", True), ("Completed", "2026-06-08", False), ("Active", "2026-06-07", False)],
)
def test_only_a_week_after_the_release_comes_too_late(status: str, end: str, late: bool) -> None:
    start = weeks.midnight(date(2026, 6, 8), "America/New_York")
    assert charge.too_late(status, date.fromisoformat(end), start, "America/New_York") is late
