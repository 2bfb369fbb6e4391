"""Random steps of several workers keep the invariants."""

from __future__ import annotations

import random

import pytest
from tests.databases import Database
from tests.model.actions import ACTIONS
from tests.model.machine import run_machine

PARTS = 5
STEPS = 10_000  # over all parts


@pytest.mark.rule("ENG-29.03", "ENG-3.08", "ENG-6.05")
@pytest.mark.parametrize("part", range(PARTS))
def test_ten_thousand_random_steps_keep_the_invariants(database: Database, part: int) -> None:
    seed = random.getrandbits(32) + part  # from the seed of the run, which pytest prints
    try:
        ran = run_machine(database.dsn, seed=seed, max_examples=22, steps=100)
    except AssertionError as error:
        error.add_note(f"seed {seed}; run_machine(..., shrink=True) looks for the shortest example")
        raise
    steps = sum(ran[name] for name in ACTIONS)
    assert steps >= STEPS / PARTS, f"only {steps} steps: {ran}"
    assert all(ran[name] for name in [*ACTIONS, "stale"]), f"something never happened: {ran}"


def test_random_steps_keep_the_invariants_on_the_oldest_server(database15: Database) -> None:
    ran = run_machine(database15.dsn, seed=random.getrandbits(32), max_examples=5, steps=100)
    assert sum(ran[name] for name in ACTIONS) >= 400
