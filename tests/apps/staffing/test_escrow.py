from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from itertools import permutations
from typing import Any

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.apps.staffing.town import MONDAY, NEXT_MONDAY, Booking, Town

import mainspring as ms
from mainspring.contrib.money import Money
from mainspring_apps.staffing import states
from mainspring_apps.staffing.payments import escrow
from mainspring_apps.staffing.rules import pay
from mainspring_apps.staffing.rules.penalty import penalty
from mainspring_apps.staffing.settings import Settings
from mainspring_apps.staffing.states import Refused

HOUR = timedelta(hours=1)


# -- formula P


@pytest.mark.rule("STAFF-10.14", "STAFF-10.17")
@pytest.mark.parametrize(
    ("long_term", "held", "notice", "owed"),
    [
        (False, 24000, timedelta(hours=23, minutes=59), 12000),
        (False, 24000, 24 * HOUR, 0),
        (False, 101, 2 * HOUR, 51),  # and 50 go back
        (True, 24000, 10 * HOUR, 24000),
        (True, 24000, 24 * HOUR, 0),
        (True, 24000, 24 * HOUR - timedelta(seconds=1), 24000),
        (True, 24000, timedelta(days=3), 0),
        (False, 0, HOUR, 0),
        (True, 0, HOUR, 0),
    ],
)
def test_formula_p(long_term: bool, held: int, notice: timedelta, owed: int) -> None:
    assert penalty(held, Settings(), notice=notice, long_term=long_term) == owed


@pytest.mark.rule("STAFF-10.17", "STAFF-19.09")
@given(st.integers(0, 10**12), st.integers(-100, 100), st.booleans())
def test_a_penalty_is_a_whole_part_of_the_hold(held: int, hours: int, long_term: bool) -> None:
    owed = penalty(held, Settings(), notice=hours * HOUR, long_term=long_term)
    assert isinstance(owed, int)
    assert 0 <= owed <= held
    if not long_term and hours < 24:
        assert owed - (held - owed) in (0, 1)  # half, and the odd unit


@pytest.mark.rule("STAFF-19.09")
def test_yen_have_no_cents_and_currencies_are_never_added(town: Town) -> None:
    assert pay.shift_pay(90, 1501, 0) == 2252  # yen: half of one rounds up
    assert str(Money(2252, "JPY")) == "2252 JPY"
    assert penalty(2251, Settings(), notice=HOUR, long_term=False) == 1126
    holds = [
        escrow.Hold(
            id=n, booking_id=1, time_log_id=1, payment_id=1, kind="Shift", part=0, amount_minor=100, currency=currency,
            status="Frozen", dispute_id=1,
        )
        for n, currency in enumerate(("USD", "JPY"))
    ]  # fmt: skip
    with pytest.raises(ms.ValidationError, match="USD and JPY do not mix"):
        escrow.settle(town.desk, town.conn, holds, lender_minor=100, borrower_minor=100)


# -- money that comes


@pytest.mark.rule("STAFF-1.40")
def test_money_of_a_shift_that_was_disputed_since_the_charge_is_frozen(town: Town) -> None:
    booking = town.booking()
    town.shift(booking, MONDAY, status="Disputed", auto_approval_time=town.now)
    town.shift(booking, NEXT_MONDAY)
    dispute = disputed(town, booking)
    payment = charged(town, booking)

    with received(town, payment):
        assert len(escrow.fund(town.desk, town.conn, payment)) == 2
        assert escrow.fund(town.desk, town.conn, payment) == []  # once

    assert town.ledger(booking) == (48000, 24000, 24000, 0, 0)
    assert holds(town, booking) == [("Shift", 24000, "Frozen", dispute), ("Shift", 24000, "Held", None)]
    assert town.waiting("pay_lender") == []


@pytest.mark.rule("STAFF-10.15", "STAFF-10.16")
@pytest.mark.parametrize(
    ("status", "said", "lender"),
    [("Open", None, 0), ("Legal_Hold", None, 0), ("Settled", None, 12000), ("Settled", (6000, 18000), 3000)],
)
def test_money_of_a_shift_that_a_dispute_cancelled_since_the_charge_is_split_as_then(
    town: Town, status: str, said: tuple[int, int] | None, lender: int
) -> None:
    booking = town.booking(payment_type="Upfront")
    town.shift(booking, MONDAY, status="Verified", auto_approval_time=town.now)
    ended: dict[str, Any] = {"status": "Cancelled", "cancelled_at": town.now, "cancel_reason": "Dispute_Timeout"}
    soon = town.shift(booking, MONDAY, **ended)  # at nine: nine hours later
    late = town.shift(booking, NEXT_MONDAY, **ended)
    ends = dict(zip(("settlement_lender_minor", "settlement_borrower_minor"), said or (), strict=False))
    dispute = disputed(town, booking, timed_out_at=town.now, status=status, **ends)
    payment = charged(town, booking, soon, late)
    town.mainspring.clock.set(town.now + timedelta(days=1))

    with received(town, payment):
        escrow.fund(town.desk, town.conn, payment)

    over = status == "Settled"  # then nobody can settle the penalty any more, and it follows what was said
    assert town.ledger(booking) == (48000, 0, 0 if over else 12000, lender, 36000 + over * (12000 - lender))
    assert ("Penalty", lender or 12000, "Released" if over else "Frozen", dispute) in holds(town, booking)
    assert len(town.waiting("refund_borrower")) == 2 + (said is not None)
    assert len(town.waiting("pay_lender")) == over


def test_money_of_a_shift_that_was_cancelled_without_a_dispute_goes_back(town: Town) -> None:
    booking = town.booking()
    town.shift(booking, MONDAY, status="Cancelled", cancelled_at=town.now, cancel_reason="Weekly Payment Hard Cutoff")
    payment = charged(town, booking)
    with received(town, payment):
        escrow.fund(town.desk, town.conn, payment)
    assert town.ledger(booking) == (24000, 0, 0, 0, 24000)


@pytest.mark.rule("STAFF-10.16", "STAFF-10.17")
def test_a_long_term_shift_inside_the_notice_is_owed_whole_and_one_outside_goes_back(town: Town) -> None:
    booking = town.booking(shifts=[MONDAY, NEXT_MONDAY])
    town.funded(booking)
    dispute = disputed(town, booking)
    with town.conn.transaction():
        assert escrow.split(town.desk, town.conn, booking.shifts[0], town.now, dispute) == (24000, 0)
        assert escrow.split(town.desk, town.conn, booking.shifts[1], town.now, dispute) == (0, 24000)
        assert escrow.split(town.desk, town.conn, booking.shifts[1], town.now, dispute) == (0, 0)  # once
    assert holds(town, booking) == [("Penalty", 24000, "Frozen", dispute), ("Shift", 24000, "Refunded", None)]


# -- money that goes


@pytest.mark.rule("STAFF-10.33")
@pytest.mark.parametrize("lender", [0, 1, 24000, 24001, 35000, 48000])
def test_a_settlement_divides_everything_that_is_frozen_to_the_cent(town: Town, lender: int) -> None:
    booking, dispute = frozen(town)
    with town.conn.transaction():
        found = escrow.frozen(town.conn, dispute_id=dispute)
        for off in (-1, 1):
            with pytest.raises(Refused, match="settlement") as refused:
                escrow.settle(town.desk, town.conn, found, lender_minor=lender, borrower_minor=48000 - lender + off)
            assert refused.value.field == "settlement"
        escrow.settle(town.desk, town.conn, found, lender_minor=lender, borrower_minor=48000 - lender)

    assert town.ledger(booking) == (48000, 0, 0, lender, 48000 - lender)
    sums = town.rows(
        "select coalesce((select sum(amount_minor) from staffing.transfers), 0)::int,"
        " coalesce((select sum(amount_minor) from staffing.refunds), 0)::int"
    )
    assert sums == [(lender, 48000 - lender)]


def test_a_settlement_below_zero_is_refused(town: Town) -> None:
    _, dispute = frozen(town)
    found = escrow.frozen(town.conn, dispute_id=dispute)
    with pytest.raises(Refused, match="settlement"):
        escrow.settle(town.desk, town.conn, found, lender_minor=-1, borrower_minor=48001)


def test_what_is_not_verified_is_not_released(town: Town) -> None:
    booking = town.booking(shifts=1)
    town.funded(booking)
    with town.conn.transaction():
        assert escrow.release(town.desk, town.conn, booking.shifts[0]) == []
    assert town.ledger(booking) == (24000, 24000, 0, 0, 0)


@pytest.mark.rule("STAFF-1.31")
def test_a_whole_week_leaves_as_one_transfer_without_what_is_frozen(town: Town) -> None:
    booking = town.booking(shifts=3)
    payment = town.funded(booking)
    with town.conn.transaction():
        escrow.freeze(town.conn, booking.shifts[0], disputed(town, booking))
        assert escrow.release_whole(town.desk, town.conn, payment) == 1
        assert escrow.release_whole(town.desk, town.conn, payment) == 0
    town.mainspring.drain()
    assert [entry.body["amount"] for entry in town.sandbox.ledger.find("transfer")] == [48000]
    assert town.ledger(booking) == (72000, 0, 24000, 48000, 0)


@pytest.mark.rule("STAFF-3.24")
def test_a_payment_that_came_too_late_goes_back_by_one_refund(town: Town) -> None:
    booking = town.booking(shifts=2)
    payment = charged(town, booking)
    with received(town, payment):
        assert escrow.refund_whole(town.desk, town.conn, payment) == 1
        assert escrow.refund_whole(town.desk, town.conn, payment) == 0
    assert town.rows("select amount_minor::int, idempotency_key from staffing.refunds") == [
        (48000, f"refund:payment:{payment}")
    ]
    assert town.ledger(booking) == (48000, 0, 0, 0, 48000)


# -- transitions


@pytest.mark.rule("STAFF-19.10")
@pytest.mark.parametrize("entity", list(states.TRANSITIONS))
def test_every_pair_of_statuses_is_allowed_or_refused_alike_by_the_code_and_the_database(
    town: Town, entity: str
) -> None:
    booking = town.booking(shifts=1)
    payment = town.funded(booking)
    allowed = states.TRANSITIONS[entity]
    for before, after in permutations(allowed, 2):
        expected = after in allowed[before]
        try:
            states.check(entity, before, after)
            said = True
        except Refused as refused:
            said = refused.field != "status"
        with town.conn.transaction(force_rollback=True):
            row = a_row(town, booking, payment, entity, before)
            assert (said, moves(town, entity, row, after)) == (expected, expected), f"{entity}: {before} → {after}"


def moves(town: Town, entity: str, row: int, after: str) -> bool:
    """Whether the database lets a row go to another status; what else a status needs is not the question."""
    try:
        with town.conn.transaction():
            town.conn.execute(f"update staffing.{entity} set status = %s where id = %s".encode(), [after, row])
    except psycopg.errors.CheckViolation as error:
        return "cannot go from" not in str(error)
    return True


def a_row(town: Town, booking: Booking, payment: int, entity: str, status: str) -> int:
    """A row in a status, with what the status needs."""
    at = town.now
    match entity:
        case "bookings":
            return town.booking(
                status=status, status_before_suspension="Active" if status == "Suspended_Insurance" else None,
                borrower=booking.borrower, lender=booking.lender, worker=booking.worker,
            ).id  # fmt: skip
        case "time_log":
            cancelled: dict[str, Any] = {"cancelled_at": at} if status == "Cancelled" else {}
            return town.shift(booking, NEXT_MONDAY, status=status, auto_approval_time=at, **cancelled)
        case "disputes":
            return disputed(town, booking, status=status)
        case "incident_reports":
            return town.insert(entity, booking_id=booking.id, dispute_option="A", status=status, filed_at=at)
        case "pending_payments":
            return town.insert(
                entity, booking_id=booking.id, period_start=at + timedelta(days=70), period_end=at + timedelta(days=77),
                amount_minor=0 if status == "Not_Required" else 1, currency="USD", status=status, source="weekly",
                idempotency_key="k", created_at=at,
            )  # fmt: skip
        case "chargebacks":
            return town.insert(
                entity, payment_id=payment, provider_id="dp_1", amount_minor=1, currency="USD", reason="fraudulent",
                status=status, created_at=at,
            )  # fmt: skip
        case "escrow_holds":
            by = a_row(town, booking, payment, "chargebacks", "Open") if status == "ChargedBack" else None
            return town.insert(
                entity, booking_id=booking.id, time_log_id=booking.shifts[0], payment_id=payment, part=9,
                amount_minor=1, currency="USD", status=status, created_at=at, chargeback_id=by,
            )  # fmt: skip
        case "reversals":
            transfer = a_row(town, booking, payment, "transfers", "Succeeded")
            return town.insert(
                entity, transfer_id=transfer, destination="held", reason="x", amount_minor=1, currency="USD",
                status=status, idempotency_key="k", created_at=at,
            )  # fmt: skip
        case _:
            return town.insert(
                entity, payment_id=payment, amount_minor=1, currency="USD", status=status, idempotency_key="k",
                created_at=at,
            )  # fmt: skip


# -- what the tests set up


def disputed(town: Town, booking: Booking, **values: Any) -> int:
    about = {"dispute_option": "A", "dispute_filed_at": town.now, "filed_by": booking.supervisor}
    return town.insert("disputes", booking_id=booking.id, time_log_id=booking.shifts[0], **about | values)


def charged(town: Town, booking: Booking, *shifts: int) -> int:
    """A payment that is under way."""
    with town.conn.transaction():
        payment = town.funded(booking, *shifts)
        town.conn.execute("update staffing.pending_payments set received_at = null where id = %s", [payment])
        town.conn.execute("delete from staffing.escrow_holds where payment_id = %s", [payment])
    return payment


@contextmanager
def received(town: Town, payment: int) -> Iterator[None]:
    """A transaction in which its money has come; what comes into escrow with it adds up, or nothing commits."""
    with town.conn.transaction():
        town.conn.execute(
            "update staffing.pending_payments set received_at = mainspring.now() where id = %s", [payment]
        )
        yield


def frozen(town: Town) -> tuple[Booking, int]:
    """A dispute with the money of two shifts."""
    booking = town.booking(shifts=2)
    town.funded(booking)
    dispute = disputed(town, booking)
    with town.conn.transaction():
        for shift in booking.shifts:
            escrow.freeze(town.conn, shift, dispute)
    return booking, dispute


def holds(town: Town, booking: Booking) -> list[tuple[str, int, str, int | None]]:
    """(kind, amount, status, dispute) of each hold."""
    return sorted(
        town.rows(
            "select kind, amount_minor::int, status, dispute_id from staffing.escrow_holds where booking_id = %s",
            booking.id,
        ),
        key=str,
    )
