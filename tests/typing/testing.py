"""Read by mypy only: what a test says to the testing kit is checked."""

from __future__ import annotations

from collections import Counter
from datetime import datetime, timedelta
from typing import Any, assert_type

from mainspring import App, Job, Registry
from mainspring.testing import Clock, Drained, Guest, Harness, Ran, adrain, drain

tasks = Registry("typing")
app = App(tasks)


@tasks.task
async def ship(*, order: int) -> None: ...


def test_sync(mainspring: Harness, conn: Any) -> None:
    assert_type(mainspring.now(), datetime)
    assert_type(mainspring.advance(hours=4), Drained)
    assert_type(mainspring.drain().counts, Counter[str])
    assert_type(mainspring.run_one(ship), Ran)
    assert_type(mainspring.run_one(ship.job(order=7)), Ran)
    assert_type(mainspring.assert_enqueued(ship, payload={"order": 7}, at=timedelta(hours=1)), Job)
    assert_type(mainspring.jobs("ship", state="dead"), list[Job])
    assert_type(drain(conn, tasks), Drained)
    assert_type(Guest(conn, app).drain(queue="q:default"), Drained)
    Clock(conn).advance(days=1)
    mainspring.run_one(7)  # type: ignore[arg-type]
    mainspring.advance(hours="4")  # type: ignore[arg-type]
    mainspring.assert_enqueued(ship, pyload={})  # type: ignore[call-arg]
    mainspring.refute_enqueued(ship, at=[])  # type: ignore[arg-type]
    drain(conn, "app")  # type: ignore[arg-type]


async def test_async(mainspring: Harness, conn: Any) -> None:
    assert_type(await mainspring.adrain(), Drained)
    assert_type(await mainspring.aadvance(timedelta(hours=4)), Drained)
    assert_type(await mainspring.arun_one(ship), Ran)
    assert_type(await adrain(conn, app), Drained)
