"""The examples in docstrings are true."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import mainspring

MODULES = ["mainspring"] + [
    module.name
    for module in pkgutil.walk_packages(mainspring.__path__, "mainspring.")
    if not module.name.endswith("__main__")
]
FLAGS = doctest.ELLIPSIS


def examples(module: str) -> list[doctest.DocTest]:
    found = doctest.DocTestFinder(exclude_empty=True).find(importlib.import_module(module))
    return [test for test in found if test.examples]


@pytest.mark.parametrize("module", MODULES)
def test_examples_hold(module: str) -> None:
    runner = doctest.DocTestRunner(optionflags=FLAGS, verbose=False)
    said: list[str] = []

    for test in examples(module):
        runner.run(test, out=said.append)

    assert "".join(said) == ""


def test_examples_are_found() -> None:
    assert sum(len(examples(module)) for module in MODULES) >= 20
