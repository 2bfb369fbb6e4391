"""What a secured schema costs: the claim keeps its plan under the worker's policies."""

from __future__ import annotations

from contextlib import closing

import pytest
from tests.databases import Database
from tests.db.engine import Engine
from tests.db.test_statements import PINNED, claim_statement, scans
from tests.secured import Secured


@pytest.mark.mainspring_new
@pytest.mark.parametrize("version", [18, 15])
def test_a_claim_of_a_worker_still_finds_its_jobs_by_the_index(request: pytest.FixtureRequest, version: int) -> None:
    database: Database = request.getfixturevalue("database" if version == 18 else "database15")
    with database.connect() as conn:
        engine = Engine(conn)
        engine.enqueue_many([{"queue": f"q:{n % 20}", "org_id": f"org {n % 7}"} for n in range(4000)])
        engine.enqueue_many([{"queue": ("q:default", "q:other")[n % 2]} for n in range(600)])
        conn.execute("analyze mainspring.waiting, mainspring.job")
    with closing(Secured(database)) as secured, secured.connect("worker") as conn:
        with conn.transaction(force_rollback=True):
            for setting in PINNED:
                conn.execute(f"set local {setting}".encode())
            ((found,),) = conn.execute(f"explain (analyze, format json) {claim_statement()}".encode()).fetchall()
        plan = found[0]["Plan"]
        reads = scans(plan)

        assert plan["Actual Rows"] == 500
        assert {how for table, how in reads if table == "waiting"} == {"waiting_claim", "waiting_rescued", "Tid Scan"}
        assert {how for table, how in reads if table == "job"} == {"job_pkey"}


@pytest.mark.mainspring_new
def test_policies_read_the_setting_once_a_statement(secured: Secured) -> None:
    with secured.connect("api", "acme") as conn:
        plan = "\n".join(row[0] for row in conn.execute("explain select * from mainspring.job"))
    assert "InitPlan 1" in plan
    assert "current_setting" not in plan.partition("InitPlan 1")[0]  # the filter compares with what it found
