"""Private names stay at home: what blocks and applications need of a client is its seam, which is public."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

SRC, APPS = ROOT / "src", ROOT / "apps"
CLIENT = SRC / "mainspring" / "client"
GUESTS = [SRC / "mainspring" / "contrib", APPS]
#: Names of Python and of psycopg for which they have no public one.
OF_OTHERS = {"_exit", "_current_frames", "_encoding"}


def modules(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.py"))


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.endswith("__") and name not in {"_replace", "_asdict"}


def own(tree: ast.AST) -> set[str]:
    """The private names of a module's own: functions, classes, methods, attributes of its objects."""
    names: set[str] = set()
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef(name) | ast.AsyncFunctionDef(name) | ast.ClassDef(name):
                names.add(name)
            case ast.Attribute(attr=name, ctx=ast.Store()) if _of_self(node):
                names.add(name)
    return {name for name in names if is_private(name)}


def reached(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """The private names that a module uses of something else than itself."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and is_private(node.attr) and not _of_self(node):
            yield node.lineno, node.attr
        if isinstance(node, ast.ImportFrom):
            yield from ((node.lineno, alias.name) for alias in node.names if is_private(alias.name))


def _of_self(node: ast.Attribute) -> bool:
    of = node.value.func if isinstance(node.value, ast.Call) else node.value
    return isinstance(of, ast.Name) and of.id in {"self", "cls", "super"}


def foreign(path: Path) -> list[tuple[str, str]]:
    """Where a module uses which private names that are not its own."""
    tree = ast.parse(path.read_text())
    mine = own(tree)
    return [(f"{path.relative_to(ROOT)}:{line}", name) for line, name in reached(tree) if name not in mine]


def test_nobody_outside_of_the_client_uses_its_private_names() -> None:
    private = set().union(*(own(ast.parse(path.read_text())) for path in modules(CLIENT)))
    elsewhere = [path for path in [*modules(SRC), *modules(APPS)] if CLIENT not in path.parents]

    assert {"_pool", "_bus", "_coalescer"} <= private
    assert [use for path in elsewhere for use in foreign(path) if use[1] in private] == []


def test_no_module_uses_a_private_name_of_another() -> None:
    found = [use for path in modules(SRC) for use in foreign(path)]

    assert [use for use in found if use[1] not in OF_OTHERS] == []
    assert {name for _, name in found} == OF_OTHERS


@pytest.mark.parametrize("folder", GUESTS, ids=lambda folder: folder.name)
def test_blocks_and_applications_use_no_private_name_of_anybody(folder: Path) -> None:
    assert [use for path in modules(folder) for use in foreign(path)] == []


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("client._run(flow)", ["_run"]),
        ("self._of._sql", ["_sql"]),
        ("from mainspring.client.seam import _x", ["_x"]),
        ("self._mine; super()._mine(); row._replace(a=1); a.__class__", []),
    ],
)
def test_private_names_are_seen(text: str, names: list[str]) -> None:
    assert [name for _, name in reached(ast.parse(text))] == names
