"""One rule over many zones and many entities, in virtual time."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

import mainspring as ms
from mainspring import Registry
from mainspring.testing import Harness

MONDAY = datetime(2026, 3, 23, tzinfo=UTC)
ZONES = "select distinct zone from project"
BOOKINGS = """
    select id, jsonb_build_object('booking', id) from booking
    where zone = %(zone)s and (%(after)s::int is null or id > %(after)s::int) order by id limit %(limit)s
"""


@pytest.fixture
def ran(tasks: Registry) -> list[tuple[Any, ...]]:
    calls: list[tuple[Any, ...]] = []

    @tasks.task
    async def charge(ctx: ms.Context, *, booking: int, zone: str, instant: datetime) -> None:
        calls.append((booking, zone, f"{instant:%d %H:%M}", ctx.job))

    @tasks.task
    async def charge_zone(*, zone: str, instant: datetime) -> None:
        calls.append((zone, f"{instant:%d %H:%M}"))

    return calls


@pytest.fixture
def town(mainspring: Harness) -> psycopg.Connection[Any]:
    conn = mainspring.conn
    conn.execute("create table project (zone text)")
    conn.execute("create table booking (id int primary key, zone text)")
    mainspring.clock.set(MONDAY)
    return conn


def live(conn: psycopg.Connection[Any], *zones: str) -> None:
    for zone in zones:
        conn.execute("insert into project values (%s)", [zone])


def book(conn: psycopg.Connection[Any], zone: str, count: int, start: int = 1) -> None:
    conn.execute(
        "insert into booking select n, %s from generate_series(%s::int, %s::int) n", [zone, start, start + count - 1]
    )


def test_rule_fires_in_each_zone_at_its_own_local_time(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]
) -> None:
    tasks.schedule("pay", ms.weekly("wed", "10:00"), "charge_zone", zones=ZONES)
    live(town, "Europe/London", "Asia/Kolkata", "Asia/Kathmandu", "Australia/Lord_Howe", "America/New_York")
    mainspring.advance(days=14)  # London changes its clocks in between
    assert ran == [
        ("Australia/Lord_Howe", "24 23:00"), ("Asia/Kathmandu", "25 04:15"), ("Asia/Kolkata", "25 04:30"),
        ("Europe/London", "25 10:00"), ("America/New_York", "25 14:00"), ("Australia/Lord_Howe", "31 23:00"),
        ("Asia/Kathmandu", "01 04:15"), ("Asia/Kolkata", "01 04:30"), ("Europe/London", "01 09:00"),
        ("America/New_York", "01 14:00"),
    ]  # fmt: skip
    locals_ = town.execute("select distinct substr(local, 12, 5) from mainspring.fire").fetchall()
    assert locals_ == [("10:00",)]


def test_midnight_that_does_not_exist_fires_at_the_first_instant_of_the_day(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]
) -> None:
    tasks.schedule("midnight", ms.daily("00:00"), "charge_zone", zones=lambda conn: ["America/Santiago"])
    mainspring.clock.set(datetime(2026, 9, 5, 12, tzinfo=UTC))
    mainspring.advance(hours=30)
    assert ran == [("America/Santiago", "06 04:00")]
    assert town.execute("select local from mainspring.fire").fetchone() == ("2026-09-06 01:00:00-03:00",)


def test_zone_that_comes_or_goes_is_noticed(mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]) -> None:
    tasks.schedule("pay", ms.daily("10:00"), "charge_zone", zones=ZONES)
    live(town, "UTC", "Asia/Tokyo")
    mainspring.advance(hours=9)
    mainspring.drain()
    live(town, "Africa/Lagos")  # whose ten o'clock was seen to pass without it
    mainspring.drain()
    town.execute("delete from project where zone = 'UTC'")
    mainspring.advance(hours=2)
    assert ran == [("Asia/Tokyo", "23 01:00")]
    mainspring.advance(days=1)
    assert ran[1:] == [("Asia/Tokyo", "24 01:00"), ("Africa/Lagos", "24 09:00")]


def test_zone_that_came_since_the_last_look_has_missed_nothing(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]
) -> None:
    tasks.schedule("pay", ms.daily("10:00"), "charge_zone", zones=ZONES)
    live(town, "UTC")
    mainspring.clock.set(MONDAY + timedelta(hours=8, minutes=59, seconds=30))
    mainspring.drain()
    live(town, "Africa/Lagos")
    mainspring.clock.advance(seconds=50)  # nobody has looked at nine
    mainspring.drain()
    assert ran == [("Africa/Lagos", "23 09:00")]


@pytest.mark.parametrize("kind", ["sql", "async", "plain"])
def test_sources_may_be_sql_async_or_plain_functions(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any], kind: str
) -> None:
    async def zones(conn: psycopg.AsyncConnection[Any]) -> list[str]:
        return [row[0] for row in await (await conn.execute("select distinct zone from project")).fetchall()]

    async def entities(conn: psycopg.AsyncConnection[Any], zone: str, after: Any, limit: int) -> list[Any]:
        found = await conn.execute(BOOKINGS, {"zone": zone, "after": after, "limit": limit})
        return await found.fetchall()

    def plain_zones(conn: psycopg.Connection[Any]) -> list[str]:
        return [row[0] for row in conn.execute("select distinct zone from project").fetchall()]

    def plain_entities(conn: psycopg.Connection[Any], zone: str, after: Any, limit: int) -> list[Any]:
        return conn.execute(BOOKINGS, {"zone": zone, "after": after, "limit": limit}).fetchall()

    sources: dict[str, Any] = {
        "sql": (ZONES, BOOKINGS), "async": (zones, entities), "plain": (plain_zones, plain_entities),
    }  # fmt: skip
    tasks.schedule("pay", ms.daily("10:00"), "charge", zones=sources[kind][0], entities=sources[kind][1], page=2)
    live(town, "Asia/Tokyo", "UTC")
    book(town, "Asia/Tokyo", 5)
    book(town, "UTC", 4, start=10)
    mainspring.advance(hours=11)
    assert [call[:3] for call in ran] == [
        *((n, "Asia/Tokyo", "23 01:00") for n in range(1, 6)), *((n, "UTC", "23 10:00") for n in range(10, 14)),
    ]  # fmt: skip
    told = "select zone, jobs, refused, finished_at is not null from mainspring.fan_out order by 1"
    assert town.execute(told).fetchall() == [("Asia/Tokyo", 5, 0, True), ("UTC", 4, 0, True)]


@pytest.mark.parametrize("kind", ["sql", "async", "plain"])
def test_sources_that_ask_for_the_instant_are_told_the_fires_and_not_the_clocks(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any], kind: str
) -> None:
    @tasks.task
    async def note(*, said: datetime) -> None:
        ran.append((f"{said:%d %H:%M}",))

    async def entities(conn: Any, zone: str, after: Any, limit: int, *, instant: datetime) -> list[Any]:
        return plain(conn, zone, after, limit, instant=instant)

    def plain(conn: Any, zone: str, after: Any, limit: int, *, instant: datetime) -> list[Any]:
        return [] if after else [(1, {"said": instant})]

    sql = (
        "select 1, jsonb_build_object('said', %(instant)s::timestamptz) where %(after)s::int is null and %(limit)s > 0"
    )
    sources: dict[str, Any] = {"sql": sql, "async": entities, "plain": plain}
    tasks.schedule("note", ms.daily("10:00", zone="Asia/Tokyo"), "note", entities=sources[kind])
    mainspring.drain()
    mainspring.clock.advance(hours=3)  # two hours late
    mainspring.drain()
    assert ran == [("23 01:00",)]


@pytest.mark.rule("STAFF-0.01")
def test_fire_only_enqueues_one_job_an_entity(mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]) -> None:
    tasks.schedule("pay", ms.weekly("wed", "10:00"), "charge", entities=BOOKINGS, page=10)
    book(town, "UTC", 25)
    mainspring.drain()
    mainspring.client.pause("q:default")
    mainspring.advance(days=3)
    assert ran == []  # no handler ran: nothing but jobs came of it
    jobs = town.execute("select payload ->> 'booking', actor_id, scheduled_for from mainspring.job").fetchall()
    due = datetime(2026, 3, 25, 10, tzinfo=UTC)
    assert sorted(jobs, key=lambda job: int(job[0])) == [(str(n), "SYSTEM", due) for n in range(1, 26)]
    assert town.execute("select how, job_id from mainspring.fire").fetchall() == [("fired", None)]


def test_jobs_are_spread_evenly_over_the_window(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]
) -> None:
    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=BOOKINGS, page=50, spread=timedelta(minutes=10))
    book(town, "UTC", 200)
    mainspring.advance(hours=10)
    due = [row[0] for row in town.execute("select scheduled_for from mainspring.job").fetchall()]
    minutes = Counter((at - MONDAY - timedelta(hours=10)) // timedelta(minutes=1) for at in due)
    assert sorted(minutes) == list(range(10))
    assert all(18 <= count <= 22 for count in minutes.values())


def test_entity_may_be_of_another_organisation(mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]) -> None:
    def entities(conn: Any, zone: str, after: Any, limit: int) -> list[Any]:
        return [] if after else [(1, {"booking": 1}, "acme"), (2, {"booking": 2}, None)]

    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=entities, org="market")
    mainspring.advance(hours=11)
    assert [call[3].org_id for call in ran] == ["acme", "market"]


def test_entity_that_is_refused_harms_no_other(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    payloads: list[Any] = [{"booking": 1}, {"booking": 2, "password": "x"}, "no object", {"booking": 4}]
    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=lambda conn, zone, after, limit: [
        (number, payload) for number, payload in enumerate(payloads) if number > (-1 if after is None else after)
    ])  # fmt: skip
    mainspring.advance(hours=11)
    assert [call[0] for call in ran] == [1, 4]
    progress = mainspring.client.schedules.get("pay").fan_out
    assert progress is not None
    assert (progress.jobs, progress.refused) == (2, 2)
    assert "payload.password" in caplog.text


def test_key_that_is_taken_harms_no_other(mainspring: Harness, tasks: Registry, town: Any) -> None:
    @tasks.task(dedupe=ms.dedupe.keep("{booking}"))
    async def once(*, booking: int, note: str = "") -> None: ...

    mainspring.client.enqueue(once.job(booking=3, note="other"))
    tasks.schedule("pay", ms.daily("10:00"), once, entities=BOOKINGS)
    book(town, "UTC", 5)
    mainspring.advance(hours=11)
    progress = mainspring.client.schedules.get("pay").fan_out
    assert progress is not None
    assert (progress.jobs, progress.refused) == (4, 1)
    assert town.execute("select count(*) from mainspring.job").fetchone() == (5,)


@pytest.mark.parametrize(
    ("entities", "problem"),
    [
        ("select 1 / 0", "division by zero"),
        (lambda conn, zone, after, limit: [(7, {"booking": 7})] * limit, "answered the key `after` again"),
        (lambda conn, zone, after, limit: [(7, {"booking": 7})] * (limit + 1), "answered 101 rows for a limit of 100"),
    ],
)
def test_source_that_fails_is_put_off_and_shown(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any], entities: Any, problem: str
) -> None:
    tasks.schedule("bad", ms.daily("10:00"), "charge", entities=entities)
    tasks.schedule("good", ms.daily("10:00"), "charge_zone")
    mainspring.clock.set(MONDAY + timedelta(hours=9, minutes=59))
    mainspring.drain()
    mainspring.clock.advance(minutes=1)
    mainspring.drain()
    assert ("UTC", "23 10:00") in ran
    progress = mainspring.client.schedules.get("bad").fan_out
    assert progress is not None
    assert problem in (progress.problem or "")
    assert progress.finished_at is None


def test_zones_that_cannot_be_had_stop_no_other(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any], caplog: pytest.LogCaptureFixture
) -> None:
    tasks.schedule("bad", ms.daily("10:00"), "charge_zone", zones="select zone from nowhere")
    tasks.schedule("some", ms.daily("10:00"), "charge_zone", zones=lambda conn: ["UTC", "Mars/Phobos"])
    mainspring.advance(hours=11)
    assert ran == [("UTC", "23 10:00")]
    assert "its zones cannot be had" in caplog.text
    assert "one of its zones is none" in caplog.text


def test_pause_holds_a_fan_out_and_delete_ends_it(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]
) -> None:
    asked: list[Any] = []

    def entities(conn: Any, zone: str, after: Any, limit: int) -> list[Any]:
        asked.append(after)
        if len(asked) == 2:
            raise RuntimeError("not now")
        return [((after or 0) + 1, {"booking": (after or 0) + 1})] if (after or 0) < 3 else []

    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=entities, page=1)
    mainspring.clock.set(MONDAY + timedelta(hours=9))
    mainspring.drain()
    mainspring.clock.advance(hours=1)
    mainspring.drain()
    assert len(ran) == 1
    mainspring.client.schedules.pause("pay")
    mainspring.advance(minutes=1)
    assert len(ran) == 1
    mainspring.client.schedules.run("pay")  # by hand, also while it is paused
    mainspring.drain()
    assert [call[0] for call in ran] == [1, 1, 2, 3]
    mainspring.client.schedules.resume("pay")
    mainspring.advance(minutes=1)
    assert [call[0] for call in ran] == [1, 1, 2, 3, 2, 3]


def test_run_now_over_zones_fires_each_or_the_one_that_is_named(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]
) -> None:
    tasks.schedule("pay", ms.daily("10:00"), "charge_zone", zones=ZONES)
    live(town, "UTC", "Asia/Tokyo")
    mainspring.drain()
    assert len(mainspring.client.schedules.run("pay")) == 2
    assert len(mainspring.client.schedules.run("pay", zone="Asia/Tokyo")) == 1
    with pytest.raises(ms.ValidationError, match=r"zone: is none of the schedule's \(did you mean 'Asia/Tokyo'\?\)"):
        mainspring.client.schedules.run("pay", zone="Asia/Toky")
    mainspring.drain()
    assert [call[0] for call in ran] == ["Asia/Tokyo", "UTC", "Asia/Tokyo"]


@pytest.mark.rule("STAFF-0.08", "STAFF-0.09")
def test_charge_missed_while_nobody_ran_is_caught_up_once_for_each_booking(
    mainspring: Harness, tasks: Registry, town: Any, ran: list[Any]
) -> None:
    tasks.schedule(
        "pay", ms.weekly("wed", "10:00"), "charge", zones=ZONES, entities=BOOKINGS, within=timedelta(hours=14), page=7
    )
    live(town, "America/New_York")
    book(town, "America/New_York", 30)
    mainspring.clock.set(datetime(2026, 3, 25, 13, 50, tzinfo=UTC))
    mainspring.drain()
    mainspring.clock.set(datetime(2026, 3, 25, 15, 10, tzinfo=UTC))
    mainspring.drain()
    mainspring.advance(days=1)
    assert Counter(call[0] for call in ran) == Counter(range(1, 31))
    assert {call[2] for call in ran} == {"25 14:00"}


def test_worker_makes_the_jobs_of_a_fan_out(mainspring: Harness, tasks: Registry, town: Any) -> None:
    seen: list[int] = []

    @tasks.task
    async def note(*, booking: int) -> None:
        seen.append(booking)

    tasks.schedule("pay", ms.daily("10:00"), note, zones=ZONES, entities=BOOKINGS, page=10)
    live(town, "UTC", "Asia/Tokyo")
    book(town, "UTC", 35)
    mainspring.clock.set(MONDAY + timedelta(hours=9, minutes=59))
    with mainspring.working():
        until(lambda: town.execute("select count(*) from mainspring.schedule_zone where next_at > mainspring.now()"), 2)
        mainspring.clock.advance(minutes=1)
        until(lambda: town.execute("select count(*) from mainspring.finished"), 35)
    assert sorted(seen) == list(range(1, 36))


def until(count: Callable[[], Any], wanted: int) -> None:
    async def wait() -> None:
        async with asyncio.timeout(10):
            while count().fetchone() != (wanted,):
                await asyncio.sleep(0.01)

    asyncio.run(wait())
