"""The nemesis in short: every feature under every kind of fault, and everything comes to its end."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.databases import check_tickets, fresh_database
from tests.proofs.nemesis.nemesis import Nemesis
from tests.proofs.nemesis.plan import SHORT

from mainspring.embedded import Cluster


@pytest.mark.always
@pytest.mark.timeout(420)  # twenty seconds on an idle machine; leases and patience follow a slow one
def test_nothing_is_lost_and_nothing_stands_still(durable_cluster: Cluster, tmp_path: Path) -> None:
    with fresh_database(durable_cluster, migrated=False) as database:
        nemesis = Nemesis(durable_cluster, database.dsn, tmp_path, SHORT)
        verdict = nemesis.run()
        with database.connect() as conn:
            check_tickets(conn)
    assert verdict.clean, "\n".join(f"{wrong.what}: {wrong.detail} {wrong.job or ''}" for wrong in verdict.violations)
    assert nemesis.struck["kill"], "no worker was killed: this run shows nothing"
    assert verdict.numbers["jobs"] > 200, "hardly any work was done: this run shows nothing"
