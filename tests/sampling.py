"""Of many cases of one test that each ask for a database, a run takes a few, drawn by its seed; `make cases` takes all.

A case costs 30 to 100 ms of CPU, nearly all of it for sessions of PostgreSQL that are opened and warmed up. Which ones
run says the seed that pytest prints: the same seed draws the same ones, in every process of a run.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable
from itertools import chain

import pytest

ENV = "CASES"
CASES = 4  # of one test, unless its mark says `cases(3)`
ONCE_MORE = 25  # of a module whose tests run elsewhere already, and here once more in other surroundings
MARK = "once_more"
DATABASES = {"database", "secured", "volatile_cluster", "cluster15", "mainspring_server"}


def ask(config: pytest.Config) -> None:
    """Take all cases where tests are asked for by place or by name; the processes of a run hear it from the first."""
    asked = config.option.keyword or config.args_source is config.ArgsSource.ARGS
    if asked and not hasattr(config, "workerinput"):
        os.environ[ENV] = "all"


def wants_all() -> bool:
    """Whether somebody asked for all."""
    return os.environ.get(ENV) == "all"


def draw(items: list[pytest.Item], seed: int) -> list[pytest.Item]:
    """Those of the tests that run, in their order."""
    groups: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[_group(item)].append(item)
    taken = set(chain.from_iterable(_some(group, seed) for group in groups.values()))
    return [item for item in items if item in taken]


def _group(item: pytest.Item) -> str:
    """What its like have in common: the module if they run here once more, else the test."""
    return item.nodeid.partition("::" if item.get_closest_marker(MARK) else "[")[0]


def _some(group: list[pytest.Item], seed: int) -> Iterable[pytest.Item]:
    first = group[0]
    if first.get_closest_marker(MARK):
        most = ONCE_MORE
    elif (mark := first.get_closest_marker("cases")) is not None:
        (most,) = mark.args
    elif DATABASES.intersection(getattr(first, "fixturenames", ())):
        most = CASES
    else:
        return group
    if len(group) <= most:
        return group
    return random.Random(f"{seed} {_group(first)}").sample(sorted(group, key=lambda item: item.nodeid), most)
