"""What the provider does without us: refunds by hand, chargebacks, accounts and payouts."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.apps.staffing.sheets import leap, submitted
from tests.apps.staffing.test_movements import verified
from tests.apps.staffing.test_reversals import arrived, divide, reverse, taken
from tests.apps.staffing.town import MONDAY, Booking, Town

from mainspring_apps.staffing import shifts
from mainspring_apps.staffing.conflicts import disputes
from mainspring_apps.staffing.payments import accounts, arrears, escrow, no_shows, reversals
from mainspring_apps.staffing.states import Refused
from mainspring_sandbox.stripe import Manner

DAY = timedelta(days=1)
CENTS = 24000  # of a shift


def week(town: Town, shifts: int = 3) -> tuple[Booking, str, str]:
    """A booking with funded shifts; its intent and its charge at the provider."""
    booking = town.booking(shifts=shifts)
    payment = town.row("pending_payments", town.funded(booking))
    return booking, str(payment["provider_intent_id"]), str(payment["provider_charge_id"])


def by_hand(town: Town, intent: str, amount: int) -> str:
    """Somebody refunds in the provider's dashboard."""
    return town.bank.v1.refunds.create({"payment_intent": intent, "amount": amount}).id


def heard(town: Town) -> None:
    """Everything that the provider tells arrives."""
    town.mainspring.advance(minutes=1)


def standing(town: Town, booking: Booking) -> list[tuple[int, str, int]]:
    """(shift, status, amount) of the holds of a booking, by shift and part."""
    return town.rows(
        "select array_position(%s, time_log_id) - 1, status, amount_minor from staffing.escrow_holds"
        " where booking_id = %s order by time_log_id, part", booking.shifts, booking.id,
    )  # fmt: skip


@pytest.mark.rule("STAFF-20.25")
def test_a_refund_by_hand_takes_the_latest_shifts_first_and_is_told(town: Town) -> None:
    booking, intent, _ = week(town)
    made = by_hand(town, intent, CENTS + 4000)
    heard(town)

    assert standing(town, booking) == [
        (0, "Held", CENTS), (1, "Held", CENTS - 4000), (1, "Refunded", 4000), (2, "Refunded", CENTS),
    ]  # fmt: skip
    assert town.ledger(booking) == (3 * CENTS, 2 * CENTS - 4000, 0, 0, CENTS + 4000)
    ((refund, elsewhere, status, amount),) = town.rows(
        "select id, elsewhere, status, amount_minor from staffing.refunds where provider_id = %s", made
    )
    assert (elsewhere, status, amount) == (True, "Succeeded", CENTS + 4000)
    assert town.alerts() == [("refunded_elsewhere", f"refund {refund}", "warning")]
    assert {message[1] for message in town.messages("refund_made")} == {booking.borrowing_admin}
    assert town.texts("refund_made") == {
        f"$280.00 for booking {booking.id} is being refunded to the original payment method."
    }


@pytest.mark.rule("STAFF-20.25")
@pytest.mark.parametrize(
    "how", [{"copies": 3}, {"type": "refund.created", "drop": True}, {"type": "charge.*", "drop": True}]
)
def test_refunds_by_hand_count_once_however_they_are_told_and_ours_are_not_among_them(
    town: Town, how: dict[str, Any]
) -> None:
    booking, intent, _ = week(town)
    town.sandbox.stripe.post.manners.append(Manner(**how))
    with town.conn.transaction():
        held = town.value("select min(id) from staffing.escrow_holds")
        escrow.refund(town.desk, town.conn, [held])
    town.mainspring.drain()
    for amount in (5000, 7000):
        by_hand(town, intent, amount)
    heard(town)

    assert town.ledger(booking) == (3 * CENTS, 2 * CENTS - 12000, 0, 0, CENTS + 12000)
    kinds = town.rows("select elsewhere, status, amount_minor from staffing.refunds order by amount_minor")
    assert kinds == [(True, "Succeeded", 5000), (True, "Succeeded", 7000), (False, "Succeeded", CENTS)]
    assert standing(town, booking)[0] == (0, "Refunded", CENTS)


@pytest.mark.rule("STAFF-20.25")
def test_events_in_the_wrong_order_and_before_our_own_commit_end_in_the_same_ledger(town: Town) -> None:
    booking, intent, charge = week(town)
    town.conn.execute("update staffing.pending_payments set provider_intent_id = null")  # the answer is not committed
    town.sandbox.stripe.post.manners.append(Manner(hold=True))
    for amount in (5000, 7000):
        by_hand(town, intent, amount)
    dispute = town.sandbox.stripe.dispute(charge, 30000)
    town.sandbox.stripe.close_dispute(dispute["id"], "lost")
    town.sandbox.stripe.post.release([entry.id for entry in reversed(town.sandbox.stripe.post.held())])
    heard(town)
    assert town.ledger(booking) == (3 * CENTS, 3 * CENTS, 0, 0, 0)
    town.conn.execute("update staffing.pending_payments set provider_intent_id = %s", [intent])
    heard(town)

    assert town.ledger(booking) == (3 * CENTS, 30000, 0, 0, 12000)
    assert town.rows("select status, amount_minor from staffing.chargebacks") == [("Lost", 30000)]
    assert [name for name, _, _ in town.alerts()] == ["chargeback_lost", "refunded_elsewhere", "refunded_elsewhere"]


@pytest.mark.rule("STAFF-20.25")
def test_a_refund_by_hand_of_what_the_lender_has_is_a_critical_alert_and_the_ledger_stays(town: Town) -> None:
    booking = verified(town)
    transfer = arrived(town, booking)
    intent = town.value("select provider_intent_id from staffing.pending_payments")
    by_hand(town, intent, 10000)
    heard(town)

    assert town.ledger(booking) == (CENTS, 0, 0, CENTS, 0)
    ((text,),) = town.rows(
        "select text from mainspring.alert where name = 'refunded_elsewhere' and severity = 'critical'"
    )
    assert f"of which 100.00 USD is not with us any more; transfer {transfer} can be taken back" in text

    reverse(town, transfer, to="borrower")  # which had 100.00 of it already
    town.mainspring.drain()

    assert town.ledger(booking) == (CENTS, 0, 0, 0, CENTS)
    amounts = town.rows("select elsewhere, amount_minor, status from staffing.refunds order by id")
    assert amounts == [(True, 10000, "Succeeded"), (False, 14000, "Succeeded")]
    assert sum(entry.body["amount"] for entry in town.sandbox.ledger.find("refund")) == CENTS


def test_a_refund_of_somebody_else_is_told_after_an_hour_and_left_alone(town: Town) -> None:
    town.sandbox.stripe.post.manners.append(Manner(type="payment_intent.*", drop=True))
    paid = town.bank.v1.payment_intents.create(
        {"amount": CENTS, "currency": "usd", "customer": town.bank.v1.customers.create().id,
         "payment_method": "pm_card_visa", "confirm": True, "off_session": True,
         "automatic_payment_methods": {"enabled": True, "allow_redirects": "never"}},
    )  # fmt: skip
    by_hand(town, paid.id, 5000)
    town.only()
    heard(town)
    town.mainspring.clock.set(town.now + timedelta(minutes=59))
    town.mainspring.advance(minutes=2, raise_errors=False)

    assert len(town.wrong("refund_event_failed")) == len(town.wrong("refund_unasked")) == 1
    assert town.rows("select id from staffing.refunds") == []


@pytest.mark.rule("STAFF-20.25")
def test_a_chargeback_takes_what_is_held_at_once_and_what_is_won_goes_where_it_would_have_gone(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.shift(booking, MONDAY, status="Verified", verified_by="SYSTEM", auto_approval_time=town.now)
    town.shift(booking, MONDAY + DAY, status="Cancelled", cancelled_at=town.now, cancel_reason="Booking_Cancelled")
    charge = str(town.row("pending_payments", town.funded(booking))["provider_charge_id"])
    town.sandbox.stripe.post.manners.append(Manner(copies=2))

    dispute = town.sandbox.stripe.dispute(charge)
    heard(town)
    assert standing(town, booking) == [(n, "ChargedBack", CENTS) for n in range(3)]
    assert town.ledger(booking) == (3 * CENTS, 0, 0, 0, 0)
    assert town.rows("select charged_back from staffing.escrow") == [(3 * CENTS,)]
    chargeback = town.value("select id from staffing.chargebacks")
    assert town.alerts() == [("chargeback_open", f"chargeback {chargeback}", "critical")]
    with town.conn.transaction():
        assert escrow.release(town.desk, town.conn, booking.shifts[1]) == []

    town.sandbox.stripe.close_dispute(dispute["id"], "won")
    heard(town)
    assert standing(town, booking) == [(0, "Held", CENTS), (1, "Released", CENTS), (2, "Refunded", CENTS)]
    assert (len(town.sandbox.ledger.find("transfer")), len(town.sandbox.ledger.find("refund"))) == (1, 1)
    assert town.alerts() == []
    assert [row[0] for row in town.audit("chargeback_open") + town.audit("chargeback_won")] == ["SYSTEM"] * 2


@pytest.mark.rule("STAFF-20.25")
def test_a_chargeback_that_is_lost_stays_and_takes_what_comes_back_from_the_lender(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.shift(booking, MONDAY, status="Verified", verified_by="SYSTEM", auto_approval_time=town.now)
    charge = str(town.row("pending_payments", town.funded(booking))["provider_charge_id"])
    transfer = arrived(town, booking, booking.shifts[1])
    dispute = town.sandbox.stripe.dispute(charge)
    heard(town)
    town.sandbox.stripe.close_dispute(dispute["id"], "lost")
    heard(town)

    assert standing(town, booking) == [(0, "ChargedBack", CENTS), (1, "Released", CENTS)]
    chargeback = town.value("select id from staffing.chargebacks")
    assert town.alerts() == [("chargeback_lost", f"chargeback {chargeback}", "critical")]
    ((text,),) = town.rows("select text from mainspring.alert where name = 'chargeback_lost'")
    assert text == (
        f"booking {booking.id}: 480.00 USD is charged back for good (fraudulent), of which 240.00 USD is not with us "
        f"any more; transfer {transfer} can be taken back"
    )
    reverse(town, transfer, to="borrower")  # whose bank has given it back already
    town.mainspring.drain()
    assert standing(town, booking) == [(0, "ChargedBack", CENTS), (1, "ChargedBack", CENTS)]
    assert (town.sandbox.ledger.find("refund"), town.messages("refund_made")) == ([], [])


@pytest.mark.rule("STAFF-20.25")
def test_what_is_won_after_its_week_was_sent_is_sent_alone(town: Town) -> None:
    booking, _, charge = week(town, 2)
    payment = town.value("select id from staffing.pending_payments")
    dispute = town.sandbox.stripe.dispute(charge, CENTS)
    heard(town)
    for verdict, sent in ((None, CENTS), ("won", 2 * CENTS)):
        if verdict:
            town.sandbox.stripe.close_dispute(dispute["id"], "won")
            heard(town)
        with town.conn.transaction():
            escrow.release_whole(town.desk, town.conn, payment)
        town.mainspring.drain()
        assert town.ledger(booking)[3] == sent
        assert sum(entry.body["amount"] for entry in town.sandbox.ledger.find("transfer")) == sent


@pytest.mark.rule("STAFF-20.25")
def test_a_bank_that_only_asks_takes_nothing_before_it_charges_back(town: Town) -> None:
    booking, _, charge = week(town, 1)
    dispute = town.sandbox.stripe.dispute(charge, inquiry=True)
    heard(town)
    chargeback = town.value("select id from staffing.chargebacks")
    assert town.ledger(booking) == (CENTS, CENTS, 0, 0, 0)
    assert town.alerts() == [("chargeback_inquiry", f"chargeback {chargeback}", "warning")]

    town.sandbox.stripe.escalate(dispute["id"])
    heard(town)
    assert town.ledger(booking) == (CENTS, 0, 0, 0, 0)
    assert town.alerts() == [("chargeback_open", f"chargeback {chargeback}", "critical")]


@pytest.mark.rule("STAFF-20.25")
@pytest.mark.parametrize("settled", [False, True])
def test_frozen_money_that_is_won_is_frozen_again_or_waits_for_an_operator(town: Town, settled: bool) -> None:
    booking, shift = submitted(town)
    with town.conn.transaction():
        dispute = disputes.file_dispute(town.desk, town.conn, shift, option="A", by=booking.borrowing_admin)
    charge = str(town.value("select provider_charge_id from staffing.pending_payments"))
    complaint = town.sandbox.stripe.dispute(charge)
    heard(town)
    assert standing(town, booking) == [(0, "ChargedBack", CENTS)]
    if settled:
        with town.conn.transaction():
            disputes.resolve_dispute(town.desk, town.conn, dispute, status="Resolved", by=town.operator)
    town.sandbox.stripe.close_dispute(complaint["id"], "won")
    heard(town)

    assert standing(town, booking) == [(0, "Held" if settled else "Frozen", CENTS)]
    assert town.value("select set_aside from staffing.escrow_holds") is settled
    asked = ("money_set_aside", f"booking {booking.id}", "warning")
    assert (asked in town.alerts()) is settled


@pytest.mark.rule("STAFF-20.25")
def test_an_account_that_cannot_be_paid_is_told_until_it_can_and_old_news_changes_nothing(town: Town) -> None:
    lender = town.company("Lender")
    account = str(town.row("companies", lender)["stripe_account_id"])
    told = [("lender_account_restricted", f"company {lender}", "warning")]
    town.sandbox.stripe.require(account, "individual.id_number")
    heard(town)
    assert town.alerts() == told
    town.sandbox.stripe.require(account)
    heard(town)
    assert town.alerts() == []

    town.sandbox.stripe.post.manners.append(Manner(times=1, delay=600))  # it is overtaken
    town.sandbox.stripe.restrict(account, transfers="inactive")
    heard(town)
    town.sandbox.stripe.restrict(account, transfers="active")
    heard(town)
    town.mainspring.advance(minutes=10)
    assert town.alerts() == []

    town.sandbox.stripe.require(account, "individual.id_number")
    heard(town)
    with town.conn.transaction():
        accounts.connect_account(town.desk, town.conn, lender, account=town.account(), by=town.admin(lender))
    assert town.alerts() == []


@pytest.mark.rule("STAFF-20.25")
def test_a_payout_that_comes_back_is_told_with_the_company_whose_it_is(town: Town) -> None:
    lender = town.company("Lender")
    town.sandbox.stripe.fail_payout(str(town.row("companies", lender)["stripe_account_id"]), 12345)
    heard(town)

    assert town.alerts() == [("payout_failed", f"company {lender}", "warning")]
    ((text,),) = town.rows("select text from mainspring.alert")
    assert "123.45 USD: account_closed" in text


@pytest.mark.rule("STAFF-20.25")
def test_a_transfer_that_is_reversed_by_hand_is_set_aside_whole_or_in_part(town: Town) -> None:
    booking = verified(town)
    transfer = arrived(town, booking)
    made = str(town.row("transfers", transfer)["provider_id"])
    for part, ledger in ((4000, (CENTS, 4000, 0, CENTS - 4000, 0)), (CENTS - 4000, (CENTS, CENTS, 0, 0, 0))):
        town.bank.v1.transfers.reversals.create(made, {"amount": part})
        heard(town)
        assert town.ledger(booking) == ledger

    told = [("money_set_aside", f"booking {booking.id}", "warning"),
            ("transfer_reversed_elsewhere", f"transfer {transfer}", "critical")]  # fmt: skip
    assert sorted(town.alerts()) == told
    assert town.row("transfers", transfer)["status"] == "Reversed"
    assert {who for _, who, *_ in town.messages("transfer_reversed")} == {booking.lending_admin}
    event = town.value("select max(event_id) from mainspring.inbound where type = 'transfer.reversed'")
    town.mainspring.client.enqueue(reversals.transfer_reversed.job(provider="stripe", event_id=event))  # told again
    town.mainspring.drain()
    assert town.ledger(booking) == (CENTS, CENTS, 0, 0, 0)


@pytest.mark.rule("STAFF-20.25", "STAFF-20.26")
@pytest.mark.parametrize("refused", [True, False])
def test_of_a_transfer_that_was_reversed_in_part_an_operator_takes_back_the_rest(town: Town, refused: bool) -> None:
    booking = verified(town)
    transfer = arrived(town, booking)
    town.bank.v1.transfers.reversals.create(str(town.row("transfers", transfer)["provider_id"]), {"amount": 4000})
    if refused:  # asked for the whole, before we know
        reverse(town, transfer, to="borrower")
        town.mainspring.drain(raise_errors=False)
    heard(town)
    assert town.ledger(booking) == (CENTS, 4000, 0, CENTS - 4000, 0)
    reverse(town, transfer, to="borrower")
    heard(town)
    divide(town, booking, 0, 4000)
    heard(town)
    assert (town.ledger(booking), town.alerts()) == ((CENTS, 0, 0, 0, CENTS), [])
    assert sorted(taken(town)) == [4000, CENTS - 4000]
    assert town.mainspring.client.dead.list() == []


@pytest.mark.rule("STAFF-20.25", "STAFF-20.07", "STAFF-1.42")
def test_a_shift_whose_money_was_taken_back_is_told_before_it_and_is_no_no_show(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY])
    town.funded(booking)
    starts = town.row("time_log", booking.shifts[0])["scheduled_start_time"]
    assert town.wrong("unfunded_shift") == []
    town.sandbox.stripe.dispute(str(town.value("select provider_charge_id from staffing.pending_payments")))
    heard(town)
    assert town.wrong("unfunded_shift") == [
        (f"shift {booking.shifts[0]}", f"booking {booking.id} goes on, and the shift is not paid for")
    ]
    leap(town, starts + timedelta(days=2))
    town.mainspring.run_one(no_shows.refund_no_show.job(time_log_id=booking.shifts[0]))
    assert town.row("time_log", booking.shifts[0])["cancel_reason"] == "Payment_Taken_Back"


@pytest.mark.rule("STAFF-20.25", "STAFF-20.26")
def test_what_we_reverse_ourselves_is_not_told_as_somebody_elses(town: Town) -> None:
    booking = verified(town)
    transfer = arrived(town, booking)
    reverse(town, transfer, to="borrower")
    heard(town)
    assert (town.ledger(booking), town.alerts()) == ((CENTS, 0, 0, 0, CENTS), [])
    assert town.waiting("transfer_reversed") == []


@pytest.mark.rule("STAFF-20.25")
@pytest.mark.parametrize("how", ["the account is good again", "another account"])
def test_a_refused_transfer_goes_on_by_itself_once_the_lender_can_be_paid(town: Town, how: str) -> None:
    booking = verified(town)
    account = str(town.row("companies", booking.lender)["stripe_account_id"])
    town.sandbox.stripe.restrict(account, transfers="inactive")
    heard(town)
    with town.conn.transaction():
        escrow.release(town.desk, town.conn, booking.shifts[0])
    town.mainspring.drain(raise_errors=False)
    assert [letter.task for letter in town.mainspring.client.dead.list()] == ["pay_lender"]

    if how == "another account":
        with town.conn.transaction():
            accounts.connect_account(
                town.desk, town.conn, booking.lender, account=town.account(), by=booking.lending_admin
            )
    else:
        town.sandbox.stripe.restrict(account, transfers="active")
    heard(town)
    assert [entry.body["amount"] for entry in town.sandbox.ledger.find("transfer")] == [CENTS]
    assert (town.mainspring.client.dead.list(), town.wrong("transfer_failed"), town.alerts()) == ([], [], [])


@pytest.mark.rule("STAFF-20.25", "STAFF-20.05", "STAFF-20.14")
@pytest.mark.parametrize("ours", [True, False])  # by a refund in the dashboard, or by a bank
def test_who_is_not_paid_any_more_is_not_asked_to_work_until_the_borrower_pays_again_by_hand(
    town: Town, ours: bool
) -> None:
    """Monday is worked when its money is taken, Tuesday is to come; no card is charged that nobody has asked to."""
    monday = town.now.date()
    booking = town.booking(shifts=[monday, monday + DAY])
    done, ahead = booking.shifts
    payment = town.row("pending_payments", town.funded(booking))
    town.only()
    sheets_day = town.row("time_log", done)
    leap(town, sheets_day["scheduled_start_time"])
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, done, by=booking.worker_user)
    if ours:
        by_hand(town, str(payment["provider_intent_id"]), 2 * CENTS - 100)
    else:
        town.sandbox.stripe.dispute(str(payment["provider_charge_id"]))
    heard(town)
    leap(town, sheets_day["scheduled_end_time"])
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, done, by=booking.worker_user)
        shifts.verify_timesheet(town.desk, town.conn, done, by=booking.borrowing_admin)
    town.mainspring.drain()
    left = 100 if ours else 0  # what was taken first was the later shift's
    assert town.ledger(booking)[3] == left
    assert ours or ("unfunded_work", f"time_log {done}", "warning") in town.alerts()
    leap(town, town.row("time_log", ahead)["scheduled_start_time"])
    with pytest.raises(Refused, match="payment: the money of the shift was taken back") as refused:
        shifts.clock_in(town.desk, town.conn, ahead, by=booking.worker_user)
    assert refused.value.field == "payment"
    assert town.value("select count(*) from staffing.pending_payments") == 1

    for _ in range(2):
        with town.conn.transaction():
            arrears.pay_arrears(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    town.mainspring.advance(seconds=5)
    assert town.rows("select source, status, amount_minor::int from staffing.pending_payments where id > %s",
                     payment["id"]) == [("arrears", "Succeeded", 2 * CENTS - left)]  # fmt: skip
    with pytest.raises(Refused, match="its work is charged with its weeks"):  # Wednesday's is
        arrears.pay_arrears(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    assert (town.ledger(booking)[3], escrow.ledger(town.conn, booking.id).even) == (CENTS, True)
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, ahead, by=booking.worker_user)
    if not ours:  # what the bank gives back after all is not needed any more, or goes back when Tuesday is verified
        (dispute,) = town.sandbox.ledger.find("stripe.dispute")
        town.sandbox.stripe.close_dispute(dispute.id, "won")
        heard(town)
        leap(town, town.row("time_log", ahead)["scheduled_end_time"])
        with town.conn.transaction():
            shifts.submit_timesheet(town.desk, town.conn, ahead, by=booking.worker_user)
            shifts.verify_timesheet(town.desk, town.conn, ahead, by=booking.borrowing_admin)
        town.mainspring.drain()
        # Who clocked in five seconds late has worked a minute less.
        assert town.ledger(booking) == (4 * CENTS, 0, 0, 2 * CENTS - 50, 2 * CENTS + 50)


@pytest.mark.rule("STAFF-20.25", "STAFF-20.05")
def test_a_part_that_was_taken_back_keeps_a_shift_closed_until_it_has_come_again(town: Town) -> None:
    booking, intent, _ = week(town, 1)
    (shift,) = booking.shifts
    town.conn.execute("update staffing.companies set card_on_file = 'pm_card_processing' where kind = 'Borrower'")
    by_hand(town, intent, 100)
    heard(town)
    town.only()
    leap(town, town.row("time_log", shift)["scheduled_start_time"])

    def clock_in() -> None:
        with town.conn.transaction():
            shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)

    with pytest.raises(Refused, match="was taken back"):
        clock_in()
    with town.conn.transaction():
        arrears.pay_arrears(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    heard(town)
    with pytest.raises(Refused, match="was taken back"):  # it is on its way
        clock_in()
    with pytest.raises(Refused, match="its work is charged with its weeks"):  # and is charged once
        arrears.pay_arrears(town.desk, town.conn, booking.id, by=booking.borrowing_admin)
    again = town.value("select provider_intent_id from staffing.pending_payments where source = 'arrears'")
    town.sandbox.stripe.settle(again, "succeeded")
    heard(town)
    clock_in()
    assert town.ledger(booking) == (CENTS + 100, CENTS, 0, 0, 100)
