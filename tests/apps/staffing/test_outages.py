"""While the provider is away nobody is blamed, and when it is back everybody is charged; `make outages` tries more."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import pytest
from tests.apps.staffing.outages import (
    CELLS,
    DECLINED,
    DECLINED_CELLS,
    DECLINED_HEAD,
    HEAD,
    PAGE,
    SCHEDULES,
    Cell,
    away,
    simulate,
)
from tests.apps.staffing.town import T00, W10, W14, Booking, Town
from tests.apps.staffing.wednesday import MINUTE, at

from mainspring_apps.staffing.payments import weekly

SAMPLE = [(1, 1), (60, 2), (780, 7), (1800, 1)]  # minutes, bookings


@pytest.mark.rule("STAFF-20.15", "STAFF-20.16", "STAFF-20.17")
@pytest.mark.parametrize("cell", [one for one in CELLS if (one.lasts // MINUTE, one.bookings) in SAMPLE], ids=str)
def test_after_an_outage_everybody_is_charged_once_and_nobody_was_blamed(town: Town, cell: Cell) -> None:
    row, wrong = simulate(town, cell)
    assert wrong == []
    assert row in PAGE.read_text()


@pytest.mark.rule("STAFF-20.16", "STAFF-3.26", "STAFF-1.33")
@pytest.mark.parametrize("cell", DECLINED_CELLS[1::2], ids=str)
def test_who_is_declined_after_an_outage_reads_the_instant_at_which_the_worker_is_released(
    town: Town, cell: Cell
) -> None:
    row, wrong = simulate(town, cell)
    assert wrong == []
    assert row in PAGE.read_text()


@pytest.mark.rule("STAFF-20.15", "STAFF-20.16")
@pytest.mark.parametrize(("head", "cells"), [(HEAD, CELLS), (DECLINED_HEAD, DECLINED_CELLS)])
def test_the_page_has_a_line_for_every_outage(head: str, cells: Sequence[Cell]) -> None:
    lines = PAGE.read_text().splitlines()
    begins = lines.index(head) + 2
    assert lines[begins : begins + len(cells)] == [
        cell.row(cell.bookings, 0, cell.bookings if cell.declines else 0, 0) for cell in cells
    ]


def told(town: Town, kind: str, booking: Booking) -> list[datetime]:
    """When the borrower was told of a booking, by mail."""
    return [
        row[0]
        for row in town.rows(
            "select created_at from mainspring.notification where template = %s and channel = 'email'"
            " and data ->> 'booking_id' = %s order by 1",
            kind, str(booking.id),
        )
    ]  # fmt: skip


def warnings(town: Town, booking: Booking) -> list[datetime]:
    """When the borrower was warned, of the cutoff of every week or of one that was moved."""
    return told(town, "final_warning", booking) + told(town, "late_warning", booking)


@pytest.mark.rule("STAFF-20.16", "STAFF-3.26")
@pytest.mark.parametrize(
    ("back", "release"),
    [
        (W14 + 30 * MINUTE, T00),  # the cutoff is more than four hours away
        (T00 - 30 * MINUTE, T00 + timedelta(hours=3, minutes=30)),
        (at("2026-06-04T13:00"), at("2026-06-04T17:00")),  # from Wednesday 08:00 to Thursday 09:00
    ],
)
def test_who_is_declined_after_an_outage_is_told_and_warned_and_has_four_hours(
    town: Town, back: datetime, release: datetime
) -> None:
    town.only(*SCHEDULES, at=W10 - timedelta(hours=2))
    borrower = town.company("Borrower", card_on_file=DECLINED)
    bad, again = (town.booking(shifts=1, borrower=borrower) for _ in range(2))
    good = town.booking(shifts=1)
    with away(town, "refuses"):
        town.mainspring.advance(to=back, raise_errors=False)
        assert town.messages() == []
        subject, words = town.wrong("charges_unanswered")[0]
        assert (subject, words[:42]) == ("stripe", "3 payments wait for an answer of the provi")
    town.mainspring.advance(to=back + 30 * MINUTE, raise_errors=False)

    assert town.row("bookings", good.id)["funded_period_end"] is not None
    for booking in (bad, again):
        (failed,), (warned,) = told(town, "action_required", booking), warnings(town, booking)
        assert back <= failed <= warned <= back + 26 * MINUTE  # a probe of the breaker, and a look of the warning
    town.conn.execute("update staffing.companies set card_on_file = 'pm_card_visa' where kind = 'Borrower'")
    town.mainspring.advance(to=release - MINUTE, raise_errors=False)
    assert town.audit("booking_released") == []
    with town.conn.transaction():
        weekly.pay_by_hand(town.desk, town.conn, again.id, by=again.borrowing_admin)

    town.mainspring.advance(to=release + 20 * MINUTE, raise_errors=False)
    assert {booking.id: town.status(booking) for booking in (bad, again, good)} == {
        bad.id: "Completed", again.id: "Active", good.id: "Active",
    }  # fmt: skip
    (released,) = told(town, "worker_released", bad)[:1]
    assert released >= release
    assert [len(warnings(town, booking)) for booking in (bad, again, good)] == [1, 1, 0]
    assert town.mainspring.client.dead.list() == []


@pytest.mark.rule("STAFF-20.16", "STAFF-2.06", "STAFF-3.08")
def test_who_was_being_charged_when_the_provider_went_away_is_warned_and_released_by_its_answer_only(
    town: Town,
) -> None:
    town.only(*SCHEDULES, at=W10 - MINUTE)
    paid, slow = (town.booking(shifts=1, card="pm_card_processing") for _ in range(2))
    town.mainspring.advance(to=W10 + MINUTE)
    intents = dict(town.rows("select booking_id, provider_intent_id from staffing.pending_payments"))
    with away(town, "fails"):
        town.sandbox.stripe.settle(intents[paid.id], "succeeded")  # and nobody hears of it
        town.mainspring.advance(to=T00 + timedelta(hours=2), raise_errors=False)
        assert (town.messages(), town.audit("booking_released")) == ([], [])

    town.mainspring.advance(hours=4, raise_errors=False)
    assert town.row("bookings", paid.id)["funded_period_end"] is not None
    assert (warnings(town, paid), len(warnings(town, slow))) == ([], 1)
    assert town.status(slow) == "Active"
    town.mainspring.advance(hours=2, raise_errors=False)
    assert (town.status(paid), town.status(slow)) == ("Active", "Completed")
    assert town.bank.v1.payment_intents.retrieve(intents[slow.id]).status == "canceled"
    assert town.mainspring.client.dead.list() == []
