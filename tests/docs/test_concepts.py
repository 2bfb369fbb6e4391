"""The page of concepts says what the code does: the states, the modes of a key, the words."""

from __future__ import annotations

import re

from tests.docs.pages import ROOT, table

from mainspring.dedupe import MODES
from mainspring.states import TRANSITIONS, State

PAGE = ROOT / "docs" / "concepts.md"


def test_table_of_states_names_each_once() -> None:
    assert [row[0].strip("`") for row in table(PAGE, "## A job's life")] == [str(state) for state in State]


def test_table_of_modes_names_each_once() -> None:
    assert tuple(row[0].strip("`") for row in table(PAGE, "## Keys")) == MODES


def test_every_verb_of_the_life_cycle_is_explained() -> None:
    explained = set(re.findall(r"[a-z-]+", " ".join(re.findall(r"^\| ([a-z, -]+) \|", PAGE.read_text(), re.MULTILINE))))

    # `stop` and `reset` are what cancel and enqueue do to a job that runs or has failed.
    assert set(TRANSITIONS) - explained == {"stop", "reset"}
