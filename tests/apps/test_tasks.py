"""Tasks that are handed a value: each application that binds them has its own."""

from __future__ import annotations

from datetime import timedelta

import pytest

import mainspring as ms
from mainspring.testing import Harness
from mainspring_apps.tasks import Tasks, fitted

tasks = Tasks[str]("shop")


@tasks.task(queue="q:default")
def told(kind: str, ctx: ms.SyncContext, *, of: str) -> None:
    """What is swept."""


tasks.sweep(
    "by-kind",
    every=timedelta(hours=1),
    query="select 1 as id, %(kind)s::text as kind",
    params=lambda kind: {"kind": kind},
    job=lambda _, row: told.job(of=row.kind).with_key(row.kind),
    retry=ms.fixed(5, attempts=2),
)


@pytest.fixture
def mainspring_app() -> ms.Registry:
    return tasks.bound("late")


def test_a_sweep_asks_for_its_params_with_the_value_of_its_application(
    mainspring: Harness, mainspring_app: ms.Registry
) -> None:
    sweep, other = mainspring_app.get("by-kind"), tasks.bound("lost").get("by-kind")
    mainspring.run_one(sweep.job().for_org("SYSTEM"))

    assert [job.payload["of"] for job in mainspring.client.jobs(task="told")] == ["late"]
    assert (sweep.retry, other is sweep) == (ms.fixed(5, attempts=2), False)


def test_options_that_are_functions_are_asked_for_each_application_and_others_are_handed_its_value() -> None:
    shop = Tasks[int]("shop", retry=lambda hours: ms.fixed(5, attempts=hours), timeout=lambda hours: f"{hours}h")

    @shop.task(queue="q:default")
    def usual(hours: int, ctx: ms.SyncContext, *, of: int) -> None:
        """As the registry says."""

    @shop.task(retry=2, snooze_limit=lambda hours: f"{hours}d")
    def own(hours: int, ctx: ms.SyncContext) -> None:
        """As it says itself."""

    def entities(
        hours: int, conn: object, zone: str, after: int | None, limit: int
    ) -> list[tuple[int, dict[str, int]]]:
        return [(hours, {"of": hours})]

    shop.schedule(
        "hourly", lambda hours: ms.daily(f"{hours:02}:00"), usual, entities=entities, page=lambda hours: 10 * hours
    )  # fmt: skip
    for hours in (3, 4):
        registry = shop.bound(hours)
        (schedule,) = registry.schedules()
        assert (schedule.rule, schedule.page) == (ms.daily(f"{hours:02}:00"), 10 * hours)
        assert callable(schedule.entities)
        assert schedule.entities(None, "UTC", None, 1) == [(hours, {"of": hours})]
        task, other = registry.get("usual"), registry.get("own")
        assert (task.retry.attempts, task.timeout) == (hours, timedelta(hours=hours))
        assert (other.retry.attempts, other.snooze_limit) == (2, timedelta(days=hours))
        assert fitted(registry, usual.job(of=1)).max_attempts == task.template().max_attempts == hours
