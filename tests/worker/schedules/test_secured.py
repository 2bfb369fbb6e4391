"""Schedules on a secured schema: a worker fires those of all organisations, an operator acts in one."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.secured import Secured
from tests.worker.stage import SETTINGS

import mainspring as ms
from mainspring import Client, Registry, WorkerConfig
from mainspring.errors import ScheduleNotFound
from mainspring.virtual.clock import Clock
from mainspring.worker import Worker

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.mark.anyio
async def test_each_job_is_of_the_organisation_of_its_schedule(secured: Secured) -> None:
    tasks, seen = Registry("test"), list[tuple[str, str]]()

    @tasks.task
    async def work(ctx: ms.Context, *, zone: str) -> None:
        seen.append((ctx.job.org_id, zone))

    def entities(conn: object, zone: str, after: object, limit: int) -> list[tuple[int, dict[str, str], str]]:
        return [] if after else [(1, {"zone": "of entity"}, "globex")]

    for org in ("acme", "globex"):
        tasks.schedule("daily", ms.daily("10:00"), work, org=org)
    tasks.schedule("zones", ms.daily("10:00"), work, org="acme", zones="select 'Asia/Tokyo'")
    tasks.schedule("entities", ms.daily("10:00"), work, org="acme", entities=entities)
    clock = Clock(secured.conn)
    for at in (MONDAY, MONDAY + timedelta(hours=10)):
        clock.set(at)
        await Worker(secured.dsn("worker"), tasks, config=WorkerConfig(**SETTINGS)).drain()
    expected = [("acme", "Asia/Tokyo"), ("acme", "UTC"), ("globex", "UTC"), ("globex", "of entity")]
    assert sorted(seen) == expected

    with Client(secured.dsn("operator"), secured=True, caller=ms.Caller(org_id="globex")) as client:
        assert [(row.org_id, row.name) for row in client.schedules.list(org="globex")] == [("globex", "daily")]
        assert client.schedules.pause("daily", reason="quiet")
        with pytest.raises(ScheduleNotFound):
            client.schedules.pause("zones")
        assert len(client.schedules.run("daily")) == 1
        client.schedules.create("own", ms.every(hours=1), work, payload={"zone": "x"})
        client.schedules.delete("own")
    paused = secured.do("select org_id from mainspring.schedule where paused_at is not null")
    assert paused == [("globex",)]
