"""A dispute is ended by an operator, or by both sides that say the same; and a company's money is for its own admin."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import date
from threading import Barrier
from typing import Any

import psycopg
import pytest
from tests.apps.staffing.quarrels import T, filed, moved, resolved, submitted
from tests.apps.staffing.town import Booking, Town

from mainspring_apps.staffing import bookings, insurance
from mainspring_apps.staffing.conflicts import disputes
from mainspring_apps.staffing.payments import accounts, escrow
from mainspring_apps.staffing.states import NotAllowed, Refused
from mainspring_apps.staffing.store import Conn


def disputed(town: Town) -> tuple[Booking, int]:
    """240.00 are frozen."""
    booking, shift = submitted(town)
    return booking, filed(town, shift, by=booking.borrowing_admin)


def propose(town: Town, dispute: int, lender: int, by: int, conn: Conn | None = None) -> bool:
    """That the lender gets so much, and the borrower the rest; by default of the town's 240.00."""
    conn = conn or town.conn
    about = {"lender_minor": lender, "borrower_minor": 24000 - lender, "by": by}
    with conn.transaction():
        return disputes.propose_settlement(town.desk, conn, dispute, **about)


def at_once(town: Town, *acts: Callable[[Conn], object]) -> list[str]:
    """What becomes of acts that begin at the same moment, each on a connection of its own; sorted."""
    begin = Barrier(len(acts))

    def go(act: Callable[[Conn], object]) -> str:
        with psycopg.connect(town.mainspring.dsn, autocommit=True) as conn:
            begin.wait(10)
            try:
                return str(act(conn))
            except Refused as refused:
                return refused.field

    with ThreadPoolExecutor(len(acts)) as pool:
        return sorted(pool.map(go, acts))


@pytest.mark.rule("STAFF-20.11", "STAFF-10.08")
@pytest.mark.parametrize("option", ["A", "B"])
def test_both_sides_hear_of_a_dispute_and_of_the_end_of_a_booking_by_it(town: Town, option: disputes.Option) -> None:
    booking, shift = submitted(town)
    filed(town, shift, option, by=booking.borrowing_admin)

    parties = {booking.worker_user, booking.supervisor, booking.borrowing_admin, booking.lending_admin}
    assert {(who, by) for _, who, by, _ in town.messages("dispute_filed")} == {
        (who, by) for who in parties for by in ("sms", "email")
    }
    town.mainspring.drain()
    assert town.texts("dispute_filed") == {
        f"A dispute has been filed about the shift on 2026-06-01 (booking {booking.id}). The money for it is frozen"
        " until the dispute is resolved."
    }
    everybody = parties | {booking.borrowing_manager, booking.lending_manager}
    ended = {who for _, who, *_ in town.messages("booking_cancelled")}
    assert ended == (everybody if option == "B" else set())


@pytest.mark.rule("STAFF-20.11")
def test_both_sides_hear_what_one_proposes_and_everybody_that_it_is_over(town: Town) -> None:
    booking, dispute = disputed(town)
    dividers = {booking.borrowing_admin, booking.lending_admin}
    propose(town, dispute, 10000, by=booking.lending_admin)
    assert {who for _, who, *_ in town.messages("settlement_proposed")} == dividers
    assert (town.messages("dispute_over"), town.messages("dispute_settled")) == ([], [])
    propose(town, dispute, 10000, by=booking.borrowing_admin)
    town.mainspring.drain()

    shift = f"the shift on 2026-06-01 (booking {booking.id})"
    lender = town.row("companies", booking.lender)["name"]
    assert town.texts("settlement_proposed") == {
        f"{lender} proposes to settle the dispute about {shift}: $100.00 to the lender and $140.00 back to the"
        " borrower. It is settled as soon as both sides propose the same."
    }
    assert {who for _, who, *_ in town.messages("dispute_settled")} == dividers
    assert town.texts("dispute_settled") == {
        f"The dispute about {shift} is over: $100.00 goes to the lender and $140.00 back to the borrower."
    }
    others = {who for _, who, *_ in town.messages("dispute_over")}
    assert others == {booking.worker_user, booking.supervisor}, "what a company is paid is not theirs to know"
    assert {text for text in town.texts("dispute_over") if text} == {f"The dispute about {shift} is over."}


@pytest.mark.rule("STAFF-20.11", "STAFF-10.34")
def test_everybody_hears_of_a_legal_hold_and_of_a_dispute_that_ends_without_money(town: Town) -> None:
    booking, shift = submitted(town, funded=False)
    parties = {booking.worker_user, booking.supervisor, booking.borrowing_admin, booking.lending_admin}
    dispute = filed(town, shift, by=booking.worker_user)
    resolved(town, dispute, "Legal_Hold")
    assert {who for _, who, *_ in town.messages("dispute_on_hold")} == parties
    resolved(town, dispute, "Resolved")
    assert {who for _, who, *_ in town.messages("dispute_over")} == parties
    assert town.messages("dispute_settled") == []


@pytest.mark.rule("STAFF-20.11")
def test_nobody_settles_a_dispute_alone_and_both_sides_do_by_saying_the_same(town: Town) -> None:
    booking, dispute = disputed(town)
    borrower, lender = booking.borrowing_admin, booking.lending_admin
    others = (booking.worker_user, booking.supervisor, booking.borrowing_manager, booking.lending_manager)
    whole: dict[str, Any] = {"lender_minor": 24000, "borrower_minor": 0}
    for by in (*others, borrower, lender):
        with pytest.raises(NotAllowed), town.conn.transaction():
            disputes.resolve_dispute(town.desk, town.conn, dispute, status="Settled", **whole, by=by or 0)
    for by in (*others, town.operator):
        with pytest.raises(NotAllowed):
            propose(town, dispute, 24000, by or 0)
    with pytest.raises(Refused, match=f"dispute_id: there is no dispute {dispute}"):
        propose(town, dispute, 24000, town.admin(town.company("Borrower")))

    assert not propose(town, dispute, 20000, borrower)
    assert not propose(town, dispute, 20000, borrower)  # twice is not both
    assert not propose(town, dispute, 20000, town.user(booking.borrower, "Admin"))  # nor is a second admin of a side
    assert not propose(town, dispute, 24000, lender)
    assert not propose(town, dispute, 18000, borrower)  # instead of 200.00
    assert not propose(town, dispute, 20000, lender)  # which the borrower has taken back
    with pytest.raises(Refused, match="settlement"), town.conn.transaction():
        disputes.propose_settlement(town.desk, town.conn, dispute, lender_minor=20000, borrower_minor=0, by=borrower)
    assert town.row("disputes", dispute)["status"] == "Open"
    assert town.ledger(booking) == (24000, 0, 24000, 0, 0)
    assert propose(town, dispute, 20000, borrower)

    row = town.row("disputes", dispute)
    assert (row["status"], row["dispute_resolved_at"]) == ("Settled", T)
    assert (row["settlement_lender_minor"], row["settlement_borrower_minor"]) == (20000, 4000)
    assert town.audit("resolve_dispute") == [(str(borrower), "dispute", dispute, None, dispute)]
    assert len(town.audit("propose_settlement")) == 7
    assert town.waiting("dispute_timeout") == []
    town.mainspring.drain()
    assert (moved(town, "transfer"), moved(town, "refund")) == ([20000], [4000])


@pytest.mark.rule("STAFF-20.11", "STAFF-20.14")
@pytest.mark.parametrize("lender", [0, 6000])
def test_what_both_agree_on_for_an_unpaid_shift_is_all_that_is_charged_and_paid_for_it(town: Town, lender: int) -> None:
    booking, shift = submitted(town, funded=False)
    dispute = filed(town, shift, "B", by=booking.borrowing_admin)
    with pytest.raises(Refused, match="are not the 24000 that are frozen or unpaid"):
        resolved(town, dispute, lender_minor=0, borrower_minor=0)
    assert not propose(town, dispute, lender, booking.borrowing_admin)
    assert propose(town, dispute, lender, booking.lending_admin)
    town.mainspring.advance(seconds=5)
    assert town.ledger(booking) == (lender, 0, 0, lender, 0)
    assert moved(town, "transfer") == [lender] * bool(lender)
    assert (moved(town, "refund"), town.alerts()) == ([], [])
    assert "No money is held for it now" in str(town.texts("unpaid_dispute_filed"))
    parts = f"the lender gets ${lender // 100}.00, and ${240 - lender // 100}.00 is not charged, or goes back"
    for kind in ("unpaid_settlement_proposed", "unpaid_dispute_settled"):
        assert parts in str(town.texts(kind))
    assert town.texts("dispute_filed") | town.texts("settlement_proposed") | town.texts("dispute_settled") == set()


@pytest.mark.rule("STAFF-20.11", "STAFF-20.02")
def test_what_was_on_its_way_for_a_settled_shift_goes_back_beyond_what_was_agreed(town: Town) -> None:
    booking, shift = submitted(town, funded=False)
    dispute = filed(town, shift, by=booking.borrowing_admin)
    resolved(town, dispute, lender_minor=6000, borrower_minor=18000)
    town.funded(booking)  # it had been charged before
    with town.conn.transaction():
        escrow.give_back_rest(town.desk, town.conn, shift)
    town.mainspring.drain()
    assert (moved(town, "transfer"), moved(town, "refund")) == ([6000], [18000])


@pytest.mark.rule("STAFF-20.11")
def test_a_proposal_is_worth_nothing_once_the_dispute_has_ended_otherwise(town: Town) -> None:
    booking, dispute = disputed(town)
    assert not propose(town, dispute, 24000, booking.lending_admin)
    resolved(town, dispute, "Resolved", lender_minor=0, borrower_minor=24000)

    with pytest.raises(Refused, match="cannot go from Resolved to Settled"):
        propose(town, dispute, 24000, booking.borrowing_admin)

    assert town.row("disputes", dispute)["settlement_lender_minor"] == 0
    assert town.ledger(booking) == (24000, 0, 0, 0, 24000)


@pytest.mark.rule("STAFF-20.11")
def test_two_who_speak_at_once_settle_a_dispute_once(town: Town) -> None:
    booking, dispute = disputed(town)
    borrower, lender, operator = booking.borrowing_admin, booking.lending_admin, town.operator

    assert at_once(
        town, lambda conn: propose(town, dispute, 20000, borrower, conn),
        lambda conn: propose(town, dispute, 20000, lender, conn),
    ) == ["False", "True"]  # fmt: skip
    assert town.ledger(booking) == (24000, 0, 0, 20000, 4000)

    def decide(conn: Conn) -> str:
        with conn.transaction():
            disputes.resolve_dispute(
                town.desk, conn, second, status="Resolved", lender_minor=0, borrower_minor=24000, by=operator
            )
        return "decided"

    later, second = disputed(town)
    propose(town, second, 24000, later.lending_admin)
    ended = at_once(town, decide, lambda conn: propose(town, second, 24000, later.borrowing_admin, conn))
    assert ended in (["True", "status"], ["decided", "status"])
    released = 24000 if "True" in ended else 0
    assert town.ledger(later) == (24000, 0, 0, released, 24000 - released)


@pytest.mark.rule("STAFF-20.12")
def test_a_company_s_card_account_and_policies_are_for_its_own_admin_alone(town: Town) -> None:
    booking, other = town.booking(), town.booking()
    policy, desk, conn = town.policy(booking.lender), town.desk, town.conn
    lenders: list[Callable[[int], object]] = [
        lambda by: accounts.connect_account(desk, conn, booking.lender, account="acct_1", by=by),
        lambda by: bookings.add_policy(
            desk, conn, company_id=booking.lender, expiration_date=date(2028, 1, 1), by=by
        ),
        lambda by: insurance.renew_insurance(desk, conn, policy, expiration_date=date(2028, 1, 1), by=by),
        lambda by: insurance.deactivate_insurance(desk, conn, policy, by=by),
    ]  # fmt: skip

    def card(by: int) -> object:
        return bookings.put_card(desk, conn, booking.borrower, customer="cus_1", payment_method="pm_1", by=by)

    theirs = (booking.worker_user, booking.supervisor, booking.borrowing_manager, booking.lending_manager)
    strangers = (other.borrowing_admin, other.lending_admin, 10**9)
    found = "select * from staffing.companies order by id"
    before, policies = town.rows(found), town.rows("select * from staffing.insurance_policies")
    of_borrower, of_lender = theirs[1:3], (theirs[0], theirs[3])
    outside_card, outside_lender = (*of_lender, booking.lending_admin), (*of_borrower, booking.borrowing_admin)
    tried = ((card, of_borrower, outside_card), *((act, of_lender, outside_lender) for act in lenders))
    for act, colleagues, outside in tried:
        for by in colleagues:
            with pytest.raises(NotAllowed), conn.transaction():
                act(by or 0)
        for by in (*outside, *strangers):  # for whom the company is not there
            with pytest.raises(Refused, match=r"^\w+_id: there is no "), conn.transaction():
                act(by or 0)
    assert (town.rows(found), town.rows("select * from staffing.insurance_policies")) == (before, policies)

    with conn.transaction():
        card(booking.borrowing_admin)
        for act in lenders:
            act(booking.lending_admin)
    assert town.row("companies", booking.borrower)["card_on_file"] == "pm_1"
    assert town.row("companies", booking.lender)["stripe_account_id"] == "acct_1"
    assert not town.row("insurance_policies", policy)["is_active"]
