"""Schedules in trouble, in virtual time: sources that misbehave, clocks that go back, schedulers that wait in vain."""

from __future__ import annotations

import asyncio
from collections import Counter
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.databases import Database
from tests.worker.stage import SETTINGS

import mainspring as ms
from mainspring import Registry, WorkerConfig
from mainspring.db.cipher import Keyring
from mainspring.db.wire.connect import AsyncConnection, options
from mainspring.db.wire.sql import Sql
from mainspring.testing import Harness
from mainspring.virtual.clock import Clock
from mainspring.worker.connection import SharedConnection
from mainspring.worker.schedules.fan_out import FanOut
from mainspring.worker.schedules.firing import Firing
from mainspring.worker.schedules.scheduler import Scheduler, turn

MONDAY = datetime(2026, 3, 23, tzinfo=UTC)
TEN = MONDAY + timedelta(hours=10)


@pytest.fixture
def ran(tasks: Registry) -> list[Any]:
    calls: list[Any] = []

    @tasks.task
    async def charge(*, booking: Any) -> None:
        calls.append(booking)

    @tasks.task
    async def charge_zone(*, zone: str, instant: datetime) -> None:
        calls.append((zone, f"{instant:%d %H:%M}"))

    return calls


def at_ten(mainspring: Harness) -> None:
    """Look just before the instant, and at it."""
    for at in (TEN - timedelta(minutes=1), TEN):
        mainspring.clock.set(at)
        mainspring.drain()


def paged(keys: list[Any], later: Any) -> Any:
    """A source over these keys, whose idea of what comes later is its own."""

    def entities(conn: Any, zone: str, after: Any, limit: int) -> list[Any]:
        left = [key for key in keys if after is None or later(key, after)]
        return [(key, {"booking": key}) for key in left[:limit]]

    return entities


async def charge(*, booking: int) -> None: ...


async def charge_zone(*, zone: str) -> None: ...


class House:
    """A scheduler whose turns and clock are the test's."""

    def __init__(self, database: Database, tasks: Registry) -> None:
        self.dsn, self.firing = database.dsn, Firing(Sql(), tasks, Keyring(None, database.dsn, Sql()))
        self.fan_out = FanOut(Sql(), self.firing, None, None)

    async def look(self, at: datetime, turns: int = 5) -> float:
        """Take turns at a time of the database; answers how long the scheduler would wait then."""
        async with await AsyncConnection.connect(self.dsn, **options(self.dsn, "test")) as conn:
            with psycopg.connect(self.dsn, autocommit=True) as other:
                Clock(other).set(at)
            await self.firing.sync(conn)
            for _ in range(turns):
                await turn(conn, self.firing, self.fan_out)
            row = await (await conn.execute(Sql()["next_fire"], self.firing.mine())).fetchone()
            return float(row[0]) if row else 0.0


# -- sources ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keys", "later", "problem"),
    [
        (list(range(9)), lambda key, after: key != after, "are not ordered by key"),
        ([5, 4, 3, 2, 1], lambda key, after: key > after, "are not ordered by key"),
        (list("abcdefghi"), lambda key, after: key != after, "goes in circles"),
    ],
    ids=["not only later", "descending", "text"],
)
def test_source_that_goes_in_circles_is_stopped_and_shown(
    mainspring: Harness, tasks: Registry, ran: list[Any], keys: list[Any], later: Any, problem: str
) -> None:
    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=paged(keys, later), page=2)
    at_ten(mainspring)
    progress = mainspring.client.schedules.get("pay").fan_out
    assert progress is not None
    assert problem in (progress.problem or "")
    assert progress.finished_at is None


def test_entity_that_is_answered_twice_gets_one_job(mainspring: Harness, tasks: Registry, ran: list[Any]) -> None:
    keys = [1, 1, 2, 3, 3, 3, 4]
    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=paged(keys, lambda key, after: key > after), page=4)
    at_ten(mainspring)
    assert ran == [1, 2, 3, 4]


def test_payload_that_cannot_be_written_harms_no_other(mainspring: Harness, tasks: Registry, ran: list[Any]) -> None:
    deep: list[Any] = []
    for _ in range(100_000):
        deep = [deep]
    payloads = [{"booking": 1}, {"booking": deep}, {"booking": 3}]

    def entities(conn: Any, zone: str, after: Any, limit: int) -> list[Any]:
        return list(enumerate(payloads)) if after is None else []

    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=entities)
    at_ten(mainspring)
    assert ran == [1, 3]
    while deep:  # taken apart from outside: its end would be as deep
        deep = deep.pop()


class Elsewhere(psycopg.OperationalError):
    """What a source meets in a database of its own."""


async def away(*asked: Any) -> list[Any]:
    raise Elsewhere("connection refused")


@pytest.mark.anyio
@pytest.mark.parametrize("source", [away, "select pg_sleep(5)"], ids=["away", "slow"])
@pytest.mark.parametrize("option", ["zones", "entities"])
async def test_source_that_is_away_or_slow_stops_no_other(
    database: Database, monkeypatch: pytest.MonkeyPatch, option: Any, source: Any
) -> None:
    async def entities(conn: Any, zone: str, after: Any, limit: int) -> list[Any]:
        return [(key, {"booking": key}) for key in range(1, 4)]

    monkeypatch.setattr("mainspring.worker.schedules.fan_out.SOURCE_PATIENCE_S", 0.1)
    tasks = Registry("test")
    for task in (charge, charge_zone):
        tasks.task(task)
    tasks.schedule("bad", ms.daily("10:00"), "charge_zone", payload={"zone": "-"}, **{option: source})
    tasks.schedule("good", ms.daily("10:00"), "charge", entities=entities)
    house = House(database, tasks)
    for at in (TEN - timedelta(minutes=1), TEN):
        await house.look(at)
    with database.connect() as conn:
        done = conn.execute("select jobs from mainspring.fan_out where finished_at is not null").fetchall()
    assert done == [(3,)]


@pytest.mark.parametrize(
    ("key", "later"),
    [
        ("chr(96 + n)", "id > %(after)s::text"),
        ("gen_random_uuid()", "id > %(after)s::uuid"),
        ("n * 1.5", "id > %(after)s::numeric"),
        ("now() + n * interval '1 us'", "id > %(after)s::timestamptz"),
        ("array[1, n]", "id > %(after)s::int[]"),
    ],
    ids=["text", "uuid", "numeric", "timestamptz", "composite"],
)
def test_keys_may_be_of_many_types(mainspring: Harness, tasks: Registry, ran: list[Any], key: str, later: str) -> None:
    mainspring.conn.execute(f"create table thing as select {key} as id from generate_series(1, 7) n".encode())
    entities = f"""select id, jsonb_build_object('booking', id::text) from thing
                   where %(after)s::text is null or {later} order by id limit %(limit)s"""
    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=entities, page=3)
    at_ten(mainspring)
    progress = mainspring.client.schedules.get("pay").fan_out
    assert progress is not None
    assert progress.problem is None
    assert set(Counter(ran).values()) == {1}
    assert len(ran) == 7


def test_rows_that_come_and_go_between_pages_change_nothing_for_the_others(
    mainspring: Harness, tasks: Registry, ran: list[Any]
) -> None:
    keys = list(range(0, 40, 2))

    def entities(conn: Any, zone: str, after: Any, limit: int) -> list[Any]:
        left = [key for key in sorted(keys) if after is None or key > after][:limit]
        if after is not None and after < 30:
            keys.remove(after)  # one that has its job goes
            keys.append(after + 9)  # one comes further on
            keys.append(after - 9)  # one comes too late
        return [(key, {"booking": key}) for key in left]

    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=entities, page=5)
    at_ten(mainspring)
    assert set(Counter(ran).values()) == {1}
    assert set(range(0, 40, 2)) <= set(ran)


# -- clocks -----------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_clock_that_goes_back_does_not_hold_a_fan_out(database: Database) -> None:
    tasks = Registry("test")
    tasks.task(charge)

    async def entities(conn: Any, zone: str, after: Any, limit: int) -> list[Any]:
        first = (after or 0) + 1
        return [(key, {"booking": key}) for key in range(first, min(first + limit, 7))]

    tasks.schedule("pay", ms.daily("10:00"), "charge", entities=entities, page=2)
    house = House(database, tasks)
    await house.look(TEN - timedelta(minutes=1))
    assert await house.look(TEN, turns=1) <= 0
    assert await house.look(TEN - timedelta(hours=1)) > 0
    with database.connect() as conn:
        assert conn.execute("select jobs, finished_at is not null from mainspring.fan_out").fetchall() == [(6, True)]


@pytest.mark.anyio
async def test_clock_that_goes_back_asks_for_zones_no_more_often(database: Database) -> None:
    tasks, asked = Registry("test"), list[int]()
    tasks.task(charge_zone)

    async def zones(conn: Any) -> list[str]:
        asked.append(1)
        return ["UTC"]

    tasks.schedule("pay", ms.daily("10:00"), "charge_zone", zones=zones)
    house = House(database, tasks)
    for at in (TEN, TEN - timedelta(hours=1)):
        assert await house.look(at) > 0  # and not at once again, for as long as the clock is behind
    assert len(asked) == 2


@pytest.mark.anyio
async def test_zone_that_left_and_comes_back_after_the_clock_does_not_repeat_a_tick(database: Database) -> None:
    tasks, zones = Registry("test"), ["UTC"]
    tasks.task(charge_zone)

    async def in_use(conn: Any) -> list[str]:
        return list(zones)

    tasks.schedule("pay", ms.daily("10:00"), "charge_zone", zones=in_use)
    house = House(database, tasks)
    for at in (TEN - timedelta(seconds=30), TEN):
        await house.look(at)
    zones.clear()
    await house.look(TEN - timedelta(minutes=20))
    zones.append("UTC")
    await house.look(TEN - timedelta(minutes=10))
    for at in (TEN, TEN + timedelta(minutes=5), TEN + timedelta(days=1)):
        await house.look(at)
    with database.connect() as conn:
        fires = conn.execute("select instant, how from mainspring.fire order by instant").fetchall()
        assert conn.execute("select problem from mainspring.schedule_zone").fetchall() == [(None,)]
    assert fires == [(TEN, "fired"), (TEN + timedelta(days=1), "fired")]


# -- versions of the code ---------------------------------------------------------------------------------------------


def test_schedule_that_an_older_version_does_not_know_is_shown_as_declared_again(
    mainspring: Harness, tasks: Registry, ran: list[Any]
) -> None:
    tasks.schedule("new", ms.daily("10:00"), "charge_zone")
    mainspring.clock.set(TEN - timedelta(minutes=1))
    mainspring.drain()
    older = Registry("test")
    older.task(charge)
    assert mainspring.client.schedules.sync(older).undeclared == ["new"]  # it starts once more, and last
    mainspring.advance(minutes=2)
    assert ran == [("UTC", "23 10:00")]
    assert mainspring.client.schedules.get("new").status == "active"


@pytest.mark.anyio
async def test_each_page_is_of_one_version_of_the_code(database: Database) -> None:
    def version(field: str) -> Registry:
        async def entities(conn: Any, zone: str, after: Any, limit: int) -> list[Any]:
            first = (after or 0) + 1
            return [(key, {field: key}) for key in range(first, min(first + limit, 7))]

        tasks = Registry("test")
        for task in (charge, charge_zone):
            tasks.task(task)
        name = "charge" if field == "booking" else "charge_zone"
        tasks.schedule("pay", ms.daily("10:00"), name, entities=entities, page=2)
        return tasks

    old, new = House(database, version("booking")), House(database, version("zone"))
    await old.look(TEN - timedelta(minutes=1))
    await old.look(TEN, turns=1)
    await new.look(TEN, turns=1)  # its definition is the one that is stored
    async with await AsyncConnection.connect(database.dsn, **options(database.dsn, "test")) as conn:
        for _ in range(3):  # and the older version goes on
            await turn(conn, old.firing, old.fan_out)
        found = await (
            await conn.execute("select task, payload from mainspring.job order by created_at, id")
        ).fetchall()
    assert [(task, *payload.items()) for task, payload in found] == [
        ("charge", ("booking", 1)), ("charge", ("booking", 2)), ("charge_zone", ("zone", 3)),
        ("charge_zone", ("zone", 4)), ("charge", ("booking", 5)), ("charge", ("booking", 6)),
    ]  # fmt: skip


# -- encryption -------------------------------------------------------------------------------------------------------


@pytest.mark.anyio
async def test_jobs_of_schedules_are_encrypted_and_keys_still_match(database: Database) -> None:
    tasks, seen = Registry("test"), list[str]()

    @tasks.task(dedupe=ms.dedupe.keep("{name}"))
    async def greet(*, name: str) -> None:
        seen.append(name)

    async def entities(conn: Any, zone: str, after: Any, limit: int) -> list[Any]:
        return [] if after else [("k", {"name": "Grace"})]

    tasks.schedule("one", ms.daily("10:00"), greet, payload={"name": "Ada"})
    tasks.schedule("many", ms.daily("10:00"), greet, entities=entities)
    app = ms.App(tasks, dsn=database.dsn, cipher=ms.Cipher(b"m" * 32), maintenance=False)
    with database.connect() as conn:
        clock = Clock(conn)
        for at in (MONDAY, TEN, TEN + timedelta(days=1)):  # the second day their keys are taken
            clock.set(at)
            await app.worker(WorkerConfig(**SETTINGS)).drain()
        jobs = conn.execute("select payload ? '$mainspring' from mainspring.job").fetchall()
        problems = conn.execute("select problem from mainspring.schedule_zone where problem is not null").fetchall()
        refused = conn.execute("select sum(refused)::int from mainspring.fan_out").fetchall()
    assert sorted(seen) == ["Ada", "Grace"]
    assert (jobs, problems, refused) == ([(True,), (True,)], [], [(0,)])


# -- a scheduler that waits in vain -----------------------------------------------------------------------------------


def test_scheduler_that_finds_nothing_for_an_hour_goes_on(database: Database) -> None:
    tasks, seen = Registry("test"), list[int]()

    class Vain(Scheduler):
        """Something is due, and somebody else holds it."""

        async def _wait(self, conn: Any) -> float | None:
            return 0.0

        async def _turn(self, conn: Any) -> int:
            seen.append(1)
            return 0

    async def main() -> None:
        line, own = (SharedConnection(database.dsn, "test", prepare=False) for _ in range(2))
        firing = Firing(Sql(), tasks, Keyring(None, database.dsn, Sql()))
        scheduler = Vain(line, own, Sql(), WorkerConfig(), firing, FanOut(Sql(), firing, None, None))
        for _ in range(1100):
            await scheduler.tick()
        await scheduler.stop()
        await line.close()

    asyncio.run(main())
    assert len(seen) == 1100
