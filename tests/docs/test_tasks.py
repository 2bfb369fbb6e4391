"""The pages about tasks say what the code does: their options, their categories, the codes of their errors."""

from __future__ import annotations

import subprocess
import sys

import pytest
from tests.docs.pages import ROOT, table

from mainspring.category import CATEGORIES
from mainspring.declare.task import TASK_OPTIONS
from mainspring.retry import exponential

GUIDES = ROOT / "docs" / "guides"
POLICIES = {name: row[1:] for row in table(GUIDES / "retry.md", "## Policies") for name in row[0].split(", ")}


def test_every_option_of_a_task_is_explained() -> None:
    named = [row[0].strip("`") for row in table(GUIDES / "write-tasks.md", "## Options")]

    assert sorted(named) == sorted(TASK_OPTIONS)


def test_every_category_is_shown() -> None:
    assert {name.strip("`") for name in POLICIES} == CATEGORIES.keys()


@pytest.mark.parametrize("name", CATEGORIES)
def test_policy_of_a_category_is_the_one_shown(name: str) -> None:
    category = CATEGORIES[name]
    queue, attempts, first, longest = POLICIES[f"`{name}`"]

    assert (queue, int(attempts)) == (f"`{category.queue}`", category.retry.attempts)
    assert seconds(first) == category.retry.base.total_seconds()
    assert seconds(longest) == category.retry.cap.total_seconds()


def seconds(text: str) -> float:
    number, unit = text.split()
    return float(number) * {"s": 1, "min": 60}[unit]


def test_default_policy_is_that_of_the_default_category() -> None:
    assert CATEGORIES["default"].retry == exponential()


def test_page_of_codes_is_printed_from_the_code() -> None:
    # In a process of its own: other tests register codes of theirs.
    printed = subprocess.run([sys.executable, "-m", "tools.codes_page"], cwd=ROOT, capture_output=True, check=True)

    page = (ROOT / "docs" / "codes.md").read_bytes()
    assert page == printed.stdout, "run `python -m tools.codes_page > docs/codes.md`"
