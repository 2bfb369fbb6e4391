"""Which tests a run takes: all that is cheap, and others with another seed of what is costly or has many cases."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

import pytest
from tests import costs, sampling

pytest_plugins = ["pytester"]


def made(parent: pytest.Module, name: str, number: int, *marks: pytest.MarkDecorator) -> Iterator[pytest.Item]:
    """The cases of a test; who is called after a database asks for one."""

    def plain() -> None: ...
    def with_database(database: Any) -> None: ...

    function = with_database if name.endswith("database") else plain
    for n in range(number):
        item = pytest.Function.from_parent(parent, name=f"{name}[{n}]", callobj=function)
        for mark in marks:
            item.add_marker(mark)
        yield item


@pytest.fixture
def items(request: pytest.FixtureRequest) -> list[pytest.Item]:
    parent = request.node.parent
    return [
        *made(parent, "two_with_a_database", 2),
        *made(parent, "five_with_a_database", 5),
        *made(parent, "marked", 20, pytest.mark.cases(3)),
        *made(parent, "pure", 20),
        *made(parent, "again", 20, pytest.mark.once_more),
        *made(parent, "again_as_well", 20, pytest.mark.once_more),
    ]


def drawn(items: list[pytest.Item], seed: int, prices: Mapping[str, float] = {}, within: float = 0.0) -> Counter[str]:
    return Counter(item.name.partition("[")[0] for item in sampling.draw(items, seed, prices, within))


@pytest.fixture
def dear(request: pytest.FixtureRequest) -> list[pytest.Item]:
    """Ten tests of two seconds each; the last three alone show a rule, one of them together with another."""
    parent, rule = request.node.parent, pytest.mark.rule
    return [
        *(item for n in range(7) for item in made(parent, f"dear{n}", 1, rule("ENG-0.01"))),
        *made(parent, "dear7", 1, rule("ENG-0.02", "ENG-0.03")),
        *made(parent, "dear8", 1, rule("ENG-0.04")),
        *made(parent, "dear9", 1, pytest.mark.always),
        *made(parent, "cheap", 3, rule("ENG-0.01")),
    ]


def prices(items: list[pytest.Item]) -> dict[str, float]:
    return {sampling.test_of(item): 2.0 for item in items if item.name.startswith("dear")}


def test_some_are_drawn_of_many_cases_with_a_database_and_of_a_module_that_runs_once_more(
    items: list[pytest.Item],
) -> None:
    few = drawn(items, 1)
    assert few.pop("again") + few.pop("again_as_well") == 12
    assert few == {"two_with_a_database": 2, "five_with_a_database": 2, "marked": 3, "pure": 20}


@pytest.mark.parametrize(("within", "number"), [(0.0, 3), (9.9, 4), (14.0, 7), (20.0, 10), (99.0, 10)])
def test_of_costly_tests_as_many_run_as_fit_and_one_for_each_rule_that_nothing_cheap_shows(
    dear: list[pytest.Item], within: float, number: int
) -> None:
    for seed in range(5):
        names = drawn(dear, seed, prices(dear), within)
        assert names.pop("cheap") == 3
        assert {"dear7", "dear8", "dear9"} <= set(names)
        assert len(names) == number


def test_every_costly_test_is_drawn_by_some_seed(dear: list[pytest.Item]) -> None:
    seen = set().union(*(drawn(dear, seed, prices(dear), 10.0) for seed in range(100)))
    assert len(seen) == 11


def test_the_list_of_costs_holds_the_mean_of_what_a_case_takes_in_all_its_phases() -> None:
    recorder = costs.CostRecorder()
    for name, seconds in [("a[1]", 0.9), ("a[1]", 0.3), ("a[2]", 0.4), ("b", 0.4), ("b", 0.0), ("c", 7.0)]:
        report = pytest.TestReport(name, ("", 0, ""), {}, "passed", None, "call", duration=seconds)
        recorder.pytest_runtest_logreport(report)

    assert costs.read(recorder.text()) == {"a": 0.8, "c": 7.0}


def test_a_seed_draws_the_same_in_whatever_order_tests_come_and_keeps_that_order(items: list[pytest.Item]) -> None:
    once, again = sampling.draw(items, 7, {}), sampling.draw(items[::-1], 7, {})
    assert once == again[::-1]
    assert once == [item for item in items if item in set(once)]


def test_every_case_is_drawn_by_some_seed(items: list[pytest.Item]) -> None:
    seen = {item.nodeid for seed in range(100) for item in sampling.draw(items, seed, {})}
    assert seen == {item.nodeid for item in items}


@pytest.mark.parametrize(
    ("args", "everything"), [((), False), (("test_it.py",), True), (("-k", "it"), True)], ids=["all", "place", "name"]
)
def test_who_asks_for_tests_by_place_or_by_name_gets_all_their_cases(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, args: tuple[str, ...], everything: bool
) -> None:
    monkeypatch.setenv(sampling.ENV, "")
    pytester.makepyfile(test_it="def test_it(): ...")
    sampling.ask(pytester.parseconfig(*args))
    assert sampling.wants_all() is everything
