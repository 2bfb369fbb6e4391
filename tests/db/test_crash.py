"""Whose crash it was: shared, own, none; who runs alone, and which tasks are held back."""

from __future__ import annotations

from datetime import timedelta
from uuid import UUID

import pytest
from tests.db.engine import LEASE, Engine


def crash(engine: Engine, *workers: str) -> None:
    """Let each of these workers claim one job and die."""
    for worker in workers:
        assert engine.claim(worker, 1), worker
    engine.clock.advance(LEASE)
    engine.rescue()


def tickets(engine: Engine) -> list[tuple[int, int]]:
    return engine.rows("select attempt, crashes from mainspring.waiting order by id")


@pytest.mark.rule("ENG-3.08")
def test_a_crash_that_several_shared_gives_the_attempt_back(engine: Engine) -> None:
    engine.enqueue_many([{"max_attempts": 2}] * 3)
    engine.claim("w1", 2)
    engine.claim("w2", 1)
    engine.clock.advance(LEASE)
    engine.rescue()

    assert sorted(tickets(engine)) == [(0, 1), (0, 1), (1, 1)], "w2 held one job: that crash is its own"
    said = engine.rows("select worker, error ->> 'shared' from mainspring.attempt order by 1")
    assert said == [("w1", "true"), ("w1", "true"), ("w2", "false")]


def test_neighbours_whose_leases_end_apart_share_a_crash(engine: Engine) -> None:
    engine.enqueue_many([{}] * 2)
    engine.claim("w1", 1)
    engine.clock.advance(seconds=30)
    engine.claim("w1", 1)
    for _ in range(2):
        engine.clock.advance(seconds=30)
        assert len(engine.rescue()) == 1

    assert tickets(engine) == [(0, 1), (0, 1)]


def test_a_job_of_one_attempt_ends_with_its_neighbours_crash_and_says_that_it_may_be_innocent(engine: Engine) -> None:
    once = engine.enqueue(max_attempts=1).id
    engine.enqueue()
    engine.claim("w1", 2)
    engine.clock.advance(LEASE)
    engine.rescue()

    job = engine.job(once)
    assert job.state == "dead"
    assert job.error is not None
    assert "may be innocent" in job.error["message"]


@pytest.mark.rule("ENG-3.08")
def test_who_crashed_twice_is_claimed_alone_and_only_its_own_crash_buries_it(engine: Engine) -> None:
    ids = [engine.enqueue(max_attempts=2).id for _ in range(2)]
    for _ in range(2):
        assert len(engine.claim("w1", 10, rescued=10)) == 2
        engine.clock.advance(LEASE)
        engine.rescue()
    fresh = engine.enqueue().id

    assert [claim.id for claim in engine.claim("w2", 10, rescued=10)] == [fresh]
    (alone,) = engine.claim("w3", 10, alone=True)
    assert (alone.id in ids, alone.attempt, alone.crashes) == (True, 1, 2)
    assert engine.end(alone, "complete", "w3")
    (last,) = engine.claim("w4", 10, alone=True)
    engine.clock.advance(LEASE)
    engine.rescue()
    assert engine.state(last.id) == "dead"


def test_the_crash_of_who_must_run_alone_is_its_own_whatever_else_its_worker_held(engine: Engine) -> None:
    killer, other = (engine.started("w1").id for _ in range(2))
    engine.rows("update mainspring.running set crashes = 2 where id = %s returning 1", killer)
    engine.clock.advance(LEASE)
    engine.rescue()

    said = engine.rows("select job_id, error ->> 'shared' from mainspring.attempt")
    assert dict(said) == {killer: "false", other: "true"}
    assert "innocent" not in engine.job(killer).error["message"]  # type: ignore[index]  # it has one


def limit(engine: Engine, concurrency: int) -> None:
    engine.conn.execute(
        "insert into mainspring.limit (name, queue, by, concurrency, set_at, set_by)"
        " values ('l', 'q:default', 'all', %s, mainspring.now(), 'ada')",
        [concurrency],
    )


@pytest.mark.parametrize("limited", [False, True])
def test_suspects_come_as_many_as_are_asked_for(engine: Engine, limited: bool) -> None:
    if limited:
        limit(engine, 3)
    engine.enqueue_many([{}] * 3)
    engine.claim("w1", 3)
    engine.clock.advance(LEASE)
    engine.rescue()
    engine.enqueue_many([{}] * 3)

    assert [c.crashes for c in engine.claim("w2", 3, rescued=0)] == [0, 0, 0]
    engine.rows("select mainspring.complete('w2', array_agg(epoch)) from mainspring.running")
    engine.enqueue_many([{}] * 3)
    assert sorted(c.crashes for c in engine.claim("w2", 3, rescued=2)) == [0, 1, 1]


def test_a_job_that_runs_alone_still_waits_for_its_limit(engine: Engine) -> None:
    limit(engine, 1)
    engine.enqueue_many([{}] * 2)
    engine.claim("w1", 1)
    engine.conn.execute("update mainspring.waiting set crashes = 2")

    assert engine.claim("w2", 1, alone=True) == []
    engine.rows("select mainspring.complete('w1', array_agg(epoch)) from mainspring.running")
    engine.clock.advance(seconds=1)
    assert len(engine.claim("w2", 1, alone=True)) == 1


def kill(engine: Engine, *workers: str, task: str = "t") -> None:
    for worker in workers:
        engine.rows("select mainspring.has_killed(%s, %s)", task, worker)


def held(engine: Engine) -> list[str]:
    return [row[0] for row in engine.rows("select task from mainspring.quarantine where held_at is not null")]


def test_a_task_whose_jobs_killed_three_workers_is_held_back(engine: Engine) -> None:
    engine.enqueue_many([{}] * 5)
    crash(engine, "w1", "w2")
    assert held(engine) == []
    engine.claim("w3", 1, rescued=0)
    engine.clock.advance(LEASE)
    assert [row[-1] for row in engine.ask("rescue", [1000, 3, timedelta(0)])] == [True], "the rescue says so"

    assert held(engine) == ["t"]
    engine.enqueue("other")
    assert [claim.task for claim in engine.claim("w4", tasks=["t", "other"], rescued=10)] == ["other"]
    began = engine.rows("select task from mainspring.audit where event = 'quarantine.began'")
    assert began == [("t",)]


def test_crashes_that_several_shared_hold_no_task_back(engine: Engine) -> None:
    engine.enqueue_many([{}] * 6)
    for worker in ("w1", "w2", "w3"):
        assert len(engine.claim(worker, 2)) == 2
    engine.clock.advance(LEASE)
    engine.rescue()

    assert held(engine) == []


def test_a_probe_runs_a_second_at_most(engine: Engine) -> None:
    kill(engine, "a", "b", "c")
    engine.enqueue_many([{}] * 3)

    assert len(engine.claim("w1", alone=True)) == 1
    assert engine.claim("w2", alone=True) == []
    engine.clock.advance(seconds=1)
    assert len(engine.claim("w2", alone=True)) == 1


def test_a_job_with_two_crashes_need_not_wait_for_the_next_probe(engine: Engine) -> None:
    kill(engine, "a", "b", "c")
    engine.enqueue_many([{}] * 2)
    engine.claim("w1", alone=True)
    engine.conn.execute("update mainspring.waiting set crashes = 2")

    assert len(engine.claim("w2", alone=True)) == 1


def test_one_worker_counts_once_and_kills_are_forgotten_after_an_hour(engine: Engine) -> None:
    kill(engine, "a", "a", "a", "b")
    assert held(engine) == []
    engine.clock.advance(timedelta(hours=1, seconds=1))
    kill(engine, "c", "d")
    assert held(engine) == []
    kill(engine, "e")
    assert held(engine) == ["t"]


def taken_back(engine: Engine, job: UUID, epoch: int, worker: str = "w1") -> int:
    return int(engine.value("take_back_crashes", [worker, ["default"], [job], [epoch]]))


@pytest.mark.parametrize("neighbours", [0, 1])
def test_a_worker_that_comes_back_takes_its_crash_back_once(engine: Engine, neighbours: int) -> None:
    engine.enqueue_many([{}] * (1 + neighbours))
    claims = engine.claim("w1")
    engine.clock.advance(LEASE)
    engine.rescue()
    assert {crashes for _, crashes in tickets(engine)} == {1}

    for claim in claims:
        assert taken_back(engine, claim.id, claim.epoch) == 1
        assert taken_back(engine, claim.id, claim.epoch) == 0
    assert tickets(engine) == [(0, 0)] * (1 + neighbours)
    assert len(engine.claim("w2", 10, rescued=0)) == 1 + neighbours, "they are no suspects"


def test_an_attempt_that_was_given_back_with_a_shared_crash_is_not_given_back_again(engine: Engine) -> None:
    assert engine.end(engine.started("w1"), "fail")
    engine.enqueue()
    claims = engine.claim("w1", 2)
    assert sorted(claim.attempt for claim in claims) == [1, 2]
    engine.clock.advance(LEASE)
    engine.rescue()

    for claim in claims:
        assert taken_back(engine, claim.id, claim.epoch) == 1
    assert sorted(tickets(engine)) == [(0, 0), (1, 0)], "the attempt that failed counts still"


def test_nobody_takes_back_the_crash_of_another(engine: Engine) -> None:
    claim = engine.started("w1")
    engine.clock.advance(LEASE)
    engine.rescue()

    assert taken_back(engine, claim.id, claim.epoch, "w2") == 0
    assert tickets(engine) == [(1, 1)]


def test_a_job_that_runs_again_keeps_its_attempt_and_loses_the_crash(engine: Engine) -> None:
    claim = engine.started("w1")
    engine.clock.advance(LEASE)
    engine.rescue()
    (again,) = engine.claim("w2", rescued=1)

    assert taken_back(engine, claim.id, claim.epoch) == 1
    assert engine.rows("select attempt, crashes from mainspring.running") == [(2, 0)]
    assert engine.end(again, "complete", "w2")


def test_what_seemed_to_be_a_kill_holds_no_task_back(engine: Engine) -> None:
    engine.enqueue_many([{}] * 3)
    claims = [claim for worker in ("w1", "w2", "w3") for claim in engine.claim(worker, 1)]
    engine.clock.advance(LEASE)
    engine.rescue()
    assert held(engine) == ["t"]

    assert taken_back(engine, claims[0].id, claims[0].epoch) == 1
    assert held(engine) == []


def test_one_that_comes_back_lets_no_task_go_that_has_killed_three_others_long_ago(engine: Engine) -> None:
    kill(engine, "a", "b", "c")
    engine.clock.advance(timedelta(hours=2))
    kill(engine, "d")
    engine.rows("select mainspring.has_not_killed('d')")

    assert held(engine) == ["t"]


def test_who_must_run_alone_and_waits_for_its_limit_does_not_stand_in_the_way_of_other_queues(engine: Engine) -> None:
    limit(engine, 1)
    engine.enqueue_many([{}] * 2)
    engine.claim("w1", 1)
    other = engine.enqueue(queue="q:other").id
    engine.conn.execute("update mainspring.waiting set crashes = 2")

    assert [claim.id for claim in engine.claim("w2", 1, queues=["q:default", "q:other"], alone=True)] == [other]


def doomed(engine: Engine) -> UUID:
    """A job that has crashed twice, and is with a worker for the last time; its lease has just ended."""
    job = engine.enqueue().id
    crash(engine, "w1")
    crash(engine, "w2")
    assert engine.claim("cell", 1, alone=True)
    engine.clock.advance(LEASE)
    return job


def test_before_a_job_is_dead_its_worker_has_time_to_give_it_back(engine: Engine) -> None:
    job = doomed(engine)
    assert engine.rescue(patience=2 * LEASE) == [], "its worker may have been away"
    (epoch,) = engine.rows("select epoch from mainspring.running")[0]
    engine.settle("cell", {"epoch": epoch, "verb": "release", "started": False})
    assert (engine.job(job).state, engine.job(job).crashes) == ("ready", 2)


def test_who_crashes_alone_is_dead_when_its_worker_does_not_come_back(engine: Engine) -> None:
    job = doomed(engine)
    engine.clock.advance(2 * LEASE)
    engine.rescue(patience=2 * LEASE)
    assert engine.job(job).state == "dead"


def test_who_crashes_alone_is_dead_at_once_where_its_workers_death_was_seen(engine: Engine) -> None:
    job = doomed(engine)
    engine.conn.execute(engine.sql["end_leases"], ["cell"])
    engine.rescue(patience=2 * LEASE)
    assert engine.job(job).state == "dead"


def watched(engine: Engine, worker: str) -> None:
    """A process for jobs that run alone has begun, and somebody would see its death."""
    about = {"id": worker, "host": "h", "pid": 1, "version": "1", "queues": [], "tasks": [], "concurrency": 1}
    engine.conn.execute(engine.sql["beat"], about | {"running": 0, "stopping": False, "watched": True})


def unseen(engine: Engine, worker: str) -> None:
    """Such a process runs a job, and nobody hears of it again."""
    watched(engine, worker)
    assert engine.claim(worker, 1, alone=True), worker
    engine.clock.advance(3 * LEASE)
    engine.rescue(patience=2 * LEASE)


@pytest.mark.rule("ENG-3.08")
def test_who_ran_alone_is_not_dead_of_a_death_that_nobody_saw(engine: Engine) -> None:
    watched(engine, "cell")
    job = doomed(engine)
    (attempt, crashes), *_ = engine.rows("select attempt, crashes from mainspring.running")
    engine.clock.advance(2 * LEASE)
    engine.rescue(patience=2 * LEASE)

    assert tickets(engine) == [(attempt - 1, crashes)], "neither the attempt nor the crash counts"
    engine.claim("cell 2", 1, alone=True)
    assert engine.complete("cell 2", *(epoch for (epoch,) in engine.rows("select epoch from mainspring.running")))
    assert engine.job(job).state == "succeeded"


def test_deaths_that_nobody_saw_are_bounded(engine: Engine) -> None:
    job = engine.enqueue().id
    crash(engine, "w1")
    crash(engine, "w2")
    for number in range(8):
        assert engine.job(job).state == "ready", number
        unseen(engine, f"cell {number}")

    assert engine.job(job).state == "dead"
    assert len(engine.attempts(job)) == 10


def test_a_crash_that_was_not_counted_is_not_taken_back(engine: Engine) -> None:
    watched(engine, "cell")
    job = doomed(engine)
    (org, epoch), *_ = engine.rows("select org_id, epoch from mainspring.running")
    engine.clock.advance(2 * LEASE)
    engine.rescue(patience=2 * LEASE)
    assert engine.value("take_back_crashes", ["cell", [org], [job], [epoch]]) == 1

    assert engine.job(job).crashes == 2


def test_who_crashes_alone_is_dead_where_its_death_was_seen_by_who_started_it(engine: Engine) -> None:
    watched(engine, "cell")
    job = doomed(engine)
    engine.conn.execute(engine.sql["farewell"], {"id": "cell"})
    engine.conn.execute(engine.sql["end_leases"], ["cell"])
    engine.rescue(patience=2 * LEASE)

    assert engine.job(job).state == "dead"
