"""The story of a booking: true at every moment, in words that people understand, and the same for machines."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta
from typing import Any

import pytest
from tests.apps.staffing.serving import TOKENS, ask
from tests.apps.staffing.town import T00, W10, W14, Booking, Town
from tests.web.visit import served

import mainspring as ms
from mainspring.cli import main
from mainspring_apps.staffing import bookings, cancellation, shifts, show
from mainspring_apps.staffing.conflicts import disputes
from mainspring_apps.staffing.rules import weeks

SECOND = timedelta(seconds=1)
HOUR = timedelta(hours=1)
Say = Callable[..., tuple[int, str, str]]


@pytest.fixture
def say(town: Town, capsys: pytest.CaptureFixture[str]) -> Say:
    """Type a command; it has a desk of its own."""

    def say(*words: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["staffing", "booking", *words, "--dsn", town.mainspring.dsn])
        return code, *capsys.readouterr()

    return say


def next_of(town: Town, booking: Booking) -> list[tuple[datetime, str, str]]:
    return [(moment.utc, moment.what, moment.about) for moment in show.story(town.desk, town.conn, booking.id).next]


def happened(town: Town, booking: Booking) -> list[tuple[str, str]]:
    return [(moment.what, moment.about) for moment in show.story(town.desk, town.conn, booking.id).happened]


def test_the_story_of_a_week_in_yen_from_before_its_charge_to_its_end(town: Town) -> None:
    booking = town.booking(shifts=1, currency="JPY", end_date=date(2026, 6, 9))
    shift, worker = booking.shifts[0], booking.worker_user
    town.only("weekly-payments", at=W10 - HOUR)
    week = "for the week of 2026-06-08"
    ahead = [
        (W10, "weekly payment", week),
        (W14, "final warning, if unpaid", week),
        (T00, "hard cutoff, if unpaid", week),
    ]
    assert next_of(town, booking) == ahead
    assert happened(town, booking) == []

    town.mainspring.advance(to=W10)
    assert next_of(town, booking) == ahead[1:], "until the webhook says that it is paid"
    town.mainspring.advance(to=W10 + timedelta(seconds=10))
    assert next_of(town, booking) == [], "the week after lies behind the end"
    assert happened(town, booking) == [
        ("payment created", "payment 1, 24000 JPY, by SYSTEM, weekly, try 1"),
        ("payment succeeded", "payment 1, 24000 JPY, by SYSTEM"),
    ]
    story = show.story(town.desk, town.conn, booking.id)
    assert (story.ledger.currency, story.ledger.charged, story.ledger.held) == ("JPY", 24000, 24000)
    assert story.shifts[0].money == [show.MoneyPart(status="Held", amount_minor=24000)]

    begin = datetime(2026, 6, 8, 13, tzinfo=UTC)
    town.mainspring.clock.set(begin)
    shifts.clock_in(town.desk, town.conn, shift, by=worker)
    assert next_of(town, booking) == [
        (begin + timedelta(hours=8, minutes=5), "reminder: Are you still working?", f"shift {shift}"),
        (begin + timedelta(hours=8, minutes=30), "reminder: Urgent: Clock Out.", f"shift {shift}"),
    ]
    town.mainspring.clock.set(begin + 8 * HOUR)
    shifts.submit_timesheet(town.desk, town.conn, shift, by=worker)
    out = begin + 8 * HOUR
    assert next_of(town, booking) == [
        (out, "message to verify the timesheet", f"shift {shift}"),
        (out + HOUR, "message: timesheet pending verification", f"shift {shift}"),
        (out + 3 * HOUR, "message: timesheet will auto-approve", f"shift {shift}"),
        (out + 4 * HOUR, "auto-approval of the timesheet", f"shift {shift}"),
    ]
    town.mainspring.advance(SECOND)
    dispute = disputes.file_dispute(town.desk, town.conn, shift, option="A", by=booking.supervisor or 0)
    assert next_of(town, booking) == [(out + 3 * HOUR + SECOND, "the dispute times out", f"dispute {dispute}")]
    disputes.resolve_dispute(
        town.desk, town.conn, dispute, status="Settled", lender_minor=20000, borrower_minor=4000, by=town.operator
    )
    town.mainspring.drain()
    town.mainspring.advance(5 * SECOND)
    assert next_of(town, booking) == []
    told = [one for one in happened(town, booking)[2:] if not one[0].startswith("message: Dispute")]
    assert told == [
        ("clocked in", f"shift {shift}, by user {worker} (Worker)"),
        ("timesheet submitted", f"shift {shift}, by user {worker} (Worker)"),
        ("message: Timesheet to verify", f"sms to user {booking.supervisor} (Supervisor): sent"),
        ("dispute filed", f"dispute {dispute}, by user {booking.supervisor} (Supervisor), option A"),
        ("dispute ended", f"dispute {dispute}, by user {town.operator} (Operator)"),
        ("transfer succeeded", f"transfer 1, 20000 JPY, by SYSTEM, shift {shift}"),
        ("refund succeeded", f"refund 1, 4000 JPY, by SYSTEM, shift {shift}"),
    ]


def test_only_what_can_still_come_is_said_to_come(town: Town) -> None:
    later = town.booking(start_date=date(2026, 7, 6), end_date=date(2026, 7, 12))
    ended = town.booking(status="Completed")
    policy = town.policy(later.lender, date(2026, 7, 8), policy_type="Workers")
    first = weeks.instant(date(2026, 7, 1), "10:00", later.zone)
    assert first is not None
    assert next_of(town, later)[0] == (first, "weekly payment", "for the week of 2026-07-06")
    assert next_of(town, later)[-1] == (
        datetime(2026, 7, 9, tzinfo=UTC), "insurance expires", f"policy {policy} of company {later.lender}",
    )  # fmt: skip
    assert next_of(town, ended) == []


def test_the_command_prints_the_story_and_machines_get_the_same_from_both_doors(
    town: Town, say: Say, mainspring_app: ms.App
) -> None:
    booking = town.booking(shifts=9, currency="JPY", end_date=date(2026, 6, 16))
    cancellation.cancel_shifts(town.desk, town.conn, booking.id, booking.shifts[2:8], reason="Rain")
    town.mainspring.clock.set(datetime(2026, 6, 8, 14, tzinfo=UTC))
    code, out, err = say("show", str(booking.id))
    assert (code, err) == (0, "")
    lines = out.splitlines()
    project = show.story(town.desk, town.conn, booking.id).booking.project
    assert lines[0] == (
        f"Booking {booking.id}: Active, Weekly_Progress, {project} (America/New_York), 2026-06-01 to 2026-06-16"
    )
    assert lines[1] == f"worker {booking.worker}, supervisor {booking.supervisor}, 3000 JPY an hour"
    assert lines[2] == "funded until: not yet; now: Mon 2026-06-08 10:00 (2026-06-08 14:00Z)"
    assert lines[6].split() == ["0", "JPY"] * 6
    first = booking.shifts[0]
    assert lines[10] == f"{first}   Scheduled  Mon 2026-06-08 09:00 (2026-06-08 13:00Z)"
    assert "and 3 more, up to Tue 2026-06-16 09:00 (2026-06-16 13:00Z): --all" in lines
    (cancelled,) = [line for line in lines if "shift cancelled" in line]
    assert cancelled.endswith(f"shift {booking.shifts[2]}, by SYSTEM, Rain (and 5 more like it)")
    (paid,) = [line.split("  ") for line in lines if "weekly payment" in line]
    assert paid[:3] == ["Wed 2026-06-10 10:00:00", "2026-06-10 14:00:00Z", "weekly payment"]
    assert paid[-1].strip() == "for the week of 2026-06-15"
    whole = say("show", str(booking.id), "--all")[1]
    assert (whole.count("shift cancelled"), whole.count("--all")) == (6, 0)

    told: Any = json.loads(say("show", str(booking.id), "--json")[1])
    listed = json.loads(say("list", "--json")[1])
    assert "not yet" in say("list")[1]
    with served(mainspring_app, tokens=TOKENS) as url:
        assert ask(url, f"/bookings/{booking.id}") == (200, told)
        assert ask(url, "/bookings") == (200, listed)


def test_what_cannot_be_shown_is_said_in_one_line(town: Town, say: Say) -> None:
    assert say("show", "999") == (2, "", "mainspring: booking_id: there is no booking 999\n")
    assert say("list", "--limit", "0")[::2] == (2, "mainspring: limit: must be at least 1\n")
    code, out, err = say("show", "x")
    assert (code, out) == (2, "")
    assert 'BOOKING_ID: "x" is not a whole number' in err
    town.conn.execute("drop schema staffing cascade")
    assert say("show", "1")[::2] == (
        2, "mainspring: staffing has no tables here: mainspring schema migrate --app staffing\n",
    )  # fmt: skip


def test_who_booked_whom_stands_at_the_beginning(town: Town) -> None:
    about = town.booking()
    made = bookings.confirm_booking(
        town.desk, town.conn, project_id=about.project, worker_id=about.worker, supervisor_id=None,
        start_date=date(2026, 6, 1), end_date=date(2026, 6, 5), start=time(9), end=None, rate_minor=1, currency="USD",
        by=about.borrowing_admin,
    )  # fmt: skip
    (moment,) = show.story(town.desk, town.conn, made).happened
    assert (moment.utc, moment.local.isoformat()) == (town.now, "2026-06-01T00:00:00-04:00")
    assert moment.about == f"booking {made}, by user {about.borrowing_admin} (Admin)"
