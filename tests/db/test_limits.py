"""What limits let a claim take, at the level of the engine's statements."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from itertools import pairwise
from typing import Any

from tests.db.engine import Engine

from mainspring.job import Claim

SECOND = timedelta(seconds=1)


def limit(engine: Engine, name: str = "l", **fields: Any) -> None:
    """A rule as the verbs write it."""
    fields = {"name": name, "set_by": "test"} | fields
    columns, values = ", ".join(fields), ", ".join(["%s"] * len(fields))
    insert = f"insert into mainspring.limit ({columns}, set_at) values ({values}, now()) returning 1"
    engine.rows(insert, *fields.values())


def fair(engine: Engine, weights: str = "{}") -> None:
    """Let organisations take turns."""
    columns = "queue, weights, set_at, set_by"
    engine.rows(f"insert into mainspring.fair ({columns}) values ('q:default', %s, now(), 't') returning 1", weights)


def many(engine: Engine, n: int, **fields: Any) -> None:
    engine.enqueue_many([fields] * n)


def test_a_rate_of_a_queue_lets_in_so_many_in_any_window_and_leaves_the_others_in_their_order(engine: Engine) -> None:
    limit(engine, queue="q:default", rate=5, per="1 s")
    many(engine, 12)
    start = engine.clock.set(engine.clock.now())
    order = [row[0] for row in engine.rows("select id from mainspring.waiting order by due_at, id")]
    entered: list[Claim] = []
    for _ in range(300):  # 3 s in steps of 10 ms
        found = engine.claim()
        entered += found
        engine.clock.advance(milliseconds=10)
    assert [claim.id for claim in entered] == order
    times = [claim.claimed_at - start for claim in entered]
    assert max(sum(1 for t in times if a <= t < a + SECOND) for a in times) == 5
    assert times[5] >= SECOND  # not before the window of the first five has passed
    assert times[-1] < timedelta(seconds=2.2)
    assert engine.rows("select gate from mainspring.waiting where gate is not null") == []


def test_without_a_limit_that_concerns_it_a_job_passes_no_gate(engine: Engine) -> None:
    limit(engine, task="other", rate=1, per="1 s")
    many(engine, 3)
    assert [claim.gates for claim in engine.claim()] == [None, None, None]


def test_a_rate_of_a_task_puts_off_what_it_does_not_let_in_to_when_it_may(engine: Engine) -> None:
    limit(engine, task="charge", rate=2, per="1 s")
    start = engine.clock.set(engine.clock.now())
    many(engine, 6, task="charge")
    many(engine, 2)
    tasks = ["t", "charge"]
    first = engine.claim(tasks=tasks)
    assert Counter(claim.task for claim in first) == {"charge": 2, "t": 2}
    due = [row[0] - start for row in engine.rows("select due_at from mainspring.waiting order by due_at")]
    assert due[0] > SECOND
    assert all(later - sooner == SECOND / 2 for sooner, later in pairwise(due))
    times = []
    while (left := engine.rows("select min(due_at) from mainspring.waiting")[0][0]) is not None:
        engine.clock.set(left)
        times += [claim.claimed_at - start for claim in engine.claim(tasks=tasks)]
    assert len(times) == 4
    assert times == sorted(times)
    assert times[-1] < timedelta(seconds=4)
    everything = [timedelta(0)] * 2 + times
    assert max(sum(1 for t in everything if a <= t < a + SECOND) for a in everything) <= 2


def test_a_rate_by_organisation_counts_each_by_itself(engine: Engine) -> None:
    limit(engine, task="t", by="org", rate=2, per="1 s")
    many(engine, 5, org_id="a")
    many(engine, 1, org_id="b")
    assert Counter(claim.org_id for claim in engine.claim()) == {"a": 2, "b": 1}
    assert engine.rows("select distinct gate from mainspring.waiting") == [("l/a",)]


def test_a_job_of_a_higher_priority_is_not_put_off_behind_the_backlog_of_a_lower_one(engine: Engine) -> None:
    limit(engine, task="t", rate=1, per="1 s")
    many(engine, 30)
    assert len(engine.claim()) == 1
    urgent = engine.enqueue(priority=0)
    engine.claim()
    times = dict(engine.rows("select id, due_at - mainspring.now() from mainspring.waiting"))
    assert times.pop(urgent.id) < 2 * SECOND
    assert max(times.values()) > 20 * SECOND


def test_concurrency_is_never_above_its_limit_and_a_freed_slot_lets_the_next_in(engine: Engine) -> None:
    limit(engine, task="t", by="org", concurrency=2)
    many(engine, 5, org_id="a")
    many(engine, 1, org_id="b")
    first = engine.claim()
    assert Counter(claim.org_id for claim in first) == {"a": 2, "b": 1}
    assert engine.claim() == []
    mine = [claim for claim in first if claim.org_id == "a"]
    engine.complete("w1", mine[0].epoch)
    (third,) = engine.claim()
    assert third.org_id == "a"
    engine.end(mine[1], "fail", delay="PT0S")
    assert len(engine.claim()) == 1
    assert engine.rows("select count(*) from mainspring.running where org_id = 'a'") == [(2,)]


def test_a_dead_workers_slots_return_with_the_rescue(engine: Engine) -> None:
    limit(engine, queue="q:default", concurrency=1)
    many(engine, 2)
    engine.claim("gone")
    assert engine.claim() == []
    engine.clock.advance(seconds=61)
    engine.rescue()
    assert len(engine.claim(rescued=False)) == 1
    assert engine.claim() == []


def test_what_waits_for_a_slot_asks_again_though_nobody_told_it(engine: Engine) -> None:
    limit(engine, task="t", concurrency=1)
    many(engine, 2)
    (claim,) = engine.claim()
    engine.claim()
    engine.rows("delete from mainspring.slot returning 1")  # as a race would: freed, and nobody noticed
    assert engine.claim() == []
    engine.clock.advance(seconds=1)
    assert len(engine.claim()) == 1
    assert claim.gates == "[]"


def test_a_strand_in_order_goes_on_when_the_job_before_has_finished_not_when_it_has_failed_once(engine: Engine) -> None:
    limit(engine, task="t", by="strand", concurrency=1, in_order=True)
    ids = [engine.enqueue(strand="booking:1").id for _ in range(3)]
    other = engine.enqueue(strand="booking:2").id
    first = {claim.id: claim for claim in engine.claim()}
    assert set(first) == {ids[0], other}
    engine.end(first[ids[0]], "fail", delay="PT30S")
    engine.clock.advance(seconds=10)
    assert engine.claim() == []
    engine.clock.advance(seconds=20)
    (again,) = engine.claim()
    assert again.id == ids[0]
    engine.complete("w1", again.epoch)
    (second,) = engine.claim()
    assert second.id == ids[1]
    engine.end(second, "reject")
    (third,) = engine.claim()
    assert third.id == ids[2]


def test_a_strand_in_order_goes_on_when_the_job_before_is_cancelled_between_attempts(engine: Engine) -> None:
    limit(engine, task="t", by="strand", concurrency=1, in_order=True)
    ids = [engine.enqueue(strand="s").id for _ in range(2)]
    (first,) = engine.claim()
    engine.end(first, "fail", delay="PT1H")
    engine.rows("select mainspring.cancel(%s, null, 'system', 'x', null)", ids[0])
    (second,) = engine.claim()
    assert second.id == ids[1]


def test_a_job_passes_all_the_gates_that_concern_it_or_none(engine: Engine) -> None:
    limit(engine, "rate", task="t", rate=3, per="1 s")
    limit(engine, "slots", task="t", by="strand", concurrency=1)
    for strand in "aaab":
        engine.enqueue(strand=strand)
    first = engine.claim()
    assert sorted(claim.strand or "" for claim in first) in (["a"], ["a", "b"])
    assert engine.rows("select coalesce(sum(n), 0) from mainspring.bucket, unnest(count) n") == [(len(first),)]
    assert engine.rows("select count(*) from mainspring.slot") == [(len(first),)]


def test_a_fair_queue_gives_each_organisation_its_turn(engine: Engine) -> None:
    fair(engine)
    many(engine, 300, org_id="flood")
    many(engine, 10, org_id="small")
    engine.clock.advance(seconds=1)
    assert Counter(claim.org_id for claim in engine.claim(n=20)) == {"flood": 10, "small": 10}
    assert Counter(claim.org_id for claim in engine.claim(n=20)) == {"flood": 20}


def test_a_fair_queue_gives_more_to_those_who_weigh_more(engine: Engine) -> None:
    fair(engine, '{"a": 3}')
    many(engine, 100, org_id="a")
    many(engine, 100, org_id="b")
    assert Counter(claim.org_id for claim in engine.claim(n=20)) == {"a": 15, "b": 5}


def test_a_fair_queue_reaches_every_one_of_many_organisations(engine: Engine) -> None:
    fair(engine)
    for org in range(250):
        many(engine, 2, org_id=f"org-{org:03}")
    seen: set[str] = set()
    for _ in range(3):
        seen |= {claim.org_id for claim in engine.claim(n=100)}
    assert len(seen) == 250


def test_a_clock_that_is_set_back_does_not_close_a_rate_for_long(engine: Engine) -> None:
    limit(engine, queue="q:default", rate=1, per="1 s")
    many(engine, 3)
    assert len(engine.claim()) == 1
    engine.clock.advance(hours=-1)
    engine.rows("update mainspring.waiting set due_at = mainspring.now() returning 1")
    assert engine.claim() == []
    engine.clock.advance(seconds=1.1)
    assert len(engine.claim()) == 1
