from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from msgspec import structs
from tests.apps.staffing.outages import away
from tests.apps.staffing.town import MONDAY, Booking, Town

from mainspring.contrib.stripe import Refund
from mainspring.testing import Crash
from mainspring_apps.staffing.payments import escrow, movements
from mainspring_apps.staffing.payments.movements import ToMake, carry_out
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox import Fault
from mainspring_sandbox.stripe import Manner


def verified(town: Town, **values: object) -> Booking:
    """A booking with one verified and funded shift of 240.00."""
    booking = town.booking(**values)  # type: ignore[arg-type]  # options of a booking
    town.shift(booking, MONDAY, status="Verified", verified_by="SYSTEM", auto_approval_time=town.now)
    town.funded(booking)
    return booking


def released(town: Town, booking: Booking) -> int:
    """The transfer of its money, asked for."""
    with town.conn.transaction():
        (hold,) = escrow.release(town.desk, town.conn, booking.shifts[0])
    return int(town.value("select id from staffing.transfers where escrow_hold_id = %s", hold.id))


def refunded(town: Town, booking: Booking) -> int:
    """The refund of its money, asked for."""
    hold = town.value("select id from staffing.escrow_holds where booking_id = %s", booking.id)
    with town.conn.transaction():
        escrow.refund(town.desk, town.conn, [hold])
    return int(town.value("select id from staffing.refunds where escrow_hold_id = %s", hold))


@pytest.mark.rule("STAFF-9.25", "STAFF-19.02")
def test_released_money_goes_to_the_lenders_account_once_under_the_key_of_its_hold(town: Town) -> None:
    booking = verified(town)
    transfer = released(town, booking)
    with town.conn.transaction():
        assert escrow.release(town.desk, town.conn, booking.shifts[0]) == []
    town.mainspring.drain()

    row = town.row("transfers", transfer)
    assert (row["status"], row["amount_minor"], row["settled_at"]) == ("Succeeded", 24000, town.now)
    assert row["idempotency_key"] == f"transfer:{row['escrow_hold_id']}"
    (made,) = town.sandbox.ledger.find("transfer")
    charge = town.value("select provider_charge_id from staffing.pending_payments")
    account = town.row("companies", booking.lender)["stripe_account_id"]
    assert (made.id, made.body["amount"], made.body["destination"]) == (row["provider_id"], 24000, account)
    assert made.body["source_transaction"] == charge
    assert town.bank.v1.transfers.retrieve(made.id).metadata["mainspring_key"] == row["idempotency_key"]
    assert town.ledger(booking) == (24000, 0, 0, 24000, 0)
    assert town.audit("transfer_succeeded") == [("SYSTEM", "transfer", transfer, None, None)]


@pytest.mark.rule("STAFF-19.02")
@pytest.mark.parametrize("kind", ["transfer", "refund"])
def test_a_worker_that_dies_after_the_call_moves_the_money_once(
    town: Town, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = verified(town)
    row = released(town, booking) if kind == "transfer" else refunded(town, booking)

    def die(*_: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(movements, "settle", die)
        town.mainspring.drain()
    assert town.row(f"{kind}s", row)["status"] == "Pending"
    town.mainspring.expire_leases()
    town.mainspring.drain()

    (made,) = town.sandbox.ledger.find(kind)
    found = town.row(f"{kind}s", row)
    assert (found["status"], found["provider_id"]) == ("Succeeded", made.id)
    keys = {"transfer": f"transfer:{found['escrow_hold_id']}", "refund": f"refund:{found['escrow_hold_id']}:shift"}
    assert found["idempotency_key"] == keys[kind]


@pytest.mark.rule("STAFF-9.29")
def test_a_release_that_fails_twice_comes_at_the_third_try_and_the_approval_stands(town: Town) -> None:
    booking = verified(town)
    transfer = released(town, booking)
    town.sandbox.faults.set(Fault(provider="stripe", kind="error", path="/v1/transfers", method="POST", times=2))

    runs = town.mainspring.advance(minutes=3, raise_errors=False)

    assert [run.state for run in runs if run.task == "pay_lender"] == ["scheduled", "scheduled", "succeeded"]
    assert town.shift_status(booking.shifts[0]) == "Verified"
    assert (town.row("transfers", transfer)["status"], len(town.sandbox.ledger.find("transfer"))) == ("Succeeded", 1)


@pytest.mark.rule("STAFF-9.30")
def test_a_release_that_is_refused_is_a_dead_letter_and_an_alert_and_a_replay_pays(town: Town) -> None:
    booking = verified(town)
    transfer = released(town, booking)
    town.sandbox.faults.set(Fault(provider="stripe", kind="error", path="/v1/transfers", method="POST", status=400))

    town.mainspring.drain(raise_errors=False)

    (dead,) = town.mainspring.client.dead.list()
    assert (dead.task, town.row("transfers", transfer)["status"]) == ("pay_lender", "Failed")
    assert [found[0] for found in town.wrong("transfer_failed")] == [f"transfer {transfer}"]
    town.sandbox.faults.clear()
    town.mainspring.client.dead.replay(dead.id, reason="the account was repaired")
    town.mainspring.drain()
    assert (town.row("transfers", transfer)["status"], len(town.sandbox.ledger.find("transfer"))) == ("Succeeded", 1)
    assert town.wrong("transfer_failed") == []


@pytest.mark.rule("STAFF-9.30", "STAFF-20.17")
def test_money_whose_way_the_provider_does_not_answer_waits_for_it_a_day_and_is_no_dead_letter(town: Town) -> None:
    paid, returned = verified(town), verified(town)
    town.only()
    rows = {"transfer": released(town, paid), "refund": refunded(town, returned)}
    with away(town, "breaks off"):  # both are made, and nobody hears of it
        town.mainspring.advance(hours=25, raise_errors=False)

        assert town.mainspring.client.dead.list() == []
        for kind, row in rows.items():
            found = town.row(f"{kind}s", row)
            assert (found["status"], found["try"]) == ("Pending", 1)
        assert sorted(found[0] for found in town.wrong("money_stands_still")) == [
            f"{kind} {row}" for kind, row in sorted(rows.items())
        ]
        assert town.sandbox.faults.struck["stripe", "drop"] < 25 * 60 / 10 + 20  # one asks for all

    town.mainspring.advance(minutes=30)
    assert (town.wrong("money_stands_still"), town.mainspring.client.dead.list()) == ([], [])
    for kind, row in rows.items():
        assert (town.row(f"{kind}s", row)["status"], len(town.sandbox.ledger.find(kind))) == ("Succeeded", 1)
    left = {task for task, _, _ in town.waiting()} & {"pay_lender", "refund_borrower", "reconcile_movement"}
    assert left == set()


@pytest.mark.rule("STAFF-19.08")
@pytest.mark.parametrize("timer", [True, False])
def test_what_the_provider_did_though_we_were_not_told_is_known_within_twenty_minutes(town: Town, timer: bool) -> None:
    booking = verified(town)
    town.only("movement-reconciliation", at=town.now + timedelta(minutes=42))
    transfer = released(town, booking)
    town.mainspring.client.cancel(key=f"transfers:{transfer}", reason="lost")
    if not timer:  # then the sweep of the full hour, eighteen minutes later
        ((_, _, key),) = town.waiting("reconcile_movement")
        town.mainspring.client.timers.cancel(str(key), reason="lost")
    row = town.row("transfers", transfer)
    account = str(town.row("companies", booking.lender)["stripe_account_id"])
    made = town.bank.v1.transfers.create(
        {"amount": 24000, "currency": "usd", "destination": account,
         "metadata": {"mainspring_key": row["idempotency_key"]}},
    )  # fmt: skip

    town.mainspring.advance(minutes=15)
    assert town.row("transfers", transfer)["status"] == "Pending"
    town.mainspring.advance(minutes=5)

    found = town.row("transfers", transfer)
    assert (found["status"], found["provider_id"]) == ("Succeeded", made.id)


@pytest.mark.rule("STAFF-19.08")
@pytest.mark.parametrize("lost", [False, True])
def test_a_pending_refund_ends_by_its_webhook_or_by_asking(town: Town, lost: bool) -> None:
    intent = paid_by(town, "pendingRefund")
    booking = verified(town)
    town.conn.execute("update staffing.pending_payments set provider_intent_id = %s", [intent])
    refund = refunded(town, booking)
    town.mainspring.drain()
    (made,) = town.sandbox.ledger.find("refund")
    pending = town.row("refunds", refund)
    assert (pending["status"], pending["provider_id"], pending["settled_at"]) == ("Pending", made.id, None)

    if lost:
        town.sandbox.stripe.post.manners.append(Manner(type="refund.*", drop=True))
    town.sandbox.stripe.settle(made.id, "succeeded")
    town.mainspring.advance(minutes=20 if lost else 1)

    assert town.row("refunds", refund)["status"] == "Succeeded"


@pytest.mark.rule("STAFF-20.25", "STAFF-19.02")
@pytest.mark.parametrize("card", ["pendingRefund", "refundFail"])  # what has not arrived, and what had
@pytest.mark.parametrize("by_hand", [False, True])
def test_a_refund_that_the_bank_sends_back_is_made_again_by_an_operator_here_or_at_the_provider(
    town: Town, card: str, by_hand: bool
) -> None:
    intent = paid_by(town, card)
    booking = verified(town)
    town.conn.execute("update staffing.pending_payments set provider_intent_id = %s", [intent])
    refund = refunded(town, booking)
    town.mainspring.drain()
    (made,) = town.sandbox.ledger.find("refund")

    town.sandbox.stripe.settle(made.id, "failed")
    town.mainspring.advance(minutes=1)

    assert town.row("refunds", refund)["status"] == "Failed"
    assert town.alerts() == [("refund_returned", f"refund {refund}", "critical")]
    held = "select time_log_id, status, amount_minor from staffing.escrow_holds order by id"
    before = town.rows(held)
    again = paid_by(town, "visa")
    town.conn.execute("update staffing.pending_payments set provider_intent_id = %s", [again])
    if by_hand:
        town.bank.v1.refunds.create({"payment_intent": again, "amount": 24000})
    else:
        with town.conn.transaction():
            movements.repeat_refund(town.desk, town.conn, refund, by=town.operator)
    town.mainspring.advance(minutes=1)
    assert town.row("refunds", refund)["status"] == "Succeeded"
    assert (town.rows(held), town.alerts()) == (before, [])  # of no other day
    assert len(town.rows("select from staffing.refunds")) == 1
    assert len(town.sandbox.ledger.find("refund")) == 2
    with pytest.raises(Refused, match="is Succeeded, not Failed"):
        movements.repeat_refund(town.desk, town.conn, refund, by=town.operator)

    old = Refund.read(town.bank.v1.refunds.retrieve(made.id).to_dict())
    for status in ("succeeded", "failed"):  # told again, in disorder
        said: Any = status
        with town.conn.transaction():
            row = movements.to_make(town.conn, "refunds", refund)
            movements.settle(town.desk, town.conn, "refunds", row, structs.replace(old, status=said))
        assert town.row("refunds", refund)["status"] == "Succeeded"


@pytest.mark.rule("STAFF-1.41")
def test_a_transfer_waits_for_an_account_that_has_gone(town: Town) -> None:
    booking = verified(town)
    transfer = released(town, booking)
    town.conn.execute("update staffing.companies set stripe_account_id = null where id = %s", [booking.lender])
    town.mainspring.drain()
    assert town.alerts() == [("lender_without_account", f"company {booking.lender}", "warning")]
    assert town.row("transfers", transfer)["status"] == "Pending"

    account = town.account()
    town.conn.execute("update staffing.companies set stripe_account_id = %s where id = %s", [account, booking.lender])
    town.mainspring.clock.set(town.now + timedelta(hours=1))
    town.mainspring.drain()

    (made,) = town.sandbox.ledger.find("transfer")
    assert (made.body["destination"], town.row("transfers", transfer)["status"]) == (account, "Succeeded")


@pytest.mark.rule("STAFF-1.31")
def test_nothing_is_transferred_before_its_payment_was_received(town: Town) -> None:
    booking = town.booking()
    payment = town.insert(
        "pending_payments", booking_id=booking.id, period_start=town.now, period_end=town.now + timedelta(days=7),
        amount_minor=24000, currency="USD", source="weekly", idempotency_key="charge:1", created_at=town.now,
    )  # fmt: skip
    transfer = town.insert(
        "transfers", payment_id=payment, amount_minor=24000, currency="USD", idempotency_key="transfer:payment:1",
        created_at=town.now,
    )  # fmt: skip

    ran = town.mainspring.run_one(carry_out("transfers", transfer), raise_errors=False)

    assert (ran.state, town.row("transfers", transfer)["status"]) == ("failed", "Pending")
    assert town.sandbox.ledger.find("transfer") == []


def test_a_row_is_carried_out_by_one_job(town: Town) -> None:
    assert carry_out("transfers", 7).key == "transfers:7"
    assert carry_out("refunds", 7).key == "refunds:7"
    row = ToMake(
        id=1, status="Pending", amount_minor=1, currency="USD", idempotency_key="transfer:1", try_=1, provider_id=None,
        created_at=town.now, booking_id=1,
    )  # fmt: skip
    assert row.key == "transfer:1"


def paid_by(town: Town, card: str) -> str:
    """An intent of 240.00 that was paid by a test card; nobody waits for its events."""
    town.sandbox.stripe.post.manners.append(Manner(type="payment_intent.*", drop=True))
    paid = town.bank.v1.payment_intents.create(
        {"amount": 24000, "currency": "usd", "customer": town.bank.v1.customers.create().id,
         "payment_method": f"pm_card_{card}", "confirm": True, "off_session": True,
         "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"}},
    )  # fmt: skip
    return paid.id
