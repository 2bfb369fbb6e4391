"""The short form of `make killers`: real processes, and a job that kills its own."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.databases import Database
from tests.proofs.chaos.killers import Case, broken, slow

from mainspring import Client


@pytest.mark.rule("ENG-3.08")
def test_who_crashed_twice_dies_in_a_process_of_its_own_and_takes_nobody_along(
    database: Database, tmp_path: Path
) -> None:
    case = Case(database.dsn, tmp_path)
    with Client(database.dsn) as client:
        killer = client.enqueue(broken.job(seconds=0.0)).id
        case.conn.execute("update mainspring.waiting set crashes = 2")
        others = client.enqueue_many([slow.job(seconds=0.5) for _ in range(5)])
        with case.workers(1, lease=300.0, concurrency=5) as staff:  # nobody waits for its end
            case.until(lambda: not case.left(), 60, staff)
        assert staff.deaths == 0
        assert client.get(killer).state == "dead"
        assert {client.get(job.id).state for job in others} == {"succeeded"}
    assert case.states("crashes = 0") == {"succeeded": 5}
    case.conn.close()
