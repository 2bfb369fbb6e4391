"""Housekeeping as schedules: who sees them, when they fire, and what silence means."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from datetime import timedelta
from itertools import pairwise
from typing import Any

import pytest
from tests.databases import Database

from mainspring import App, Registry, Retention, rate
from mainspring.config import WorkerConfig
from mainspring.db.doctor import engine
from mainspring.db.gauges import Dead, Gauges, HorizonHolder, gauges
from mainspring.db.maintenance import SWEEPS
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.db.wire.statement import Dialogue
from mainspring.events import Alert, Event
from mainspring.health.doctor import Finding
from mainspring.health.doctor.engine import heartbeat
from mainspring.job import SYSTEM
from mainspring.observe.alerts import wrong
from mainspring.testing import Harness
from mainspring.upkeep.maintenance import HEARTBEAT
from mainspring.virtual.runner import Runner

MINUTE = timedelta(minutes=1)


@pytest.fixture
def tasks() -> Registry:
    return Registry("test")


@pytest.fixture
def mainspring_app(tasks: Registry) -> App:
    @tasks.task
    async def work() -> None: ...

    return App(tasks)


@pytest.fixture
def housekeeping(monkeypatch: pytest.MonkeyPatch) -> None:
    """The built-in schedules fire in this test."""
    begin = Runner.__init__

    def fires(self: Runner, *given: Any, **how: Any) -> None:
        begin(self, *given, **how)
        self._firing._housekeeping = True

    monkeypatch.setattr(Runner, "__init__", fires)


def finding(mainspring: Harness) -> Finding:
    (found,) = heartbeat(run(psycopg_door(mainspring.conn), engine(Sql(), timedelta(seconds=30))))
    return found


def firing(mainspring: Harness) -> set[str]:
    with mainspring.conn.transaction():
        found = run(psycopg_door(mainspring.conn), gauges(Sql()))
    return {name for (name, _), _ in wrong(found)}


def test_they_are_schedules_of_the_engine_that_never_meet_themselves(mainspring_app: App) -> None:
    found = mainspring_app.registry.schedules()

    assert len(found) == len(SWEEPS) + 3
    assert {(one.org, one.running, one.app) for one in found} == {(SYSTEM, "skip", "mainspring")}


def test_in_a_test_they_do_not_fire(mainspring: Harness) -> None:
    assert len(mainspring.advance(hours=2)) == 0
    assert mainspring.conn.execute("select count(*) from mainspring.fire").fetchone() == (0,)


@pytest.mark.usefixtures("housekeeping")
@pytest.mark.rule("ENG-29.06")
def test_a_heartbeat_a_minute_and_silence_for_five_is_a_problem(mainspring: Harness, mainspring_app: App) -> None:
    assert finding(mainspring).what.startswith("none is expected")

    beats = mainspring.advance(minutes=5)

    assert beats.counts["succeeded"] >= 5
    assert sum(run.task == HEARTBEAT for run in beats) == 5
    assert finding(mainspring).level == "ok"
    last = [run.at for run in beats if run.task == HEARTBEAT][-1]
    mainspring.clock.set(last + timedelta(minutes=5))  # all workers have stopped
    assert finding(mainspring).level == "ok"
    assert "heartbeat-silent" not in firing(mainspring)
    mainspring.clock.set(last + timedelta(minutes=5, seconds=1))
    assert finding(mainspring) == Finding(
        "heartbeat",
        "problem",
        "no heartbeat for 5 min 1 s: jobs are not fired, or do not succeed",
        "start a worker; if one runs, see `mainspring job list --task mainspring.heartbeat` and its log",
    )
    assert "heartbeat-silent" in firing(mainspring)

    mainspring.advance(minutes=1)  # somebody works again
    assert finding(mainspring).level == "ok"


@pytest.mark.usefixtures("housekeeping")
def test_an_engine_that_never_succeeded_is_silent_too_and_a_paused_one_is_not(mainspring: Harness) -> None:
    mainspring.drain()  # declares them
    mainspring.clock.advance(minutes=6)
    assert finding(mainspring).level == "problem"

    mainspring.client.schedules.pause(HEARTBEAT, org=SYSTEM, reason="quiet, please")

    assert finding(mainspring).level == "ok"


@pytest.mark.usefixtures("housekeeping")
def test_by_itself_it_keeps_the_tables_small(mainspring: Harness, tasks: Registry) -> None:
    app = App(tasks, maintenance=Retention(succeeded=timedelta(minutes=15)))
    with Harness(mainspring.dsn, app) as harness:
        ran = len(harness.advance(minutes=80))

    left = mainspring.conn.execute("select count(*) from mainspring.job").fetchone()
    assert ran > 160
    assert left is not None
    assert left[0] < 75


def test_old_fires_go_and_young_ones_stay(mainspring: Harness, mainspring_app: App) -> None:
    mainspring.conn.execute(
        "insert into mainspring.fire (org_id, id, schedule, zone, instant, local, how, at)"
        " select 'default', gen_random_uuid(), 's', '', at, '', 'fired', at"
        " from generate_series(mainspring.now() - interval '93 days', mainspring.now(), '1 day') at"
    )

    done = mainspring.run_one(mainspring_app.registry.get("mainspring.prune_fires").job())

    assert done.result == {"removed": 3}


@pytest.mark.usefixtures("housekeeping")
@pytest.mark.rule("ENG-25.01")
def test_with_a_limit_of_one_a_minute_there_are_never_two_starts_in_a_minute(
    mainspring: Harness, tasks: Registry
) -> None:
    task = "mainspring.prune_keys"
    app = App(tasks, maintenance=Retention(batch=10), limits=[rate(task=task, most=1, per="1m")])
    mainspring.conn.execute(
        "insert into mainspring.idempotency (org_id, key, fingerprint, job_id, first_seen_at, last_seen_at, expires_at)"
        " select 'default', n::text, '', gen_random_uuid(), now(), now(), mainspring.now()"
        " from generate_series(1, 55) n"
    )
    with Harness(mainspring.dsn, app) as harness:
        runs = [run for run in harness.advance(minutes=70) if run.task == task]

    assert [run.result["removed"] for run in runs][:6] == [10, 10, 10, 10, 10, 5]
    starts = [run.at for run in runs]
    assert min(later - earlier for earlier, later in pairwise(starts)) >= MINUTE


def test_what_holds_dead_rows_is_told_once_and_when_it_is_over(
    mainspring: Harness, tasks: Registry, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Event] = []
    held = [HorizonHolder(holder="session", seconds=700, transactions=1)]

    def found(sql: Sql, *, cap: int) -> Dialogue[Gauges]:
        yield from ()
        return Gauges(
            lanes=[], workers=0, dead=Dead(open=9, oldest_s=1e9), horizon=list(held), tables=[], heartbeat_s=9999
        )

    monkeypatch.setattr("mainspring.upkeep.maintenance.gauges", found)

    def observe(batch: Sequence[Event]) -> None:
        told.extend(event for event in batch if isinstance(event, Alert))

    app = App(tasks, observers=[observe])
    check = app.registry.get("mainspring.check_tables")
    with Harness(mainspring.dsn, app) as harness, caplog.at_level(logging.WARNING, "mainspring.task"):
        for _ in range(2):
            harness.run_one(check.job())
        held.clear()
        harness.run_one(check.job())

    alerts = [(event.alert, event.firing) for event in told if isinstance(event, Alert)]
    assert alerts == [("horizon-held", True), ("horizon-held", False)]
    assert [record.message for record in caplog.records] == [
        "horizon-held: a session has held its snapshot for 12 min"
    ] * 2


def test_the_real_gauges_can_be_looked_at(mainspring: Harness, mainspring_app: App) -> None:
    assert mainspring.run_one(mainspring_app.registry.get("mainspring.check_tables").job()).state == "succeeded"


def test_a_real_worker_of_a_test_leaves_them_out(mainspring: Harness, mainspring_app: App) -> None:
    with mainspring.working():
        job = mainspring.client.enqueue(mainspring_app.registry.get("work").job())
        mainspring.wait_for("job.succeeded", job_id=job.id)

    assert mainspring.conn.execute("select count(*) from mainspring.schedule").fetchone() == (0,)


@pytest.fixture
def real(database: Database) -> Iterator[Any]:
    with database.connect() as conn:
        yield conn


@pytest.mark.anyio
async def test_a_worker_declares_them(real: Any, database: Database, tasks: Registry) -> None:
    worker = App(tasks, dsn=database.dsn).worker(WorkerConfig(poll_interval=timedelta(milliseconds=50)))
    await worker.drain()

    rows = real.execute("select org_id, name, declared_by from mainspring.schedule order by name").fetchall()
    assert [name for _, name, _ in rows] == sorted(one.name for one in App(tasks).registry.schedules())
    assert {(org, by) for org, _, by in rows} == {(SYSTEM, "mainspring")}
