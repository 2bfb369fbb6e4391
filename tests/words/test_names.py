"""One word, one meaning: no two modules that meet give one name to two things, and no module is too long."""

from __future__ import annotations

import ast
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest
from tests.docs.pages import ROOT

APPLICATIONS = sorted({file.parent.name for file in (ROOT / "apps" / "mainspring_apps").glob("*/desk.py")} - {"frame"})
#: What is read together: the engine, and what applications share with each of them. Two applications never meet.
SCOPES = {"mainspring": ("src/mainspring", "src/mainspring_sandbox")} | {
    name: tuple(f"apps/mainspring_apps/{part}" for part in ("frame", "tasks.py", name)) for name in APPLICATIONS
}

#: Names of types that stand for one thing wherever they are defined, and why.
SHARED_TYPES: dict[str, str] = {}

#: Constants that mean the same in every module of a family, and why.
SHARED_CONSTANTS = {
    "COLUMNS": "the heading of the table that a command of `mainspring.cli` prints",
    "PAGES": "what a part of the stand-in for Stripe answers, which its package puts together",
    "TAKES": "the parameters that a page of the stand-in for Stripe takes",
}

#: Public numbers of one word, and why that is enough.
PLAIN_NUMBERS = {
    "DAY": "a unit of time",
    "HOUR": "a unit of time",
    "EDITION": "the one number of `mainspring.db.schema.line`, which the rules of how to change SQL name",
    "GRACE": "`mainspring.web`: of the server",
    "HEAD": "`mainspring.web`: of a request",
    "ANSWER": "`mainspring.web`: of the database",
    "SIZE": "`mainspring.web`: of the pool",
    "BODY_S": "`mainspring.web`: of a request",
}
#: Units after a name: they are no second word.
UNITS = {"S", "MS", "BPS"}

#: Words of one application, which would be shown to everybody if the engine had them.
APPLICATIONS_WORDS = re.compile(r"BPC|\bbpc\b|q:planning|q:exports|\brental\b|passport|\bstaffing\b", re.IGNORECASE)

LONGEST_MODULE = 400
MOST_ROOT_MODULES = 28


def modules(scope: str) -> list[Path]:
    places = [ROOT / place for place in SCOPES[scope]]
    return sorted(path for place in places for path in (place.rglob("*.py") if place.is_dir() else [place]))


def assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr | None]]:
    """The names that a module binds at its top, and to what."""
    for node in tree.body:
        match node:
            case ast.Assign(targets, value):
                yield from ((name.id, value) for target in targets for name in _names(target))
            case ast.AnnAssign(ast.Name(name), _, value):
                yield name, value


def _names(target: ast.expr) -> Iterator[ast.Name]:
    """Names that are bound: not those of which an item or an attribute is set."""
    match target:
        case ast.Name():
            yield target
        case ast.Tuple(elts) | ast.List(elts):
            for each in elts:
                yield from _names(each)


def types(tree: ast.Module) -> set[str]:
    """Classes, wherever they stand, and other types with a name; an underscore makes no other word of it."""
    classes = {node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)}
    aliases = {name for name, _ in assigned(tree) if name.lstrip("_")[:1].isupper() and not name.isupper()}
    return {name.lstrip("_") for name in classes | aliases}


def constants(tree: ast.Module) -> set[str]:
    """Constants that other modules may import; type variables, of one letter, are no constants."""
    return {name for name, _ in assigned(tree) if name.isupper() and len(name) > 1 and not name.startswith("_")}


def is_number(value: ast.expr | None) -> bool:
    """Whether it is a number or a span of time, as far as can be seen where it stands."""
    match value:
        case ast.Constant(number):
            return type(number) in (int, float)
        case ast.UnaryOp(operand=value) | ast.Call(func=ast.Name("timedelta"), keywords=[ast.keyword(value=value), *_]):
            return is_number(value)
        case ast.Call(func=ast.Name("float" | "int")):
            return True
        case ast.BinOp(left, _, right):
            return all(is_number(side) or (isinstance(side, ast.Name) and side.id.isupper()) for side in (left, right))
    return False


def numbers(tree: ast.Module) -> set[str]:
    """Public constants that are numbers."""
    return {name for name, value in assigned(tree) if is_number(value)} & constants(tree)


def several(found: Iterable[tuple[Path, set[str]]]) -> dict[str, list[str]]:
    """Names that more than one module defines, and which."""
    homes = defaultdict(list)
    for path, names in found:
        for name in names:
            homes[name].append(str(path.relative_to(ROOT)))
    return {name: paths for name, paths in homes.items() if len(paths) > 1}


@pytest.mark.parametrize("scope", SCOPES)
def test_the_name_of_a_type_is_defined_in_one_module(scope: str) -> None:
    found = several((path, types(ast.parse(path.read_text()))) for path in modules(scope))

    assert {name: paths for name, paths in found.items() if name not in SHARED_TYPES} == {}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_constant_says_what_it_is_of(scope: str) -> None:
    found = several((path, constants(ast.parse(path.read_text()))) for path in modules(scope))

    assert {name: paths for name, paths in found.items() if name not in SHARED_CONSTANTS} == {}


@pytest.mark.parametrize("scope", SCOPES)
def test_a_public_number_has_a_noun_beside_its_word(scope: str) -> None:
    """`SHARE` may be of anything, where it is imported; what nobody imports has an underscore."""
    bare = [
        f"{path.relative_to(ROOT)}: {name}"
        for path in modules(scope)
        for name in numbers(ast.parse(path.read_text()))
        if len([word for word in name.split("_") if word not in UNITS]) < 2 and name not in PLAIN_NUMBERS
    ]
    assert bare == []


def test_nobody_imports_a_private_constant_of_another_module() -> None:
    """That is why two modules may have a `_NAME`: each is read where it stands."""
    taken = [
        f"{path.relative_to(ROOT)}: {alias.name}"
        for scope in SCOPES
        for path in modules(scope)
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name.startswith("_") and alias.name.isupper()
    ]
    assert taken == []


def test_every_exception_is_still_needed() -> None:
    trees = [(path, ast.parse(path.read_text())) for path in modules("mainspring")]

    assert several((path, types(tree)) for path, tree in trees).keys() >= SHARED_TYPES.keys()
    assert several((path, constants(tree)) for path, tree in trees).keys() >= SHARED_CONSTANTS.keys()
    applications = [ast.parse(path.read_text()) for name in APPLICATIONS for path in modules(name)]
    assert set().union(*map(numbers, [*(tree for _, tree in trees), *applications])) >= PLAIN_NUMBERS.keys()


def test_names_are_seen() -> None:
    tree = ast.parse(
        "A = 1\nMOST, LEAST = 2, 1\n_BATCH: int = 3\nState = str | None\nos.environ['X'] = 1\n"
        "class _Run:\n    class Inner: ...\ndef f():\n    PATIENCE = 1\n    class Local: ...\n"
    )
    assert types(tree) == {"State", "Run", "Inner", "Local"}
    assert constants(tree) == {"MOST", "LEAST"}
    tree = ast.parse(
        "AA: Final = -1.5\nBB = timedelta(hours=1)\nCC = 2 * BB\nDD = float('inf')\n_EE = 1\n"
        "FF = 'text'\nGG = fixed(seconds=1)\nHH = True\nII = (1, 2)\n"
    )
    assert numbers(tree) == {"AA", "BB", "CC", "DD"}


@pytest.mark.parametrize("scope", SCOPES)
def test_no_module_is_longer_than_400_lines(scope: str) -> None:
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in modules(scope)}

    assert {path: lines for path, lines in lengths.items() if lines > LONGEST_MODULE} == {}


def test_the_root_holds_what_a_user_s_eye_should_meet_first() -> None:
    assert len(list((ROOT / "src" / "mainspring").glob("*.py"))) <= MOST_ROOT_MODULES


def test_the_engine_speaks_no_applications_language() -> None:
    files = [path for kind in ("py", "sql") for path in (ROOT / "src" / "mainspring").rglob(f"*.{kind}")]
    found = {str(path.relative_to(ROOT)): APPLICATIONS_WORDS.findall(path.read_text()) for path in files}

    assert len(found) > 200
    assert {path: words for path, words in found.items() if words} == {}
