"""The pages of events and metrics say what the code does."""

from __future__ import annotations

import inspect
import re
from uuid import UUID

import pytest
from tests.docs.pages import ROOT, table
from tests.observe.test_alerts import state

from mainspring import Registry, events, measure
from mainspring.db.gauges import Alarm, Behind, Fuse, HorizonHolder, TableGauge
from mainspring.events import Event, JobEvent, JobFailed
from mainspring.health.measure import Measured
from mainspring.observe import Metrics
from mainspring.observe.metrics import WORKER_GAUGES

EVENTS = ROOT / "docs" / "events.md"
METRICS = ROOT / "docs" / "metrics.md"


def rows() -> list[list[str]]:
    """Every event: its name, when it is told, and its fields besides those that all events of jobs have."""
    kinds = [kind for _, kind in inspect.getmembers(events, inspect.isclass) if issubclass(kind, Event)]
    common = set(JobEvent.__struct_fields__)
    found = []
    for kind in kinds:
        if kind in (Event, JobEvent):
            continue
        fields = [f for f in kind.__struct_fields__ if not issubclass(kind, JobEvent) or f not in common]
        when = " ".join((kind.__doc__ or "").split())
        found.append(
            [f"`{kind.__struct_config__.tag}`", f"`{kind.__name__}`", when, " ".join(f"`{f}`" for f in fields)]
        )
    return found


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[1])
def test_each_event_is_in_the_table_as_it_is_in_the_code(row: list[str]) -> None:
    assert row in table(EVENTS, "## All events")


def test_the_table_names_no_other_event() -> None:
    assert len(table(EVENTS, "## All events")) == len(rows())


def test_the_common_fields_are_named() -> None:
    assert [row[0].strip("`") for row in table(EVENTS, "## Fields of every job event")] == [*JobEvent.__struct_fields__]


def test_the_page_of_metrics_names_each_with_its_labels() -> None:
    tasks = Registry("docs")
    horizon = [HorizonHolder(holder="session", seconds=1, transactions=1)]
    tables = [TableGauge(name="waiting", live=1, dead=1, bytes=1, vacuumed_s=1)]
    breakers = [Fuse(name="stripe", open=True, open_s=1, keys=1, waiting=1)]
    limits, quarantined = [Behind(name="rate:mail", waiting=1)], ["resize"]
    alerts = [Alarm(name="needs-a-person", severity="warning", open=1)]
    number = measure("mine", "Mine", "select 1")
    metrics = Metrics(
        tasks,
        gauges=lambda: state(
            horizon=horizon, tables=tables, breakers=breakers, limits=limits, alerts=alerts, quarantined=quarantined
        ),
        measures=lambda: [Measured(number, error="away", errors=1)],
        state=lambda: dict.fromkeys(WORKER_GAUGES, 1.0),
    )
    job = (UUID(int=1), "work", "q:default", "o", None, "r", "c", 1, None)
    kinds = [kind for kind in JobEvent.__subclasses__() if kind is not JobFailed]
    metrics(
        [
            *(kind(*job) for kind in kinds),
            JobFailed(*job),
            events.Alert("a", "critical", "t", "r"),
            events.SweepFound("s", 1, job[0]),
        ]
    )
    shown = {
        family.name + ("_total" if family.type == "counter" else ""): {
            label for sample in family.samples for label in sample.labels if label != "le"
        }
        for family in metrics.collect()
    }
    headings = ("## Jobs", "## The state of the database", "## Measures of an application", "## A worker process")
    said = {
        row[0].strip("`"): set(re.findall(r"\w+", row[1].replace("-", "")))
        for heading in headings
        for row in table(METRICS, heading)
    }

    assert said == shown
