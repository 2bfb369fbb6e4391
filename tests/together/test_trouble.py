"""Batches and flows where several things come together: keys, decisions, sweeps, clean-up."""

from __future__ import annotations

import threading
from datetime import timedelta
from typing import Any
from uuid import UUID

from tests.databases import Database
from tests.db.engine import Engine
from tests.together.stage import batch, encode, enqueue_batch, enqueue_flow, job, sweep
from tests.together.test_races import claimed, engines

KEY = {"key": "k", "mode": "keep"}


def behind(engine: Engine) -> tuple[Any, UUID, UUID]:
    """A child that waits for a parent, and behind a running job of its key: that job, the parent and the child."""
    latest = {"key": "k", "mode": "replace"}
    runs = engine.started(**latest)
    parent, child = enqueue_flow(engine, [job(), job(**latest)], [{"child": 1, "parents": [0]}])
    assert engine.rows("select after, gate from mainspring.waiting where id = %s", child) == [(runs.id, "parents")]
    return runs, parent, child


def test_a_child_behind_another_of_its_key_is_not_forgotten_when_its_parent_is_given_up(database: Database) -> None:
    with engines(database, 1) as (engine,):
        runs, parent, child = behind(engine)
        engine.cancel(parent)
        engine.complete("w1", runs.epoch)
        sweep(engine)
        assert engine.state(child) == "cancelled"
        assert engine.rows("select from mainspring.leftover") == []


def test_a_sweep_neither_waits_for_a_replay_nor_undoes_it(database: Database) -> None:
    with engines(database, 2) as (one, other):
        parent = one.started(**KEY)
        _, child = enqueue_flow(one, [job(**KEY), job()], [{"child": 1, "parents": [0]}])
        id_ = enqueue_batch(one, [job(**KEY)])
        one.end(parent, "reject")  # nobody has told those who wait so far
        with other.conn.transaction():
            other.replay(parent.id)
            sweep(one)
        sweep(one)
        assert one.rows("select state from mainspring.member where batch_id = %s", id_) == [(None,)]
        (again,) = claimed(one)
        one.complete("w1", again.epoch)
        assert (one.state(child), batch(one, id_)["state"]) == ("ready", "finished")


def test_members_of_two_batches_are_replayed_at_once(database: Database) -> None:
    with engines(database, 3) as (one, other, third):
        first, second = [{"key": key, "mode": "keep"} for key in ("a", "b")]
        x, y = (enqueue_batch(one, [], open=True) for _ in range(2))
        for id_, some in ((x, first), (y, first), (y, second), (x, second)):
            about = {"id": id_, "org_id": "default"}
            one.ask("enqueue_batch", {"batch": encode(about), "jobs": encode([job(**some)])})
        for claim in claimed(one):
            one.end(claim, "reject")
        ids = [row[0] for row in one.rows("select id from mainspring.finished order by id")]
        failures: list[BaseException] = []

        def replay(engine: Engine, id_: UUID) -> None:
            try:
                engine.replay(id_)
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=replay, args=pair) for pair in zip((other, third), ids, strict=True)]
        with one.conn.transaction():
            one.rows("select from mainspring.batch where id = %s for update", x)
            for thread in threads:
                thread.start()
                thread.join(0.3)
        for thread in threads:
            thread.join()
        assert failures == []
        assert one.rows("select count(*) from mainspring.member where state is null") == [(4,)]


def test_a_batch_that_is_held_for_long_leaves_one_leftover(database: Database) -> None:
    with engines(database, 2) as (one, other):
        id_ = enqueue_batch(one, [job() for _ in range(20)])
        with other.conn.transaction():
            other.rows("select from mainspring.batch where id = %s for update", id_)
            for claim in claimed(one):
                one.complete("w1", claim.epoch)
            sweep(one)
            assert one.rows("select count(*) from mainspring.leftover") == [(1,)]
        sweep(one)
        assert batch(one, id_)["state"] == "finished"


def test_a_parent_whose_child_has_not_started_is_not_pruned(database: Database) -> None:
    with engines(database, 1) as (engine,):
        links = [{"child": 2, "parents": [0, 1]}]
        first, second, child = enqueue_flow(engine, [job(), job("u"), job("v")], links)
        (claim,) = claimed(engine)
        engine.complete("w1", claim.epoch)
        engine.clock.set(engine.clock.now() + timedelta(days=400))
        assert engine.prune(age="1 day") == 0  # the child will ask for its result
        (claim,) = claimed(engine, "u")
        engine.complete("w1", claim.epoch)
        (claim,) = claimed(engine, "v")
        engine.complete("w1", claim.epoch)
        engine.clock.set(engine.clock.now() + timedelta(days=2))
        assert engine.prune(age="1 day") == 3
        assert engine.rows("select from mainspring.dependency") == []
        assert {engine.state(id_) for id_ in (first, second, child)} == {None}


def test_a_keyed_job_is_added_to_its_batch_while_it_is_replayed(database: Database) -> None:
    with engines(database, 3) as (one, adds, replays):
        id_ = enqueue_batch(one, [job(**KEY)], open=True)
        (bad,) = claimed(one)
        one.end(bad, "reject")
        failures: list[BaseException] = []

        def add() -> None:
            adds.ask("enqueue_batch", {"batch": encode({"id": id_, "org_id": "default"}), "jobs": encode([job(**KEY)])})

        def attempt(act: Any) -> None:
            try:
                act()
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=attempt, args=[act]) for act in (lambda: replays.replay(bad.id), add)]
        with one.conn.transaction():  # so that the replay has the key, and not yet the batch
            one.rows("select id from mainspring.finished where id = %s for update", bad.id)
            for thread in threads:
                thread.start()
                thread.join(0.3)
        for thread in threads:
            thread.join()
        assert failures == []
        assert batch(one, id_)["waiting"] == 1


def test_a_job_that_is_reset_beside_itself_is_a_member_that_has_not_ended(database: Database) -> None:
    with engines(database, 1) as (engine,):
        bad = engine.started(**KEY)
        engine.end(bad, "bury")
        id_ = enqueue_batch(engine, [job(**KEY), job(key="k", mode="reset_failed")])
        assert (batch(engine, id_)["state"], batch(engine, id_)["waiting"]) == ("running", 1)


def test_workers_whose_failures_stop_each_others_batches_do_not_wait_for_each_other(database: Database) -> None:
    with engines(database, 2) as (one, other):
        x, y = (enqueue_batch(one, [job(), job()], on_failure="stop") for _ in range(2))
        bad, last, worse, beside = claimed(one)  # two of each
        with one.conn.transaction():
            one.end(bad, "reject")
            with other.conn.transaction():
                other.end(worse, "reject")
                other.complete("w1", last.epoch)
        sweep(one)
        assert batch(one, x)["state"] == "finished"
        asked = one.rows("select id, cancel_requested_at is not null from mainspring.running")
        assert asked == [(beside.id, True)]
        one.end(beside, "stop")
        assert batch(one, y)["state"] == "finished"
