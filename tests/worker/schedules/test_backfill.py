"""Making up for what a schedule missed: shown first, each instant once, in its own zone, for every entity."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

import mainspring as ms
from mainspring import Registry
from mainspring.errors import ScheduleNotFound
from mainspring.testing import Harness

MONDAY = datetime(2026, 3, 23, tzinfo=UTC)
ENTITIES = """
    select n, jsonb_build_object('entity', n) from generate_series(coalesce(%(after)s::int, 0) + 1, 3) n limit %(limit)s
"""


@pytest.fixture
def ran(tasks: Registry) -> list[Any]:
    calls: list[Any] = []

    @tasks.task
    async def work(*, zone: str = "", instant: datetime | None = None, entity: int = 0) -> None:
        calls.append((zone, instant and f"{instant:%d %H}", entity))

    return calls


def test_instants_of_each_zone_are_made_up_for_at_their_own_local_time(
    mainspring: Harness, tasks: Registry, ran: list[Any]
) -> None:
    zones = "select unnest(array['Asia/Kathmandu', 'Europe/London'])"
    tasks.schedule("s", ms.daily("10:00"), "work", zones=zones, catch_up="skip")
    mainspring.clock.set(MONDAY)
    mainspring.drain()
    mainspring.clock.advance(days=2, hours=12)
    mainspring.drain()
    assert ran == []

    verbs, since = mainspring.client.schedules, MONDAY + timedelta(days=1)
    shown = verbs.backfill("s", since, dry_run=True)
    assert [(f"{one.local:%d %H:%M}", one.zone, one.outcome) for one in shown] == [
        (f"{day} 10:00", zone, "to_fire") for day in (24, 25) for zone in ("Asia/Kathmandu", "Europe/London")
    ]
    done = verbs.backfill("s", since, zone="Europe/London", reason="nobody was there")
    assert [one.outcome for one in done] == ["fired", "fired"]
    mainspring.drain()
    assert sorted(ran) == [("Europe/London", "24 10", 0), ("Europe/London", "25 10", 0)]
    again = verbs.backfill("s", since, reason="the others, too")
    assert [one.outcome for one in again] == ["fired", "fired_before"] * 2
    mainspring.drain()
    assert sorted(ran)[:2] == [("Asia/Kathmandu", "24 04", 0), ("Asia/Kathmandu", "25 04", 0)]
    assert len(ran) == 4
    with pytest.raises(ms.ValidationError, match=r"^reason: is missing"):
        verbs.backfill("s", since)
    with pytest.raises(ScheduleNotFound):
        verbs.backfill("s", since, reason="x", org="acme")


def test_every_entity_gets_the_job_that_it_missed(mainspring: Harness, tasks: Registry, ran: list[Any]) -> None:
    tasks.schedule("s", ms.daily("10:00"), "work", entities=ENTITIES, catch_up="skip")
    mainspring.clock.set(MONDAY)
    mainspring.drain()
    mainspring.clock.advance(days=1, hours=12)
    mainspring.drain()
    (first, second) = mainspring.client.schedules.backfill("s", MONDAY, reason="x")
    assert (first.outcome, first.job_id, second.outcome) == ("fired", None, "fired")
    mainspring.drain()
    assert sorted(ran) == sorted(("UTC", f"{day} 10", n) for day in (23, 24) for n in (1, 2, 3))
    assert [one.outcome for one in mainspring.client.schedules.backfill("s", MONDAY, reason="x")] == [
        "fired_before"
    ] * 2
