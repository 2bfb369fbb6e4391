"""Forks workers that kill themselves: everything is imported once, so that each costs a tenth of a second.

Reads one command a line from stdin, and answers each with the number of the signal that ended the worker, 0 for none.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.proofs.crashpoints.scenarios import SCENARIOS, Surroundings

ROOT = Path(__file__).resolve().parents[3]


class Nursery:
    """The other end: starts such a process and tells it what to do."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, around: Surroundings, scenario: str, point: str | None) -> int:
        """Let a worker drain the queue and die at a point, if one is said."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = {"around": list(around), "scenario": scenario, "point": point}
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


@contextmanager
def nursery() -> Iterator[Nursery]:
    """A process that forks workers."""
    command = [sys.executable, "-m", "tests.proofs.crashpoints.nursery"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Nursery(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def worker(around: Surroundings, scenario: str, point: str | None) -> None:
    """Work until nothing is due, and be killed at the point."""
    play = SCENARIOS[scenario](around)
    play.plant(point)
    asyncio.run(play.drain())


def main() -> None:
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                worker(Surroundings(*command["around"]), command["scenario"], command["point"])
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        _, status = os.waitpid(child, 0)
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)
        sys.stdout.write(f"{ended}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
