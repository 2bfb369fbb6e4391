"""What clean-up removes, how much at once, and what it leaves alone."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.docs.pages import ROOT, table

from mainspring import App, Client, Permanent, Registry
from mainspring.config import Retention, retention
from mainspring.db.maintenance import SWEEPS
from mainspring.errors import ConfigurationError, DeclarationError
from mainspring.testing import Harness

DAY = timedelta(days=1)


@pytest.fixture
def tasks() -> Registry:
    return Registry("test")


@pytest.fixture
def mainspring_app(tasks: Registry) -> App:
    @tasks.task
    async def work(*, fail: bool = False) -> None:
        if fail:
            raise Permanent("no")

    return App(tasks)


def count(mainspring: Harness, table: str) -> int:
    ((number,),) = mainspring.conn.execute(f"select count(*) from mainspring.{table}".encode()).fetchall()
    return int(number)


def sweep(mainspring: Harness, app: App, name: str) -> Any:
    return mainspring.run_one(app.registry.get(f"mainspring.{name}").job()).result


def expired_keys(mainspring: Harness, number: int, age: timedelta = DAY) -> None:
    mainspring.conn.execute(
        "insert into mainspring.idempotency (org_id, key, fingerprint, job_id, ttl, first_seen_at, last_seen_at,"
        " status, expires_at) select 'org' || mod(n, 3), 'key ' || n, '', gen_random_uuid(), '7 days',"
        " mainspring.now(), mainspring.now(), 'succeeded', mainspring.now() - %s from generate_series(1, %s) n",
        [age, number],
    )


@pytest.mark.rule("ENG-9.08", "ENG-25.01")
def test_one_run_removes_a_batch_of_expired_keys_and_the_rest_follow(mainspring: Harness, mainspring_app: App) -> None:
    expired_keys(mainspring, 5000)

    assert sweep(mainspring, mainspring_app, "prune_keys") == {"removed": 1000}
    assert count(mainspring, "idempotency where expires_at is not null") == 4000

    followed = mainspring.advance(minutes=1)

    assert [run.result["removed"] for run in followed] == [1000, 1000, 1000, 1000, 0]
    assert count(mainspring, "idempotency where expires_at is not null") == 0
    mainspring.refute_enqueued(mainspring_app.registry.get("mainspring.prune_keys"))


def test_keys_that_have_not_expired_and_those_that_never_do_stay(mainspring: Harness, mainspring_app: App) -> None:
    expired_keys(mainspring, 1)
    expired_keys_later = (
        "update mainspring.idempotency set key = 'later', expires_at = mainspring.now() + interval '1 s'"
    )
    mainspring.conn.execute(expired_keys_later)
    expired_keys(mainspring, 1)
    mainspring.conn.execute("update mainspring.idempotency set key = 'never', expires_at = null where key = 'key 1'")
    expired_keys(mainspring, 1)

    assert sweep(mainspring, mainspring_app, "prune_keys") == {"removed": 1}

    found = mainspring.conn.execute(
        "select key from mainspring.idempotency where org_id = 'org1' order by 1"
    ).fetchall()
    assert found == [("later",), ("never",)]


def finished(mainspring: Harness, tasks: Registry, state: str) -> Any:
    """A job that has ended so."""
    work = tasks.get("work")
    job = mainspring.client.enqueue(work.job(fail=state == "failed"))
    if state == "cancelled":
        mainspring.client.cancel(job.id)
    mainspring.drain(raise_errors=False)
    assert mainspring.client.get(job.id).state == state
    return job.id


def gone(mainspring: Harness, job: Any) -> bool:
    return mainspring.conn.execute("select from mainspring.job where id = %s", [job]).fetchone() is None


@pytest.mark.rule("ENG-27.01")
@pytest.mark.parametrize(("state", "days"), [("succeeded", 7), ("cancelled", 30), ("failed", 90)])
def test_each_state_is_kept_for_its_own_time(
    mainspring: Harness, mainspring_app: App, tasks: Registry, state: str, days: int
) -> None:
    job = finished(mainspring, tasks, state)
    if state == "failed":
        mainspring.client.dead.discard(job, reason="not wanted")
    trail = len(mainspring.client.audit.trail(job))
    mainspring.clock.advance(days=days)

    assert sweep(mainspring, mainspring_app, "prune_jobs") == {"removed": 0}
    mainspring.clock.advance(seconds=1)
    assert sweep(mainspring, mainspring_app, "prune_jobs") == {"removed": 1}

    assert gone(mainspring, job)
    assert len(mainspring.client.audit.trail(job)) == trail


@pytest.mark.rule("ENG-27.01")
def test_an_open_dead_letter_and_an_unfinished_job_survive_for_ever(
    mainspring: Harness, mainspring_app: App, tasks: Registry
) -> None:
    dead = finished(mainspring, tasks, "failed")
    waiting = mainspring.client.enqueue(tasks.get("work").job().after(timedelta(days=3650))).id
    mainspring.clock.advance(days=3000)

    assert sweep(mainspring, mainspring_app, "prune_jobs") == {"removed": 0}

    assert not gone(mainspring, dead)
    assert not gone(mainspring, waiting)


def test_a_run_removes_no_more_than_a_batch_of_all_states_together(mainspring: Harness, tasks: Registry) -> None:
    app = App(tasks, maintenance=Retention(batch=3))
    for state in ("succeeded", "cancelled", "succeeded", "cancelled"):
        finished(mainspring, tasks, state)
    mainspring.clock.advance(days=31)
    harness = Harness(mainspring.dsn, app)
    with harness:
        runs = [sweep(harness, app, "prune_jobs")["removed"], *(run.result["removed"] for run in harness.advance(DAY))]

    assert runs == [3, 1]


def test_the_next_run_belongs_to_the_success_of_this_one(
    mainspring: Harness, mainspring_app: App, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run that fails at its end has removed nothing and has nobody that follows it."""
    expired_keys(mainspring, 1000)
    prune = mainspring_app.registry.get("mainspring.prune_keys")
    job = mainspring.client.enqueue(prune.job())
    mainspring.conn.execute(
        "create function pg_temp.refuse() returns trigger language plpgsql as $$ begin raise 'full'; end $$;"
        " create trigger refuse before insert on mainspring.finished for each row execute function pg_temp.refuse()"
    )

    mainspring.drain(raise_errors=False)

    assert mainspring.client.get(job.id).state == "retrying"
    assert count(mainspring, "idempotency where expires_at is not null") == 1000
    assert count(mainspring, "waiting") == 1
    mainspring.conn.execute("drop trigger refuse on mainspring.finished")


def test_never_two_at_once(mainspring: Harness, mainspring_app: App) -> None:
    expired_keys(mainspring, 10)
    with psycopg.connect(mainspring.dsn) as other:
        lock = "select pg_advisory_xact_lock(hashtextextended('\"mainspring\" mainspring.prune_keys', 0))"
        other.execute(lock)
        assert sweep(mainspring, mainspring_app, "prune_keys") == {"removed": 0}
        other.rollback()

        assert sweep(mainspring, mainspring_app, "prune_keys") == {"removed": 10}


def test_workers_whose_heartbeat_stopped_are_forgotten_after_a_day(mainspring: Harness, mainspring_app: App) -> None:
    mainspring.conn.execute(
        "insert into mainspring.worker (id, host, pid, version, queues, concurrency, started_at, seen_at)"
        " select 'w' || n, 'h', n, '1', '{}', 1, mainspring.now(), mainspring.now() - n * interval '1 hour'"
        " from generate_series(23, 26) n"
    )

    assert sweep(mainspring, mainspring_app, "forget_workers") == {"removed": 2}

    assert mainspring.conn.execute("select id from mainspring.worker order by 1").fetchall() == [("w23",), ("w24",)]


def test_buckets_of_limits_that_nobody_used_for_a_day_are_forgotten(mainspring: Harness, mainspring_app: App) -> None:
    mainspring.conn.execute(
        "insert into mainspring.bucket (gate, name, used_at)"
        " select 'l/' || n, 'l', mainspring.now() - n * interval '1 hour' from generate_series(24, 27) n"
    )

    assert sweep(mainspring, mainspring_app, "forget_buckets") == {"removed": 2}

    assert mainspring.conn.execute("select gate from mainspring.bucket order by 1").fetchall() == [("l/24",), ("l/25",)]


def test_webhooks_that_came_are_kept_90_days_and_as_long_as_their_jobs(
    mainspring: Harness, mainspring_app: App
) -> None:
    waiting = mainspring.client.enqueue(mainspring_app.registry.get("work").job().after(DAY))
    gone = "00000000-0000-7000-8000-000000000000"
    for name, days, job in [("a", 91, None), ("b", 91, gone), ("c", 91, waiting.id), ("d", 89, None)]:
        mainspring.conn.execute(
            "insert into mainspring.inbound (org_id, provider, event_id, type, body, job_id, received_at)"
            " values ('org' || %s, 'acme', %s, 'x', 'x', %s, mainspring.now() - make_interval(days => %s))",
            [days, name, job, days],
        )

    assert sweep(mainspring, mainspring_app, "prune_inbound") == {"removed": 2}

    left = mainspring.conn.execute("select event_id from mainspring.inbound order by 1").fetchall()
    assert left == [("c",), ("d",)]


def test_the_trail_does_not_grow_by_heartbeats(mainspring: Harness, mainspring_app: App) -> None:
    beat = mainspring_app.registry.get("mainspring.heartbeat")
    mainspring.client.enqueue(beat.job().for_org("SYSTEM"))
    mainspring.drain()
    mainspring.clock.advance(days=8)
    before = count(mainspring, "audit")

    assert sweep(mainspring, mainspring_app, "prune_jobs") == {"removed": 1}

    assert count(mainspring, "audit") == before


def test_nobody_else_names_a_registry_like_the_engine() -> None:
    with pytest.raises(DeclarationError, match="the engine's own"):
        Registry("mainspring")


def test_every_sweep_is_a_task_with_words_about_it(mainspring_app: App) -> None:
    for name in SWEEPS:
        task = mainspring_app.registry.get(f"mainspring.{name}")
        assert (task.queue, task.category.name) == ("q:maintenance", "maintenance")
        assert task.doc


def test_without_maintenance_an_app_has_only_its_own_tasks(tasks: Registry) -> None:
    @tasks.task
    async def own() -> None: ...

    app = App(tasks, maintenance=False)

    assert app.registry.names() == ["own"]
    assert app.registry.schedules() == []


def test_the_environment_can_leave_it_out(tasks: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MAINSPRING_MAINTENANCE", "off")
    assert App(tasks).registry.names() == []

    monkeypatch.setenv("MAINSPRING_MAINTENANCE", "maybe")
    with pytest.raises(ConfigurationError, match="MAINSPRING_MAINTENANCE: is not on or off"):
        App(tasks)


def test_the_list_of_tasks_shows_its_own_only_when_asked(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from mainspring.cli import main

    monkeypatch.setattr("tests.cli.shop.app", App(Registry("test")))
    for more, shown in (([], False), (["--all"], True)):
        assert main(["task", "list", "--app", "tests.cli.shop:app", *more]) == 0
        assert ("mainspring.heartbeat" in capsys.readouterr().out) is shown


def test_two_apps_share_a_registry(tasks: Registry) -> None:
    assert App(App(tasks).registry).registry.names() == App(tasks).registry.names()


@pytest.mark.rule("ENG-27.04")
@pytest.mark.parametrize("value", ["many", "-1", "nan", "1e9"])
def test_a_setting_that_is_none_is_named_when_the_program_starts(
    tasks: Registry, monkeypatch: pytest.MonkeyPatch, value: str
) -> None:
    monkeypatch.setenv("MAINSPRING_KEEP_SUCCEEDED_DAYS", value)

    with pytest.raises(ConfigurationError, match=r"(?i)succeeded") as raised:
        App(tasks)
    assert value not in str(raised.value)


@pytest.mark.parametrize("row", table(ROOT / "docs" / "settings.md", "## Retention"), ids=lambda row: row[1])
def test_the_page_of_settings_shows_the_defaults(row: list[str]) -> None:
    variable, setting, default = (cell.strip("`") for cell in row[:3])

    assert retention(env={variable: default}) == Retention()
    assert getattr(retention(env={variable: "5"}), setting) in (5, timedelta(days=5))


def test_the_environment_wins_over_the_code() -> None:
    found = retention(Retention(batch=5, fires=DAY), {"MAINSPRING_PRUNE_BATCH": "7"})

    assert (found.batch, found.fires) == (7, DAY)


def test_nobody_is_asked_whether_the_engine_may_keep_house(mainspring: Harness, tasks: Registry) -> None:
    asked: list[str] = []

    def authorize(claim: Any) -> str:
        asked.append(claim.task)
        return "no"

    app = App(tasks, authorize=authorize)
    with Harness(mainspring.dsn, app) as harness, Client(mainspring.dsn):
        harness.run_one(app.registry.get("mainspring.heartbeat").job())

    assert asked == []
