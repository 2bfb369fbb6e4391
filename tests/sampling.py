"""What a run of all tests takes: all that is cheap, and of the costly ones as many as fit into its minutes.

Two things are drawn, by the seed that pytest prints, so that every process of a run draws the same:

1. Of many cases of one test that each ask for a database, a few. A case costs 30 to 100 ms of CPU, nearly all of it for
   sessions of PostgreSQL that are opened and warmed up.
2. Of the tests in `costs.txt`, those that take half a second and more, as many as fit into `COSTLY_S`. Before anything
   else one is taken for each rule that nothing cheap shows: a run shows every rule that has a test. A test that is not
   in the list yet counts as cheap, so new ones run until the list is made anew (`make costs`); one that is marked
   `always` runs in any case.

`make cases` runs everything, and so does whoever asks for tests by place or by name.
"""

from __future__ import annotations

import os
import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from itertools import chain

import pytest

ENV = "CASES"
CASES = 2  # of one test, unless its mark says `cases(3)`
ONCE_MORE = 12  # of a module whose tests run elsewhere already, and here once more in other surroundings
MARK = "once_more"
ALWAYS = "always"
DATABASES = {"database", "secured", "volatile_cluster", "cluster15", "mainspring_server"}
COSTLY_S = 400.0  # seconds of all processes together, as `costs.txt` counts them; what is cheap takes as much again


def ask(config: pytest.Config) -> None:
    """Take all cases where tests are asked for by place or by name; the processes of a run hear it from the first."""
    asked = config.option.keyword or config.args_source is config.ArgsSource.ARGS
    if asked and not hasattr(config, "workerinput"):
        os.environ[ENV] = "all"


def wants_all() -> bool:
    """Whether somebody asked for all."""
    return os.environ.get(ENV) == "all"


def draw(
    items: list[pytest.Item], seed: int, costs: Mapping[str, float], within: float = COSTLY_S
) -> list[pytest.Item]:
    """Those of the tests that run, in their order; a cost is that of one case."""
    groups: defaultdict[str, list[pytest.Item]] = defaultdict(list)
    for item in items:
        groups[_group(item)].append(item)
    few = list(chain.from_iterable(_some(group, seed) for group in groups.values()))
    sure = [item for item in few if test_of(item) not in costs or item.get_closest_marker(ALWAYS)]
    within -= sum(costs.get(test_of(item), 0.0) for item in sure)
    taken = set(sure)
    taken.update(_affordable([item for item in few if item not in taken], sure, seed, costs, within))
    return [item for item in items if item in taken]


def test_of(item: pytest.Item) -> str:
    """The test that an item is a case of."""
    return item.nodeid.partition("[")[0]


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


def _affordable(
    costly: list[pytest.Item], sure: Sequence[pytest.Item], seed: int, costs: Mapping[str, float], within: float
) -> Iterable[pytest.Item]:
    """One for each rule that nothing before it shows, whatever it costs, then others while they fit."""
    shown = set(chain.from_iterable(map(_rules, sure)))
    in_turn = sorted(costly, key=lambda item: item.nodeid)
    random.Random(seed).shuffle(in_turn)
    rest: list[pytest.Item] = []
    for item in in_turn:
        if _rules(item) <= shown:
            rest.append(item)
            continue
        shown |= _rules(item)
        within -= costs[test_of(item)]
        yield item
    for item in rest:
        if costs[test_of(item)] <= within:
            within -= costs[test_of(item)]
            yield item


def _rules(item: pytest.Item) -> set[str]:
    return {str(rule) for mark in item.iter_markers("rule") for rule in mark.args}
