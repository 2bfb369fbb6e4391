"""What limits hold, and what they must not hold up, where several things meet."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
from tests.databases import Database
from tests.db.engine import Engine
from tests.worker.conftest import stage as stage
from tests.worker.limits.conftest import NOON
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.worker import exchange, pace

QUEUE = "q:default"


def fill(engine: Engine, count: int, **fields: Any) -> None:
    engine.enqueue_many([fields] * count)


def hold(engine: Engine, job: Any) -> None:
    """As a job that waits for its parents is held."""
    held = "gate = 'parents', due_then = due_at, due_at = 'infinity'"
    assert engine.rows(f"update mainspring.waiting set {held} where id = %s returning 1", job) == [(1,)]


# -- whose turn it is -----------------------------------------------------------------------------------------------


@pytest.mark.rule("ENG-11.07")
def test_small_claims_reach_every_organisation_of_a_fair_queue(engine: Engine, client: ms.Client) -> None:
    client.limits.fair(QUEUE)
    engine.rows("select setseed(0.5)")
    for org in range(8):
        fill(engine, 30, org_id=f"org-{org}")
    seen = Counter(job.org_id for _ in range(80) for job in engine.claim(n=1))
    assert len(seen) == 8
    assert max(seen.values()) < 25


def test_small_claims_follow_the_weights(engine: Engine, client: ms.Client) -> None:
    client.limits.fair(QUEUE, weights={"big": 3})
    engine.rows("select setseed(0.5)")
    fill(engine, 100, org_id="big")
    fill(engine, 100, org_id="small")
    seen = Counter(job.org_id for _ in range(80) for job in engine.claim(n=1))
    assert 45 <= seen["big"] <= 75


def test_a_fair_queue_takes_the_oldest_now_and_then_whatever_its_priority(engine: Engine, client: ms.Client) -> None:
    client.limits.fair(QUEUE)
    old = engine.enqueue(priority=3).id
    engine.clock.advance(seconds=1)
    fill(engine, 5, priority=0)
    assert [job.id for job in engine.claim(n=1, oldest=True)] == [old]


def test_organisations_whose_jobs_are_due_later_hide_nobody(engine: Engine, client: ms.Client) -> None:
    client.limits.fair(QUEUE)
    later = (NOON + timedelta(hours=1)).isoformat()
    engine.enqueue_many([{"org_id": f"org-{n:03}", "scheduled_for": later} for n in range(250)])
    due = engine.enqueue(org_id="zoo").id
    assert [job.id for job in engine.claim()] == [due]


# -- order ----------------------------------------------------------------------------------------------------------


def test_a_job_that_waits_for_others_does_not_keep_its_strand_waiting(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.in_order(task="t"))
    first = engine.enqueue(strand="s").id
    hold(engine, first)  # for the second one, say: else neither would ever start
    engine.clock.advance(seconds=1)
    second = engine.enqueue(strand="s").id
    (job,) = engine.claim()
    assert job.id == second
    engine.rows("select 1 from mainspring.open_gate(%s)", [first])
    assert engine.claim() == []
    engine.complete("w1", job.epoch)
    assert [job.id for job in engine.claim()] == [first]


def test_the_next_of_a_strand_is_called_whatever_its_priority(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.in_order(task="t"))
    order = []
    for priority in (1, 3, 0, 2):
        order.append(engine.enqueue(strand="s", priority=priority).id)
        engine.clock.advance(seconds=1)
    engine.clock.advance(minutes=10)  # they have waited for long, and so would ask again in a minute
    seen = []
    for _ in order:
        (job,) = engine.claim()
        seen.append(job.id)
        engine.claim()
        engine.complete("w1", job.epoch)
    assert seen == order


# -- several gates --------------------------------------------------------------------------------------------------


def test_what_one_limit_stops_takes_no_place_under_another(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task="t", most=3, per="1h"))
    client.limits.set(ms.concurrency(task="t", most=1, by="strand"))
    for strand in "aaabc":
        engine.enqueue(strand=strand)
    assert sorted(job.strand or "" for job in engine.claim()) == ["a", "b", "c"]


# -- rates ----------------------------------------------------------------------------------------------------------


def test_a_window_that_has_passed_leaves_the_whole_rate(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task="t", most=10, per="1h"))
    fill(engine, 5)
    assert len(engine.claim()) == 5
    engine.clock.advance(minutes=61)
    fill(engine, 10)
    assert len(engine.claim()) == 10


def test_the_log_of_a_rate_stays_short(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task="t", most=1000, per="10s"))
    fill(engine, 10)
    engine.claim()  # good for long
    fill(engine, 600)
    engine.claim(n=500)
    for _ in range(100):  # good for a moment
        engine.claim(n=1)
        engine.clock.advance(milliseconds=1)
    ((entries, counted),) = engine.rows(
        "select cardinality(at), (select sum(n) from unnest(count) n) from mainspring.bucket"
    )
    assert entries <= 3
    assert counted == 610


def test_a_backlog_behind_a_rate_asks_again_only_now_and_then(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.rate(task="t", most=10, per="1s"))
    fill(engine, 2500)
    for _ in range(12):
        engine.claim(n=500)
    engine.clock.advance(seconds=61)  # nobody looked for a while: all come back at once
    for _ in range(12):
        engine.claim(n=500)
    soon = "select count(*) from mainspring.waiting where due_at < mainspring.now() + '30 s'"
    assert 200 <= engine.rows(soon)[0][0] <= 700


def test_a_claim_that_only_puts_off_says_that_there_is_more(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.concurrency(task="t", most=1))
    fill(engine, 1)
    engine.claim()
    fill(engine, 2500)
    other = engine.enqueue("u").id
    with engine.conn.transaction():
        assert engine.claim(n=500, tasks=["t", "u"]) == []
        assert engine.value("next_due", [[QUEUE]]) == timedelta(0)
    assert [job.id for job in engine.claim(n=500, tasks=["t", "u"])] == [other]
    assert engine.value("next_due", [[QUEUE]]) > timedelta(0)


@pytest.mark.anyio
async def test_a_job_that_waited_for_a_thread_until_its_share_ended_goes_back(stage: Stage) -> None:
    tasks = ms.Registry("limits")
    entered: list[float] = []

    @tasks.task
    def work() -> None:
        entered.append(time.monotonic())

    brief = "returns interval language sql immutable return interval '200 ms'"
    stage.conn.execute(f"create or replace function mainspring.share_for() {brief}")
    await stage.client.limits.set(ms.rate(task=work.name, most=1, per="1s"))
    async with stage.work(tasks, threads=1) as worker:
        free_at = time.monotonic() + 0.5
        worker._parts.handlers.threads.submit(time.sleep, 0.5)
        job = await stage.enqueue(work.job())
        await stage.until(lambda: entered)
        await stage.result(job)
    assert worker.counts["late"] >= 1
    assert entered[0] >= free_at
    assert len(entered) == 1
    assert (await stage.job(job)).attempt == 1


# -- whoever gives back a place while another asks for one ----------------------------------------------------------


def test_who_leaves_calls_the_next_though_another_claim_is_just_refusing_it(
    engine: Engine, database: Database, client: ms.Client
) -> None:
    client.limits.set(ms.concurrency(task="t", most=1))
    fill(engine, 1)
    (first,) = engine.claim()
    fill(engine, 1)
    found: list[Any] = []

    def leave() -> None:
        with database.connect() as conn, conn.transaction():
            other = Engine(conn)
            other.complete("w1", first.epoch)
            found.extend(other.claim())

    leaving = threading.Thread(target=leave)
    with engine.conn.transaction():
        assert engine.claim("w2") == []
        leaving.start()
        leaving.join(0.3)
    leaving.join(10)
    assert len(found) == 1  # in the same turn, not when it would have asked again by itself


def test_who_is_refused_while_another_leaves_asks_again_at_once(
    engine: Engine, database: Database, client: ms.Client
) -> None:
    client.limits.set(ms.concurrency(task="t", most=1))
    fill(engine, 1)
    (first,) = engine.claim()
    fill(engine, 1)
    with database.connect() as conn:
        with conn.transaction():
            Engine(conn).complete("w1", first.epoch)
            assert engine.claim("w2") == []
        engine.clock.advance(milliseconds=10)
        assert len(engine.claim("w2")) == 1


def test_of_those_that_wait_for_a_place_only_the_first_comes_back_soon(engine: Engine, client: ms.Client) -> None:
    client.limits.set(ms.in_order(task="t"))
    fill(engine, 50, strand="s")
    (first,) = engine.claim()
    engine.clock.advance(seconds=2)
    assert engine.claim() == []
    due = "select count(*) from mainspring.waiting where due_at <= mainspring.now() + interval '30 s'"
    assert engine.rows(due) == [(1,)]
    engine.complete("w1", first.epoch)
    assert len(engine.claim()) == 1


@pytest.mark.anyio
async def test_the_end_of_a_job_that_holds_a_place_does_not_wait_for_company(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor for a poll: the turn that frees the place takes the next job."""
    tasks = ms.Registry("limits")
    ended, gate = list[int](), asyncio.Event()

    @tasks.task
    async def long() -> None:
        await gate.wait()

    @tasks.task
    async def step(*, n: int) -> None:
        ended.append(n)

    monkeypatch.setattr(exchange, "LATEST_FLUSH", 60.0)
    monkeypatch.setattr(pace, "SHORTEST_POLL", 60.0)
    await stage.client.limits.set(ms.concurrency(task=step.name, most=1))
    await stage.enqueue(long.job())
    await stage.enqueue_many([step.job(n=n) for n in range(20)])
    async with stage.work(tasks, poll_interval=timedelta(seconds=60)):
        await stage.until(lambda: len(ended) == 20)
        gate.set()
    assert sorted(ended) == list(range(20))


@pytest.mark.anyio
async def test_a_limit_that_async_jobs_fill_lets_in_plain_functions_in_their_turn(stage: Stage) -> None:
    tasks = ms.Registry("limits")
    ended = list[str]()

    @tasks.task(queue="q")
    async def quick(*, n: int) -> None:
        ended.append("async")

    @tasks.task(queue="q")
    def plain(*, n: int) -> None:
        ended.append("thread")

    await stage.client.limits.set(ms.concurrency("q", 1))
    await stage.enqueue_many([quick.job(n=n) for n in range(300)])
    await stage.enqueue_many([plain.job(n=n) for n in range(5)])
    async with stage.work(tasks):
        await stage.until(lambda: ended.count("thread") == 5)
    assert ended.count("async") < 200, "who came last is not served last because of its kind"


# -- whoever changes a limit ----------------------------------------------------------------------------------------


def test_changing_a_limit_and_claiming_never_wait_for_each_other_in_a_circle(
    engine: Engine, database: Database, client: ms.Client
) -> None:
    rule = ms.rate(task="t", most=100, per="1s", by="org")
    client.limits.set(rule)
    for org in "abba":
        engine.enqueue(org_id=org)
    engine.claim(n=2)
    failed: list[Exception] = []

    def change() -> None:
        try:
            client.limits.set(ms.rate(task="t", most=50, per="1s", by="org", name=rule.name))
        except Exception as error:
            failed.append(error)

    changing = threading.Thread(target=change)
    with engine.conn.transaction():
        (first,) = engine.claim(n=1)
        changing.start()
        changing.join(0.5)  # until it waits for this claim
        (second,) = engine.claim(n=1)
    changing.join(10)
    assert (first.org_id, second.org_id) == ("b", "a")
    assert failed == []


@pytest.mark.anyio
async def test_nothing_is_done_before_what_stands_behind_a_limited_backlog(stage: Stage) -> None:
    tasks = ms.Registry("limits")

    @tasks.task
    async def slow() -> None: ...

    @tasks.task
    async def quick() -> None: ...

    await stage.client.limits.set(ms.rate(task=slow.name, most=1, per="1h"))
    await stage.enqueue_many([slow.job() for _ in range(9000)])
    behind = await stage.enqueue(quick.job())
    await stage.drain(tasks)
    assert await stage.state(behind) == "succeeded"
