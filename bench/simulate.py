"""How long a year takes: 20 schedules, hourly to weekly, in several zones, on a scratch database."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import mainspring as ms
from mainspring.simulate import Fired, TimelineEntry, simulate

START = datetime(2026, 1, 1, tzinfo=UTC)
YEAR = timedelta(days=365)
ZONES = ("Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Lord_Howe", "UTC")


def app() -> ms.App:
    """Two hourly schedules, three of every six hours, ten daily ones, five weekly ones."""
    tasks = ms.Registry("year")

    @tasks.task
    async def work(*, number: int) -> None: ...

    rules = [ms.every(hours=1), ms.cron("0 * * * *")]
    rules += [ms.cron(f"0 {hour}-23/6 * * *") for hour in range(3)]
    rules += [ms.daily(f"{hour:02}:00", zone=ZONES[hour % 5]) for hour in range(10)]
    rules += [
        ms.weekly(day, "10:00", zone=zone) for day, zone in zip(("mon", "tue", "wed", "thu", "sun"), ZONES, strict=True)
    ]
    for number, rule in enumerate(rules):
        tasks.schedule(f"schedule-{number}", rule, work, payload={"number": number})
    return ms.App(tasks)


def year(share: float = 1.0) -> tuple[float, int]:
    """Simulate a year, or a share of one: the seconds that a whole one takes at this pace, and how often it fired."""
    fired, first = 0, 0.0

    def count(entries: Sequence[TimelineEntry]) -> None:
        nonlocal fired, first
        first = first or time.perf_counter()
        fired += sum(isinstance(entry, Fired) for entry in entries)

    began = time.perf_counter()
    simulate(app, START, START + YEAR * share, count)
    return first - began + (time.perf_counter() - first) / share, fired  # the server is started once
