"""Two transactions that cannot see each other: nothing is missed, nothing happens twice, nobody waits."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from tests.databases import Database
from tests.db.engine import Engine
from tests.together.stage import batch, encode, enqueue_batch, enqueue_flow, job, sweep

from mainspring.job import Claim


@contextmanager
def engines(database: Database, count: int) -> Iterator[list[Engine]]:
    """Connections whose statements fail rather than wait for a lock."""
    conns = [database.connect() for _ in range(count)]
    try:
        for conn in conns:
            conn.execute("set lock_timeout = '2s'")
        yield [Engine(conn) for conn in conns]
    finally:
        for conn in conns:
            conn.close()


def claimed(engine: Engine, task: str = "t") -> list[Claim]:
    return engine.claim(tasks=[task])


def test_two_last_members_that_end_at_once_finish_their_batch_once(database: Database) -> None:
    with engines(database, 2) as (one, other):
        id_ = enqueue_batch(one, [job(), job()])
        first, second = claimed(one)
        with one.conn.transaction():
            one.complete("w1", first.epoch)
            with other.conn.transaction():
                other.complete("w1", second.epoch)  # does not wait for the batch, which is locked
        assert batch(one, id_)["state"] == "running"  # neither has seen the other
        assert claimed(one, "tell") == []
        sweep(one)
        sweep(other)
        assert batch(one, id_)["state"] == "finished"
        assert len(claimed(one, "tell")) == 1
        assert len(one.rows("select from mainspring.audit where event = 'batch.finished'")) == 1
        assert one.rows("select from mainspring.leftover") == []


def test_two_last_parents_that_end_at_once_release_their_child_once(database: Database) -> None:
    with engines(database, 2) as (one, other):
        *_, child = enqueue_flow(one, [job(), job(), job()], [{"child": 2, "parents": [0, 1]}])
        first, second = claimed(one)
        with one.conn.transaction():
            one.complete("w1", first.epoch)
            with other.conn.transaction():
                other.complete("w1", second.epoch)
        assert claimed(one) == []
        sweep(other)
        assert [claim.id for claim in claimed(one)] == [child]


def test_one_after_the_other_needs_no_sweep(database: Database) -> None:
    with engines(database, 2) as (one, other):
        id_ = enqueue_batch(one, [job(), job()])
        *_, child = enqueue_flow(one, [job("u"), job("u"), job("u")], [{"child": 2, "parents": [0, 1]}])
        for task in ("t", "u"):
            first, second = claimed(one, task)
            one.complete("w1", first.epoch)
            other.complete("w1", second.epoch)
        assert (batch(one, id_)["state"], one.state(child)) == ("finished", "ready")


def test_a_worker_does_not_wait_for_somebody_who_adds_to_the_batch(database: Database) -> None:
    with engines(database, 2) as (one, other):
        id_ = enqueue_batch(one, [job()])
        (member,) = claimed(one)
        with other.conn.transaction():
            about = {"id": id_, "org_id": "default"}
            other.ask("enqueue_batch", {"batch": encode(about), "jobs": encode([job()])})
            assert one.complete("w1", member.epoch) == [member.epoch]
        sweep(one)
        assert batch(one, id_)["state"] == "running"  # it has one more
        (added,) = claimed(one)
        one.complete("w1", added.epoch)
        assert batch(one, id_)["state"] == "finished"


def test_a_worker_does_not_wait_for_somebody_who_holds_the_child(database: Database) -> None:
    with engines(database, 2) as (one, other):
        _, child = enqueue_flow(one, [job(), job()], [{"child": 1, "parents": [0]}])
        (parent,) = claimed(one)
        with other.conn.transaction():
            other.prioritize(child, 0)
            one.complete("w1", parent.epoch)
            assert one.state(child) == "scheduled"
        sweep(one)
        assert one.state(child) == "ready"


def test_a_parent_that_ends_while_its_child_is_being_enqueued_is_seen(database: Database) -> None:
    with engines(database, 2) as (one, other):
        key = {"key": "k", "mode": "keep"}
        parent = one.started(**key)
        with other.conn.transaction():
            _, child = enqueue_flow(other, [job(**key), job()], [{"child": 1, "parents": [0]}])
            one.complete("w1", parent.epoch)
        assert one.state(child) == "scheduled"
        sweep(one)
        assert one.state(child) == "ready"


def test_a_parent_that_waits_cannot_start_while_its_child_is_being_enqueued(database: Database) -> None:
    with engines(database, 2) as (one, other):
        key = {"key": "k", "mode": "keep"}
        one.enqueue(**key)
        with other.conn.transaction():
            _, child = enqueue_flow(other, [job(**key), job()], [{"child": 1, "parents": [0]}])
            assert claimed(one) == []
        (parent,) = claimed(one)
        one.complete("w1", parent.epoch)
        assert one.state(child) == "ready"


def test_a_member_that_is_replayed_while_its_batch_finishes_is_waited_for(database: Database) -> None:
    with engines(database, 2) as (one, other):
        id_ = enqueue_batch(one, [job(), job()])
        bad, last = claimed(one)
        one.end(bad, "reject")
        done = threading.Event()

        def replay() -> None:
            other.replay(bad.id)
            done.set()

        thread = threading.Thread(target=replay)
        with one.conn.transaction():
            one.complete("w1", last.epoch)  # the batch finishes
            thread.start()
            assert not done.wait(0.2)
        thread.join()
        assert batch(one, id_)["state"] == "running"
        assert claimed(one, "tell") == []
        (again,) = claimed(one)
        one.complete("w1", again.epoch)
        assert len(claimed(one, "tell")) == 1


def test_many_workers_that_end_members_at_once_neither_miss_nor_repeat_an_end(database: Database) -> None:
    with engines(database, 4) as workers:
        ids = [enqueue_batch(workers[0], [job() for _ in range(8)]) for _ in range(12)]
        jobs, links = (
            [job() for _ in range(48)],
            [{"child": 40 + n, "parents": list(range(5 * n, 5 * n + 5))} for n in range(8)],
        )
        children = enqueue_flow(workers[0], jobs, links)[40:]
        start = threading.Barrier(len(workers))
        failures: list[BaseException] = []

        def work(engine: Engine, name: str) -> None:
            start.wait()
            try:
                while found := engine.claim(name, 5):
                    engine.complete(name, *(claim.epoch for claim in found))
            except BaseException as error:
                failures.append(error)

        threads = [threading.Thread(target=work, args=(engine, f"w{n}")) for n, engine in enumerate(workers)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert failures == []
        for _ in range(3):
            sweep(workers[0])
            work_left = claimed(workers[0])
            workers[0].complete("w1", *(claim.epoch for claim in work_left))
        assert {batch(workers[0], id_)["state"] for id_ in ids} == {"finished"}
        assert {workers[0].state(child) for child in children} == {"succeeded"}
        assert len(claimed(workers[0], "tell")) == len(ids)
        assert len(workers[0].rows("select from mainspring.audit where event = 'batch.finished'")) == len(ids)
