"""The crash test in short: workers and PostgreSQL die while jobs run, and nothing is lost, doubled or stale."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.databases import check_tickets, fresh_database
from tests.proofs.chaos.plan import Plan
from tests.proofs.chaos.storm import Storm

from mainspring.embedded import Cluster

SHORT = Plan(
    seed=3,
    jobs=1500,
    seconds=6.0,
    workers=3,
    producers=3,
    worker_kills=3,
    postgres_kills=1,
    freezes=2,
    frozen=(1.2, 1.4),
    longest=0.12,
    drain=15.0,
)


@pytest.mark.always
@pytest.mark.timeout(90)
@pytest.mark.rule("ENG-6.05", "ENG-6.08", "ENG-6.09", "ENG-29.01")
def test_kills_and_freezes_lose_and_double_nothing(durable_cluster: Cluster, tmp_path: Path) -> None:
    with fresh_database(durable_cluster, migrated=False) as database:
        storm = Storm(durable_cluster, database.dsn, tmp_path, SHORT)
        verdict = storm.run()
        with database.connect() as conn:
            check_tickets(conn)
    assert verdict.clean, verdict.faults
    assert verdict.acknowledged >= SHORT.jobs
    assert (storm.struck.worker_kills, storm.struck.postgres_kills, storm.struck.freezes) == (3, 1, 2)
    for fault, jobs in storm.struck.jobs.items():
        assert jobs & verdict.repeated, f"{fault} interrupted no job: this run shows nothing"
