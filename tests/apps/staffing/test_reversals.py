"""A transfer is taken back from the lender: once, by an operator, for the borrower or to be divided anew."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from tests.apps.staffing.test_movements import verified
from tests.apps.staffing.town import Booking, Town

from mainspring.testing import Crash
from mainspring_apps.staffing.payments import accounts, escrow, movements, reversals
from mainspring_apps.staffing.states import NotAllowed, Refused
from mainspring_sandbox import Fault

CENTS = 24000  # of a shift
HOUR = timedelta(hours=1)


def arrived(town: Town, booking: Booking, shift: int | None = None) -> int:
    """The transfer of a shift's money, which the lender has."""
    with town.conn.transaction():
        (hold,) = escrow.release(town.desk, town.conn, shift or booking.shifts[0])
    town.mainspring.drain()
    return int(town.value("select id from staffing.transfers where escrow_hold_id = %s", hold.id))


def reverse(town: Town, transfer: int, **how: Any) -> int:
    about: dict[str, Any] = {"to": "held", "reason": "paid for the wrong week", "by": town.operator}
    with town.conn.transaction():
        return reversals.reverse_transfer(town.desk, town.conn, transfer, **about | how)


def divide(town: Town, booking: Booking, lender: int, borrower: int, **how: Any) -> None:
    about: dict[str, Any] = {"reason": "as both said", "by": town.operator}
    about |= {"lender_minor": lender, "borrower_minor": borrower}
    with town.conn.transaction():
        reversals.divide_set_aside(town.desk, town.conn, booking.id, **about | how)


def taken(town: Town) -> list[int]:
    """What the provider has taken back."""
    return [entry.body["amount"] for entry in town.sandbox.ledger.find("reversal")]


@pytest.mark.rule("STAFF-20.26")
def test_a_transfer_is_taken_back_once_by_an_operator_with_a_reason(town: Town) -> None:
    booking = verified(town)
    transfer = arrived(town, booking)
    for who in (booking.lending_admin, booking.borrowing_admin, booking.supervisor, booking.worker_user):
        with pytest.raises(NotAllowed):
            reverse(town, transfer, by=who)
    with pytest.raises(Refused, match="reason: is empty"):
        reverse(town, transfer, reason=" ")

    reversal = reverse(town, transfer, to="borrower")
    assert town.row("reversals", reversal)["idempotency_key"] == f"reversal:{transfer}"
    assert town.ledger(booking) == (CENTS, 0, 0, CENTS, 0)  # until the provider has done it
    with pytest.raises(Refused, match="is taken back already, or about to be"):
        reverse(town, transfer)
    town.mainspring.drain()
    with pytest.raises(Refused, match="is taken back already"):
        reverse(town, transfer, to="held")
    town.mainspring.drain()

    assert (taken(town), town.ledger(booking)) == ([CENTS], (CENTS, 0, 0, 0, CENTS))
    assert [entry.body["amount"] for entry in town.sandbox.ledger.find("refund")] == [CENTS]
    assert (town.row("transfers", transfer)["status"], town.row("reversals", reversal)["status"]) == (
        "Reversed", "Succeeded",
    )  # fmt: skip
    assert {message[1] for message in town.messages("transfer_reversed")} == {booking.lending_admin}
    assert {message[1] for message in town.messages("refund_made")} == {booking.borrowing_admin}
    assert town.texts("transfer_reversed") == {
        f"A payment of $240.00 for booking {booking.id} was taken back: paid for the wrong week"
    }
    ((_, entity, _, reason, _),) = town.audit("reverse_transfer")
    assert (entity, reason) == ("reversal", "paid for the wrong week")


@pytest.mark.rule("STAFF-20.26")
def test_what_came_back_to_held_is_paid_out_by_nobody_but_an_operator(town: Town) -> None:
    booking = verified(town)
    first = arrived(town, booking)
    reverse(town, first, to="held")
    town.mainspring.drain()
    assert town.ledger(booking) == (CENTS, CENTS, 0, 0, 0)
    assert town.alerts() == [("money_set_aside", f"booking {booking.id}", "warning")]

    payment = town.value("select id from staffing.pending_payments")
    with town.conn.transaction():
        assert escrow.release(town.desk, town.conn, booking.shifts[0]) == []
        accounts.pay_out(town.desk, town.conn, booking.id, payment)
        escrow.release_whole(town.desk, town.conn, payment)
        accounts.connect_account(town.desk, town.conn, booking.lender, account=town.account(), by=booking.lending_admin)
    town.mainspring.advance(hours=30)
    assert town.ledger(booking) == (CENTS, CENTS, 0, 0, 0)
    assert town.wrong("money_stands_still") == []

    with pytest.raises(NotAllowed):
        divide(town, booking, CENTS, 0, by=booking.lending_admin)
    with pytest.raises(Refused, match="are not the 24000"):
        divide(town, booking, CENTS, 1)
    divide(town, booking, 10000, 14000)
    with pytest.raises(Refused, match="nothing of this booking is set aside"):
        divide(town, booking, 10000, 14000)
    town.mainspring.drain()

    assert (town.ledger(booking), town.alerts()) == ((CENTS, 0, 0, 10000, 14000), [])
    ((second, key, status),) = town.rows(
        "select id, idempotency_key, status from staffing.transfers where id <> %s", first
    )
    hold = town.row("transfers", first)["escrow_hold_id"]
    assert (key, status) == (f"transfer:{hold}:after:{first}", "Succeeded")
    reverse(town, second, to="borrower")  # another transfer, taken back once as well
    town.mainspring.drain()
    assert (sorted(taken(town)), town.ledger(booking)) == ([10000, CENTS], (CENTS, 0, 0, 0, CENTS))


@pytest.mark.rule("STAFF-20.26")
def test_a_whole_week_is_taken_back_by_one_reversal(town: Town) -> None:
    booking = town.booking(shifts=3)
    payment = town.funded(booking)
    with town.conn.transaction():
        escrow.release_whole(town.desk, town.conn, payment)
    town.mainspring.drain()
    transfer = town.value("select id from staffing.transfers")
    reverse(town, transfer)
    town.mainspring.drain()

    assert (taken(town), town.ledger(booking)) == ([3 * CENTS], (3 * CENTS, 3 * CENTS, 0, 0, 0))
    divide(town, booking, 3 * CENTS, 0)
    town.mainspring.drain()
    assert town.ledger(booking) == (3 * CENTS, 0, 0, 3 * CENTS, 0)
    assert town.rows("select status, count(*) from staffing.transfers group by 1 order by 1") == [
        ("Reversed", 1), ("Succeeded", 3),
    ]  # fmt: skip


@pytest.mark.rule("STAFF-20.26")
@pytest.mark.parametrize("lost", ["crash", "answer", "job"])
def test_an_answer_that_is_lost_takes_the_money_back_once(
    town: Town, lost: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    booking = verified(town)
    transfer = arrived(town, booking)
    town.only("reversal-reconciliation")
    reversal = reverse(town, transfer)

    def die(*_: object) -> None:
        raise Crash

    if lost == "crash":
        with monkeypatch.context() as patch:
            patch.setattr(movements, "settle", die)
            town.mainspring.drain()
        town.mainspring.expire_leases()
    elif lost == "answer":
        town.sandbox.faults.set(Fault(provider="stripe", kind="drop", path="/reversals", method="POST", times=1))
    else:
        ((job,),) = town.rows("select id from mainspring.jobs where task = 'take_back'")
        town.mainspring.client.cancel(job, reason="lost")
        town.mainspring.advance(hours=2)
    town.mainspring.advance(minutes=2, raise_errors=False)

    assert (taken(town), town.ledger(booking)) == ([CENTS], (CENTS, CENTS, 0, 0, 0))
    assert town.row("reversals", reversal)["status"] == "Succeeded"


@pytest.mark.rule("STAFF-20.26")
def test_what_has_not_arrived_is_not_taken_back_and_a_refusal_waits_for_somebody(town: Town) -> None:
    booking = verified(town)
    with town.conn.transaction():
        escrow.release(town.desk, town.conn, booking.shifts[0])
    transfer = town.value("select id from staffing.transfers")
    with pytest.raises(Refused, match="is Pending: nothing has arrived yet"):
        reverse(town, transfer)
    town.mainspring.drain()
    town.sandbox.faults.set(Fault(provider="stripe", kind="error", path="/reversals", method="POST", status=400))
    reversal = reverse(town, transfer, to="borrower")
    town.mainspring.drain(raise_errors=False)

    assert (town.row("reversals", reversal)["status"], town.ledger(booking)) == ("Failed", (CENTS, 0, 0, CENTS, 0))
    assert [found[0] for found in town.wrong("reversal_failed")] == [f"reversal {reversal}"]
    town.sandbox.faults.clear()
    (dead,) = town.mainspring.client.dead.list()
    town.mainspring.client.dead.replay(dead.id, reason="the lender has money again")
    town.mainspring.drain()
    assert town.ledger(booking) == (CENTS, 0, 0, 0, CENTS)
