"""The page of settings says what the code does."""

from __future__ import annotations

import re
from dataclasses import fields

import pytest
from tests.docs.pages import ROOT, table

from mainspring.config import WorkerConfig, worker_config

PAGE = ROOT / "docs" / "settings.md"
WORKER = table(PAGE, "## Worker")
IN_CODE = table(PAGE, "## Worker, in code only")
VARIABLE = r"\bMAINSPRING_[A-Z_]+[A-Z]\b|\bDATABASE_URL\b"


def test_page_names_every_variable_that_the_code_reads() -> None:
    read = {
        variable
        for package in ("mainspring", "mainspring_sandbox")
        for file in (ROOT / "src" / package).rglob("*.py")
        for variable in re.findall(VARIABLE, file.read_text())
    }

    assert set(re.findall(VARIABLE, PAGE.read_text())) == read


def test_page_names_every_setting_of_a_worker_once() -> None:
    named = [row[1].strip("`") for row in WORKER] + [row[0].strip("`") for row in IN_CODE]

    assert sorted(named) == sorted(field.name for field in fields(WorkerConfig))


@pytest.mark.parametrize(
    ("variable", "setting", "default"),
    [(variable, row[1].strip("`"), row[2]) for row in WORKER for variable in re.findall(VARIABLE, row[0])],
)
def test_variable_sets_its_setting_and_the_default_is_the_one_shown(variable: str, setting: str, default: str) -> None:
    shown = worker_config(env={variable: default.strip("-")})

    assert shown == WorkerConfig()
    other = {"lease": "77", "scheduler": "off"}.get(setting, "7")
    assert getattr(worker_config(env={variable: other}), setting) != getattr(WorkerConfig(), setting)


@pytest.mark.parametrize(("setting", "default"), [(row[0].strip("`"), row[1]) for row in IN_CODE])
def test_default_of_a_setting_in_code_is_the_one_shown(setting: str, default: str) -> None:
    assert str(getattr(WorkerConfig(), setting)) == default
