"""The import contract of pyproject.toml: it holds, and each of its clauses notices who breaks it."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
LINT = Path(sys.executable).with_name("lint-imports")


def lint(folder: Path) -> str:
    """What the linter says about the package below a folder, with exit code 0 as `kept`."""
    environment = os.environ | {"PYTHONPATH": f"{folder}/src{os.pathsep}{folder}/apps", "NO_COLOR": "1"}
    command = [str(LINT), "--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    return "kept" if done.returncode == 0 else done.stdout + done.stderr


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    ignore = shutil.ignore_patterns("__pycache__")
    for folder in ("src", "apps"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=ignore)
    return tmp_path


@pytest.mark.rule("ENG-18.06")
def test_contract_holds(copy: Path) -> None:
    assert lint(copy) == "kept"


def test_contract_knows_every_subject_and_every_word() -> None:
    contracts = {
        one["name"]: one
        for one in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]
    }
    below = ROOT / "src" / "mainspring"
    subjects = {f"mainspring.db.{path.stem}" for path in (below / "db").glob("*.py")} - {"mainspring.db.__init__"}
    words = {f"mainspring.{path.stem}" for path in below.glob("*.py") if not path.stem.startswith("__")}

    assert {*contracts["Neither the schema nor the wire knows a subject"]["forbidden_modules"]} == subjects
    known = {*contracts["Words and declarations know no database driver"]["source_modules"]}
    assert words - known == {"mainspring.app"}


@pytest.mark.rule("ENG-18.06")
@pytest.mark.parametrize(
    ("module", "line", "named"),
    [
        ("errors.py", "import mainspring.job, mainspring.declare.task", "mainspring.errors -> mainspring.declare.task"),
        ("db/jobs.py", "import mainspring.client", "mainspring.db.jobs -> mainspring.client"),
        ("worker/attempt.py", "import mainspring.app", "mainspring.worker.attempt -> mainspring.app"),
        ("job.py", "import psycopg", "mainspring.job -> psycopg"),
        ("worker/attempt.py", "import mainspring_sandbox", "mainspring.worker.attempt -> mainspring_sandbox"),
        ("client.py", "import starlette.requests", "mainspring.client -> starlette"),
        ("unplaced.py", "", "mainspring.unplaced"),
        ("worker/unplaced.py", "", "mainspring.worker.unplaced"),
        ("db/wire/sql.py", "import mainspring.db.completion", "mainspring.db.wire.sql -> mainspring.db.completion"),
    ],
)
def test_contract_names_who_breaks_it(copy: Path, module: str, line: str, named: str) -> None:
    with (copy / "src" / "mainspring" / module).open("a") as file:
        file.write(f"\n{line}\n")

    assert named in lint(copy)


def test_contract_of_an_application_names_who_breaks_it(copy: Path) -> None:
    staffing = "mainspring_apps.staffing"
    for module, line in (
        ("rules/weeks.py", f"import {staffing}.store"),
        ("payments/settle.py", f"import {staffing}.payments.send"),
        ("conflicts/ending.py", f"def late(): import {staffing}.conflicts.disputes"),  # hidden in a function
        ("unplaced.py", ""),
        ("../frame/store.py", f"import {staffing}.market"),
    ):
        with (copy / "apps" / "mainspring_apps" / "staffing" / module).open("a") as file:
            file.write(f"\n{line}\n")

    said = lint(copy)

    assert f"{staffing}.rules.weeks -> {staffing}.store" in said
    assert f"{staffing}.payments.settle -> {staffing}.payments.send" in said or ".settle -> .send" in said
    assert f"in {staffing}.conflicts" in said
    assert f"mainspring_apps.frame.store -> {staffing}.market" in said
    assert f"{staffing}.unplaced" in said
