"""The guide shows what the command prints."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

from tests.docs.pages import ROOT, blocks

from mainspring.embedded import Cluster

PAGE = ROOT / "docs" / "guides" / "simulate.md"


def test_the_time_line_of_the_guide_is_the_real_one(volatile_cluster: Cluster, tmp_path: Path) -> None:
    found = blocks(PAGE)
    (tmp_path / "shop.py").write_text("\n".join(block.code for block in found if block.language == "python"))
    command = next(block.code for block in found if block.language == "bash")
    (printed,) = (block.code for block in found if block.language == "text")

    answer = subprocess.run(
        [sys.executable, "-m", "mainspring.cli", *shlex.split(command)[1:], "--dsn", volatile_cluster.dsn("postgres")],
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": ""}, capture_output=True, text=True, timeout=60, check=False,
    )  # fmt: skip

    assert answer.stderr == ""
    assert answer.stdout == printed
