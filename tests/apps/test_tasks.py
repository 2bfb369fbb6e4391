"""Tasks that are handed a value: each application that binds them has its own."""

from __future__ import annotations

from datetime import timedelta

import pytest

import mainspring as ms
from mainspring.testing import Harness
from mainspring_apps.tasks import Tasks

tasks = Tasks[str]("shop")


@tasks.task(queue="q:default")
def told(kind: str, ctx: ms.SyncContext, *, of: str) -> None:
    """What is swept."""


tasks.sweep(
    "by-kind",
    every=timedelta(hours=1),
    query="select 1 as id, %(kind)s::text as kind",
    params=lambda kind: {"kind": kind},
    job=lambda row: told.job(of=row.kind).with_key(row.kind),
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
