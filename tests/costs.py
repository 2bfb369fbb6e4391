"""What costly tests cost: `tests/costs.txt`, which `make costs` writes and `tests/sampling.py` reads."""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path

import pytest

ENV = "COSTS"
FILE = Path(__file__).with_name("costs.txt")
COSTLY_FROM_S = 0.5


def read(text: str) -> dict[str, float]:
    """Seconds of one case, by test.

    >>> read("1.5 tests/test_app.py::test_it")
    {'tests/test_app.py::test_it': 1.5}
    """
    lines = (line.split(" ", 1) for line in text.splitlines())
    return {test: float(seconds) for seconds, test in lines}


class CostRecorder:
    """Adds up what the phases of each case took, in the process that hears of all."""

    def __init__(self) -> None:
        self._taken: defaultdict[str, float] = defaultdict(float)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Take one phase of one case."""
        self._taken[report.nodeid] += report.duration

    def text(self) -> str:
        """The lines of the list, by test."""
        cases: defaultdict[str, list[float]] = defaultdict(list)
        for nodeid, seconds in self._taken.items():
            cases[nodeid.partition("[")[0]].append(seconds)
        means = {test: sum(taken) / len(taken) for test, taken in sorted(cases.items())}
        return "".join(f"{mean:.1f} {test}\n" for test, mean in means.items() if mean >= COSTLY_FROM_S)

    def pytest_sessionfinish(self) -> None:
        """Write the list once the whole run is over."""
        FILE.write_text(self.text())


def record(config: pytest.Config) -> None:
    """Write the list anew where `make costs` asks for it."""
    if os.environ.get(ENV) and not hasattr(config, "workerinput"):
        config.pluginmanager.register(CostRecorder(), "cost-recorder")
