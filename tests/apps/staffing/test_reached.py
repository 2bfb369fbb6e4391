"""Whom nobody could tell is told to operations, by the number of a user or a company, until it is put right."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from tests.apps.staffing.town import MONDAY, W14, Booking, Town

from mainspring_apps.staffing import insurance
from mainspring_apps.staffing.market import Market
from mainspring_sandbox import Sandbox

REACHED, THERE = "nobody_reached", "nobody_to_tell"
MISSING = "email: no_address, sms: no_address"
REFUSED = "email: EMAIL_ADDRESS_INVALID, sms: PHONE_NUMBER_INVALID"


@pytest.fixture
def mainspring_app(mainspring_sandbox_server: Sandbox) -> Iterator[Market]:
    """The marketplace with its watches, which other tests leave out."""
    with mainspring_sandbox_server.standing_in():
        yield Market(maintenance=False)


def opened(town: Town) -> dict[tuple[str, str], str]:
    """The texts of the alerts that are open, by name and subject; everything about them is without personal data."""
    names, query = [REACHED, THERE], "select * from mainspring.alert where closed_at is null and name = any(%s)"
    told = json.dumps(town.rows(query, names), default=str)
    assert "Person" not in told
    assert "@" not in told
    query = "select name, subject, text, severity from mainspring.alert where closed_at is null and name = any(%s)"
    rows = town.rows(query, names)
    assert {severity for *_, severity in rows} <= {"critical"}
    return {(name, subject): text for name, subject, text, _ in rows}


def watched(town: Town) -> dict[tuple[str, str], str]:
    """The same after the watches have looked."""
    town.mainspring.advance(minutes=5, raise_errors=False)
    return opened(town)


def change(town: Town, user: int, **values: Any) -> None:
    for name, value in values.items():
        town.conn.execute(f"update staffing.users set {name} = %s where id = %s".encode(), [value, user])


def stop(town: Town, booking: Booking) -> None:
    """The lender's insurance is withdrawn, or, where it was, bought again and withdrawn."""
    town.mainspring.advance(minutes=30, raise_errors=False)
    policy = town.policy(booking.lender)
    with town.conn.transaction():
        renewed: dict[str, Any] = {"expiration_date": MONDAY + timedelta(days=300), "by": booking.lending_admin}
        insurance.renew_insurance(town.desk, town.conn, policy, **renewed)
        insurance.deactivate_insurance(town.desk, town.conn, policy, by=booking.lending_admin)
    town.mainspring.drain(raise_errors=False)


@pytest.mark.rule("STAFF-20.18")
def test_who_is_reached_by_no_channel_is_an_alert_until_they_can_be_or_are(town: Town) -> None:
    town.only("staffing.watch.300s")
    booking = town.booking(shifts=1)
    lost, wrong = booking.lending_admin, booking.borrowing_admin
    change(town, lost, email=None, phone=None)
    change(town, wrong, email="nowhere@", phone="12")
    change(town, booking.borrowing_manager, email=None)
    change(town, booking.worker_user, phone="12")  # one of the channels is enough
    nobody = town.user(town.company("Lender"), "Manager", email=None, phone=None)
    with town.conn.transaction():
        about: dict[str, Any] = {"parts": []}
        town.desk.tell(town.conn, "digest", [nobody], about, occurrence=town.now)  # nothing depends on it

    stop(town, booking)

    here = "insurance_stop did not reach them by any channel: "
    both = {(REACHED, f"user {lost}"): here + MISSING, (REACHED, f"user {wrong}"): here + REFUSED}
    reached = {who for _, who, _, status in town.messages("insurance_stop") if status == "Sent"}
    assert {booking.worker_user, booking.borrowing_manager, booking.supervisor} <= reached
    assert watched(town) == both
    town.mainspring.clock.set(town.now + timedelta(days=30))  # and it stays, whatever the age of the message
    town.only("staffing.watch.300s")
    assert watched(town) == both

    change(town, lost, phone="+15550001111")  # an address that was missing
    assert watched(town).keys() == {(REACHED, f"user {wrong}")}
    change(town, wrong, phone="+15550002222")  # nobody knows whether it is better than the last one
    assert watched(town).keys() == {(REACHED, f"user {wrong}")}
    stop(town, booking)
    assert watched(town) == {}


@pytest.mark.rule("STAFF-20.18")
def test_a_company_where_nobody_can_be_told_is_an_alert_until_it_has_an_admin(town: Town) -> None:
    town.only("staffing.watch.300s")
    booking, other = town.booking(), town.booking()
    town.insert("companies", kind="Lender", name="Nobody's yet")
    for admin in (booking.borrowing_admin, other.lending_admin):
        town.conn.execute("delete from staffing.users where id = %s", [admin])
    assert opened(town) == {}

    with town.conn.transaction():
        about = {"ID": booking.id, "booking_id": booking.id}
        town.desk.tell(town.conn, "final_warning", [], about, occurrence=W14)

    alone, else_ = (THERE, f"company {booking.borrower}"), (THERE, f"company {other.lender}")
    assert opened(town) == {alone: "it has no admin: final_warning reached nobody"}
    detail = town.value("select detail from mainspring.alert where name = %s", THERE)
    assert (detail["kind"], detail["booking_id"]) == ("final_warning", booking.id)
    assert watched(town) == opened(town) | {else_: "it has no admin who could be told of its bookings and policies"}

    town.conn.execute("update staffing.bookings set status = 'Cancelled'")
    town.conn.execute("update staffing.insurance_policies set is_active = false")
    assert watched(town).keys() == {alone, else_}  # what was not told is not forgotten with the booking
    town.user(booking.borrower, "Admin")
    assert watched(town).keys() == {else_}
