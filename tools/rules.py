"""Says which rules of docs/rules have a test that ran and passed, and which have none and why."""

from __future__ import annotations

import argparse
import ast
import fnmatch
import itertools
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
LEDGERS = {
    "ENG": "engine.md",
    "STAFF": "staffing.md",
    "RENT": "rental.md",
    "BILL": "billing.md",
    "PLAN": "planning.md",
    "PASS": "passport.md",
}
RULE_ID = re.compile(r"[A-Z]+-\d+\.\d+")
RULES_A_TEST = 5


class ProblemError(Exception):
    """Something that makes the report worthless: broken ledgers, marks or test runs."""


# Ledgers and gaps


def cells(line: str) -> list[str]:
    """Return the cells of a table row, or nothing for any other line."""
    return [cell.strip() for cell in line.strip().strip("|").split("|")] if line.startswith("|") else []


def is_ruler(row: list[str]) -> bool:
    """Tell whether a row is the line between a table's head and its body."""
    return all(cell and set(cell) <= set("-:") for cell in row)


def read_ledger(path: Path, prefix: str) -> dict[str, str]:
    """Return the rules of one ledger, each with its section; only tables headed `ID | rule` hold rules."""
    rules: dict[str, str] = {}
    section, counted = "", False
    for line in path.read_text().splitlines():
        row = cells(line)
        if line.startswith("## "):
            section = line.removeprefix("## ").strip()
        elif not row:
            counted = False
        elif row[0] == "ID":
            counted = row[1] == "rule"
        elif counted and not is_ruler(row):
            if not RULE_ID.fullmatch(row[0]) or not row[0].startswith(f"{prefix}-") or row[0] in rules:
                raise ProblemError(f"{path.name}: not a new {prefix} rule: {row[0]}")
            rules[row[0]] = f"{prefix} {section}"
    return rules


def read_ledgers(folder: Path) -> dict[str, str]:
    """Return the rules of all ledgers that the folder holds, in order."""
    rules: dict[str, str] = {}
    for prefix, name in LEDGERS.items():
        if (folder / name).exists():
            rules |= read_ledger(folder / name, prefix)
    if not rules:
        raise ProblemError(f"{folder}: no rules")
    return rules


def expand(pattern: str, rules: Iterable[str]) -> list[str]:
    """Return the rules that one line of gaps.md names."""
    ids = list(rules)
    first, _, last = (part.strip() for part in pattern.partition(" to "))
    if last:
        found = ids[ids.index(first) : ids.index(last) + 1] if {first, last} <= set(ids) else []
    else:
        found = fnmatch.filter(ids, first)
    if not found:
        raise ProblemError(f"gaps.md: {pattern} names no rule")
    return found


def read_gaps(folder: Path, rules: Iterable[str]) -> dict[str, dict[str, str]]:
    """Return, for each line of gaps.md, the rules that it names with its reason."""
    path = folder / "gaps.md"
    rows = [cells(line) for line in path.read_text().splitlines()] if path.exists() else []
    body = [row for row in rows if row and row[0] != "rules" and not is_ruler(row)]
    for row in body:
        if len(row) != 2 or not row[1]:
            raise ProblemError(f"gaps.md: {row[0]} has no reason")
    return {row[0]: dict.fromkeys(expand(row[0], rules), row[1]) for row in body}


# Marks, read from the source of the tests


def marked(node: ast.AST) -> list[str]:
    """Return the ids in all `pytest.mark.rule(...)` calls below a node."""
    ids: list[str] = []
    for call in ast.walk(node):
        if isinstance(call, ast.Call) and ast.unparse(call.func) in ("pytest.mark.rule", "mark.rule"):
            for arg in call.args:
                if not isinstance(arg, ast.Constant) or not isinstance(arg.value, str):
                    raise ProblemError(f"line {call.lineno}: write rule ids as literals")
                ids.append(arg.value)
    return ids


def own_marks(node: ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """Return the ids that a module, class or function is marked with itself."""
    holders: list[ast.AST] = [] if isinstance(node, ast.Module) else list(node.decorator_list)
    holders += [
        part for part in node.body if isinstance(part, ast.Assign | ast.AnnAssign) and "pytestmark" in names_set(part)
    ]
    return {rule for holder in holders for rule in marked(holder)}


def names_set(node: ast.Assign | ast.AnnAssign) -> list[str]:
    """Return the names that an assignment sets."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [ast.unparse(target) for target in targets]


def marks_by_test(node: ast.Module | ast.ClassDef, name: str, inherited: set[str]) -> Iterator[tuple[str, set[str]]]:
    """Yield each test below a module or class with the rules it carries, inherited ones included."""
    here = inherited | own_marks(node)
    for part in node.body:
        if isinstance(part, ast.ClassDef):
            yield from marks_by_test(part, f"{name}::{part.name}", here)
        elif isinstance(part, ast.FunctionDef | ast.AsyncFunctionDef) and part.name.startswith("test"):
            yield f"{name}::{part.name}", here | own_marks(part)


@dataclass
class Source:
    """The rules marked in one test file: by test, and anywhere."""

    name: str
    tests: dict[str, set[str]]
    anywhere: set[str]


def read_marks(folder: Path) -> list[Source]:
    """Return the rules marked in each file of a folder of tests."""
    sources = []
    for path in sorted(folder.rglob("*.py")):
        tree = ast.parse(path.read_text())
        name = f"{folder.name}/{path.relative_to(folder)}"
        try:
            sources.append(Source(name, dict(marks_by_test(tree, name, set())), set(marked(tree))))
        except ProblemError as problem:
            raise ProblemError(f"{name}: {problem}") from None
    return sources


def check_marks(tests: dict[str, set[str]], rules: Iterable[str]) -> list[str]:
    """Return what is wrong with the marks: too many rules a test, or unknown ones."""
    known = set(rules)
    problems = [
        f"{name}: {len(ids)} rules, at most {RULES_A_TEST}" for name, ids in tests.items() if len(ids) > RULES_A_TEST
    ]
    problems += [
        f"{name}: no such rule: {', '.join(sorted(ids - known))}" for name, ids in tests.items() if ids - known
    ]
    return sorted(problems)


def check_sources(folder: Path, rules: Iterable[str]) -> list[str]:
    """Return what is wrong with the marks in the source of the tests, those outside of tests included."""
    known = set(rules)
    problems = []
    for source in read_marks(folder):
        problems += check_marks(source.tests, known)
        if unknown := source.anywhere - known - set().union(*source.tests.values()):
            problems.append(f"{source.name}: no such rule: {', '.join(sorted(unknown))}")
    return problems


# Results


@dataclass
class Test:
    """A test function with all its cases."""

    rules: set[str] = field(default_factory=set)
    outcomes: set[str] = field(default_factory=set)

    @property
    def outcome(self) -> str:
        """Return failed if one case failed, passed if all passed, skipped otherwise."""
        if "failed" in self.outcomes:
            return "failed"
        return "passed" if self.outcomes == {"passed"} else "skipped"


def read_results(path: Path) -> dict[str, Test]:
    """Return the tests of a result file, cases joined into their test."""
    results = json.loads(path.read_text())
    if results["uncollected"]:
        raise ProblemError(f"pytest could not collect {', '.join(results['uncollected'])}")
    tests: dict[str, Test] = {}
    for record in results["tests"]:
        test = tests.setdefault(record["nodeid"].partition("[")[0], Test())
        test.rules.update(record["rules"])
        test.outcomes.add(record["outcome"])
    return tests


def run_tests(folder: Path) -> dict[str, Test]:
    """Run the tests that carry rules, over all processors, and return their results."""
    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch) / "results.json"
        command = [sys.executable, "-m", "pytest", str(folder), "-p", "tests.rule_report", "-m", "rule"]
        command += ["-n", "auto", "--dist", "worksteal", "-q", "--tb=short"]
        environment = os.environ | {"MAINSPRING_RULE_REPORT": str(path)}
        code = subprocess.run(command, cwd=ROOT, env=environment, stdout=sys.stderr, check=False).returncode
        if code not in (0, 1, 5) or not path.exists():
            raise ProblemError(f"pytest ended with {code}")
        return read_results(path)


def marked_only(folder: Path) -> dict[str, Test]:
    """Return the marks as if every test had passed."""
    return {source.name: Test(source.anywhere, {"passed"}) for source in read_marks(folder)}


# The report


@dataclass
class Missing:
    """A rule without a passing test."""

    rule: str
    section: str
    reason: str | None
    tests: list[str]


@dataclass
class Report:
    """What is shown, what is missing, and which lines of gaps.md are not needed any more."""

    ran: bool
    ledgers: dict[str, tuple[int, int]]
    missing: list[Missing]
    stale: list[str]

    @property
    def unexplained(self) -> list[Missing]:
        """Return the missing rules for which nobody named a reason."""
        return [rule for rule in self.missing if rule.reason is None]


def is_shown(rule: str, tests: dict[str, Test]) -> bool:
    """Tell whether a test that carries the rule passed and none failed."""
    outcomes = {test.outcome for test in tests.values() if rule in test.rules}
    return "passed" in outcomes and "failed" not in outcomes


def reason_for(rule: str, tests: dict[str, Test], reasons: dict[str, str]) -> str | None:
    """Return why a rule is missing; nothing excuses a failing test."""
    failed = any(rule in test.rules and test.outcome == "failed" for test in tests.values())
    return None if failed else reasons.get(rule)


def make_report(rules: dict[str, str], gaps: dict[str, dict[str, str]], tests: dict[str, Test], ran: bool) -> Report:
    """Compare the ledgers with the results."""
    if problems := check_marks({name: test.rules for name, test in tests.items()} if ran else {}, rules):
        raise ProblemError("\n".join(problems))
    if lost := [name for name, test in tests.items() if test.outcome == "failed" and not test.rules]:
        raise ProblemError("\n".join(f"{name}: failed before its rules were known" for name in lost))
    shown = {rule for rule in rules if is_shown(rule, tests)}
    reasons: dict[str, str] = {}
    for named in gaps.values():
        reasons = named | reasons
    missing = [
        Missing(
            rule,
            section,
            reason_for(rule, tests, reasons),
            sorted(f"{test.outcome}: {name}" for name, test in tests.items() if rule in test.rules),
        )
        for rule, section in rules.items()
        if rule not in shown
    ]
    return Report(ran, count(rules, shown), missing, [line for line, named in gaps.items() if set(named) <= shown])


def count(rules: Iterable[str], shown: set[str]) -> dict[str, tuple[int, int]]:
    """Return for each ledger how many rules are shown, and how many there are."""
    ledgers = itertools.groupby(rules, key=lambda rule: rule.partition("-")[0])
    groups = {prefix: list(group) for prefix, group in ledgers}
    return {prefix: (len(shown.intersection(group)), len(group)) for prefix, group in groups.items()}


def span(rules: list[str], order: list[str]) -> str:
    """Write rules shortly, as runs in the order of the ledgers."""
    places = sorted(order.index(rule) for rule in rules)
    runs = [
        [place for _, place in run] for _, run in itertools.groupby(enumerate(places), lambda pair: pair[1] - pair[0])
    ]
    return ", ".join(order[run[0]] if len(run) == 1 else f"{order[run[0]]} to {order[run[-1]]}" for run in runs)


def as_text(report: Report, order: list[str]) -> str:
    """Write the report for people."""
    lines = [] if report.ran else ["Not run: rules that a test carries, passing or not."]
    lines += [f"{prefix} {shown}/{total}" for prefix, (shown, total) in report.ledgers.items()]
    for section, group in itertools.groupby(report.missing, key=lambda rule: rule.section):
        lines += ["", section]
        by_reason: dict[str, list[str]] = {}
        for rule in group:
            why = rule.reason or "; ".join(rule.tests) or "no test, no reason"
            by_reason.setdefault(why, []).append(rule.rule)
        lines += [f"  {span(ids, order)}: {why}" for why, ids in by_reason.items()]
    if report.stale:
        lines += ["", f"No longer needed in gaps.md: {', '.join(report.stale)}"]
    if report.unexplained:
        ids = [rule.rule for rule in report.unexplained]
        lines += ["", f"Without a reason in gaps.md, or failing ({len(ids)}): {span(ids, order)}"]
    return "\n".join(lines)


def as_json(report: Report) -> str:
    """Write the report for programs."""
    return json.dumps(
        {
            "ran": report.ran,
            "ledgers": {prefix: {"shown": n, "rules": total} for prefix, (n, total) in report.ledgers.items()},
            "missing": [vars(rule) for rule in report.missing],
            "stale": report.stale,
            "unexplained": [rule.rule for rule in report.unexplained],
        },
        indent=2,
    )


def arguments(argv: list[str] | None) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    source = parser.add_mutually_exclusive_group()
    source.add_argument("--fast", action="store_true", help="run nothing, only read the marks of the tests")
    source.add_argument("--from", dest="results", type=Path, metavar="FILE", help="report an earlier run")
    parser.add_argument("--tests", type=Path, default=ROOT / "tests", help="where the tests are")
    parser.add_argument("--ledgers", type=Path, default=ROOT / "docs" / "rules", help="where the ledgers are")
    return parser.parse_args(argv)


def load(args: argparse.Namespace, rules: Iterable[str]) -> dict[str, Test]:
    """Return the results that the command line asks for, from a file, from marks alone or from a run."""
    if args.results:
        return read_results(args.results)
    if problems := check_sources(args.tests, rules):
        raise ProblemError("\n".join(problems))
    return marked_only(args.tests) if args.fast else run_tests(args.tests)


def main(argv: list[str] | None = None) -> int:
    """Print the report; 0 if every missing rule has a reason, 1 if not, 2 if there is no report."""
    args = arguments(argv)
    try:
        rules = read_ledgers(args.ledgers)
        gaps = read_gaps(args.ledgers, rules)
        report = make_report(rules, gaps, load(args, rules), ran=not args.fast)
    except (ProblemError, OSError, ValueError, SyntaxError) as problem:
        print(problem, file=sys.stderr)
        return 2
    print(as_json(report) if args.json else as_text(report, list(rules)))
    return 1 if report.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
