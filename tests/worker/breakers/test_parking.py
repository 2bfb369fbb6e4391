"""Waiting behind an open breaker: no due time, no cost, and nobody is left behind when it closes."""

from __future__ import annotations

import json
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.databases import Database
from tests.db.engine import Engine
from tests.worker.breakers.conftest import PAUSE, Breaker, Dependency

import mainspring as ms
from mainspring.db.gauges import gauges
from mainspring.db.wire.run import psycopg_door, run
from mainspring.testing import Harness

STATE = "select state, due_at, gate from mainspring.jobs where id = %s"


@pytest.fixture
def opened(stripe: Breaker) -> Breaker:
    """The breaker of stripe, open for a minute."""
    stripe.report(0, 0, 0)
    return stripe


def half_open(stripe: Breaker) -> Breaker:
    stripe.clock.advance(seconds=60)
    return stripe


def reopen(stripe: Breaker) -> None:
    """Let one go to try, and fail."""
    half_open(stripe)
    assert stripe.release() == 1
    (claim,) = stripe.engine.claim()
    assert stripe.probe(claim.epoch) == ("probe", 0)
    stripe.engine.settle("w1", {"epoch": claim.epoch, "verb": "defer", "started": True, "gate": "breaker:stripe"})
    assert stripe.report(0, probe=claim.epoch) == ["opened"]


@pytest.mark.rule("STAFF-16.02", "STAFF-16.03")
def test_a_job_that_is_stopped_is_written_once_however_often_the_breaker_opens_again(opened: Breaker) -> None:
    opened.park(10)
    rows = "select id, ctid::text, xmin::text from mainspring.waiting where gate is not null"
    before = set(opened.engine.rows(rows))
    for _ in range(3):
        reopen(opened)
        assert opened.release() == 0

    assert len(before) == 10
    assert len(before & set(opened.engine.rows(rows))) == 7  # three were probes, each another job


@pytest.mark.rule("STAFF-16.02")
def test_when_the_pause_is_over_one_is_let_go_to_try_and_no_other(opened: Breaker) -> None:
    first, *_ = opened.park(5)
    assert opened.release() == 0
    half_open(opened)

    assert [opened.release(), opened.release(), opened.release("breaker:stripe")] == [1, 0, 0]
    (claim,) = opened.engine.claim()
    assert (claim.id, opened.probe(claim.epoch)[0]) == (first, "probe")
    opened.clock.advance(seconds=50)
    assert opened.release() == 0  # it runs under its lease
    assert len(opened.waiting()) == 4


def test_as_many_are_let_go_as_there_may_be_probes(engine: Engine) -> None:
    stripe = Breaker(engine, probes=3)
    stripe.report(0, 0, 0)
    stripe.park(5)
    half_open(stripe)

    assert stripe.release() == 3
    assert len(stripe.waiting()) == 2


def test_a_probe_that_dies_with_its_worker_is_followed_by_another_when_its_lease_ends(opened: Breaker) -> None:
    opened.park(3)
    half_open(opened)
    opened.release()
    (killed,) = opened.engine.claim(lease=timedelta(seconds=30))
    opened.probe(killed.epoch)
    opened.clock.advance(seconds=29)
    assert opened.release() == 0
    opened.clock.advance(seconds=1)

    assert opened.release() == 1
    (other,) = opened.engine.claim(rescued=False)
    assert (other.id != killed.id, opened.probe(other.epoch)[0]) == (True, "probe")


def test_who_has_waited_longest_tries_first_whatever_its_priority(opened: Breaker) -> None:
    (old,) = opened.park(priority=3)
    opened.clock.advance(seconds=1)
    opened.park(priority=0)
    half_open(opened)
    opened.release()

    assert [claim.id for claim in opened.engine.claim()] == [old]


def test_where_nobody_asks_who_was_let_go_twice_as_many_are(opened: Breaker) -> None:
    opened.park(300)
    half_open(opened)
    counts = []
    for _ in range(10):
        counts.append(opened.release())
        opened.clock.advance(seconds=2, milliseconds=1)
    assert counts == [1, 2, 4, 8, 16, 32, 64, 100, 73, 0]


def test_who_tries_is_one_that_can_run_here(opened: Breaker) -> None:
    opened.park(queue="q:other")
    opened.park(task="unknown")
    opened.park(queue="q:paused")
    opened.conn.execute("select mainspring.pause('q:paused', 'user', 'ada', 'later')")
    half_open(opened)
    assert opened.release(queues=["q:default", "q:paused"]) == 0

    opened.park()
    assert opened.release(queues=["q:default", "q:paused"]) == 1
    assert len(opened.waiting()) == 3


def test_nobody_works_when_the_pause_ends_and_who_comes_later_tries(opened: Breaker) -> None:
    opened.park(2)
    opened.clock.advance(days=3)

    assert opened.release() == 1


def test_when_it_closes_all_go_in_bounded_portions(opened: Breaker) -> None:
    opened.park(25)
    half_open(opened)
    opened.release()
    (claim,) = opened.engine.claim()
    opened.probe(claim.epoch)
    assert opened.report(probe=claim.epoch, succeeded=1) == ["closed"]

    assert [opened.release("breaker:stripe", limit=10) for _ in range(4)] == [10, 10, 4, 0]
    assert len(opened.engine.claim()) == 24


def test_a_breaker_that_is_forgotten_leaves_nobody_behind(stripe: Breaker) -> None:
    for org in ("acme", "zeta"):
        stripe.report(0, 0, 0, org_id=org, key="7")
        stripe.park(2, "breaker:stripe:7", org_id=org)
    assert set(stripe.waiting().values()) == {"breaker:stripe:7@acme", "breaker:stripe:7@zeta"}
    stripe.clock.advance(hours=2)
    assert stripe.one("select mainspring.forget_breakers(100)") == 2

    assert stripe.release() == 4
    assert len(stripe.engine.claim()) == 4


def test_a_key_is_its_organisations_and_opens_for_it_alone(stripe: Breaker) -> None:
    for org in ("acme", "zeta", "a:b@c"):
        stripe.report(0, 0, 0, org_id=org, key="x:7@y")
        stripe.park(2, "breaker:stripe:x:7@y", org_id=org)
    stripe.conn.execute("select mainspring.close_breaker('stripe', 'user', 'ada', 'why', 'x:7@y', 'a:b@c')")

    assert stripe.release() == 2
    assert {claim.org_id for claim in stripe.engine.claim()} == {"a:b@c"}
    half_open(stripe)
    assert stripe.release() == 2  # one of each of the others


def test_of_several_that_are_stopped_together_each_waits_for_the_key_of_its_own_organisation(stripe: Breaker) -> None:
    stripe.report(0, 0, 0, org_id="acme", key="7")
    stripe.engine.enqueue_many([{"org_id": org} for org in ("acme", "zeta", "acme", "zeta")])
    claims = stripe.engine.claim()
    moves = [{"epoch": claim.epoch, "verb": "defer", "gate": "breaker:stripe:7"} for claim in claims]
    assert len(stripe.engine.settle("w1", *moves)) == 4

    assert stripe.waiting() == {claim.id: "breaker:stripe:7@acme" for claim in claims if claim.org_id == "acme"}


def test_one_sweep_of_many_gates_lets_no_more_go_than_it_was_asked_for(stripe: Breaker) -> None:
    for key in "abcd":
        stripe.report(0, 0, 0, org_id="acme", key=key)
        stripe.park(10, f"breaker:stripe:{key}", org_id="acme")
    stripe.clock.advance(hours=2)
    assert stripe.one("select mainspring.forget_breakers(100)") == 4

    assert [stripe.release(limit=20) for _ in range(3)] == [20, 20, 0]


def test_of_a_name_that_begins_like_another_nobody_is_let_go(stripe: Breaker) -> None:
    stripe.declare(name="stripe-eu", failures=3)
    for name in ("stripe", "stripe-eu"):
        stripe.conn.execute("select mainspring.open_breaker(%s, 'user', 'ada', 'a drill')", [name])
        stripe.park(2, f"breaker:{name}")
    stripe.conn.execute("select mainspring.auto_breaker('stripe', 'user', 'ada', 'it is over')")

    assert stripe.release() == 2
    assert set(stripe.waiting().values()) == {"breaker:stripe-eu"}


def test_who_is_due_behind_one_that_was_stopped_is_parked_without_being_claimed(opened: Breaker) -> None:
    opened.engine.enqueue_many([{}] * 5 + [{"task": "other"}] * 2 + [{"queue": "q:other"}, {"delay": "1 h"}])
    park = "select mainspring.park_due('stripe', array['q:default'], array['t'], 3)"

    assert [opened.one(park) for _ in range(3)] == [3, 2, 0]
    assert set(opened.waiting().values()) == {"breaker:stripe"}
    assert [claim.task for claim in opened.engine.claim(tasks=["t", "other"])] == ["other", "other"]
    half_open(opened)
    opened.release()
    assert opened.one(park) == 0  # the one that was let go may try
    assert len(opened.engine.claim()) == 1


def test_who_waited_comes_back_in_the_order_of_its_strand(opened: Breaker, database: Database) -> None:
    with ms.Client(database.dsn) as client:
        client.limits.set(ms.in_order(task="t"))
    second = opened.engine.enqueue(strand="s", delay="2 s").id
    first = opened.engine.enqueue(strand="s", delay="1 s", priority=3).id
    opened.clock.advance(seconds=5)
    assert opened.one("select mainspring.park_due('stripe', array['q:default'], array['t'], 100)") == 2
    opened.conn.execute("select mainspring.close_breaker('stripe', 'user', 'ada', 'it answers')")
    assert [opened.release(limit=1), opened.release(limit=1)] == [1, 1]

    (claim,) = opened.engine.claim()
    opened.engine.end(claim, "complete")
    assert [claim.id, *(claim.id for claim in opened.engine.claim())] == [first, second]


# -- at the moment of a change ---------------------------------------------------------------------------------------


def test_who_is_being_parked_while_it_closes_is_seen_by_who_lets_go(database: Database, opened: Breaker) -> None:
    with database.connect() as other:
        other.execute("set lock_timeout = '100 ms'")
        close = "select mainspring.close_breaker('stripe', 'user', 'ada', 'it answers')"
        with opened.conn.transaction():
            opened.park()
            with pytest.raises(psycopg.errors.LockNotAvailable):  # it waits until the outcome is written
                other.execute(close)
        other.execute(close)

    assert opened.release() == 1
    assert opened.waiting() == {}


def test_who_is_stopped_while_somebody_closes_it_neither_waits_for_them_nor_is_parked(
    database: Database, opened: Breaker
) -> None:
    with database.connect() as other:
        opened.conn.execute("set lock_timeout = '100 ms'")
        with other.transaction():
            other.execute("select mainspring.close_breaker('stripe', 'user', 'ada', 'it answers')")
            opened.park()
    assert opened.waiting() == {}
    opened.clock.advance(milliseconds=250)
    assert len(opened.engine.claim()) == 1


def test_who_was_stopped_by_what_is_closed_by_now_comes_back_soon(stripe: Breaker) -> None:
    stripe.park()

    assert stripe.waiting() == {}
    stripe.clock.advance(milliseconds=250)
    assert len(stripe.engine.claim()) == 1


# -- what people do --------------------------------------------------------------------------------------------------


def test_a_person_holds_it_open_and_lets_it_go(stripe: Breaker) -> None:
    def force(verb: str) -> None:
        stripe.conn.execute(f"select mainspring.{verb}_breaker('stripe', 'user', 'ada', 'why')".encode())

    force("open")
    stripe.park(3)
    stripe.clock.advance(days=1)
    assert stripe.release() == 0
    force("auto")  # it was never open but for that
    assert stripe.release() == 3

    stripe.report(0, 0, 0)
    stripe.park(3)
    force("open")
    half_open(stripe)
    assert stripe.release() == 0
    force("auto")
    assert stripe.release() == 1
    force("close")
    assert stripe.release() == 2


def test_a_job_that_waits_for_a_breaker_can_be_cancelled_rescheduled_and_replaced(opened: Breaker) -> None:
    who = "'user', 'ada', 'why'"
    gone, moved = opened.park(2)
    (changed,) = opened.park(key="k", mode="replace")
    assert opened.one(f"select mainspring.cancel('{gone}', null, {who})") == "cancelled"
    assert opened.one(f"select mainspring.reschedule('{moved}', null, mainspring.now(), {who})") == "ready"
    again = opened.engine.enqueue(key="k", mode="replace", payload={"n": 2})
    assert (again.id, opened.waiting()) == (changed, {})

    claims = opened.engine.claim()
    assert {claim.id for claim in claims} == {moved, changed}
    assert {claim.payload for claim in claims} == {"{}", '{"n": 2}'}
    for claim in claims:  # the breaker looks at them again
        opened.engine.settle("w1", {"epoch": claim.epoch, "verb": "defer", "gate": "breaker:stripe", "delay": "60 s"})
    assert set(opened.waiting()) == {moved, changed}


def test_who_waits_is_seen_by_its_state_and_in_the_age_of_its_queue(opened: Breaker) -> None:
    due = opened.clock.now()
    (job,) = opened.park()
    opened.clock.advance(seconds=30)

    assert opened.engine.rows(STATE, job) == [("scheduled", due, "breaker:stripe")]
    found = run(psycopg_door(opened.conn), gauges(opened.engine.sql))
    (lane,) = [lane for lane in found.lanes if lane.name == "q:default"]
    assert (lane.ready, lane.later) == (0, 1)
    assert lane.oldest_s == pytest.approx(30)
    assert [(fuse.name, fuse.waiting) for fuse in found.breakers] == [("stripe", 1)]
    ages = [json.loads(row[0])["oldest_age_s"] for row in opened.engine.ask("list_queues", {"org": None})]
    assert [age for age in ages if age is not None] == [pytest.approx(30)]


def test_who_is_stopped_has_waited_since_it_was_due_and_not_since_it_was_claimed(opened: Breaker) -> None:
    due, job = opened.clock.now(), opened.engine.enqueue().id
    opened.clock.advance(seconds=30)
    (claim,) = opened.engine.claim()
    opened.engine.settle("w1", {"epoch": claim.epoch, "verb": "defer", "gate": "breaker:stripe"})

    assert opened.engine.rows(STATE, job) == [("scheduled", due, "breaker:stripe")]


def test_who_waits_fills_its_queue_for_jobs_that_may_be_refused(opened: Breaker) -> None:
    opened.park(2)
    opened.conn.execute("update mainspring.queue set max_depth = 2 where name = 'q:default'")

    with pytest.raises(psycopg.Error, match="is full"):
        opened.engine.enqueue(best_effort=True)


# -- what it costs ---------------------------------------------------------------------------------------------------

COUNT = """
create sequence changes;
create function changed() returns trigger language plpgsql as $$ begin perform nextval('changes'); return null; end $$;
create trigger changed after insert or update or delete on mainspring.waiting for each row execute function changed();
create trigger changed after insert or update or delete on mainspring.running for each row execute function changed();
create trigger changed after insert or update or delete on mainspring.breaker for each row execute function changed();
create trigger changed after insert on mainspring.audit for each row execute function changed();
"""


@pytest.mark.parametrize("waiting", [200, 2000])
def test_what_waiting_costs_does_not_depend_on_how_many_wait(
    mainspring: Harness, tasks: ms.Registry, dependency: Dependency, waiting: int
) -> None:
    @tasks.task(needs=("stripe",), retry=ms.fixed(1, attempts=8))
    async def charge() -> None:
        dependency.call()

    dependency.up = False
    conn: Any = mainspring.conn
    for job in mainspring.client.enqueue_many([charge.job() for _ in range(5)]):
        mainspring.run_one(job, raise_errors=False)
        mainspring.client.cancel(job.id)  # what it would try again
    mainspring.client.enqueue_many([charge.job() for _ in range(waiting)])
    parked = "gate = 'breaker:stripe', due_then = due_at, due_at = 'infinity'"
    conn.execute(f"update mainspring.waiting set {parked} where gate is null")
    conn.execute(COUNT)

    mainspring.advance(10 * PAUSE, raise_errors=False)

    assert len(dependency.taken()) == 5 + 10
    changes = conn.execute("select last_value from changes").fetchone()[0]
    assert changes == 10 * (1 + 4 + 1 + 3)  # let go; claimed and given back; on the trail; called, asked and opened
