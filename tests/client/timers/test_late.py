"""A start is on time up to 60 s after the due time; later it is told, counted and logged."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest
from tests.logged import lines, logged

import mainspring as ms
from mainspring.events import Event, JobLate
from mainspring.observe import Log, Metrics
from mainspring.testing import Harness

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("late")


@pytest.fixture
def mainspring_app(tasks: ms.Registry) -> ms.Registry:
    return tasks


@pytest.mark.rule("ENG-13.03")
@pytest.mark.parametrize(("seconds", "late"), [(59, False), (61, True)])
def test_a_start_more_than_a_minute_late_is_an_event(
    mainspring: Harness, tasks: ms.Registry, seconds: int, late: bool
) -> None:
    @tasks.task
    async def work() -> None:
        """Do nothing."""

    mainspring.clock.set(NOON)
    job = mainspring.client.enqueue(work.job().at(NOON + timedelta(hours=1))).id
    mainspring.clock.set(NOON + timedelta(hours=1, seconds=seconds))
    with mainspring.working() as working:
        mainspring.wait_for("job.succeeded", job_id=job)

    told = [event for event in working.events if isinstance(event, JobLate)]
    assert [(event.job_id, round(event.lateness)) for event in told] == ([(job, 61)] if late else [])
    assert counted(tasks, working.events) == late
    assert late_lines(working.events) == ([("warning", 61_000)] if late else [])


def counted(tasks: ms.Registry, events: list[Event]) -> float:
    metrics = Metrics(tasks)
    metrics(events)
    samples = [sample for family in metrics.collect() for sample in family.samples]
    return sum(sample.value for sample in samples if sample.name == "mainspring_jobs_late_total")


def late_lines(events: list[Event]) -> list[tuple[str, int]]:
    with logged() as stream:
        Log()(events)
    return [(line["level"], round(line["late_ms"], -3)) for line in lines(stream, "job.late")]
