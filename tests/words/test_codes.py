from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest
from tests.docs.pages import ROOT

from mainspring.codes import CODES, register
from mainspring.errors import DeclarationError

#: The sandbox has the codes of those for whom it stands in.
PACKAGES = (ROOT / "src" / "mainspring", ROOT / "apps" / "mainspring_apps")

RETRYABLE = ["DB_UNAVAILABLE", "QUEUE_UNAVAILABLE", "HttpException", "WebhookTimeout", "WebhookNon2xx"]
PERMANENT = [
    "SNAPSHOT_NOT_READY",
    "RULE_PKG_NOT_PUBLISHED",
    "VALIDATION_ERROR",
    "RULE_TYPE_ERROR",
    "PAYLOAD_TOO_LARGE",
    "SIGNING_KEY_MISSING",
]


@pytest.fixture
def codes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A copy of the table, so that a test may add to it."""
    monkeypatch.setattr("mainspring.codes.CODES", dict(CODES))


@pytest.mark.rule("ENG-8.01")
def test_every_code_has_one_class_and_a_text() -> None:
    for name, code in CODES.items():
        assert code.name == name
        assert code.error_class in ("retryable", "permanent")
        assert code.text.endswith(".")


@pytest.mark.parametrize("name", RETRYABLE)
def test_transient_codes_are_retryable(name: str) -> None:
    assert CODES[name].error_class == "retryable"


@pytest.mark.parametrize("name", PERMANENT)
def test_codes_of_wrong_input_are_permanent(name: str) -> None:
    assert CODES[name].error_class == "permanent"


@pytest.mark.rule("ENG-8.06")
def test_our_own_codes_have_their_class() -> None:
    for name in ("LEASE_EXPIRED", "TIMEOUT", "RATE_LIMITED", "INTERNAL_ERROR"):
        assert CODES[name].error_class == "retryable"
    for name in ("IDEMPOTENCY_KEY_REUSED", "OWNERSHIP_VIOLATION", "UNKNOWN_JOB_TYPE", "CANCELLED"):
        assert CODES[name].error_class == "permanent"


@pytest.mark.usefixtures("codes")
def test_a_code_cannot_mean_two_things() -> None:
    register("SHELF_EMPTY", "permanent", "The shelf is empty.")
    register("SHELF_EMPTY", "permanent", "The shelf is empty.")

    with pytest.raises(DeclarationError, match="SHELF_EMPTY"):
        register("SHELF_EMPTY", "retryable", "The shelf is empty.")


def codes_in(tree: ast.AST) -> Iterator[str]:
    """Every code that a piece of source names: `code="X"` in a call, `code = "X"` in a class, `Error("X", …)`."""
    for node in ast.walk(tree):
        values: list[ast.expr | None] = []
        if isinstance(node, ast.Call):
            values = [keyword.value for keyword in node.keywords if keyword.arg == "code"]
            values += node.args[:1] if isinstance(node.func, ast.Name) and node.func.id == "Error" else []
        elif isinstance(node, ast.ClassDef):
            values = [part.value for part in node.body if isinstance(part, ast.Assign) and names_code(part.targets[0])]
            values += [part.value for part in node.body if isinstance(part, ast.AnnAssign) and names_code(part.target)]
        yield from (value.value for value in values if isinstance(value, ast.Constant) and isinstance(value.value, str))


def names_code(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id == "code"


@pytest.mark.rule("ENG-8.12")
def test_every_code_in_the_source_is_registered() -> None:
    found: dict[str, str] = {}
    registered: set[object] = set(CODES)
    for path in (path for package in PACKAGES for path in package.rglob("*.py")):
        tree = ast.parse(path.read_text())
        found |= dict.fromkeys(codes_in(tree), str(path.relative_to(ROOT)))
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) == "register":
                registered |= {arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)}

    assert "SNOOZED_TOO_LONG" in found
    assert {code: path for code, path in found.items() if code not in registered} == {}
