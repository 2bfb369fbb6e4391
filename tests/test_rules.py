"""The ledgers, the marks of the tests and the report that `make rules` prints."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tools import rules as tool

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs" / "rules"

ENGINE = """# Engine

| name | meaning |
| --- | --- |
| ENG-9.99 | not a rule: its table has no ID column |

## 1. First

| ID | rule | how a test would show it |
| --- | --- | --- |
| ENG-1.01 | One. | So. |
| ENG-1.02 | Two. | So. |
| ENG-1.03 | Three. | So. |

## 2. Second

| ID | rule | T: |
|---|---|---|
| ENG-2.01 | Four. | So. |

## 3. Contradictions and gaps, and how we read them

| ID | clash or gap | reading |
| --- | --- | --- |
| ENG-3.01 | A clash. | A reading. |
"""
RULES = {
    "ENG-1.01": "ENG 1. First",
    "ENG-1.02": "ENG 1. First",
    "ENG-1.03": "ENG 1. First",
    "ENG-2.01": "ENG 2. Second",
}
TESTS = """
import pytest

@pytest.mark.rule("ENG-1.01")
@pytest.mark.parametrize("n", [1, 2, 3])
def test_cases(n): assert n < {limit}

@pytest.mark.rule("ENG-1.02")
class TestGroup:
    @pytest.mark.rule("ENG-1.03")
    def test_inner(self): pass

    @pytest.mark.skip(reason="later")
    def test_skipped(self): pass

@pytest.mark.rule("ENG-2.01")
@pytest.mark.xfail
def test_xfailed(): raise AssertionError

@pytest.mark.rule("ENG-2.01")
@pytest.mark.xfail(strict=False)
def test_xpassed(): pass

def test_without_rules(): pass
"""


@pytest.fixture
def ledgers(tmp_path: Path) -> Path:
    folder = tmp_path / "ledgers"
    folder.mkdir()
    (folder / "engine.md").write_text(ENGINE)
    return folder


@pytest.fixture
def made_up(tmp_path: Path) -> Path:
    folder = tmp_path / "made_up"
    folder.mkdir()
    (folder / "pytest.ini").write_text("[pytest]\nmarkers = rule\naddopts = -p no:cacheprovider\n")
    return folder


def write_gaps(ledgers: Path, *rows: tuple[str, str]) -> None:
    lines = ["| rules | reason |", "| --- | --- |", *(f"| {name} | {reason} |" for name, reason in rows)]
    (ledgers / "gaps.md").write_text("\n".join(lines) + "\n")


def write_results(tmp_path: Path, *records: tuple[str, list[str], str]) -> Path:
    path = tmp_path / "results.json"
    tests = [{"nodeid": nodeid, "rules": ids, "outcome": outcome} for nodeid, ids, outcome in records]
    path.write_text(json.dumps({"tests": tests, "uncollected": []}))
    return path


def shown(tmp_path: Path, *records: tuple[str, list[str], str]) -> set[str]:
    tests = tool.read_results(write_results(tmp_path, *records))
    return {rule for rule in RULES if tool.is_shown(rule, tests)}


def problems_of(tmp_path: Path, source: str) -> list[str]:
    (tmp_path / "test_marks.py").write_text(source)
    return tool.check_sources(tmp_path, RULES)


# The project's own ledgers and marks


def test_marks_of_all_tests_are_rules_and_at_most_five_a_test() -> None:
    assert tool.check_sources(ROOT / "tests", tool.read_ledgers(DOCS)) == []


def test_all_ledgers_hold_rules_in_their_own_sections() -> None:
    rules = tool.read_ledgers(DOCS)
    assert list(tool.count(rules, set())) == list(tool.LEDGERS)
    for rule, section in rules.items():
        prefix, _, number = rule.partition("-")
        assert section.startswith(f"{prefix} {number.partition('.')[0]}. ")
        assert "Contradictions" not in section


def test_gaps_name_rules_that_exist() -> None:
    assert tool.read_gaps(DOCS, tool.read_ledgers(DOCS))


# Ledgers and gaps


def test_only_tables_of_rules_are_counted(ledgers: Path) -> None:
    assert tool.read_ledgers(ledgers) == RULES


@pytest.mark.parametrize(
    "row", ["| ENG-1.01 | Again. | So. |", "| ENG-1 | Odd. | So. |", "| BILL-1.01 | Alien. | So. |"]
)
def test_a_repeated_odd_or_alien_id_is_refused(ledgers: Path, row: str) -> None:
    table = "| ID | rule | T: |\n| --- | --- | --- |\n"
    (ledgers / "engine.md").write_text(f"{ENGINE}\n## 4. Fourth\n\n{table}{row}\n")
    with pytest.raises(tool.ProblemError, match="not a new ENG rule"):
        tool.read_ledgers(ledgers)


def test_a_folder_without_ledgers_is_refused(tmp_path: Path) -> None:
    with pytest.raises(tool.ProblemError, match="no rules"):
        tool.read_ledgers(tmp_path)


@pytest.mark.parametrize(
    ("pattern", "found"),
    [
        ("ENG-1.02", ["ENG-1.02"]),
        ("ENG-1.*", ["ENG-1.01", "ENG-1.02", "ENG-1.03"]),
        ("ENG-*", list(RULES)),
        ("ENG-1.03 to ENG-2.01", ["ENG-1.03", "ENG-2.01"]),
    ],
)
def test_a_gap_is_a_rule_a_section_a_ledger_or_a_range(pattern: str, found: list[str]) -> None:
    assert tool.expand(pattern, RULES) == found


@pytest.mark.parametrize("pattern", ["ENG-7.*", "ENG-1.01 to ENG-9.01", "ENG-3.01"])
def test_a_gap_that_names_no_rule_is_refused(pattern: str) -> None:
    with pytest.raises(tool.ProblemError, match="names no rule"):
        tool.expand(pattern, RULES)


def test_a_gap_needs_a_reason(ledgers: Path) -> None:
    write_gaps(ledgers, ("ENG-1.*", ""))
    with pytest.raises(tool.ProblemError, match="has no reason"):
        tool.read_gaps(ledgers, RULES)


# Marks in the source


def test_marks_of_module_class_test_and_cases_add_up(tmp_path: Path) -> None:
    source = """
import pytest
pytestmark = [pytest.mark.rule("ENG-1.01")]
@pytest.mark.rule("ENG-1.02")
class TestGroup:
    @pytest.mark.parametrize("n", [pytest.param(1, marks=pytest.mark.rule("ENG-1.03"))])
    @pytest.mark.rule("ENG-2.01")
    async def test_inner(self, n): ...
"""
    (tmp_path / "test_marks.py").write_text(source)
    (found,) = tool.read_marks(tmp_path)
    assert found.tests == {f"{tmp_path.name}/test_marks.py::TestGroup::test_inner": set(RULES)}


def test_too_many_rules_are_named_by_class_and_test(tmp_path: Path) -> None:
    four = ", ".join(f'"ENG-1.0{n}"' for n in range(1, 5))
    two = '"ENG-2.01", "ENG-2.02"'
    source = f"""
import pytest
@pytest.mark.rule({four})
class TestGroup:
    @pytest.mark.rule({two})
    def test_inner(self): ...
"""
    assert any("TestGroup::test_inner: 6 rules, at most 5" in problem for problem in problems_of(tmp_path, source))


def test_unknown_rules_are_named_even_outside_of_tests(tmp_path: Path) -> None:
    source = """
import pytest
CASES = [pytest.param(1, marks=pytest.mark.rule("ENG-8.01"))]
@pytest.mark.rule("ENG-3.01")
def test_reading(): ...
"""
    name = f"{tmp_path.name}/test_marks.py"
    expected = [f"{name}::test_reading: no such rule: ENG-3.01", f"{name}: no such rule: ENG-8.01"]
    assert problems_of(tmp_path, source) == expected


def test_ids_must_be_literals(tmp_path: Path) -> None:
    with pytest.raises(tool.ProblemError, match=r"test_marks\.py: line 2: write rule ids as literals"):
        problems_of(tmp_path, "import pytest\nmark = pytest.mark.rule(*IDS)\n")


# The report


def test_a_rule_counts_when_a_test_passed(tmp_path: Path) -> None:
    assert shown(tmp_path, ("t.py::a", ["ENG-1.01", "ENG-2.01"], "passed")) == {"ENG-1.01", "ENG-2.01"}


def test_a_rule_does_not_count_when_another_test_failed(tmp_path: Path) -> None:
    assert shown(tmp_path, ("t.py::a", ["ENG-1.01"], "passed"), ("t.py::b", ["ENG-1.01"], "failed")) == set()


def test_skipped_tests_neither_count_nor_harm(tmp_path: Path) -> None:
    skipped = ("t.py::a", ["ENG-1.01"], "skipped")
    assert shown(tmp_path, skipped) == set()
    assert shown(tmp_path, skipped, ("t.py::b", ["ENG-1.01"], "passed")) == {"ENG-1.01"}


@pytest.mark.parametrize("outcome", ["failed", "skipped"])
def test_all_cases_of_a_test_must_pass(tmp_path: Path, outcome: str) -> None:
    assert shown(tmp_path, ("t.py::a[1]", ["ENG-1.01"], "passed"), ("t.py::a[2]", ["ENG-1.01"], outcome)) == set()


@pytest.mark.parametrize(
    ("ids", "words"),
    [
        (["ENG-8.01"], "t.py::a: no such rule: ENG-8.01"),
        ([f"ENG-1.0{n}" for n in range(1, 7)], "t.py::a: 6 rules, at most 5"),
    ],
)
def test_wrong_marks_in_results_are_errors(
    ledgers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], ids: list[str], words: str
) -> None:
    path = write_results(tmp_path, ("t.py::a", ids, "passed"))
    assert tool.main(["--ledgers", str(ledgers), "--from", str(path)]) == 2
    assert words in capsys.readouterr().err


def test_a_crash_that_lost_its_rules_is_an_error(
    ledgers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = write_results(tmp_path, ("t.py::a", [], "failed"))
    assert tool.main(["--ledgers", str(ledgers), "--from", str(path)]) == 2
    assert "t.py::a: failed before its rules were known" in capsys.readouterr().err


def test_missing_rules_need_a_reason(ledgers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_results(tmp_path, ("t.py::a", ["ENG-1.01"], "passed"))
    command = ["--ledgers", str(ledgers), "--from", str(path)]
    write_gaps(ledgers, ("ENG-2.*", "schedules"))
    assert tool.main(command) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ENG 1/4",
        "",
        "ENG 1. First",
        "  ENG-1.02 to ENG-1.03: no test, no reason",
        "",
        "ENG 2. Second",
        "  ENG-2.01: schedules",
        "",
        "Without a reason in gaps.md, or failing (2): ENG-1.02 to ENG-1.03",
    ]
    write_gaps(ledgers, ("ENG-1.01", "done"), ("ENG-1.02", "operations"), ("ENG-*", "later"))
    assert tool.main(command) == 0
    out = capsys.readouterr().out
    assert "  ENG-1.02: operations\n  ENG-1.03: later\n" in out
    assert "No longer needed in gaps.md: ENG-1.01" in out


def test_nothing_excuses_a_failing_test(ledgers: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_gaps(ledgers, ("ENG-*", "later"))
    path = write_results(tmp_path, ("t.py::a", ["ENG-1.01"], "failed"))
    assert tool.main(["--ledgers", str(ledgers), "--from", str(path)]) == 1
    assert "  ENG-1.01: failed: t.py::a\n  ENG-1.02 to ENG-1.03: later" in capsys.readouterr().out


def test_fast_reads_marks_and_says_so(ledgers: Path, made_up: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (made_up / "test_made_up.py").write_text(TESTS.format(limit=4))
    assert tool.main(["--ledgers", str(ledgers), "--tests", str(made_up), "--fast"]) == 0
    assert capsys.readouterr().out == "Not run: rules that a test carries, passing or not.\nENG 4/4\n"


# Whole runs, in processes of their own


def run(ledgers: Path, made_up: Path) -> tuple[int, dict[str, Any], str]:
    command = [sys.executable, str(ROOT / "tools" / "rules.py"), "--json"]
    command += ["--ledgers", str(ledgers), "--tests", str(made_up)]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    environment["PYTEST_XDIST_AUTO_NUM_WORKERS"] = "1"  # each process imports everything, for a handful of tests
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


def test_a_run_counts_what_passed_but_not_what_was_skipped_or_expected_to_fail(ledgers: Path, made_up: Path) -> None:
    (made_up / "test_made_up.py").write_text(TESTS.format(limit=4))
    write_gaps(ledgers, ("ENG-2.01", "schedules"))
    code, report, log = run(ledgers, made_up)
    assert (code, report["ledgers"]) == (0, {"ENG": {"shown": 3, "rules": 4}}), log
    (missing,) = report["missing"]
    assert missing["rule"] == "ENG-2.01"
    assert [test.partition(":")[0] for test in missing["tests"]] == ["skipped", "skipped"]


def test_a_run_with_one_failing_case_does_not_show_the_rule(ledgers: Path, made_up: Path) -> None:
    (made_up / "test_made_up.py").write_text(TESTS.format(limit=3))
    write_gaps(ledgers, ("ENG-*", "later"))
    code, report, log = run(ledgers, made_up)
    assert (code, report["unexplained"]) == (1, ["ENG-1.01"]), log


def test_the_plugin_leaves_out_tests_without_rules(made_up: Path) -> None:
    (made_up / "test_made_up.py").write_text(
        "import pytest\n@pytest.mark.rule('ENG-1.01')\ndef test_a(): pass\ndef test_b(): assert False\n"
    )
    path = made_up / "results.json"
    command = [sys.executable, "-m", "pytest", str(made_up), "-p", "tests.rule_report"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    subprocess.run(
        command, cwd=ROOT, env=environment | {"MAINSPRING_RULE_REPORT": str(path)}, capture_output=True, check=False
    )
    (record,) = json.loads(path.read_text())["tests"]
    assert (record["rules"], record["outcome"]) == (["ENG-1.01"], "passed")


def test_a_run_does_not_lose_a_test_that_kills_its_worker(ledgers: Path, made_up: Path) -> None:
    source = "import os, pytest\n@pytest.mark.rule('ENG-1.01')\ndef test_a(): os._exit(1)\n"
    (made_up / "test_made_up.py").write_text(source)
    write_gaps(ledgers, ("ENG-*", "later"))
    code, report, log = run(ledgers, made_up)
    assert code == 2 or (code, report["unexplained"]) == (1, ["ENG-1.01"]), log


@pytest.mark.parametrize(
    "source", ["import nowhere\n", "import pytest\n@pytest.mark.rule('ENG-9.01')\ndef test_a(): pass\n"]
)
def test_a_run_that_cannot_be_trusted_prints_no_report(ledgers: Path, made_up: Path, source: str) -> None:
    (made_up / "test_made_up.py").write_text(TESTS.format(limit=4))
    (made_up / "test_broken.py").write_text(source)
    code, report, log = run(ledgers, made_up)
    assert (code, report) == (2, {}), log
