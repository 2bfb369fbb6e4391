"""Measures: the application's own numbers beside the engine's, and none of them breaks a scrape."""

from __future__ import annotations

from functools import partial
from math import inf, nan
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families as parse
from tests.health.conftest import case

import mainspring as ms
from mainspring.db.gauges import Reader
from mainspring.db.measures import MEASURE_GUARD, Measures
from mainspring.errors import DeclarationError
from mainspring.health.measure import ENGINES, Measure, Measured
from mainspring.observe import Metrics
from mainspring.testing import Harness
from mainspring.web.backend import Backend

ANYTHING: Any = "x"
WRONG_BUCKETS: Any = ([2, 1], [1, 1], [-1], [1, inf], [nan], ["1"], range(51), ANYTHING)


@pytest.fixture
def measures() -> list[Measure]:
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
def mainspring_app(tasks: ms.Registry, measures: list[Measure]) -> ms.App:
    return ms.App(tasks, measures=measures)


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


def counted(app: ms.App) -> dict[tuple[str, ...], float]:
    """What a scrape shows of histograms, by the name of each series and its labels."""
    registry = CollectorRegistry()
    registry.register(Metrics(measures=app.measured))
    families = list(parse(generate_latest(registry).decode()))
    assert all(family.type == "histogram" for family in families if family.name in ("waits", "none_yet"))
    samples = [one for family in families for one in family.samples if one.name.startswith(("waits", "none_yet"))]
    return {(one.name, *one.labels.values()): one.value for one in samples}


def test_a_histogram_is_counted_by_the_database_and_what_is_at_a_bound_is_within_it(
    mainspring: Harness, tasks: ms.Registry
) -> None:
    buckets: Any = {"kind": "histogram", "buckets": (1, 2.5, 10)}
    app = ms.App(tasks, dsn=mainspring.dsn, measures=[
        ms.measure("waits", "How long", "select kind, nullif(id, 99) from cases where id % 5 < 5 -- all;", **buckets),
        ms.measure("none_yet", "Nothing", "select '7.5' where false;", **buckets),
    ])  # fmt: skip
    mainspring.conn.execute("insert into cases select 1, 'late' from generate_series(1, 5000)")
    for number in (2, 10, 11, 99):
        case(mainspring, number)
    case(mainspring, 3, None)  # type: ignore[arg-type]  # a row whose label is null

    found = counted(app)

    def of(name: str, *labels: str) -> tuple[list[float], float, float]:
        buckets = [found[f"{name}_bucket", *labels, bound] for bound in ("1.0", "2.5", "10.0", "+Inf")]
        return buckets, found[f"{name}_count", *labels], found[f"{name}_sum", *labels]

    assert of("waits", "late") == ([5000, 5001, 5002, 5003], 5003, 5023)
    assert of("waits", "") == ([0, 0, 1, 1], 1, 3)
    assert of("none_yet") == ([0, 0, 0, 0], 0, 0)
    assert len(found) == 18

    case(mainspring, 2)
    later = counted(app)
    assert all(later[series] >= value for series, value in found.items())  # as of a counter
    assert later["waits_sum", "late"] == 5025


@pytest.mark.parametrize(
    ("sql", "text"),
    [
        ("select 'a' as le, 1", "column le: is the label of a histogram's buckets"),
        ("select interval '1 s'", "cannot cast type interval to double precision"),
        ("select n, n from generate_series(1, 251) n", "has more than 1000 series"),
        ("select", "specified"),
    ],
)
def test_a_histogram_that_cannot_be_read_says_why(mainspring: Harness, tasks: ms.Registry, sql: str, text: str) -> None:
    about = ms.measure("waits", "How long", sql, kind="histogram", buckets=[60])
    (found,) = ms.App(tasks, dsn=mainspring.dsn, measures=[about]).measured()
    assert (text in (found.error or ""), found.histograms) == (True, ()), found.error


def test_an_application_reads_its_own_measures(mainspring: Harness, tasks: ms.Registry) -> None:
    case(mainspring, 1)
    about = ms.measure("cases_open", "Open cases", "select kind, count(*) from cases group by 1")
    app = ms.App(tasks, dsn=mainspring.dsn, measures=[about])

    assert app.measured() == [Measured(about, ("kind",), ((("late",), 1.0),))]


def test_params_are_bound_as_values_now_and_in_a_histogram(mainspring: Harness, tasks: ms.Registry) -> None:
    kinds = ["a%", "b"]
    found = ms.measure(
        "kinds", "Kinds", "select k, 1 from unnest(%(kinds)s::text[]) k", params=lambda: {"kinds": kinds}
    )
    sql = "select k from unnest(%(seconds)s::int[]) k"
    waits = ms.measure("waits", "How long", sql, params={"seconds": [30, 90]}, kind="histogram", buckets=[60])
    app = ms.App(tasks, dsn=mainspring.dsn, measures=[found, waits])

    series, histogram = app.measured()
    assert series == Measured(found, ("k",), ((("a%",), 1.0), (("b",), 1.0)))
    assert histogram.histograms == (((), (("60.0", 1.0), ("+Inf", 2.0)), 120.0),)


def test_the_web_application_shows_them_too(mainspring: Harness, tasks: ms.Registry) -> None:
    app = ms.App(tasks, dsn=mainspring.dsn, measures=[ms.measure("answer", "The answer", "select 42")])

    found = scraped(Backend(app, None).metrics)

    assert (found["answer"], found["mainspring_gauges_up"]) == ([({}, 42.0)], [({}, 1.0)])


def test_while_the_database_is_away_measures_only_count_errors() -> None:
    reader = Measures("postgresql://127.0.0.1:1/x?connect_timeout=1", [ms.measure("a", "A", "select 1")], keep=0)
    assert [(one.errors, bool(one.error)) for _ in range(2) for one in reader()] == [(1, True), (2, True)]
    assert scraped(Metrics(measures=reader))["mainspring_measure_errors"] == [({"measure": "a"}, 3.0)]


def test_the_engines_names_are_the_engines() -> None:
    metrics = Metrics(measures=Measures("", ()), aliases=True)
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
        (lambda: ms.measure("cases_total", "h", "q"), "gauge: its name does not end like"),
        (lambda: ms.measure("waits_sum", "h", "q", kind="histogram", buckets=[1]), "histogram: its name does not end"),
        (lambda: ms.measure("waits", "h", "q", kind="histogram"), "buckets: are what a histogram has"),
        (lambda: ms.measure("waits", "h", "q", buckets=[1]), "buckets: are what a histogram has"),
        *((partial(ms.measure, "waits", "h", "q", kind="histogram", buckets=wrong), "buckets: are not up to 50 rising")
          for wrong in WRONG_BUCKETS),
        (lambda: ms.measure("cases", "h", "q", kind=ANYTHING), "kind: is not gauge, counter or histogram"),
        (lambda: ms.measure("cases", " ", "q"), "help: says nothing"),
        (lambda: ms.measure("cases", "h", ""), "sql: is not a query"),
        (lambda: ms.measure("cases", "h", "select %(a)s", params={"b": 1}), "params: a: is missing"),
        (lambda: ms.App(measures=[ms.measure("a", "h", "q"), ms.measure("a_total", "h", "q", kind="counter")]),
         "measure a_total: is declared twice"),
        (lambda: ms.App(measures=[ANYTHING]), "measures: 'x' is not made by measure"),
    ],
)  # fmt: skip
def test_mistakes_are_told_at_the_declaration(declare: Any, text: str) -> None:
    with pytest.raises(DeclarationError) as caught:
        declare()
    assert text in str(caught.value)
