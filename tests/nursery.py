"""Forks processes that may kill themselves: everything is imported once, so that each costs a tenth of a second.

As a program it is told a function, `module:name`. It reads the arguments of one call a line, as JSON, and answers each
with the number of the signal that ended the process which made the call; 0: it returned, negative: it raised.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]


class Nursery:
    """The other end: starts such a process and tells it what to call."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def run(self, *args: Any) -> int:
        """Call the function in a process of its own, and say what ended that."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        print(json.dumps(args), file=self._process.stdin, flush=True)
        return int(self._process.stdout.readline())


@contextmanager
def nursery(function: Callable[..., None]) -> Iterator[Nursery]:
    """A process that forks others, each of which calls this function of a module."""
    command = [sys.executable, "-m", "tests.nursery", f"{function.__module__}:{function.__name__}"]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield Nursery(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


def main() -> None:
    module, _, name = sys.argv[1].partition(":")
    function = getattr(import_module(module), name)
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                function(*json.loads(line))
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
