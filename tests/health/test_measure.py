"""Measures: the application's own numbers beside the engine's, and none of them breaks a scrape."""

from __future__ import annotations

from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families as parse
from tests.health.conftest import case

import mainspring as ms
from mainspring.db.gauges import Reader
from mainspring.db.measures import MEASURE_GUARD, Measures
from mainspring.health.measure import ENGINES
from mainspring.observe import Metrics
from mainspring.testing import Harness
from mainspring.web.backend import Backend

ANYTHING: Any = "x"


@pytest.fixture
def measures() -> list[ms.Measure]:
    return [
        ms.measure("cases_open", "Open cases", "select kind, org, count(*) from cases group by 1, 2 order by 1"),
        ms.measure("cases_total", "Cases ever", "select count(*) from cases where due_at <= {schema}.now()",
                   kind="counter"),
        ms.measure("oldest_seconds", "Null where there is none", "select null::float8;"),
        ms.measure("broken", "It is", "select * from nowhere"),
        ms.measure("doubled", "Two rows with the same labels", "select 'a' as kind, 1 union all select 'a', 2"),
        ms.measure("odd", "A label that is none", 'select 1 as "two words", 2'),
        ms.measure("texts", "No number", "select 'many'"),
        ms.measure("slow", "Longer than it may take", "select pg_sleep(60), 1"),
        ms.measure("wide", "Too many", "select n::text as n, 1 from generate_series(1, 1001) n"),
    ]  # fmt: skip


@pytest.fixture
def mainspring_app(tasks: ms.Registry, measures: list[ms.Measure]) -> ms.App:
    return ms.App(None, tasks, measures=measures)


def scraped(metrics: Metrics) -> dict[str, list[tuple[dict[str, str], float]]]:
    registry = CollectorRegistry()
    registry.register(metrics)
    families = parse(generate_latest(registry).decode())
    return {family.name: [(s.labels, s.value) for s in family.samples] for family in families}


@pytest.mark.rule("STAFF-15.14")
def test_measures_are_shown_beside_the_engines_metrics_and_a_broken_one_only_counts(
    mainspring: Harness, mainspring_app: ms.App, tasks: ms.Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert "statement_timeout = '2 s'" in MEASURE_GUARD
    monkeypatch.setattr("mainspring.db.measures.MEASURE_GUARD", MEASURE_GUARD.replace("2 s", "100 ms"))
    case(mainspring, 1, "late", org="acme")
    case(mainspring, 2, "late", org="acme")
    case(mainspring, 3, 'lost "it"')
    mainspring.client.alerts.open("needs-a-person", "booking 1", severity="critical")
    mainspring.client.alerts.open("needs-a-person", "booking 2", severity="critical")
    mainspring.client.alerts.open("over-already")
    mainspring.client.alerts.close("over-already")
    reader = Measures(mainspring.dsn, mainspring_app.measures, keep=60)

    found = scraped(Metrics(tasks, gauges=Reader(mainspring.dsn), measures=reader))

    assert found["cases_open"] == [
        ({"kind": "late", "org": "acme"}, 2.0), ({"kind": 'lost "it"', "org": ""}, 1.0),
    ]  # fmt: skip
    assert found["cases"] == [({}, 3.0)]
    assert found["oldest_seconds"] == []
    assert found["mainspring_alerts_open"] == [({"name": "needs-a-person", "severity": "critical"}, 2.0)]
    errors = {labels["measure"]: value for labels, value in found["mainspring_measure_errors"]}
    assert errors == dict.fromkeys(("cases_open", "cases_total", "oldest_seconds"), 0.0) | dict.fromkeys(
        ("broken", "doubled", "odd", "texts", "slow", "wide"), 1.0
    )
    assert not {"broken", "doubled", "odd", "texts", "slow", "wide"} & found.keys()
    assert found["mainspring_gauges_up"] == [({}, 1.0)]

    case(mainspring, 4)
    assert scraped(Metrics(tasks, measures=reader))["cases"] == [({}, 3.0)]  # kept for a while


def test_an_application_reads_its_own_measures(mainspring: Harness, tasks: ms.Registry) -> None:
    case(mainspring, 1)
    about = ms.measure("cases_open", "Open cases", "select kind, count(*) from cases group by 1")
    app = ms.App(mainspring.dsn, tasks, measures=[about])

    assert app.measured() == [ms.Measured(about, ("kind",), ((("late",), 1.0),))]


def test_the_web_application_shows_them_too(mainspring: Harness, tasks: ms.Registry) -> None:
    app = ms.App(mainspring.dsn, tasks, measures=[ms.measure("answer", "The answer", "select 42")])

    found = scraped(Backend(app, None).metrics)

    assert (found["answer"], found["mainspring_gauges_up"]) == ([({}, 42.0)], [({}, 1.0)])


def test_while_the_database_is_away_measures_only_count_errors() -> None:
    reader = Measures("postgresql://127.0.0.1:1/x?connect_timeout=1", [ms.measure("a", "A", "select 1")], keep=0)
    assert [(one.errors, bool(one.error)) for _ in range(2) for one in reader()] == [(1, True), (2, True)]
    assert scraped(Metrics(measures=reader))["mainspring_measure_errors"] == [({"measure": "a"}, 3.0)]


def test_the_engines_names_are_the_engines() -> None:
    metrics = Metrics(measures=Measures("", ()))
    shown = {family.name for family in metrics.collect()}
    assert {name for name in shown if not name.startswith("mainspring_")} == ENGINES


@pytest.mark.parametrize(
    ("declare", "text"),
    [
        (lambda: ms.measure("jobs_failed", "h", "q"), "measure jobs_failed: is a name of the engine"),
        (lambda: ms.measure("deadletter_total", "h", "q", kind="counter"), "is a name of the engine"),
        (lambda: ms.measure("mainspring_mine", "h", "q"), "is a name of the engine"),
        (lambda: ms.measure("my-number", "h", "q"), "measure my-number: is not a name of Prometheus"),
        (lambda: ms.measure("a:b", "h", "q"), "is not a name of Prometheus"),
        (lambda: ms.measure("cases_total", "h", "q"), "a gauge's name does not end like"),
        (lambda: ms.measure("cases", "h", "q", kind=ANYTHING), "kind: is not gauge or counter"),
        (lambda: ms.measure("cases", " ", "q"), "help: says nothing"),
        (lambda: ms.measure("cases", "h", ""), "sql: is not a query"),
        (lambda: ms.App(None, measures=[ms.measure("a", "h", "q"), ms.measure("a_total", "h", "q", kind="counter")]),
         "measure a_total: is declared twice"),
        (lambda: ms.App(None, measures=[ANYTHING]), "measures: 'x' is not made by measure"),
    ],
)  # fmt: skip
def test_mistakes_are_told_at_the_declaration(declare: Any, text: str) -> None:
    with pytest.raises(ms.DeclarationError) as caught:
        declare()
    assert text in str(caught.value)
