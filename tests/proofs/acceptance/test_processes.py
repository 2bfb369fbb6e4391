"""Worker processes that are killed, stopped and cut off, as they are in production."""

from __future__ import annotations

import signal

import pytest
from tests.databases import Database, check_tickets, fresh_database
from tests.proofs.acceptance import house
from tests.proofs.acceptance.house import House

import mainspring as ms
from mainspring.embedded import Cluster

RUNNING = "select count(*) from mainspring.running"


@pytest.mark.rule("ENG-6.08", "ENG-5.06", "ENG-6.12")
def test_another_worker_completes_the_job_of_a_killed_one(database: Database) -> None:
    with House(database.dsn) as home, ms.Client(database.dsn) as client:
        job = client.enqueue(house.hangs_once.job()).id
        first = home.start(house.SHORT)
        home.wait(lambda: home.one(RUNNING) == 1)
        first.kill()
        home.start(house.SHORT)
        home.wait(lambda: home.states() == {"succeeded": 1})
        ended = client.get(job)
        attempts = client.attempts(job)
    assert (ended.attempt, ended.crashes) == (2, 1)
    assert [attempt.outcome for attempt in attempts] == ["rescued", "succeeded"]
    assert attempts[0].error is not None
    assert attempts[0].error["code"] == "LEASE_EXPIRED"
    assert attempts[0].worker != attempts[1].worker


def test_one_killer_among_200_innocents_is_the_only_one_to_die(database: Database) -> None:
    with House(database.dsn) as home, ms.Client(database.dsn) as client:
        innocents = [house.innocent.job(pause=0.02) for _ in range(200)]
        killer = client.enqueue_many([*innocents[:30], house.killer.job(), *innocents[30:]])[30].id
        workers = [home.start(house.SHORT) for _ in range(2)]

        def all_ended() -> bool:
            for n, worker in enumerate(workers):
                if worker.poll() is not None:  # the killer struck
                    workers[n] = home.start(house.SHORT)
            return home.states() == {"succeeded": 200, "dead": 1}

        home.wait(all_ended, 60)
        ended = client.get(killer)
        doubled = home.one("select count(*) - count(distinct job_id) from done")
        kills = len(home.processes) - 2
    assert (ended.state, ended.crashes) == ("dead", 3)
    assert kills == 3
    assert doubled == 0


@pytest.mark.rule("ENG-3.10", "ENG-16.08", "ENG-16.09")
def test_sigterm_lets_short_jobs_finish_and_hands_long_ones_back_unburnt(database: Database) -> None:
    with House(database.dsn) as home, ms.Client(database.dsn) as client:
        worker = home.start()
        home.wait(lambda: bool(client.workers()))
        long = client.enqueue(house.hangs_once.job()).id
        short = client.enqueue(house.innocent.job(pause=0.3)).id
        home.wait(lambda: home.one(RUNNING) == 2)
        worker.send_signal(signal.SIGTERM)
        assert worker.wait(60) == 0
        given_back = client.get(long)
        assert client.get(short).state == "succeeded"
        assert (given_back.state, given_back.attempt, given_back.crashes) == ("ready", 0, 0)
        assert client.attempts(long) == []
        assert home.one("select count(*) from mainspring.trail where event = 'job.failed'") == 0
        assert client.workers() == []


@pytest.mark.rule("ENG-16.10", "ENG-5.01")
def test_three_processes_share_the_work_and_repeat_nothing(database: Database) -> None:
    with House(database.dsn) as home, ms.Client(database.dsn) as client:
        workers = [home.start() for _ in range(3)]
        home.wait(lambda: len(client.workers()) == 3)
        client.enqueue_many([house.innocent.job(pause=0.02) for _ in range(1000)])
        home.wait(lambda: home.states() == {"succeeded": 1000})
        assert home.one("select count(*) from done") == 1000
        assert home.one("select count(distinct job_id) from done") == 1000
        assert home.one("select max(attempt) from mainspring.jobs") == 1
        assert set(home.one("select array_agg(distinct pid) from done")) == {worker.pid for worker in workers}


@pytest.mark.rule("ENG-16.12")
def test_a_worker_outlives_the_death_of_its_database(durable_cluster: Cluster) -> None:
    with fresh_database(durable_cluster) as database:
        with House(database.dsn) as home, ms.Client(database.dsn) as client:
            worker = home.start()
            before = client.enqueue(house.innocent.job(pause=0.0)).id
            home.wait(lambda: client.get(before).state == "succeeded")
            client.enqueue_many([house.innocent.job(pause=0.2) for _ in range(20)])
            durable_cluster.kill()
            assert worker.poll() is None
            durable_cluster.start()
            client.enqueue(house.innocent.job(pause=0.0))
            home.wait(lambda: home.states() == {"succeeded": 22})
            assert worker.poll() is None
            assert home.one("select count(*) - count(distinct job_id) from done") == 0
        with database.connect() as conn:
            check_tickets(conn)
