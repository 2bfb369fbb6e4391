"""Taking in tests of other modules, to run them here with this directory's fixtures."""

from __future__ import annotations

from collections.abc import Collection
from importlib import import_module
from inspect import signature
from typing import Any


def collect(into: dict[str, Any], *modules: str, without: Collection[str] = ()) -> None:
    """Take in the tests and fixtures of modules; `without` names what cannot be shown through a pooler.

    Tests that ask for `mainspring` bring a database of their own, and are left where they are.
    """
    for module in modules:
        noun = module.rpartition(".")[2].removeprefix("test_")
        for name, found in vars(import_module(module)).items():
            if name.startswith("test_") and name not in without and "mainspring" not in signature(found).parameters:
                into[f"test_{noun}_{name.removeprefix('test_')}"] = found
            elif type(found).__name__ == "FixtureFunctionDefinition":
                into[name] = found
