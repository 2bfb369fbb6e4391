"""Two sessions that meet in the one order that matters; each race also shows that it can see what it looks for."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.databases import Database, fresh_database
from tests.proofs.chaos import plants, races
from tests.proofs.chaos.bugs import BUGS, Bug

from mainspring.embedded import Cluster

SQL_BUGS = [bug for bug in BUGS if not bug.in_process]


def lose(run: Callable[[Database], str | None], plant: Callable[[Any], None], cluster: Cluster) -> str | None:
    """Run a race in a database with a bug in it."""
    with fresh_database(cluster) as planted:
        with planted.connect() as conn:
            plant(conn)
        return run(planted)


@pytest.mark.rule("ENG-5.01", "ENG-5.02")
def test_two_claims_take_different_jobs_and_wait_for_nobody(database: Database, volatile_cluster: Cluster) -> None:
    assert races.two_claims(database) is None
    assert lose(races.two_claims, plants.claim_without_skipping, volatile_cluster)


@pytest.mark.rule("ENG-14.01")
def test_a_cancel_that_meets_a_claim_goes_by_what_the_claim_made_of_the_job(
    database: Database, volatile_cluster: Cluster
) -> None:
    assert races.cancel_meets_claim(database) is None
    assert lose(races.cancel_meets_claim, plants.cancel_in_two_steps, volatile_cluster)


@pytest.mark.rule("ENG-10.10")
def test_a_pause_waits_for_the_claims_that_began_before_it(database: Database, volatile_cluster: Cluster) -> None:
    assert races.pause_meets_claim(database) is None
    assert lose(races.pause_meets_claim, plants.hasty_pause, volatile_cluster)


def test_an_enqueue_whose_answer_was_lost_makes_one_job(database: Database, volatile_cluster: Cluster) -> None:
    assert asyncio.run(races.reply_lost(database)) is None
    with fresh_database(volatile_cluster) as other, plants.planted_here(plants.new_id_on_retry, other.dsn):
        assert asyncio.run(races.reply_lost(other))


@pytest.mark.parametrize("bug", SQL_BUGS, ids=lambda bug: bug.name)
def test_every_bug_for_the_database_still_finds_its_place(bug: Bug, database: Database) -> None:
    """A plant whose text is gone from the migrations raises; one that changes nothing is none."""
    everything = b"""
        select prosrc from pg_proc where pronamespace = 'mainspring'::regnamespace
        union all select conname from pg_constraint
        union all select setconfig::text from pg_db_role_setting join pg_database d on d.oid = setdatabase
        where d.datname = current_database()
    """
    with database.connect() as conn:
        before = set(conn.execute(everything))
        bug.plant(conn)
        assert set(conn.execute(everything)) != before
