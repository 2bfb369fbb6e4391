"""A pytest plugin that writes each test's rules and outcome as JSON to the file named by MAINSPRING_RULE_REPORT."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

ENV = "MAINSPRING_RULE_REPORT"
PROPERTY = "rules"
WORST_LAST = ("passed", "skipped", "failed")


class Recorder:
    """Collects, over the phases of each test, its rules and its worst outcome."""

    def __init__(self) -> None:
        self.rules: dict[str, list[str]] = {}
        self.outcomes: dict[str, set[str]] = {}
        self.phases: dict[str, set[str]] = {}
        self.uncollected: set[str] = set()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one phase of one test; an xdist controller gets these from its workers."""
        self.rules.setdefault(report.nodeid, [])
        for name, value in report.user_properties:
            if name == PROPERTY and isinstance(value, list):
                self.rules[report.nodeid] = [str(rule) for rule in value]
        self.outcomes.setdefault(report.nodeid, set()).add(outcome(report))
        self.phases.setdefault(report.nodeid, set()).add(str(report.when))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Keep the files that could not be read: with xdist the others run all the same."""
        if report.failed:
            self.uncollected.add(report.nodeid)

    def results(self) -> list[dict[str, object]]:
        """Return one record for each test that carries rules, or that crashed so early that nobody knows."""
        return [
            {"nodeid": nodeid, "rules": rules, "outcome": self.final(nodeid)}
            for nodeid, rules in self.rules.items()
            if rules or not self.phases[nodeid] <= {"setup", "call", "teardown"}
        ]

    def final(self, nodeid: str) -> str:
        """Return the worst outcome of a test's phases; a test that never reached its body has not passed."""
        worst = max(self.outcomes[nodeid], key=WORST_LAST.index)
        return "skipped" if worst == "passed" and "call" not in self.phases[nodeid] else worst

    def pytest_sessionfinish(self, session: pytest.Session) -> None:
        """Write the file once the whole run is over."""
        record = {"tests": self.results(), "uncollected": sorted(self.uncollected)}
        Path(os.environ[ENV]).write_text(json.dumps(record, indent=1) + "\n")


def outcome(report: pytest.TestReport) -> str:
    """Return how a phase ended; an expected failure counts as skipped, whether it failed or not."""
    return "skipped" if report.outcome == "passed" and hasattr(report, "wasxfail") else report.outcome


def pytest_configure(config: pytest.Config) -> None:
    """Record in the process that sees all reports: the only one, or xdist's controller."""
    if os.environ.get(ENV) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(), "rule-recorder")


def pytest_itemcollected(item: pytest.Item) -> None:
    """Let the rules of a test travel with its reports."""
    rules = sorted({str(rule) for mark in item.iter_markers("rule") for rule in mark.args})
    if rules:
        item.user_properties.append((PROPERTY, rules))
