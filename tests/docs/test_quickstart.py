"""The quick start, walked by a stranger: its files, commands and test, in an empty directory."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, blocks

from mainspring.embedded import Cluster

PAGE = ROOT / "docs" / "quickstart.md"
ID = r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}"
SHOP, ORDER, TIMER, TEST = (block.code for block in blocks(PAGE) if block.language == "python")
FILES = (SHOP, ORDER + TIMER, TEST)
COMMANDS = [
    line
    for block in blocks(PAGE)
    if block.language == "bash"
    for line in block.code.splitlines()
    if line.startswith(("mainspring ", "python3 ")) and " up " not in line and " venv " not in line
]


class Stranger:
    """Somebody in an empty directory, with a terminal."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
        self.environment["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{self.environment['PATH']}"
        self.last_id = ""

    def type(self, line: str) -> subprocess.CompletedProcess[str]:
        """Run a line of the page, with the id that was printed last in place of the page's."""
        line = re.sub(ID, self.last_id, line)
        done = subprocess.run(
            line, shell=True, cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=60
        )
        if " enqueue " in line and (found := re.search(ID, done.stdout)):
            self.last_id = found[0]
        return done


@pytest.fixture(scope="module")
def stranger() -> Iterator[Stranger]:
    """One for the page: its Mainspring takes seconds to come up."""
    with tempfile.TemporaryDirectory(prefix="mainspring-quickstart-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # for the account that runs PostgreSQL when we are root
        who = Stranger(folder)
        for file, code in zip(("shop.py", "order.py", "test_shop.py"), FILES, strict=True):
            (folder / file).write_text(code)
        up = subprocess.Popen(
            ["mainspring", "up", "--app", "shop:app"],
            cwd=folder, env=who.environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )  # fmt: skip
        try:
            assert up.stdout is not None
            assert any("kill a worker" in line for line in up.stdout), "it has ended"
            yield who
        finally:
            up.terminate()
            up.communicate(timeout=30)
            Cluster(folder / ".data" / "postgres").remove()


def test_quick_start_works_as_it_is_written(stranger: Stranger) -> None:
    outputs = {line: stranger.type(line) for line in COMMANDS}

    assert {line: done.stderr for line, done in outputs.items() if done.returncode} == {}
    said = "\n".join(done.stdout for done in outputs.values())
    assert "Hello, Ada! Hello, Ada!" in said
    assert "there is nobody to greet" in said
    assert "1 passed" in said
    assert " created " in outputs["python3 order.py"].stdout


def test_payload_that_does_not_fit_is_refused(stranger: Stranger) -> None:
    done = stranger.type("mainspring job enqueue greet -f name=Ada -f times=many --app shop:app")

    assert done.returncode == 2
    assert "times" in done.stderr
