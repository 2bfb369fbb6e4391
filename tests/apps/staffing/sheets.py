"""A day at work for tests: a shift on Monday from 9 to 17 in New York, and what happens to its timesheet."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, time, timedelta
from typing import Any
from zoneinfo import ZoneInfo

from tests.apps.staffing.town import MONDAY, NY, Booking, Town

from mainspring_apps.staffing import shifts

OF_SHIFT = ("remind_5m", "remind_30m", "ladder_0", "ladder_60m", "ladder_3h", "auto_approve", "release_shift")


def at(clock: str, day: date = MONDAY, zone: str = NY) -> datetime:
    """The instant of a local time of day, `at("17:05")`."""
    return datetime.combine(day, time.fromisoformat(clock), ZoneInfo(zone))


def leap(town: Town, to: datetime) -> None:
    """Time passes in which nobody works; timers that are due meanwhile would run late, so leap before them."""
    town.mainspring.clock.set(to)


def live(town: Town, *instants: datetime) -> list[tuple[str, datetime]]:
    """Time passes up to each instant, as nothing is due before; answers what ran of the marketplace, and when."""
    ran = []
    for instant in instants:
        leap(town, max(instant - timedelta(seconds=1), town.now))
        ran += [(run.job.task, run.at) for run in town.mainspring.advance(to=instant)]
    return [(task, when) for task, when in ran if task in OF_SHIFT]


def booked(town: Town, **values: Any) -> tuple[Booking, int]:
    """A booking and its one shift."""
    booking = town.booking(shifts=values.pop("days", [MONDAY]), **values)
    town.only("approval-sweep")
    return booking, booking.shifts[0]


def begun(town: Town, **values: Any) -> tuple[Booking, int]:
    """The worker has clocked in at the planned start."""
    booking, shift = booked(town, **values)
    leap(town, town.row("time_log", shift)["scheduled_start_time"])
    with town.conn.transaction():
        shifts.clock_in(town.desk, town.conn, shift, by=booking.worker_user)
    return booking, shift


def submitted(town: Town, clock: datetime | None = None, *, funded: bool = True, **values: Any) -> tuple[Booking, int]:
    """And has submitted the timesheet, at the planned end or at an instant; the shift is paid for."""
    booking, shift = begun(town, **values)
    if funded:
        town.funded(booking, shift)
    leap(town, clock or town.row("time_log", shift)["scheduled_end_time"])
    with town.conn.transaction():
        shifts.submit_timesheet(town.desk, town.conn, shift, by=booking.worker_user)
    return booking, shift


def timers(town: Town, shift: int) -> dict[str, datetime]:
    """When each timer of a shift is due, by the first part of its key."""
    return {str(key).partition(":")[0]: due for _, due, key in town.waiting() if str(key).endswith(f":{shift}")}


def payload(town: Town, key: str) -> dict[str, Any]:
    """What a timer carries."""
    (found,) = town.rows("select payload from mainspring.jobs where idempotency_key = %s", key)
    return dict(found[0])


def told(town: Town, kind: str) -> list[tuple[int, str, str]]:
    """(recipient, channel, status) of each message of a kind."""
    return [message[1:] for message in town.messages(kind)]


@contextmanager
def refusing(town: Town, verb: str, *tasks: str) -> Iterator[None]:
    """Meanwhile the database refuses to set (`insert`), move (`update`) or cancel (`delete`) timers of these tasks."""
    town.conn.execute(
        "create function public.refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'no timers today'; end $$"
    )
    names = "{" + ",".join(tasks) + "}"
    subject = "old" if verb == "delete" else "new"
    town.conn.execute(
        f"create trigger refuse before {verb} on mainspring.waiting for each row"
        f" when ({subject}.task = any('{names}')) execute function public.refuse()".encode()
    )
    try:
        yield
    finally:
        town.conn.execute("drop function public.refuse cascade")
