"""The walk of docs/apps/staffing.md, line by line, against a server, a worker and the sandbox."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.web.visit import served

from mainspring.cli.demo_access import DemoAccess
from mainspring.testing import Harness
from mainspring_apps.staffing.demo import demo
from mainspring_apps.staffing.demo.seed import seed
from mainspring_apps.staffing.market import Market
from mainspring_sandbox import Sandbox
from mainspring_sandbox.environment import WEBHOOK_SECRET

PAGE = Path(__file__).parents[3] / "docs" / "apps" / "staffing.md"
ADDRESS = "S=http://127.0.0.1:8080/staffing"


@pytest.fixture
def url(mainspring: Harness, mainspring_sandbox_server: Sandbox, mainspring_app: Market) -> Iterator[str]:
    """A marketplace in real time, with the people of the demo and a worker."""
    mainspring.conn.execute("update mainspring.clock set at = null")
    sandbox = mainspring_sandbox_server
    sandbox.reset()
    with sandbox.standing_in():
        with mainspring.conn.transaction():
            seed(mainspring_app.desk, mainspring.conn)
        with served(mainspring_app) as address, mainspring.working():
            sandbox.stripe.register(f"{address}/v1/inbound/stripe", secret=WEBHOOK_SECRET)
            yield address
    mainspring_app.desk.close()
    sandbox.reset()


@pytest.mark.rule("STAFF-20.11", "STAFF-20.13")
def test_the_lines_of_the_walk_work_as_they_are_written(url: str, mainspring: Harness, tmp_path: Path) -> None:
    (tmp_path / ".data").mkdir()
    access = DemoAccess(tmp_path / ".data")  # as `mainspring up` has it
    access.give(mainspring.conn, "mainspring", url, demo().demo_people)
    lines = "".join(re.findall(r"```sh\n(.*?)```", PAGE.read_text(), re.DOTALL))
    assert lines.count(ADDRESS) == 1
    script = "set -euo pipefail\n" + lines.replace(ADDRESS, f"S={url}/staffing")
    done = subprocess.run(["bash", "-c", script], cwd=tmp_path, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr + done.stdout
    for message in ("is said by who asks, and not by the body", "a Worker may not file_dispute B"):
        assert f'"message":"by: {message}"' in done.stdout
    assert '"message":"by: a Borrowing Admin may not resolve_dispute"' in done.stdout
    ledger = json.loads(done.stdout.splitlines()[-1].removeprefix('"ledger":'))
    assert (ledger["charged"], ledger["released"], ledger["refunded"]) == (71950, 50000, 21950)
    assert (ledger["held"], ledger["frozen"]) == (0, 0)
