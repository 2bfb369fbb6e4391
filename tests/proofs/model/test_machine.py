"""Random steps of several workers keep the invariants; `make model` takes 10,000."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Collection

import pytest
from hypothesis.errors import FlakyStrategyDefinition
from tests.databases import Database
from tests.proofs.model.actions import ACTIONS
from tests.proofs.model.machine import run_machine

PARTS = 4
STEPS = int(os.environ.get("MODEL_STEPS", "1600"))  # over all parts


def run_until(dsn: str, source: random.Random, steps: int, kinds: Collection[str] = ()) -> None:
    """How long a random run is, is chance: go on until there were so many steps, and these kinds among them."""
    ran: Counter[str] = Counter()
    unlike = 0
    while (done := sum(ran[name] for name in ACTIONS)) < steps or not all(ran[name] for name in kinds):
        assert done < 20 * steps, f"something never happens: {ran}"
        seed = source.getrandbits(32)
        try:
            ran += run_machine(dsn, seed=seed, max_examples=5, steps=100)
        except FlakyStrategyDefinition:  # two of its worlds began alike and went on differently: what ran, held
            unlike += 1
            assert unlike <= 3, "worlds that begin alike seldom go on differently"
        except AssertionError as error:
            error.add_note(f"seed {seed}; run_machine(..., shrink=True) looks for the shortest example")
            raise


@pytest.mark.rule("ENG-29.03", "ENG-3.08", "ENG-6.05")
@pytest.mark.parametrize("part", range(PARTS))
def test_random_steps_keep_the_invariants(database: Database, part: int) -> None:
    source = random.Random(random.getrandbits(32) + part)  # from the seed of the run, which pytest prints
    run_until(database.dsn, source, STEPS // PARTS, {*ACTIONS, "stale"})


def test_random_steps_keep_the_invariants_on_the_oldest_server(database15: Database) -> None:
    run_until(database15.dsn, random.Random(random.getrandbits(32)), STEPS // PARTS)
