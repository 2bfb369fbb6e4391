"""Random steps of several workers keep the invariants."""

from __future__ import annotations

import random

import pytest
from tests.databases import Database
from tests.model.machine import run_machine

PARTS = 5
STEPS = 10_000  # over all parts


@pytest.mark.rule("ENG-29.03", "ENG-3.14", "ENG-3.12", "ENG-6.05", "ENG-29.02")
@pytest.mark.parametrize("part", range(PARTS))
def test_ten_thousand_random_steps_keep_the_invariants(database: Database, part: int) -> None:
    seed = random.getrandbits(32) + part  # of the run's own seed, which pytest prints
    print(f"seed {seed}")

    ran = run_machine(database.dsn, seed=seed, max_examples=22, steps=100)

    assert ran.total() >= STEPS / PARTS, f"only {ran.total()} steps: {ran}"
    assert len(ran) == 15, f"a rule never ran: {ran}"
