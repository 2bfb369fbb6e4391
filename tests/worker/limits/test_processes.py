"""Limits over real worker processes: what their handlers wrote down must keep the promise, whoever is killed."""

from __future__ import annotations

import random

import pytest
from tests.databases import Database
from tests.worker.limits.mill import Mill, grind, press, step
from tests.worker.limits.windows import largest

import mainspring as ms

CONNECTIONS = """
    select count(*) from pg_stat_activity
    where datname = current_database() and starts_with(application_name, 'mainspring worker ')
"""


@pytest.mark.rule("ENG-25.02", "STAFF-0.03", "STAFF-0.04", "STAFF-0.06")
def test_four_processes_together_keep_a_rate_in_any_window(database: Database, client: ms.Client) -> None:
    rate, per, jobs = 25, 1.0, 100
    with Mill(database.dsn) as mill:
        client.limits.set(ms.rate("grind", rate, per="1s"))
        mill.start(4)
        mill.wait(lambda: len(client.workers()) == 4)
        client.enqueue_many([grind.job() for _ in range(jobs)])
        most = 0

        def look() -> bool:
            nonlocal most
            most = max(most, mill.rows(CONNECTIONS)[0][0])
            return mill.done()

        mill.wait(look, 60)  # on a machine that is too busy permits run out, and are asked for again
        entered = [at for (at,) in mill.rows("select at from mark")]
    assert len(entered) == jobs
    assert largest(entered, per) <= rate
    assert max(entered) - min(entered) >= (jobs / rate - 1) * per
    config = ms.WorkerConfig()
    assert most <= 4 * (config.exchanges + config.transactions + config.threads + 3)


@pytest.mark.rule("ENG-25.04")
def test_killed_workers_never_make_room_for_one_too_many(database: Database, client: ms.Client) -> None:
    """The places are locks of sessions that die with their worker; a lease ends only later."""
    with Mill(database.dsn) as mill:
        client.limits.set(ms.concurrency("press", 3))
        client.enqueue_many([press.job() for _ in range(40)])
        mill.start(3)
        chance = random.Random(3)
        for kills in range(1, 4):

            def far_enough(enough: int = 5 * kills) -> bool:
                return mill.states().get("succeeded", 0) >= enough or mill.done()

            mill.wait(far_enough)
            running = [process for process in mill.processes if process.poll() is None]
            chance.choice(running).kill()
            mill.start(1)
        mill.wait(lambda: not mill.states().keys() - {"succeeded", "dead"})
        over = mill.rows("select count(*) from mark where what = 'over'")
        slots = mill.rows("select count(*) from mainspring.slot")
    assert over == [(0,)]
    assert slots == [(0,)]


def test_strands_stay_in_order_over_retries_and_killed_workers(database: Database, client: ms.Client) -> None:
    strands, length = 4, 6
    with Mill(database.dsn) as mill:
        client.limits.set(ms.in_order(task="step"))
        client.enqueue_many([step.job(strand=s, n=n) for n in range(length) for s in range(strands)])
        mill.start(3)
        mill.wait(lambda: mill.states().get("succeeded", 0) > strands)
        mill.processes[0].kill()
        mill.wait(lambda: mill.states() == {"succeeded": strands * length})
        marks = mill.rows("select what, n from mark order by at")
    for strand in range(strands):
        ins = [n for what, n in marks if what == f"in {strand}"]
        outs = [n for what, n in marks if what == f"out {strand}"]
        assert ins == sorted(ins)  # again and again, but never one before the other has ended
        assert sorted(set(outs)) == list(range(length))
        assert outs == sorted(outs)
