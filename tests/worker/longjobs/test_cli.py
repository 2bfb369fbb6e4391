"""A long job, seen from the terminal while it runs."""

from __future__ import annotations

import json

from tests.cli.conftest import Cli, cli
from tests.databases import Database
from tests.db.engine import Engine

__all__ = ["cli"]


def test_job_show_tells_how_far_it_is_and_which_steps_are_done(database: Database, cli: Cli) -> None:
    with database.connect() as conn:
        engine = Engine(conn)
        engine.enqueue("export")
        (claim,) = engine.claim("w", tasks=["export"])
        engine.rows("select mainspring.remember('w', %s, 'download', '7')", claim.epoch)
        report = {"epoch": claim.epoch, "serial": 1, "done": 3, "total": 10, "note": "page 3"}
        engine.rows("select mainspring.report('w', %s)", json.dumps([report]))

    shown = cli("job", "show", claim.id).out
    found = cli("job", "show", claim.id, "--json").json

    assert "3 of 10, page 3" in shown
    assert "download" in shown
    assert {name: found["progress"][name] for name in ("done", "total", "note")} == {
        "done": 3,
        "total": 10,
        "note": "page 3",
    }
    assert [(step["name"], step["result"]) for step in found["steps"]] == [("download", 7)]
