"""Which of many cases a run takes: so many, others with another seed, and all of what asks for no database."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
from tests import sampling

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
        *made(parent, "four_with_a_database", 4),
        *made(parent, "five_with_a_database", 5),
        *made(parent, "marked", 20, pytest.mark.cases(3)),
        *made(parent, "pure", 20),
        *made(parent, "again", 20, pytest.mark.once_more),
        *made(parent, "again_as_well", 20, pytest.mark.once_more),
    ]


def drawn(items: list[pytest.Item], seed: int) -> Counter[str]:
    return Counter(item.name.partition("[")[0] for item in sampling.draw(items, seed))


def test_some_are_drawn_of_many_cases_with_a_database_and_of_a_module_that_runs_once_more(
    items: list[pytest.Item],
) -> None:
    few = drawn(items, 1)
    assert few.pop("again") + few.pop("again_as_well") == 25
    assert few == {"four_with_a_database": 4, "five_with_a_database": 4, "marked": 3, "pure": 20}


def test_a_seed_draws_the_same_in_whatever_order_tests_come_and_keeps_that_order(items: list[pytest.Item]) -> None:
    once, again = sampling.draw(items, 7), sampling.draw(items[::-1], 7)
    assert once == again[::-1]
    assert once == [item for item in items if item in set(once)]


def test_every_case_is_drawn_by_some_seed(items: list[pytest.Item]) -> None:
    seen = {item.nodeid for seed in range(100) for item in sampling.draw(items, seed)}
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
