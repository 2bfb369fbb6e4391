"""Simulations: the same seed, the same bytes; the real data untouched; what happens, at its exact instant."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest
from tests.databases import Database

from mainspring import App, Client, Context, Permanent, Registry, Snooze, breaker, cron, daily, every, fixed
from mainspring.embedded import Cluster
from mainspring.errors import ConfigurationError
from mainspring.simulate import Fired, Simulated, SimulatedAttempt, TimelineEntry, simulate
from mainspring.testing import Crash

SHOP = ["simulate", "tests.simulate.shop:app", "--from", "2026-03-25", "--for", "8d"]
START = datetime(2026, 3, 25, tzinfo=UTC)
DAY = timedelta(days=1)


@pytest.fixture
def server(volatile_cluster: Cluster) -> str:
    return volatile_cluster.dsn("postgres")


@pytest.fixture
def tasks() -> Registry:
    return Registry("test")


Move = Callable[..., tuple[list[TimelineEntry], Simulated]]


@pytest.fixture
def move(server: str, tasks: Registry) -> Move:
    """Simulate what the test declares."""

    def move(length: timedelta = DAY, *, start: datetime = START, app: App | None = None, **how: Any) -> Any:
        told: list[TimelineEntry] = []
        done = simulate(lambda: app or App(tasks), start, start + length, told.extend, dsn=server, **how)
        return told, done

    return move


def mainspring(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "mainspring.cli", *arguments],
        env=os.environ | environment, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip


# -- the same bytes ---------------------------------------------------------------------------------------------------


def test_the_same_seed_gives_the_same_bytes_in_another_process_and_another_seed_does_not(server: str) -> None:
    begun = [
        subprocess.Popen(
            [sys.executable, "-m", "mainspring.cli", *SHOP, "--dsn", server, *more],
            env=os.environ | {"PYTHONHASHSEED": hashes, "TZ": zone}, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )
        for more, hashes, zone in (
            (["--json"], "1", "UTC"), (["--json"], "2", "Asia/Tokyo"), (["--json", "--seed", "1"], "1", "UTC"),
        )
    ]  # fmt: skip
    (one, first), (same, second), (other, third) = (process.communicate(timeout=60) for process in begun)

    assert (first, second, third) == (b"", b"", b"")
    assert one == same
    assert len(one.splitlines()) > 100
    assert one != other


def test_ids_and_jitter_come_from_the_seed(move: Move, tasks: Registry) -> None:
    @tasks.task(retry=fixed(600, attempts=3, jitter="full"))
    async def fail() -> None:
        raise ConnectionError(str(random.random()))

    tasks.schedule("fail", cron("0 * * * *"), fail)

    one, same, other = (move(timedelta(hours=6), seed=seed)[0] for seed in (3, 3, 4))

    assert one == same
    drawn = [{(entry.job_id, getattr(entry, "due_at", None)) for entry in entries} for entries in (one, other)]
    assert drawn[0].isdisjoint(drawn[1])
    assert len({entry.error for entry in one if isinstance(entry, SimulatedAttempt)}) > 3


def test_chance_of_the_program_goes_on_where_it_was(move: Move, tasks: Registry) -> None:
    @tasks.task
    async def draw() -> None:
        random.random()

    tasks.schedule("draw", every(hours=1), draw)
    random.seed(5)
    expected = [random.random() for _ in range(2)]
    random.seed(5)

    assert random.random() == expected[0]
    move()
    assert random.random() == expected[1]


# -- what happens -----------------------------------------------------------------------------------------------------


def test_a_week_over_a_change_of_clocks(server: str) -> None:
    answer = mainspring(*SHOP, "--dsn", server)

    lines = answer.stdout.splitlines()
    reports = [line for line in lines if "report: report" in line]
    assert lines[0] == "tests.simulate.shop:app from 2026-03-25 00:00Z to 2026-04-02 00:00Z (8 d), seed 0"
    assert reports[3] == "2026-03-28 01:30:00Z  Sat 02:30:00+01:00 Europe/Berlin  report: report  succeeded"
    assert reports[4] == "2026-03-29 01:00:00Z  Sun 03:00:00+02:00 Europe/Berlin  report: report  succeeded"
    assert reports[5] == "2026-03-30 00:30:00Z  Mon 02:30:00+02:00 Europe/Berlin  report: report  succeeded"
    charges = [line.partition("  charge: ")[0] for line in lines if "charge: charge" in line]
    assert charges == [
        "2026-03-25 04:15:00Z  Wed 10:00:00+05:45 Asia/Kathmandu",
        "2026-03-25 09:00:00Z  Wed 10:00:00+01:00 Europe/Berlin",
        "2026-03-25 14:00:00Z  Wed 10:00:00-04:00 America/New_York",
        "2026-04-01 04:15:00Z  Wed 10:00:00+05:45 Asia/Kathmandu",
        "2026-04-01 08:00:00Z  Wed 10:00:00+02:00 Europe/Berlin",
        "2026-04-01 14:00:00Z  Wed 10:00:00-04:00 America/New_York",
    ]
    assert "  charge  charge:Europe/Berlin  " not in answer.stdout  # the key stands behind the organisation
    assert any("charge:Europe/Berlin  succeeded" in line for line in lines)
    assert "  report  8 succeeded" in lines
    assert "  charge  6 fired" in lines
    assert "  report  8 fired" in lines


def test_each_thing_happens_at_its_exact_instant_from_the_first_up_to_the_last(move: Move, tasks: Registry) -> None:
    seen: list[Any] = []

    @tasks.task
    async def look(ctx: Context) -> None:
        async with ctx.complete() as conn:
            seen.append(await (await conn.execute("select mainspring.now()")).fetchone())

    tasks.schedule("look", every(hours=8), look)

    told, done = move()

    hours = [START + timedelta(hours=hour) for hour in (0, 8, 16)]
    assert seen == [(at,) for at in hours]
    assert [entry.at for entry in told if isinstance(entry, SimulatedAttempt)] == hours
    assert [entry.at for entry in told if isinstance(entry, Fired)] == hours
    assert (done.totals.attempts, done.totals.fires) == ({"look": {"succeeded": 3}}, {"look": {"fired": 3}})


def test_errors_of_handlers_are_part_of_the_time_line(move: Move, tasks: Registry) -> None:
    @tasks.task(retry=fixed(60, attempts=2))
    async def away(ctx: Context) -> None:
        raise ConnectionError("away")

    @tasks.task
    def wrong() -> None:
        raise Permanent("never", code="VALIDATION_ERROR")

    @tasks.task
    async def later(ctx: Context) -> None:
        if ctx.job.snoozes == 0:
            raise Snooze(90)

    @tasks.task
    async def die(ctx: Context) -> None:
        if ctx.attempt == 1:
            raise Crash

    def fill(conn: Any) -> None:
        with Client("postgresql://ignored/x") as client:
            client.enqueue_many([away.job(), wrong.job(), later.job(), die.job()], conn=conn)

    told, _ = move(app=App(tasks, prepare=[fill]))

    attempts = [(e.task, e.state, e.attempt, (e.at - START).seconds) for e in told if isinstance(e, SimulatedAttempt)]
    assert attempts == [
        ("away", "retried", 1, 0),
        ("wrong", "failed", 1, 0),
        ("later", "deferred", 1, 0),
        ("die", "crashed", 1, 0),
        ("away", "dead", 2, 60),
        ("die", "succeeded", 2, 60),
        ("later", "succeeded", 1, 90),
    ]
    first = told[0]
    assert isinstance(first, SimulatedAttempt)
    assert first.error == "INTERNAL_ERROR: ConnectionError: away"
    assert first.due_at == START + timedelta(seconds=60)


def test_what_is_prepared_is_prepared_at_the_first_instant(move: Move, tasks: Registry) -> None:
    @tasks.task
    async def count(ctx: Context) -> int:
        async with ctx.complete() as conn:
            row = await (await conn.execute("select count(*), min(at) from customer")).fetchone()
            assert row == (2, START)
        return 2

    table = "create table customer (at timestamptz default mainspring.now())"
    tasks.schedule("count", daily("12:00"), count)

    told, _ = move(
        app=App(
            tasks,
            prepare=[table, lambda conn: conn.execute("insert into customer select from generate_series(1, 2)")],
        )
    )

    assert [entry.state for entry in told if isinstance(entry, SimulatedAttempt)] == ["succeeded"]


def test_what_one_job_enqueues_runs_before_time_goes_on(move: Move, tasks: Registry) -> None:
    @tasks.task
    async def parent(ctx: Context, *, left: int = 2) -> None:
        if left:
            await ctx.enqueue(parent.job(left=left - 1))

    tasks.schedule("parent", daily("12:00"), parent)

    told, _ = move()

    ran = [entry for entry in told if isinstance(entry, SimulatedAttempt)]
    assert [(entry.at.hour, entry.schedule) for entry in ran] == [(12, "parent")] * 3


def test_a_paused_queue_and_a_job_of_another_program_do_not_stop_time(move: Move, tasks: Registry) -> None:
    @tasks.task(queue="q:exports")
    async def stuck() -> None: ...

    @tasks.task
    async def well() -> None: ...

    def fill(conn: Any) -> None:
        with Client("postgresql://ignored/x") as client:
            client.pause("q:exports", reason="full")
            client.enqueue(stuck.job())

    tasks.schedule("well", every(hours=1), well)

    _, done = move(app=App(tasks, prepare=[fill]))

    assert done.totals.attempts == {"well": {"succeeded": 24}}
    assert done.totals.waiting == 1


def test_a_schedule_over_zones_makes_a_job_for_each_entity_at_its_local_time(move: Move, tasks: Registry) -> None:
    @tasks.task(subject="shop_id")
    async def count(*, shop_id: int, zone: str) -> None: ...

    tasks.schedule(
        "count", daily("10:00"), count, page=2, zones="select distinct zone from shop",
        entities="""
            select id, jsonb_build_object('shop_id', id) from shop
            where zone = %(zone)s and id > coalesce(%(after)s::int, 0) order by id limit %(limit)s
        """,
    )  # fmt: skip
    shops = """
        create table shop (id int, zone text);
        insert into shop values (1, 'Europe/London');
        insert into shop select id, 'Asia/Kathmandu' from generate_series(2, 4) id
    """

    told, done = move(app=App(tasks, prepare=[shops]))

    ran = [(f"{entry.at:%H:%M}", entry.zone, entry.subject) for entry in told if isinstance(entry, SimulatedAttempt)]
    asia = [("04:15", "Asia/Kathmandu", {"shop_id": shop}) for shop in (2, 3, 4)]
    assert ran == [*asia, ("10:00", "Europe/London", {"shop_id": 1})]
    assert done.totals.fires == {"count": {"fired": 2}}


def test_a_job_that_an_open_breaker_puts_off_says_so_until_it_answers(move: Move, tasks: Registry) -> None:
    calls = []

    @tasks.task(needs=("stripe",), retry=fixed(10, attempts=3))
    async def charge(ctx: Context) -> None:
        calls.append(ctx.job.id)
        if len(calls) < 4:
            raise ConnectionError("away")

    def fill(conn: Any) -> None:
        with Client("postgresql://ignored/x") as client:
            client.enqueue_many([charge.job(), charge.job()], conn=conn)

    stripe = breaker("stripe", failures=1, pause=timedelta(minutes=1))
    told, done = move(timedelta(hours=1), app=App(tasks, prepare=[fill], breakers=[stripe]))

    ran = [entry for entry in told if isinstance(entry, SimulatedAttempt)]
    assert {entry.error for entry in ran if entry.state == "deferred"} == {"breaker stripe"}
    assert [entry.state for entry in ran].count("succeeded") == 2
    assert (len(calls), done.totals.waiting) == (5, 0)


def test_jobs_that_enqueue_each_other_without_end_are_an_error(
    move: Move, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("mainspring.simulate.clockwork.MOST_AT_ONE_INSTANT", 20)

    @tasks.task
    async def again(ctx: Context) -> None:
        await ctx.enqueue(again.job())

    tasks.schedule("again", every(hours=1), again)

    with pytest.raises(Exception, match="more than 20 jobs"):
        move()


def test_the_built_in_schedules_fire_only_when_asked(
    move: Move, tasks: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("MAINSPRING_MAINTENANCE")

    @tasks.task
    async def own() -> None: ...

    tasks.schedule("own", every(minutes=10), own)

    assert set(move(timedelta(hours=1))[1].totals.fires) == {"own"}
    fires = move(timedelta(hours=1), maintenance=True)[1].totals.fires
    assert fires["mainspring.heartbeat"] == {"fired": 60}
    assert fires["own"] == {"fired": 6}


def test_nothing_that_will_happen_is_an_error(move: Move, tasks: Registry) -> None:
    with pytest.raises(ConfigurationError, match="nothing will happen"):
        move()


# -- the scratch database ---------------------------------------------------------------------------------------------


def exists(server: str, name: str) -> bool:
    with psycopg.connect(server) as conn:
        return conn.execute("select from pg_database where datname = %s", [name]).fetchone() is not None


def name_in(dsn: str) -> str:
    return str(psycopg.conninfo.conninfo_to_dict(dsn)["dbname"])


def test_the_real_database_is_never_touched(move: Move, tasks: Registry, database: Database) -> None:
    real = Client(database.dsn)

    @tasks.task
    async def enqueue() -> None:
        real.enqueue(follow.job())  # by a client that was made for the real one

    @tasks.task
    async def follow() -> None: ...

    tasks.schedule("enqueue", every(hours=12), enqueue)

    _, done = move(app=App(tasks, dsn=database.dsn))
    real.close()

    assert done.totals.attempts == {"enqueue": {"succeeded": 2}, "follow": {"succeeded": 2}}
    with database.connect() as conn:
        assert conn.execute("select count(*) from mainspring.job").fetchone() == (0,)
        assert conn.execute("select count(*) from mainspring.schedule").fetchone() == (0,)


@pytest.mark.parametrize("broken", [False, True])
def test_the_scratch_database_is_dropped_whatever_happens(
    move: Move, tasks: Registry, server: str, broken: bool
) -> None:
    names: list[str] = []

    @tasks.task
    async def own() -> None: ...

    def fill(conn: psycopg.Connection[Any]) -> None:
        names.append(conn.info.dbname)
        if broken:
            raise ZeroDivisionError

    tasks.schedule("own", every(hours=1), own)
    with pytest.raises(ZeroDivisionError) if broken else nullcontext():
        move(app=App(tasks, prepare=[fill]))

    assert [exists(server, name) for name in names] == [False]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_drops_it_too(server: str, number: signal.Signals) -> None:
    who = f"simulation {uuid4()}"
    dsn = psycopg.conninfo.make_conninfo(server, application_name=who)
    process = subprocess.Popen(
        [sys.executable, "-m", "mainspring.cli", *SHOP[:-1], "3000d", "--dsn", dsn],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    for _ in range(5):
        process.stdout.readline()
    asked = "select distinct datname from pg_stat_activity where application_name = %s and datname <> 'postgres'"
    with psycopg.connect(server) as conn:
        ((name,),) = conn.execute(asked, [who]).fetchall()
    process.send_signal(number)
    process.communicate(timeout=30)

    assert process.returncode == 130
    assert not exists(server, name)


def test_a_database_that_is_kept_can_be_looked_at(server: str) -> None:
    answer = mainspring(*SHOP[:-1], "1d", "--dsn", server, "--keep", "--json")
    *_, totals, kept = map(json.loads, answer.stdout.splitlines())

    try:
        with psycopg.connect(kept["dsn"]) as conn:
            orders = conn.execute("select count(*), max(at) < '2026-03-26Z' from shop_order").fetchone()
        assert orders == (totals["attempts"]["order"]["succeeded"], True)
    finally:
        with psycopg.connect(server, autocommit=True) as conn:
            conn.execute(f'drop database "{name_in(kept["dsn"])}"'.encode())


def test_without_a_server_it_brings_its_own(tasks: Registry) -> None:
    @tasks.task
    async def own() -> None: ...

    tasks.schedule("own", every(hours=1), own)
    told: list[TimelineEntry] = []

    done = simulate(lambda: App(tasks), START, START + DAY, told.extend)

    assert Counter(type(entry) for entry in told) == {Fired: 24, SimulatedAttempt: 24}
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(done.dsn)


# -- mistakes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (["tests.simulate.nowhere:app"], "cannot import tests.simulate.nowhere"),
        (["nowhere:app"], "there is no module nowhere"),
        (["tests.simulate.shop"], "is not of the form module:name"),
        (["tests.simulate.shop:shop"], "tests.simulate.shop: has no App named shop; use tests.simulate.shop:app"),
        ([SHOP[1], "--from", "soon"], "from: is not a time"),
        ([SHOP[1], "--from", "2026-02-30"], "from: is not a time"),
        ([SHOP[1], "--from", "0001-01-01T00:00+14:00"], "from: is not a time"),
        ([SHOP[1], "--from", "1066-10-14"], "from: is not between 1970 and 2190"),
        ([SHOP[1], "--for", "0s"], "for: is not a time span up to 10 years"),
        ([SHOP[1], "--for", "7000d"], "for: is not a time span up to 10 years"),
        ([SHOP[1], "--for=-8d"], "a time span, such as 90s or 2h"),
        ([SHOP[1], "--for", "20y"], "a time span, such as 90s or 2h"),
        ([SHOP[1], "--for", "long"], "a time span, such as 90s or 2h"),
        ([SHOP[1], "--zone", "Mars/Olympus"], "zone: is not a time zone"),
        ([SHOP[1], "--keep"], "give --dsn"),
        ([SHOP[1], "--dsn", "host=/nowhere"], "nowhere"),
        ([SHOP[1], "--dsn", "host=x hunter2"], 'dsn: missing "=" after …'),
    ],
)
def test_a_mistake_is_one_line_that_names_it(
    arguments: Sequence[str], complaint: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch,
    server: str,
) -> None:  # fmt: skip
    from mainspring.cli import main

    monkeypatch.setattr(signal, "signal", lambda *_: None)
    given = [] if {"--dsn", "--keep"} & set(arguments) else ["--dsn", server]
    monkeypatch.delenv("MAINSPRING_DSN", raising=False)
    began = time.monotonic()

    code = main(["simulate", *arguments, *given])

    out, err = capsys.readouterr()
    assert code not in (0, 1)
    assert complaint in err
    assert len(err.splitlines()) == 1
    assert out == ""
    assert time.monotonic() - began < 120
