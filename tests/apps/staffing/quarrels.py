"""A timesheet that somebody disputes, for tests: submitted on Monday at 17:00 in New York, which is `T`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from tests.apps.staffing.town import MONDAY, Booking, Town

from mainspring_apps.staffing import shifts
from mainspring_apps.staffing.conflicts import disputes
from mainspring_apps.staffing.conflicts.disputes import Ending, Option

MINUTE, HOUR, DAY = timedelta(minutes=1), timedelta(hours=1), timedelta(days=1)
T = datetime(2026, 6, 1, 21, tzinfo=UTC)
TUESDAY = MONDAY + DAY


def submitted(town: Town, *, funded: bool = True, **values: Any) -> tuple[Booking, int]:
    """A booking whose shift of Monday was submitted just now, at T, and is paid for."""
    booking = town.booking(shifts=[MONDAY], **values)
    if funded:
        town.funded(booking)
    town.mainspring.clock.set(T)
    return booking, submit(town, booking, booking.shifts[0])


def submit(town: Town, booking: Booking, shift: int) -> int:
    """The worker, who has worked since the planned start, submits."""
    town.conn.execute("update staffing.time_log set status = 'Working' where id = %s", [shift])
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    return shift


def filed(town: Town, shift: int, option: Option = "A", *, by: int) -> int:
    with town.conn.transaction():
        return disputes.file_dispute(town.desk, town.conn, shift, option=option, by=by)


def resolved(town: Town, dispute: int, status: Ending = "Settled", **about: Any) -> None:
    with town.conn.transaction():
        disputes.resolve_dispute(town.desk, town.conn, dispute, status=status, **about, by=town.operator)


def at(town: Town, instant: datetime) -> None:
    """It is then, and what was due has run; without the instants in between."""
    town.mainspring.clock.set(instant)
    town.mainspring.drain()


def moved(town: Town, kind: str) -> list[int]:
    """The amounts of the transfers or refunds at the provider."""
    return sorted(entry.body["amount"] for entry in town.sandbox.ledger.find(kind))


def frozen(town: Town, dispute: int) -> list[tuple[str, int]]:
    """(kind, amount) of everything that a dispute has frozen."""
    return town.rows(
        "select kind, amount_minor::int from staffing.escrow_holds where status = 'Frozen' and dispute_id = %s"
        " order by kind, id", dispute,
    )  # fmt: skip
