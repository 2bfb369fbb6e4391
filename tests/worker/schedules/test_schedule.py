"""Schedules on a real database, in virtual time: what fires, what is written, what an operator does."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.databases import Database

import mainspring as ms
from mainspring import Client, Registry, ValidationError
from mainspring.db.cipher import Keyring
from mainspring.db.wire.connect import AsyncConnection, options
from mainspring.db.wire.sql import Sql
from mainspring.errors import ScheduleNotFound
from mainspring.testing import Harness
from mainspring.virtual.clock import Clock
from mainspring.when.rule import Rule
from mainspring.worker.schedules.firing import Firing

MONDAY = datetime(2026, 6, 1, tzinfo=UTC)


@pytest.fixture
def ran(tasks: Registry) -> list[dict[str, Any]]:
    """What the task `work` was called with."""
    calls: list[dict[str, Any]] = []

    @tasks.task
    async def work(ctx: ms.Context, *, note: str = "", instant: datetime | None = None) -> None:
        calls.append({"note": note, "instant": instant, "job": ctx.job})

    return calls


def rows(mainspring: Harness, query: str, *params: Any) -> list[Any]:
    cursor = mainspring.conn.execute(query.encode(), params)
    return cursor.fetchall() if cursor.description else []


def fires(mainspring: Harness, name: str = "s") -> list[tuple[str, str]]:
    found = rows(mainspring, "select instant, how from mainspring.fire where schedule = %s order by instant, at", name)
    return [(f"{at.astimezone(UTC):%d %H:%M}", how) for at, how in found]


def begin(mainspring: Harness, at: datetime = MONDAY) -> None:
    mainspring.clock.set(at)
    mainspring.drain()


@pytest.mark.rule("ENG-13.08", "ENG-2.05")
def test_cron_entry_makes_one_job_a_tick_for_the_system(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    tasks.schedule("s", ms.cron("*/1 * * * *"), "work", payload={"note": "x"})
    begin(mainspring)
    mainspring.advance(hours=1)
    assert [call["instant"] for call in ran] == [MONDAY + timedelta(minutes=n) for n in range(1, 61)]
    job = ran[0]["job"]
    assert (job.actor_type, job.actor_id, job.org_id) == ("system", "SYSTEM", "default")
    assert (job.scheduled_for, job.request_id) == (ran[0]["instant"], "schedule:s")
    linked = rows(mainspring, "select count(*) from mainspring.fire f join mainspring.job j on j.id = f.job_id "
                              "where j.scheduled_for = f.instant and j.correlation_id = f.id::text")  # fmt: skip
    assert linked == [(60,)]


def test_fire_keeps_the_local_time_and_cannot_be_changed(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    tasks.schedule("s", ms.daily("10:00", zone="Asia/Kathmandu"), "work")
    begin(mainspring)
    mainspring.advance(days=1)
    assert rows(mainspring, "select instant, local from mainspring.fire") == [
        (datetime(2026, 6, 1, 4, 15, tzinfo=UTC), "2026-06-01 10:00:00+05:45")
    ]
    for change in ("update mainspring.fire set how = 'missed'", "delete from mainspring.fire"):
        with pytest.raises(psycopg.Error, match="written once"):
            rows(mainspring, change)


@pytest.mark.rule("ENG-13.09")
@pytest.mark.parametrize(("catch_up", "jobs"), [("skip", 0), ("latest", 1), ("all", 30)])
def test_missed_ticks_follow_the_policy(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]], catch_up: Any, jobs: int
) -> None:
    tasks.schedule("s", ms.cron("*/2 * * * *"), "work", catch_up=catch_up)
    begin(mainspring)
    mainspring.clock.advance(hours=1, seconds=90)  # nobody looked meanwhile
    mainspring.drain()
    assert len(ran) == jobs
    told = rows(mainspring, "select sum(instants)::int from mainspring.fire")
    assert told == [(30,)]  # each of them is accounted for
    mainspring.advance(minutes=2)
    assert len(ran) == jobs + 1  # and it goes on as before


@pytest.mark.rule("ENG-13.09", "STAFF-0.08")
def test_deadline_holds_for_each_absence(mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]) -> None:
    tasks.schedule("s", ms.weekly("mon", "10:00"), "work", catch_up="latest", within=timedelta(hours=14))
    begin(mainspring)
    mainspring.clock.set(MONDAY + timedelta(hours=23))  # thirteen hours late
    mainspring.drain()
    mainspring.clock.set(MONDAY + timedelta(days=8, hours=1))  # fifteen
    mainspring.drain()
    assert fires(mainspring) == [("01 10:00", "fired"), ("08 10:00", "missed")]
    assert [call["instant"] for call in ran] == [MONDAY + timedelta(hours=10)]


@pytest.mark.rule("ENG-13.10")
def test_tick_is_skipped_and_logged_while_the_last_job_is_not_finished(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    tasks.schedule("s", ms.every(minutes=1), "work", running="skip")
    begin(mainspring)
    mainspring.client.pause("q:default")
    mainspring.advance(minutes=3)
    assert fires(mainspring) == [("01 00:01", "fired"), ("01 00:02", "skipped"), ("01 00:03", "skipped")]
    assert "the job of the last fire is not finished" in caplog.text
    mainspring.client.resume("q:default")
    mainspring.drain()
    mainspring.advance(minutes=1)
    assert fires(mainspring)[-1] == ("01 00:04", "fired")
    assert len(ran) == 2


def test_task_with_a_key_is_deduplicated_as_elsewhere(mainspring: Harness, tasks: Registry) -> None:
    @tasks.task(dedupe=ms.dedupe.keep("{note}"))
    async def once(*, note: str) -> None: ...

    tasks.schedule("s", ms.every(minutes=1), once, payload={"note": "n"})
    begin(mainspring)
    mainspring.advance(minutes=3)
    assert rows(mainspring, "select key from mainspring.job") == [("once:n",)]
    assert rows(mainspring, "select count(*), count(distinct job_id) from mainspring.fire") == [(3, 1)]


def test_jitter_puts_jobs_off_within_its_window(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    for number in range(20):
        tasks.schedule(f"s{number}", ms.daily("10:00"), "work", jitter=timedelta(minutes=10))
    begin(mainspring)
    mainspring.advance(days=1)
    delays = [call["job"].scheduled_for - call["instant"] for call in ran]
    assert len(set(delays)) == 20
    assert all(timedelta(0) <= delay < timedelta(minutes=10) for delay in delays)
    assert max(delays) - min(delays) > timedelta(minutes=5)


# -- what an operator does --------------------------------------------------------------------------------------------


@pytest.mark.rule("ENG-13.11")
def test_paused_schedule_makes_no_ticks_and_catches_up_only_if_asked(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    tasks.schedule("s", ms.cron("0 * * * *"), "work")
    begin(mainspring)
    schedules = mainspring.client.schedules
    assert schedules.pause("s", reason="moving house")
    assert not schedules.pause("s")
    mainspring.advance(hours=3)
    assert ran == []
    assert (schedules.get("s").status, schedules.get("s").pause_reason) == ("paused", "moving house")
    assert schedules.next("s") == []
    assert schedules.resume("s")
    assert not schedules.resume("s")
    mainspring.drain()
    assert ran == []
    mainspring.advance(hours=1)
    assert len(ran) == 1
    schedules.pause("s")
    mainspring.advance(hours=2)
    schedules.resume("s", catch_up=True)
    mainspring.drain()
    assert [f"{call['instant']:%H}" for call in ran] == ["04", "06"]


@pytest.mark.rule("ENG-13.11")
def test_each_change_is_audited_with_who_and_why(mainspring: Harness, ran: list[dict[str, Any]]) -> None:
    with Client(mainspring.dsn, caller=ms.Caller(actor_type="user", actor_id="ada")) as client:
        client.schedules.create("s", ms.daily("10:00"), "work", reason="asked for")
        client.schedules.create("s", ms.daily("11:00"), "work", replace=True)
        client.schedules.pause("s", reason="quiet")
        client.schedules.resume("s")
        client.schedules.run("s", reason="now please")
        client.schedules.delete("s", reason="over")
    found = rows(
        mainspring, "select event, actor_id, detail from mainspring.audit where event like 'schedule.%%' order by id"
    )
    assert [(event.removeprefix("schedule."), who, detail["reason"]) for event, who, detail in found] == [
        ("created", "ada", "asked for"), ("changed", "ada", None), ("paused", "ada", "quiet"), ("resumed", "ada", None),
        ("run", "ada", "now please"), ("deleted", "ada", "over"),
    ]  # fmt: skip
    changed = found[1][2]
    assert (changed["before"]["rule"]["expression"], changed["after"]["rule"]["expression"]) == (
        "0 10 * * *",
        "0 11 * * *",
    )


def test_run_now_stands_beside_the_rule(mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]) -> None:
    tasks.schedule("s", ms.daily("10:00"), "work", payload={"note": "n"})
    begin(mainspring, MONDAY + timedelta(hours=10) - timedelta(seconds=1))
    mainspring.clock.advance(seconds=1)
    mainspring.client.schedules.pause("s")
    (job,) = mainspring.client.schedules.run("s")
    (again,) = mainspring.client.schedules.run("s")
    mainspring.client.schedules.resume("s", catch_up=True)
    mainspring.drain()
    assert [call["job"].id for call in ran][:2] == [job, again]
    assert sorted(fires(mainspring)) == [("01 10:00", "fired"), ("01 10:00", "run_now"), ("01 10:00", "run_now")]
    assert {call["note"] for call in ran} == {"n"}


def test_deleted_schedule_fires_no_more_and_may_come_back(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    schedules = mainspring.client.schedules
    begin(mainspring)
    schedules.create("s", ms.every(minutes=1), "work")
    mainspring.advance(minutes=2)
    schedules.delete("s")
    mainspring.advance(minutes=2)
    assert len(fires(mainspring)) == len(ran) == 2
    mainspring.clock.set(MONDAY)  # even if the clock goes back, what has fired does not fire again
    schedules.create("s", ms.every(minutes=1), "work")
    mainspring.advance(minutes=3)
    assert [at for at, _ in fires(mainspring)] == ["01 00:01", "01 00:02", "01 00:03"]
    with pytest.raises(ScheduleNotFound, match=r"no schedule is called 'x'"):
        schedules.delete("x")


@pytest.mark.parametrize("verb", ["pause", "delete"])
def test_when_a_pause_or_delete_has_returned_no_fire_commits(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]], verb: str
) -> None:
    begin(mainspring)
    mainspring.client.schedules.create("s", ms.every(minutes=1), "work")
    mainspring.clock.advance(minutes=1)
    act: Callable[[str], Any] = getattr(mainspring.client.schedules, verb)

    async def race() -> None:
        firing = Firing(Sql(), tasks, Keyring(None, mainspring.dsn, Sql()))
        async with await AsyncConnection.connect(mainspring.dsn, **options(mainspring.dsn, "test")) as conn:
            async with conn.transaction():
                assert await firing.fire(conn) == 1  # not committed yet
                acting = asyncio.create_task(asyncio.to_thread(act, "s"))
                await asyncio.sleep(0.2)
                assert not acting.done()  # it waits for the fire, which is of the old definition
            await acting
            assert await firing.fire(conn) == 0

    asyncio.run(race())
    assert fires(mainspring) == [("01 00:01", "fired")]


# -- declarations and the database ------------------------------------------------------------------------------------


def test_pause_survives_a_start_and_a_new_rule_holds_from_now_on(
    mainspring: Harness, ran: list[dict[str, Any]]
) -> None:
    def declared(rule: Rule, **given: Any) -> Registry:
        tasks = Registry("test")
        tasks.task(_work)
        tasks.schedule("s", rule, "_work", **given)
        return tasks

    schedules = mainspring.client.schedules
    mainspring.clock.set(MONDAY)
    assert schedules.sync(declared(ms.daily("10:00"))).created == ["s"]
    schedules.pause("s")
    mainspring.clock.advance(hours=11)
    assert schedules.sync(declared(ms.daily("10:00"))).same == ["s"]
    assert schedules.sync(declared(ms.daily("10:30"))).changed == ["s"]
    assert schedules.get("s").status == "paused"
    schedules.resume("s", catch_up=True)
    assert [f"{one.at:%d %H:%M}" for one in schedules.next("s", 2)] == ["02 10:30", "03 10:30"]


async def _work(*, note: str = "") -> None: ...


def test_changed_payload_does_not_lose_what_was_missed(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    before = Registry("test")
    before.task(name="work")(_work)
    before.schedule("s", ms.daily("10:00"), "work", payload={"note": "old"})
    tasks.schedule("s", ms.daily("10:00"), "work", payload={"note": "new"})
    mainspring.clock.set(MONDAY)
    mainspring.client.schedules.sync(before)
    mainspring.clock.set(MONDAY + timedelta(hours=11))
    mainspring.drain()
    assert [call["note"] for call in ran] == ["new"]


def test_schedule_that_code_no_longer_declares_is_shown_and_fires_no_more(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    before, after = Registry("test"), Registry("test")
    for registry in (before, after):
        registry.include(tasks)
    before.schedule("s", ms.every(minutes=1), "work")
    schedules = mainspring.client.schedules
    schedules.sync(before)
    with pytest.raises(ValidationError, match=r"name: is declared by test: remove it from the code, or pause it"):
        schedules.delete("s")
    with pytest.raises(ValidationError, match=r"name: is declared by test: change it there"):
        schedules.create("s", ms.every(minutes=2), "work", replace=True)
    assert schedules.sync(after).undeclared == ["s"]
    assert schedules.get("s").status == "no longer declared"
    mainspring.advance(minutes=5)
    assert ran == []
    schedules.delete("s")
    assert schedules.list() == []


def test_clock_jumps_repeat_nothing_and_follow_the_policy(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    tasks.schedule("s", ms.cron("0 * * * *"), "work", catch_up="latest")
    begin(mainspring)
    mainspring.advance(hours=2, minutes=30)
    mainspring.clock.set(mainspring.now() - timedelta(hours=1))
    mainspring.advance(hours=1)
    assert [at for at, _ in fires(mainspring)] == ["01 01:00", "01 02:00"]
    mainspring.clock.advance(days=1)
    mainspring.drain()
    assert fires(mainspring)[2:] == [("02 01:00", "missed"), ("02 02:00", "fired")]
    assert len(ran) == 3


def test_changed_zone_data_does_not_repeat_a_local_time(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    tasks.schedule("s", ms.daily("10:00", zone="Europe/London"), "work")
    begin(mainspring)
    mainspring.advance(days=1)
    # The last version of the zone data had London an hour further east: ten o'clock was at eight, and is now at nine.
    rows(mainspring, "update mainspring.schedule_zone set tzdata = 'older', after = '2026-06-01T08:00Z', "
                     "local = '2026-06-01 10:00', next_at = '2026-06-03T09:00Z'")  # fmt: skip
    rows(mainspring, "alter table mainspring.fire disable trigger fire_guard")
    rows(mainspring, "update mainspring.fire set instant = '2026-06-01T08:00Z'")
    mainspring.clock.set(MONDAY + timedelta(hours=8, minutes=30))
    mainspring.advance(days=1, hours=1)
    assert fires(mainspring) == [("01 08:00", "fired"), ("01 09:00", "skipped"), ("02 09:00", "fired")]


def test_definition_that_cannot_be_fired_is_put_off_and_stops_no_other(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    @tasks.task(dedupe=ms.dedupe.keep("{key}"))
    async def once(*, key: str, note: str = "") -> None: ...

    tasks.schedule("good", ms.every(minutes=1), "work")
    begin(mainspring)
    for name in ("zone", "refused"):
        mainspring.client.schedules.create(name, ms.every(minutes=1), "work")
    rows(mainspring, "update mainspring.schedule set rule = rule || '{\"zone\": \"Mars/Phobos\"}' where name = 'zone'")
    change = "update mainspring.schedule set job = job || %s where name = 'refused'"
    rows(mainspring, change, '{"created_at": "9999-12-31T00:00:00Z"}')
    mainspring.client.enqueue(tasks.get("once").job(key="k", note="first"))
    mainspring.client.schedules.create("taken", ms.every(minutes=1), tasks.get("once"), payload={"key": "k"})
    mainspring.advance(minutes=2)
    assert len(fires(mainspring, "good")) == len(ran) == 2
    problems = {row.name: row.zones[0].problem for row in mainspring.client.schedules.list()}
    assert "zone: is not a time zone" in (problems["zone"] or "")
    assert problems["refused"]
    assert "KeyReused" in (problems["taken"] or "")  # which the database said, of all of them together
    assert problems["good"] is None


# -- many schedulers, many schedules ----------------------------------------------------------------------------------


@pytest.mark.rule("ENG-13.07", "STAFF-0.09")
def test_two_schedulers_make_one_job_a_tick(database: Database) -> None:
    tasks = Registry("test")
    tasks.task(_work)
    for number in range(40):
        tasks.schedule(f"s{number}", ms.every(minutes=1), "_work")

    async def main() -> None:
        firing = Firing(Sql(), tasks, Keyring(None, database.dsn, Sql()))
        given = options(database.dsn, "test")
        async with (
            await AsyncConnection.connect(database.dsn, **given) as one,
            await AsyncConnection.connect(database.dsn, **given) as other,
        ):
            with database.connect() as conn:
                clock = Clock(conn)
                clock.set(MONDAY)
                await firing.sync(one)
                await firing.fire(one)
                for _ in range(10):
                    clock.advance(minutes=1)
                    await asyncio.gather(firing.fire(one), firing.fire(other))
                    while await firing.fire(one):
                        pass
                counts = conn.execute("select count(*), count(distinct (schedule, instant)), count(distinct job_id) "
                                      "from mainspring.fire where how = 'fired'").fetchone()  # fmt: skip
                jobs = conn.execute("select count(*) from mainspring.job").fetchone()
        assert counts == (400, 400, 400)
        assert jobs == (400,)

    asyncio.run(main())


def test_fire_and_job_commit_together_or_not_at_all(mainspring: Harness, tasks: Registry, ran: list[Any]) -> None:
    tasks.schedule("s", ms.every(minutes=1), "work")
    begin(mainspring)
    mainspring.clock.advance(minutes=1)

    async def die() -> None:
        firing = Firing(Sql(), tasks, Keyring(None, mainspring.dsn, Sql()))
        given = options(mainspring.dsn, "test")
        async with (
            await AsyncConnection.connect(mainspring.dsn, **given) as conn,
            conn.transaction(force_rollback=True),
        ):
            assert await firing.fire(conn) == 1

    asyncio.run(die())
    assert rows(mainspring, "select count(*) from mainspring.job") == [(0,)]
    mainspring.drain()
    assert len(ran) == 1


def test_schedules_of_one_second_are_fired_in_batches_within_seconds(database: Database) -> None:
    tasks = Registry("test")
    tasks.task(_work)
    for number in range(1500):  # more than one batch
        tasks.schedule(f"s{number:05}", ms.daily("10:00"), "_work")

    async def main() -> float:
        firing = Firing(Sql(), tasks, Keyring(None, database.dsn, Sql()))
        async with await AsyncConnection.connect(database.dsn, **options(database.dsn, "test")) as conn:
            with database.connect() as other:
                clock = Clock(other)
                clock.set(MONDAY)
                await firing.sync(conn)
                while await firing.fire(conn):
                    pass
                clock.set(MONDAY + timedelta(hours=10))
                began = asyncio.get_running_loop().time()
                while await firing.fire(conn):
                    pass
                took = asyncio.get_running_loop().time() - began
                assert other.execute("select count(*) from mainspring.waiting").fetchone() == (1500,)
                return took

    assert asyncio.run(main()) < 6  # ten thousand were measured to take three (docs/adr/0017)


@pytest.mark.anyio
async def test_client_does_the_same_in_async(database: Database) -> None:
    async with ms.AsyncClient(database.dsn) as client:
        assert await client.schedules.create("s", ms.daily("10:00"), "work", payload={"note": "n"}) == "created"
        assert [row.name for row in await client.schedules.list()] == ["s"]
        assert len(await client.schedules.next("s", 3)) == 3
        (job,) = await client.schedules.run("s")
        assert (await client.get(job)).payload == {"note": "n"}
        assert [fire.how for fire in await client.schedules.fires("s")] == ["run_now"]
        assert await client.schedules.pause("s")
        assert await client.schedules.resume("s")
        await client.schedules.delete("s")
        with pytest.raises(ScheduleNotFound):
            await client.schedules.get("s")


def test_worker_fires_at_the_exact_instant_and_hears_of_new_schedules(
    mainspring: Harness, tasks: Registry, ran: list[dict[str, Any]]
) -> None:
    tasks.schedule("s", ms.daily("10:00"), "work")
    begin(mainspring)
    with mainspring.working():
        mainspring.clock.set(MONDAY + timedelta(hours=10) - timedelta(microseconds=1))
        mainspring.client.schedules.create("other", ms.daily("09:59"), "work")
        mainspring.clock.set(MONDAY + timedelta(hours=10))
        mainspring.wait_for("job.succeeded", task="work")
    assert fires(mainspring) == [("01 10:00", "fired")]


def test_worker_whose_scheduler_is_off_fires_nothing(mainspring: Harness, tasks: Registry, ran: list[Any]) -> None:
    tasks.schedule("s", ms.every(seconds=1), "work")
    with mainspring.working(scheduler=False):
        job = mainspring.client.enqueue(tasks.get("work").job())
        mainspring.clock.advance(hours=1)
        mainspring.wait_for("job.succeeded", job_id=job.id)
    assert rows(mainspring, "select count(*) from mainspring.schedule") == [(0,)]
