from __future__ import annotations

import asyncio
import json
import re
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families
from tests.databases import Database
from tests.docs.pages import ROOT
from tests.documents import PLANNING_QUEUES
from tests.observe.conftest import Theatre
from tests.worker.stage import Stage

from mainspring import AsyncClient, Permanent, Registry, Snooze, fixed
from mainspring.db.gauges import Gauges, Reader
from mainspring.db.queues import declare
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.errors import ConfigurationError
from mainspring.events import JobEnqueued, JobSucceeded
from mainspring.health.measure import ENGINES
from mainspring.observe import Metrics
from mainspring.observe.alerts import RULES, AlertRule
from mainspring.observe.aliases import ALIASES
from mainspring.observe.metrics import WORKER_GAUGES

pytestmark = pytest.mark.anyio


class Scrape:
    """What Prometheus would read."""

    def __init__(self, metrics: Metrics) -> None:
        registry = CollectorRegistry()
        registry.register(metrics)
        self.text = generate_latest(registry).decode()
        self.samples = {
            (sample.name, tuple(sorted(sample.labels.items()))): sample.value
            for family in text_string_to_metric_families(self.text)
            for sample in family.samples
        }

    def __call__(self, name: str, **labels: str) -> float:
        return self.samples.get((name, tuple(sorted(labels.items()))), 0.0)

    def labels(self, name: str) -> set[str]:
        return {label for sample, labels in self.samples if sample == name for label, _ in labels}


@pytest.mark.rule("ENG-22.01", "ENG-22.02", "ENG-22.03", "ENG-22.04", "ENG-22.06")
async def test_jobs_are_counted_by_type_and_queue(database: Database, tasks: Registry, stage: Theatre) -> None:
    @tasks.task(retry=fixed(0, attempts=3))
    async def work(*, until: int) -> None:
        failures.append(1)
        if len(failures) < until:
            raise ValueError("not yet")

    @tasks.task
    async def bad() -> None:
        raise Permanent("never")

    failures: list[int] = []
    metrics = Metrics(tasks, aliases=True)
    stage.observers = [metrics]
    async with AsyncClient(database.dsn, observers=[metrics]) as client:
        for _ in range(2):
            await client.enqueue(work.job(until=3).with_key("k"))
        await client.enqueue(bad.job().on_queue("q:notifications"))
    await stage.drain(tasks)

    seen = Scrape(metrics)
    pair = {"job_type": "work", "queue": "q:default"}
    assert seen("jobs_enqueued_total", **pair) == 1
    assert seen("jobs_started_total", **pair) == 3
    assert seen("jobs_succeeded_total", **pair) == 1
    assert seen("jobs_failed_total", **pair, error_class="retryable") == 2
    assert seen("jobs_failed_total", job_type="bad", queue="q:notifications", error_class="permanent") == 1
    assert seen("jobs_attempts_histogram_bucket", job_type="work", le="2.0") == 0
    assert seen("jobs_attempts_histogram_bucket", job_type="work", le="3.0") == 1
    assert seen("jobs_duration_seconds_count", **pair) == 3
    assert seen.labels("jobs_started_total") == {"job_type", "queue"}
    assert seen.labels("jobs_failed_total") == {"job_type", "queue", "error_class"}


@pytest.mark.rule("ENG-22.05", "ENG-22.06", "ENG-22.07")
async def test_durations_add_up_and_deaths_count_for_the_queue_of_origin(stage: Theatre, tasks: Registry) -> None:
    @tasks.task(queue="q:exports", retry=fixed(0, attempts=1))
    async def export() -> None:
        await asyncio.sleep(0.2)
        raise ValueError("no")

    metrics = Metrics(tasks, aliases=True)
    stage.observers = [metrics]
    await stage.enqueue(export.job())
    await stage.drain(tasks)

    seen = Scrape(metrics)
    pair = {"job_type": "export", "queue": "q:exports"}
    assert seen("jobs_duration_seconds_sum", **pair) >= 0.2
    assert seen("deadletter_total", **pair) == 1
    assert seen("jobs_attempts_histogram_sum", job_type="export") == 1


@pytest.mark.rule("ENG-22.09")
async def test_lateness_and_deferrals_are_measured(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None:
        raise Snooze(3600)

    metrics = Metrics(tasks)
    stage.observers = [metrics]
    stage.clock.set(stage.clock.now())
    await stage.enqueue(work.job())
    stage.clock.advance(seconds=100)
    await stage.drain(tasks)

    seen = Scrape(metrics)
    pair = {"job_type": "work", "queue": "q:default"}
    assert seen("mainspring_jobs_deferred_total", **pair) == 1
    assert 100 <= seen("mainspring_jobs_lateness_seconds_sum", **pair) < 110
    assert seen("mainspring_jobs_lateness_seconds_bucket", **pair, le="60.0") == 0


@pytest.mark.rule("ENG-22.08")
def test_neither_tenants_nor_jobs_nor_invented_names_make_new_series(tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    metrics = Metrics(tasks, aliases=True)
    for n in range(1000):
        about = (f"org-{n}", None, f"r-{n}", f"c-{n}", 1)
        metrics([
            JobEnqueued(UUID(int=n), "work", f"q:{n}", *about),
            JobSucceeded(UUID(int=n), f"task-{n}", "q:default", *about),
        ])  # fmt: skip

    seen = Scrape(metrics)
    assert seen("jobs_succeeded_total", job_type="other", queue="q:default") == 1000
    assert len([key for key in seen.samples if key[0] == "jobs_enqueued_total"]) <= 60
    assert sum(value for (name, _), value in seen.samples.items() if name == "jobs_enqueued_total") == 1000
    assert "org-" not in seen.text
    assert len(metrics._cells) <= 60


def test_counters_of_declared_tasks_stand_at_zero_so_that_the_first_event_shows_as_a_rise(tasks: Registry) -> None:
    @tasks.task(queue="q:exports")
    async def work() -> None: ...

    assert 'mainspring_jobs_deadlettered_total{job_type="work",queue="q:exports"} 0.0' in Scrape(Metrics(tasks)).text


@pytest.mark.rule("ENG-22.09", "ENG-12.11")
async def test_the_state_of_the_database_is_read_when_somebody_scrapes(stage: Theatre, tasks: Registry) -> None:
    @tasks.task(queue="q:exports", retry=fixed(0, attempts=1))
    async def work() -> None:
        raise ValueError("no")

    stage.clock.set(stage.clock.now())
    run(psycopg_door(stage.conn), declare(Sql(), "planning", PLANNING_QUEUES))
    metrics = Metrics(tasks, gauges=Reader(stage.dsn, keep=0))
    assert Scrape(metrics)("mainspring_oldest_due_age_seconds", queue="q:exports") == 0
    await stage.enqueue(work.job())
    await stage.drain(tasks)
    await stage.enqueue_many([work.job() for _ in range(3)])
    await stage.enqueue(work.job().after(3600))
    ages = []
    for _ in range(2):
        stage.clock.advance(seconds=100)
        ages.append(Scrape(metrics)("mainspring_oldest_due_age_seconds", queue="q:exports"))

    seen = Scrape(metrics)
    assert ages == [100, 200]
    assert seen("mainspring_jobs_ready", queue="q:exports") == 3
    assert seen("mainspring_jobs_later", queue="q:exports") == 1
    assert seen("mainspring_start_target_seconds", queue="q:exports") == 300
    assert seen("mainspring_deadletter_open") == 1
    assert seen("mainspring_deadletter_oldest_age_seconds") == 200
    assert seen("mainspring_workers_alive") == 0
    assert seen("mainspring_gauges_up") == 1
    assert seen("mainspring_table_live_rows", table="waiting") >= 0
    async with stage.work(tasks, queues={"q:critical": 1}):
        await stage.until(lambda: Scrape(metrics)("mainspring_workers_alive") == 1)


def reader(stage: Stage) -> Gauges:
    found = Reader(stage.dsn)()
    assert found is not None
    return found


async def test_a_held_snapshot_is_seen_with_who_holds_it(stage: Theatre, database: Database) -> None:
    assert [holder for holder in reader(stage).horizon if (holder.seconds or 0) > 0.2] == []
    with database.connect() as conn, conn.transaction():
        conn.execute("create table held ()")
        await asyncio.sleep(0.3)
        held = [holder.holder for holder in reader(stage).horizon if (holder.seconds or 0) > 0.2]

    assert held == ["session"]


@pytest.mark.mainspring_new
async def test_counts_stop_at_the_cap_and_no_hot_table_is_scanned_whole(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    await stage.enqueue_many([work.job().with_priority(n % 4) for n in range(300)])
    await stage.enqueue_many([work.job().after(60) for n in range(300)])
    stage.rows("analyze mainspring.waiting")
    sql = Sql()["gauges"] % {"cap": "'50'", "gone_after": "'30 s'", "org": "null"}
    text = stage.one(sql)
    (lane,) = [lane for lane in json.loads(text)["lanes"] if lane["name"] == "q:default"]
    assert (lane["ready"], lane["later"]) == (50, 50)
    stage.rows("set enable_seqscan = off")
    plan = "\n".join(row[0] for row in stage.rows("explain " + sql))
    assert "Seq Scan on waiting" not in plan
    assert "Seq Scan on finished" not in plan


async def test_a_database_that_is_away_leaves_the_counters_in_view() -> None:
    metrics = Metrics(gauges=Reader("postgresql://127.0.0.1:1/nowhere?connect_timeout=1"))
    metrics([JobSucceeded(UUID(int=1), "work", "q:default", "o", None, "r", "c", 1)])

    seen = Scrape(metrics)
    assert seen("mainspring_gauges_up") == 0
    assert seen("mainspring_jobs_succeeded_total", job_type="work", queue="q:default") == 1


async def test_a_worker_says_how_its_pools_and_hints_stand(stage: Theatre, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    metrics = Metrics(tasks)
    async with stage.work(tasks, wakeups=True, poll_interval=timedelta(seconds=5)) as worker:
        metrics.state = worker.state
        await stage.until(lambda: Scrape(metrics)("mainspring_wakeups_listening"))
        seen = Scrape(metrics)

    assert worker.state().keys() == WORKER_GAUGES.keys()
    assert seen("mainspring_transactions_size") == 10
    assert seen("mainspring_thread_connections_size") == 16
    assert seen("mainspring_hints_heard_total") >= 1


def shown(metrics: Metrics) -> dict[str, list[tuple[str, Any, float]]]:
    """Every family, and its samples: the rest of their names, their labels and values."""
    return {
        family.name: [(one.name.removeprefix(family.name), one.labels, one.value) for one in family.samples]
        for family in metrics.collect()
    }


def test_every_metric_has_our_prefix_and_the_ledgers_names_are_shown_where_they_are_asked_for(
    tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINSPRING_METRICS_ALIASES", raising=False)
    job = (UUID(int=1), "work", "q:default", "o", None, "r", "c", 1)
    batch = [JobEnqueued(*job), JobSucceeded(*job)]
    plain = Metrics(tasks)
    monkeypatch.setenv("MAINSPRING_METRICS_ALIASES", "on")
    both, refused = Metrics(tasks), Metrics(tasks, aliases=False)
    for metrics in (plain, both, refused):
        metrics(batch)

    assert all(name.startswith("mainspring_") for name in shown(plain))
    assert shown(refused) == shown(plain)
    assert shown(both).keys() - shown(plain).keys() == set(ALIASES.values()) == ENGINES
    for name, alias in ALIASES.items():
        assert shown(both)[alias] == shown(both)[name] == shown(plain)[name]
    monkeypatch.setenv("MAINSPRING_METRICS_ALIASES", "yes")
    with pytest.raises(ConfigurationError, match="MAINSPRING_METRICS_ALIASES"):
        Metrics(tasks)


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.name)
def test_the_rules_for_prometheus_name_metrics_that_are_shown(rule: AlertRule) -> None:
    page = (ROOT / "docs" / "metrics.md").read_text()
    named = set(re.findall(r"\b[a-z]+(?:_[a-z]+)+\b", re.sub(r'"[^"]*"|\(\w+\)', "", rule.expr)))

    assert named
    assert all(f"| `{name}` |" in page and name.startswith("mainspring_") for name in named)
