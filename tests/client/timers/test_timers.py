"""Timers by key: set, moved, asked for and cancelled, in the caller's transaction."""

from __future__ import annotations

import asyncio
import inspect
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest
from psycopg.rows import TupleRow
from tests.client.conftest import claim, complete, count, settle
from tests.client.frameworks.joins import InThread, Join
from tests.client.frameworks.test_joining import undone
from tests.client.tasks import at_once, greet, store
from tests.databases import Database

import mainspring as ms
from mainspring.errors import KeyReused
from mainspring.virtual.clock import Clock

pytestmark = pytest.mark.anyio
Sql = psycopg.Connection[TupleRow]
NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)
KEY = "auto-approve:9"


@pytest.fixture(autouse=True)
def noon(sql: Sql) -> Clock:
    clock = Clock(sql)
    clock.set(NOON)
    return clock


@pytest.fixture
def timers(client: Any) -> Any:
    return Awaited(client.own.timers)


class Awaited:
    """Timers whose verbs are awaited, whatever their colour."""

    def __init__(self, timers: Any) -> None:
        self._timers = timers

    def __getattr__(self, name: str) -> Any:
        async def call(*args: Any, **kwargs: Any) -> Any:
            answer = getattr(self._timers, name)(*args, **kwargs)
            return await answer if inspect.isawaitable(answer) else answer

        return call


def at(hours: float, name: str = "Ada") -> ms.NewJob:
    return greet.job(name=name).at(NOON + timedelta(hours=hours)).with_key(KEY)


@pytest.mark.rule("ENG-13.12")
async def test_set_creates_the_timer_and_then_moves_it(client: Any, timers: Any, sql: Sql) -> None:
    first = await timers.set(at(4))
    moved = await timers.set(at(5, "Grace"))

    assert (first.answer, moved.answer) == ("created", "replaced")
    assert (moved.id, moved.state, count(sql)) == (first.id, "scheduled", 1)
    job = await client.get(first.id)
    assert (job.due_at, job.scheduled_for, job.payload["name"]) == (NOON + timedelta(hours=5),) * 2 + ("Grace",)


async def test_get_tells_whether_there_is_one_and_when(timers: Any, sql: Sql, noon: Clock) -> None:
    assert await timers.get(KEY) is None
    job = (await timers.set(at(4))).id

    found = await timers.get(KEY)

    assert (found.key, found.job_id, found.task, found.state) == (KEY, job, "greet", "scheduled")
    assert (found.due_at, found.behind) == (NOON + timedelta(hours=4), None)
    assert await timers.get(KEY, org="acme") is None
    noon.advance(hours=4)
    assert (await timers.get(KEY)).state == "ready"
    epochs = claim(sql, "greet")
    assert (await timers.get(KEY)).state == "running"
    settle(sql, epochs, "fail")
    assert (await timers.get(KEY)).state in ("retrying", "ready")
    complete(sql, claim(sql, "greet"))
    assert await timers.get(KEY) is None


@pytest.mark.rule("ENG-13.12")
async def test_one_that_runs_is_not_moved_and_the_next_starts_after_it(timers: Any, sql: Sql, noon: Clock) -> None:
    running = (await timers.set(at(0))).id
    epochs = claim(sql, "greet")

    behind = await timers.set(at(1))
    moved = await timers.set(at(2))

    assert (behind.answer, moved.answer, moved.id) == ("created", "replaced", behind.id)
    found = await timers.get(KEY)
    assert (found.job_id, found.behind, found.due_at) == (behind.id, running, NOON + timedelta(hours=2))
    noon.advance(hours=3)
    assert claim(sql, "greet") == []
    complete(sql, epochs)
    assert len(claim(sql, "greet")) == 1


async def test_one_that_is_to_be_tried_again_has_started_and_is_not_moved(timers: Any, sql: Sql) -> None:
    tried = (await timers.set(at(0))).id
    settle(sql, claim(sql, "greet"), "fail")

    new = await timers.set(at(1))

    assert (new.answer, (await timers.get(KEY)).behind) == ("created", tried)


async def test_a_cancelled_timer_can_be_set_anew(timers: Any, sql: Sql) -> None:
    first = (await timers.set(at(4))).id

    assert await timers.cancel(KEY, reason="rejected") == "cancelled"
    assert await timers.get(KEY) is None
    again = await timers.set(at(5))
    assert (again.answer, again.id != first) == ("created", True)
    assert await timers.cancel("another") == "not_found"


async def test_the_next_one_can_be_cancelled_while_the_first_runs(timers: Any, sql: Sql) -> None:
    running = (await timers.set(at(0))).id
    claim(sql, "greet")
    await timers.set(at(1))

    assert await timers.cancel(KEY) == "cancelled"
    found = await timers.get(KEY)
    assert (found.job_id, found.state) == (running, "running")


async def test_a_relative_time_counts_from_the_database_s_clock(timers: Any) -> None:
    await timers.set(greet.job().after(timedelta(hours=4)).with_key(KEY))
    assert (await timers.get(KEY)).due_at == NOON + timedelta(hours=4)


async def test_whatever_the_task_says_of_its_key_a_timer_is_moved(timers: Any) -> None:
    job = ms.NewJob(task="greet", payload=at(1).payload, mode="keep").with_key(KEY)
    assert (await timers.set(job.after(60))).answer == "created"
    assert (await timers.set(job.after(90))).answer == "replaced"
    assert (await timers.get(KEY)).due_at == NOON + timedelta(seconds=90)


async def test_a_key_that_another_task_holds_is_refused(timers: Any, sql: Sql) -> None:
    await timers.set(at(4))
    with pytest.raises(KeyReused):
        await timers.set(store.job(value=1).after(60).with_key(KEY))
    assert (await timers.get(KEY)).task == "greet"


async def test_what_is_no_timer_is_refused_by_field(timers: Any, sql: Sql) -> None:
    wrong = {
        "key": [greet.job().after(60), greet.job().after(60).with_key(" ")],
        "scheduled_for": [greet.job().with_key(KEY), at_once.job().after(60).with_key(KEY)],
        "delay": [ms.NewJob(task="t", payload=at(1).payload, delay=timedelta(seconds=-1), key=KEY)],
    }
    for field, jobs in wrong.items():
        for job in jobs:
            with pytest.raises(ms.ValidationError) as caught:
                await timers.set(job)
            assert caught.value.field == field
    with pytest.raises(ms.ValidationError, match=r"^key: "):
        await timers.get("a\nb")
    assert count(sql) == 0


@pytest.mark.rule("ENG-13.05")
async def test_many_who_set_one_timer_at_once_leave_one(client: Any, timers: Any, sql: Sql) -> None:
    answers = await asyncio.gather(*(asyncio.to_thread(_set, client.own.dsn, hours) for hours in range(1, 9)))

    assert sorted(answer.answer for answer in answers) == ["created", *["replaced"] * 7]
    assert (len({answer.id for answer in answers}), count(sql)) == (1, 1)


def _set(dsn: str, hours: int) -> ms.Enqueued:
    with ms.Client(dsn) as client:
        return client.timers.set(at(hours))


async def test_a_timer_s_move_is_on_the_audit_trail(timers: Any, sql: Sql) -> None:
    job = (await timers.set(at(4))).id
    await timers.set(at(5).by("7"))
    rows = sql.execute("select event, actor_id, detail from mainspring.audit where job_id = %s", [job]).fetchall()
    ((event, actor, detail),) = rows
    assert (event, actor) == ("job.replaced", "7")
    assert [datetime.fromisoformat(detail[when]["due_at"]) - NOON for when in ("before", "after")] == [
        timedelta(hours=4), timedelta(hours=5)
    ]  # fmt: skip


async def joined(join: Join, verb: str, *args: Any) -> Any:
    """A verb of timers in the caller's transaction, whatever their library."""
    if isinstance(join.client, InThread):
        return await join.client._call(getattr(join.client._client.timers, verb), *args, conn=join.conn)
    return await getattr(join.client.timers, verb)(*args, conn=join.conn)


async def test_a_timer_lives_and_dies_with_the_caller_s_transaction(join: Join, sql: Sql) -> None:
    async with undone(join.transaction):
        await joined(join, "set", at(4))
        assert (await joined(join, "get", KEY)).due_at == NOON + timedelta(hours=4)
    assert count(sql) == 0

    async with join.transaction():
        job = (await joined(join, "set", at(4))).id
    async with undone(join.transaction):
        assert (await joined(join, "set", at(5))).answer == "replaced"
        assert await joined(join, "cancel", KEY) == "cancelled"
        assert await joined(join, "get", KEY) is None
    async with join.transaction():
        found = await joined(join, "get", KEY)
    assert (found.job_id, found.state, found.due_at) == (job, "scheduled", NOON + timedelta(hours=4))


async def test_many_are_cancelled_at_once_each_with_its_answer(timers: Any, sql: Sql) -> None:
    for key in ("a", "b", "c"):
        await timers.set(at(0 if key == "b" else 4).with_key(key))
    claim(sql, "greet")

    answers = await timers.cancel_many(["c", "a", "b", "gone", "a"], reason="sold")

    assert answers == {"a": "cancelled", "b": "cancel_requested", "c": "cancelled", "gone": "not_found"}
    assert await timers.cancel_many([]) == {}
    assert await timers.cancel_many(["a"], org="acme") == {"a": "not_found"}
    rows = sql.execute("select detail ->> 'reason' from mainspring.audit where event = 'job.cancelled'").fetchall()
    assert rows == [("sold",)] * 2
    with pytest.raises(ms.ValidationError, match=r"^keys: "):
        await timers.cancel_many(["a", ""])


async def test_two_who_cancel_the_same_timers_in_another_order_do_not_wait_for_each_other(
    client: Any, timers: Any
) -> None:
    keys = [f"k{number}" for number in range(40)]
    for key in keys:
        await timers.set(at(4).with_key(key))

    def cancel(wanted: list[str]) -> dict[str, str]:
        with ms.Client(client.own.dsn) as one:
            return dict(one.timers.cancel_many(wanted))

    answers = await asyncio.gather(*(asyncio.to_thread(cancel, wanted) for wanted in (keys, keys[::-1]) * 4))
    assert {answer for found in answers for answer in found.values()} == {"cancelled"}


def refuse(sql: Sql, verb: str) -> None:
    """From now on the database refuses to set, or to cancel, timers."""
    sql.execute(
        "create function public.refuse() returns trigger language plpgsql as"
        " $$ begin raise exception 'not today'; end $$"
    )
    sql.execute(
        f"create trigger refuse before {verb} on mainspring.waiting for each row execute function refuse()".encode()
    )


@pytest.mark.rule("STAFF-19.13")
async def test_a_timer_that_cannot_be_set_leaves_the_caller_s_transaction_as_it_was(
    join: Join, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    async with join.transaction():
        assert (await joined(join, "try_set", at(4))).answer == "created"
    refuse(sql, "insert")

    async with join.transaction():
        assert (await joined(join, "try_set", at(5))).answer == "replaced"
        assert await joined(join, "try_set", at(4).with_key("another")) is None
        assert (await joined(join, "get", KEY)).due_at == NOON + timedelta(hours=5)

    assert (await joined(join, "get", KEY)).due_at == NOON + timedelta(hours=5)
    (line,) = [line for line in caplog.records if line.name == "mainspring"]
    assert line.levelname == "ERROR"
    assert line.message.startswith("timer another was not set: ")


async def test_timers_that_cannot_be_cancelled_stay_and_the_caller_s_transaction_goes_on(
    join: Join, sql: Sql, caplog: pytest.LogCaptureFixture
) -> None:
    async with join.transaction():
        for key in ("a", "b", KEY):
            await joined(join, "set", at(4).with_key(key))
        assert await joined(join, "try_cancel_many", [KEY]) == {KEY: "cancelled"}
    refuse(sql, "delete")

    async with join.transaction():
        assert await joined(join, "try_cancel_many", ["a", "b"]) is None
        assert (await joined(join, "set", at(4))).answer == "created"

    assert sql.execute("select count(*) from mainspring.waiting").fetchone() == (3,)
    assert [line.levelname for line in caplog.records if line.name == "mainspring"] == ["WARNING"]


async def test_trying_refuses_what_is_no_timer_and_needs_no_transaction(timers: Any, sql: Sql) -> None:
    with pytest.raises(ms.ValidationError, match=r"^key: "):
        await timers.try_set(greet.job().after(60))
    assert (await timers.try_set(at(4))).answer == "created"
    assert await timers.try_cancel_many([KEY]) == {KEY: "cancelled"}
    refuse(sql, "insert")
    assert await timers.try_set(at(4)) is None


def test_triggers_and_psql_set_and_ask_by_the_same_words(sql: Sql) -> None:
    def one(statement: str) -> Any:
        return sql.execute(statement.encode()).fetchone()

    enqueue = "select job_id, answer from mainspring.enqueue('approve', key => 'a:9', mode => 'replace', delay => '{}')"
    job, answer = one(enqueue.format("4 h"))
    assert (answer, one(enqueue.format("5 h"))) == ("created", (job, "replaced"))
    timer = "select job_id, state, due_at from mainspring.timer('default', 'a:9')"
    assert one(timer) == (job, "scheduled", NOON + timedelta(hours=5))
    cancelled = "select mainspring.cancel(mainspring.job_of('default', 'a:9'), 'default', 'user', 'ada', 'rejected')"
    assert one(cancelled) == ("cancelled",)
    assert one(timer) is None


@pytest.mark.rule("ENG-13.01", "ENG-13.02")
async def test_a_moved_timer_starts_at_its_new_instant_and_not_before(database: Database) -> None:
    from mainspring.testing import Harness

    tasks = ms.Registry("timers")
    ran: list[datetime] = []

    @tasks.task
    async def approve(ctx: ms.Context) -> None:
        """Approve."""
        ran.append(ctx.job.claimed_at)

    with Harness(database.dsn, tasks) as harness:
        harness.clock.set(NOON)
        harness.client.timers.set(approve.job().after(timedelta(hours=4)).with_key(KEY))
        await harness.aadvance(hours=3, minutes=59)
        harness.client.timers.set(approve.job().after(timedelta(hours=1)).with_key(KEY))
        await harness.aadvance(minutes=59, seconds=59)
        assert ran == []
        await harness.aadvance(seconds=1)
    assert ran == [NOON + timedelta(hours=4, minutes=59)]


async def test_unless_live_leaves_what_waits_or_runs_alone(client: Any, sql: Sql) -> None:
    def spare() -> ms.NewJob:
        return greet.job(name="another payload").with_key(KEY, unless_live=True)

    first = (await client.enqueue(at(1))).id
    assert (await client.enqueue(spare())) == ms.Enqueued(first, "existing", "scheduled")
    await client.reschedule(first, delay=timedelta(0))
    epochs = claim(sql, "greet")
    assert (await client.enqueue(spare())) == ms.Enqueued(first, "existing", "running")
    settle(sql, epochs, "bury")
    assert (await client.enqueue(spare())).answer == "created"
    with pytest.raises(ms.ValidationError, match="unless_live needs one"):
        await client.enqueue(ms.NewJob(task="greet", payload=at(1).payload, unless_live=True))


def test_trying_on_a_connection_that_commits_by_itself_needs_no_savepoint(database: Database, sql: Sql) -> None:
    with ms.Client(database.dsn) as one, psycopg.connect(database.dsn, autocommit=True) as conn:
        made = one.timers.try_set(at(4), conn=conn)
        assert made is not None
        assert made.answer == "created"
        refuse(sql, "insert")
        assert one.timers.try_set(at(4).with_key("another"), conn=conn) is None
        assert one.timers.try_cancel_many([KEY], conn=conn) == {KEY: "cancelled"}
