"""A clock that runs fast: everything that the database counts goes with it, and what a worker waits for stays real."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Coroutine
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from tests.databases import Database, fresh_database
from tests.worker.stage import Stage

import mainspring as ms
from mainspring import Registry
from mainspring.db.pulse import ended, pulse
from mainspring.db.schema.migrate import migrate
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql
from mainspring.embedded import Cluster
from mainspring.errors import ConfigurationError
from mainspring.virtual.speed import UNWRITTEN_SPAN, begin, drive, mark

MARCH = datetime(2026, 3, 2, tzinfo=UTC)
MOMENT = timedelta(seconds=1)  # that statements of a test may take, in real time


Work = ms.Task[[], None, Coroutine[Any, Any, None]]


@pytest.fixture
def work(tasks: Registry) -> Work:
    @tasks.task
    async def work() -> None: ...

    return work


def shown(conn: psycopg.Connection[tuple[datetime]]) -> datetime:
    row = conn.execute("select mainspring.now()").fetchone()
    assert row is not None
    return row[0]


def test_clock_runs_from_its_beginning_and_python_knows_it_too(database: Database) -> None:
    with database.connect() as conn:
        course = begin(conn, 600, MARCH)
        assert MARCH <= shown(conn) <= MARCH + MOMENT  # until there is somebody who works
        course = drive(conn, course, 600)
        before, there, after = course.now(), shown(conn), course.now()
        assert MARCH <= before <= there <= after <= MARCH + 601 * MOMENT
        passed = conn.execute(
            "select mainspring.instant(), pg_sleep(0.02), mainspring.instant(), mainspring.speed()"
        ).fetchone()
        assert passed is not None
        assert passed[2] - passed[0] >= timedelta(seconds=12)
        assert passed[3] == 600


def test_time_stands_still_while_nothing_runs(database: Database) -> None:
    with database.connect() as conn:
        drive(conn, begin(conn, 600, MARCH), 600)
        left = shown(conn)
        mark(conn)
        again = begin(conn, 600)
        assert left <= again.base <= left + 600 * MOMENT
        drive(conn, again, 600)
        mark(conn)
        conn.execute("update mainspring.clock set at = at - interval '8 hours'")  # as if a night had passed since
        killed = conn.execute("select at from mainspring.clock").fetchone()
        assert killed is not None
        course = begin(conn, 60)
        assert course.base - killed[0] - 600 * UNWRITTEN_SPAN < MOMENT  # what it may have gone on before it was killed
        assert course.base <= shown(conn) <= course.base + MOMENT


def test_a_clock_that_has_begun_takes_no_other_beginning_once_there_are_jobs(database: Database, work: Work) -> None:
    with database.connect() as conn, ms.Client(database.dsn) as client:
        begin(conn, 600, MARCH)
        assert begin(conn, 600, MARCH + timedelta(days=1)).base - MARCH >= timedelta(days=1)
        client.enqueue(work.job())
        with pytest.raises(ConfigurationError, match="from: time has begun before, and stands at 2026-03-03 00:"):
            begin(conn, 600, MARCH)
        assert begin(conn, 1).base > MARCH


def test_a_schema_that_is_in_use_keeps_its_real_clock(volatile_cluster: Cluster, work: Work) -> None:
    with fresh_database(volatile_cluster, migrated=False) as database, database.connect() as conn:
        migrate(conn)
        with ms.Client(database.dsn) as client:
            client.enqueue(work.job())
        with pytest.raises(ConfigurationError, match="is in use"):
            begin(conn, 600)
        assert conn.execute("select mainspring.speed(), to_regclass('mainspring.clock')").fetchone() == (1, None)
        assert abs(shown(conn) - datetime.now(UTC)) < timedelta(minutes=1)


@pytest.mark.anyio
async def test_a_worker_keeps_up_with_a_fast_clock(stage: Stage, tasks: Registry) -> None:
    """Timers, schedules, retries and breakers go by the database's clock; leases are as long as ever in real time."""
    late: list[timedelta] = []
    held, go, tried = asyncio.Event(), asyncio.Event(), list[datetime]()

    @tasks.task
    async def tick(ctx: ms.Context) -> None:
        late.append(ctx.job.claimed_at - (ctx.job.scheduled_for or ctx.job.created_at))

    @tasks.task(retry=ms.fixed(900, attempts=2), subject="n")
    async def fails(ctx: ms.Context, *, n: int) -> None:
        tried.append(ctx.job.claimed_at)
        if len(tried) == 1:
            raise RuntimeError("once")

    @tasks.task(needs=("bank",))
    async def long() -> None:
        held.set()
        await go.wait()

    tasks.schedule("berlin", ms.cron("*/10 * * * *", zone="Europe/Berlin"), tick)
    drive(stage.conn, begin(stage.conn, 600, MARCH), 600)
    lease: dict[str, Any] = {"lease": timedelta(seconds=6), "renew_every": timedelta(milliseconds=100)}
    worker = ms.App(tasks, dsn=stage.dsn, breakers=[ms.breaker("bank")], maintenance=False).worker(
        ms.WorkerConfig(**lease, rescue_every=timedelta(milliseconds=50))
    )
    await worker.start()
    try:
        await stage.enqueue_many([tick.job().after(timedelta(minutes=n)) for n in range(2, 27, 3)])
        lasting, again = await stage.enqueue(long.job()), await stage.enqueue(fails.job(n=7))
        await held.wait()
        left = stage.one("select lease_expires_at - mainspring.now() from mainspring.running where task = 'long'")
        assert timedelta(minutes=40) < left <= timedelta(hours=1)
        await stage.until(lambda: len(late) >= 11 and len(tried) == 2, seconds=20)
        go.set()
        await stage.result(lasting)
        await stage.result(again)
    finally:
        await worker.stop()
    assert worker.counts["rescued"] == worker.counts["lost"] == worker.counts["stale"] == 0
    assert tried[1] - tried[0] >= timedelta(minutes=15)
    late.sort()
    assert timedelta(0) <= late[0]
    assert late[len(late) // 2] < timedelta(minutes=2)
    assert stage.one("select max(instants) from mainspring.fire") == 1  # none was missed
    sql, door = Sql(), psycopg_door(stage.conn)
    seen = run(door, pulse(sql, MARCH))
    assert (seen.enqueued >= 11, seen.retried, seen.dead) == (True, 1, 0)
    assert seen.pickup_ms is not None
    assert seen.pickup_ms < 200  # in real time
    told = json.loads(run(door, ended(sql, MARCH, seen.until, {"fails": "n"}, 100)))
    assert told["count"] == len(told["entries"])
    fired = [entry for entry in told["entries"] if entry.get("schedule") == "berlin"]
    assert {(entry["task"], entry["zone"]) for entry in fired} == {("tick", "Europe/Berlin")}
    first, second = (entry for entry in told["entries"] if entry["task"] == "fails")
    assert (first["state"], first["attempt"], first["subject"]) == ("retried", 1, {"n": 7})
    assert (second["state"], second["attempt"], second["zone"]) == ("succeeded", 2, "UTC")
