"""Decisions about many: counted first, spread in time, in batches, to be run again, by two at once."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest
from tests.client.dead.conftest import ADA, Kill, events
from tests.databases import Database
from tests.db.conftest import NOON
from tests.db.engine import ERROR, Engine

from mainspring import Client, ValidationError
from mainspring.db import bulk

pytestmark = pytest.mark.anyio


def bury(engine: Engine, count: int, **fields: Any) -> list[UUID]:
    """So many dead jobs."""
    engine.enqueue_many([{**fields} for _ in range(count)])
    claims = engine.claim(n=count, queues=[fields.get("queue", "q:default")], tasks=[fields.get("task", "t")])
    engine.settle("w1", *[{"epoch": claim.epoch, "verb": "bury", "error": ERROR} for claim in claims])
    return [claim.id for claim in claims]


def due(engine: Engine) -> list[datetime]:
    return [row[0] for row in engine.rows("select due_at from mainspring.waiting order by due_at")]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches of three."""
    monkeypatch.setattr(bulk, "DECISION_BATCH", 3)


@pytest.mark.rule("ENG-12.10")
async def test_500_replayed_at_10_a_second_are_due_over_50_seconds(dead: Any, engine: Engine) -> None:
    bury(engine, 500)

    counted = await dead.replay_many(task="t", rate=10, dry_run=True)
    assert (counted.matched, counted.moved, counted.dry_run) == (500, 0, True)
    assert due(engine) == []
    done = await dead.replay_many(task="t", rate=10, reason="the supplier is back")

    assert (done.matched, done.moved, done.skipped) == (500, 500, 0)
    assert due(engine) == [NOON + timedelta(milliseconds=100 * n) for n in range(500)]
    engine.clock.advance(seconds=25)
    assert len(engine.claim(n=1000)) == 251  # a worker sees them as their time comes


async def test_without_a_rate_all_are_due_at_once_in_the_order_of_their_death(
    dead: Any, engine: Engine, kill: Kill
) -> None:
    first = kill()
    engine.clock.advance(seconds=1)
    second = kill()

    assert (await dead.replay_many(task="t", limit=1, reason="x")).moved == 1

    assert engine.state(first) == "ready"
    assert engine.state(second) == "dead"


@pytest.mark.usefixtures("small")
async def test_a_rate_goes_on_from_batch_to_batch_over_both_states(dead: Any, engine: Engine, kill: Kill) -> None:
    for n in range(10):
        kill("reject" if n % 2 else "bury")
    assert (await dead.replay_many(task="t", rate=2, reason="x")).moved == 10
    assert due(engine) == [NOON + timedelta(seconds=n / 2) for n in range(10)]


@pytest.mark.rule("ENG-12.05")
@pytest.mark.usefixtures("small")
async def test_each_job_and_the_act_as_a_whole_are_audited_with_the_person(
    dead: Any, engine: Engine, kill: Kill
) -> None:
    jobs = {kill(task="pay", org_id="acme") for _ in range(4)}
    kill(task="other", org_id="acme")

    for verb, event, done in (
        (dead.replay_many, "dead_letters.replay", "job.replayed"),
        (dead.discard_many, "dead_letters.discard", "job.discarded"),
    ):
        rate = {"rate": 5} if verb == dead.replay_many else {}
        await verb(task="pay", org="acme", reason="cleaning up", **rate)
        rows = engine.rows("select org_id, actor_type, actor_id, detail from mainspring.audit where event = %s", event)
        ((org, kind, who, detail),) = rows
        assert (org, kind, who) == ("acme", "user", "ada")
        assert (detail["reason"], detail["matched"], detail["filter"]) == (
            "cleaning up",
            4,
            {"org": "acme", "task": "pay"},
        )
        each = engine.rows("select job_id, detail from mainspring.audit where event = %s", done)
        assert {row[0] for row in each} == jobs
        assert len(each) == 4
        assert {(row[1]["by"], row[1]["reason"], row[1]["bulk"]) for row in each} == {
            ("ada", "cleaning up", detail["bulk"])
        }
        engine.clock.advance(minutes=1)
        for claim in engine.claim(tasks=["pay"]):
            engine.end(claim, "bury")


@pytest.mark.usefixtures("small")
async def test_many_are_discarded_and_leave_the_list(dead: Any, engine: Engine, kill: Kill) -> None:
    bury(engine, 7)
    kept = kill(task="u")
    done = await dead.discard_many(task="t", reason="a test run")
    assert (done.matched, done.moved) == (7, 7)
    assert [letter.id for letter in await dead.list()] == [kept]
    assert (await dead.discard_many(task="t", reason="a test run")).matched == 0
    assert len(events(engine, "dead_letters.discard")) == 1


@pytest.mark.usefixtures("small")
def test_an_act_that_was_broken_off_is_run_again_for_the_rest(
    client: Client, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    jobs = bury(engine, 10)
    run, calls = client.seam.run, 0

    def broken(dialogue: Any, conn: Any = None, **options: Any) -> Any:
        def cut() -> Any:
            nonlocal calls
            answer = None
            while True:
                statement = dialogue.send(answer)
                calls += "replay_many" in statement.sql
                if calls > 2:
                    raise ConnectionError("cut off")
                answer = yield statement

        return run(cut(), conn, **options)

    monkeypatch.setattr(client.seam, "run", broken)
    with pytest.raises(ConnectionError):
        client.dead.replay_many(task="t", reason="x")
    monkeypatch.undo()
    assert len(due(engine)) == 6  # two batches are done, each by its own transaction

    again = client.dead.replay_many(task="t", reason="x")

    assert (again.matched, again.moved) == (4, 4)
    assert (
        sorted(row[0] for row in engine.rows("select job_id from mainspring.audit where event = 'job.replayed'"))
        == jobs
    )


@pytest.mark.usefixtures("small")
def test_jobs_that_die_again_meanwhile_are_not_taken_twice(client: Client, engine: Engine) -> None:
    jobs = bury(engine, 6)
    run = client.seam.run

    def killing(dialogue: Any, conn: Any = None, **options: Any) -> Any:
        def slow() -> Any:
            answer = None
            while True:
                try:
                    statement = dialogue.send(answer)
                except StopIteration as done:
                    return done.value
                answer = yield statement
                if "replay_many" in statement.sql:
                    engine.clock.advance(seconds=1)
                    for claim in engine.claim():
                        engine.end(claim, "bury")

        return run(slow(), conn, **options)

    client.seam.run = killing  # type: ignore[method-assign]  # a worker that is faster than the person
    done = client.dead.replay_many(task="t", reason="x")
    client.seam.run = run  # type: ignore[method-assign]  # as it was

    assert (done.matched, done.moved) == (6, 6)
    assert [engine.state(job) for job in jobs] == ["dead"] * 6


@pytest.mark.rule("ENG-12.10")
def test_two_at_once_share_the_work_and_double_nothing(engine: Engine, database: Database) -> None:
    bury(engine, 1200)
    answers: list[bulk.Bulk] = []

    def act() -> None:
        with Client(database.dsn, caller=ADA) as client:
            answers.append(client.dead.replay_many(task="t", reason="x"))

    threads = [threading.Thread(target=act) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sum(answer.moved for answer in answers) == 1200 == len(due(engine))
    assert engine.rows(
        "select count(*), count(distinct job_id) from mainspring.audit where event = 'job.replayed'"
    ) == [(1200, 1200)]


def test_what_somebody_else_works_on_is_left_alone_and_nobody_waits(
    client: Client, engine: Engine, kill: Kill, database: Database
) -> None:
    free, locked, keyed, rival = kill(), kill(), kill(key="a"), kill(key="b")
    living = engine.enqueue(key="b").id
    with database.connect() as other, other.transaction():
        other.execute("select from mainspring.finished where id = %s for update", [locked])
        other.execute("select from mainspring.idempotency where key = 'a' for update")
        done = client.dead.replay_many(task="t", reason="x")
        assert (done.matched, done.moved, done.skipped) == (4, 1, 3)
        assert [engine.state(job) for job in (free, locked, keyed, rival)] == ["ready", "dead", "dead", "dead"]

    again = client.dead.replay_many(task="t", reason="x")

    assert (again.moved, again.skipped) == (2, 1)
    assert (engine.state(rival), engine.state(living)) == ("dead", "ready")


async def test_a_rate_or_limit_that_is_none_is_refused(dead: Any, kill: Kill) -> None:
    kill()
    for rate in (0, -1, float("nan"), float("inf"), 1e-9, 20_000):
        with pytest.raises(ValidationError, match=r"^rate: "):
            await dead.replay_many(task="t", rate=rate, reason="x")
    for limit in (0, -1):
        with pytest.raises(ValidationError, match=r"^limit: "):
            await dead.discard_many(task="t", limit=limit, reason="x")
    assert len(await dead.list()) == 1
