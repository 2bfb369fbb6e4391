"""Workers that kill themselves: a process that has everything imported forks one a command, which costs little.

Every worker counts its steps by itself: before and after each request to a provider, each commit of a job or of a fire,
and each completion that is written beside the job. A step is known by its name and by how often it was reached, such as
`charge_week: before POST /v1/payment_intents #1`, so it is the same one whatever runs beside it. At one of them, if it
is told so, the worker sends itself SIGKILL.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from datetime import timedelta
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from requests.adapters import HTTPAdapter
from tests.apps.staffing.flows import Flow

import mainspring as ms
from mainspring.contrib.http import Http, _authorities
from mainspring.contrib.notify.smtp import Smtp
from mainspring.declare.caller import current_job
from mainspring.testing import Commit, at_commits
from mainspring.worker.schedules.fan_out import FanOut
from mainspring.worker.schedules.firing import Firing
from mainspring.worker.statements import ExchangeStatements
from mainspring_apps.staffing.market import Market
from mainspring_apps.staffing.settings import Settings, TransferTiming

ROOT = Path(__file__).resolve().parents[3]
CONFIG = ms.WorkerConfig(
    concurrency=1, threads=1, exchanges=1, transactions=1, wakeups=False, poll_interval=timedelta(milliseconds=20)
)


class Ended(NamedTuple):
    """How a worker ended: by which signal, 0 for none, and the steps that it reached."""

    signal: int
    steps: list[str]


class Nursery:
    """The process that forks workers, seen from a test."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process

    def drain(
        self, dsn: str, flow: Flow, *, fatal: str | None = None, reached: Mapping[str, int] | None = None
    ) -> Ended:
        """Let a worker do what is due; it dies at a step, if one is said. `reached` are steps of workers before it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        command = {"dsn": dsn, "timing": flow.timing, "fires": flow.fires, "fatal": fatal, "reached": reached or {}}
        print(json.dumps(command), file=self._process.stdin, flush=True)
        return Ended(*json.loads(self._process.stdout.readline()))


@contextmanager
def nursery(environment: Mapping[str, str]) -> Iterator[Nursery]:
    """A process that forks workers of a marketplace that finds its providers by these settings."""
    command = [sys.executable, "-m", "tests.apps.staffing.crashes"]
    env = os.environ | environment
    with subprocess.Popen(
        command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        try:
            yield Nursery(process)
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(60)


# -- inside of a worker


class Steps:
    """The steps of this worker: each is written down at once, since it may be the last."""

    def __init__(self, out: int, fatal: str | None, reached: Mapping[str, int]) -> None:
        self._out, self._fatal, self._reached = out, fatal, Counter(reached)
        self._lock = threading.Lock()

    def reach(self, name: str) -> None:
        """One more; or the end."""
        with self._lock:
            self._reached[name] += 1
            step = f"{name} #{self._reached[name]}"
            os.write(self._out, f"{step}\n".encode())
            if step == self._fatal:
                os.kill(os.getpid(), signal.SIGKILL)

    def commit(self, commit: Commit) -> None:
        """A block of a job commits."""
        self.reach(f"{commit.job.task}: {commit.when} commit")

    @contextmanager
    def around(self, what: str, who: str | None = None) -> Iterator[None]:
        """Something that happens or does not: by a job, or by whom it is said."""
        if who is None:
            job = current_job()
            if job is None:  # of no consequence
                yield
                return
            who = job.task
        self.reach(f"{who}: before {what}")
        yield
        self.reach(f"{who}: after {what}")


#: Whether this part of the scheduler has written something.
_written: ContextVar[bool] = ContextVar("written", default=False)


def plant(steps: Steps) -> None:
    """Count steps besides commits, in a process of its own: what is patched here is patched for good."""
    send_turn, send, ask, deliver = ExchangeStatements.send, HTTPAdapter.send, Http.ask, Smtp._deliver

    async def turns(self: Any, conn: Any, request: Any) -> Any:
        if not request.outcomes:
            return await send_turn(self, conn, request)
        with steps.around("completion", ", ".join(sorted(one.claim.task for one in request.outcomes.attempts))):
            return await send_turn(self, conn, request)

    def sends(self: Any, request: Any, **options: Any) -> Any:
        with steps.around(f"{request.method} {urlsplit(request.url).path.removeprefix('/stripe')}"):
            return send(self, request, **options)

    async def asks(self: Any, method: str, path: str, **request: Any) -> Any:
        with steps.around(f"{method} to {self.name}"):
            return await ask(self, method, path, **request)

    async def delivers(self: Any, written: Any) -> None:
        with steps.around("mail"):
            await deliver(self, written)

    def marked(kind: Any, whole: str, writing: str, name: str) -> None:
        """A part of the scheduler whose transaction counts if something is written in it."""
        doing, write = getattr(kind, whole), getattr(kind, writing)

        async def does(*args: Any) -> Any:
            _written.set(False)
            done = await doing(*args)
            if _written.get():
                steps.reach(f"{name}: after commit")
            return done

        async def writes(*args: Any) -> Any:
            written = await write(*args)
            if name != "fire" or any(plan.fires for plan in args[2]):  # else a schedule was only looked at
                _written.set(True)
                steps.reach(f"{name}: before commit")
            return written

        setattr(kind, whole, does)
        setattr(kind, writing, writes)

    marked(Firing, "_fire", "_write", "fire")
    marked(FanOut, "page", "_page", "page")
    for kind, name, patch in (
        (ExchangeStatements, "send", turns), (HTTPAdapter, "send", sends), (Http, "ask", asks),
        (Smtp, "_deliver", delivers),
    ):  # fmt: skip
        setattr(kind, name, patch)


def work(dsn: str, timing: TransferTiming, fires: bool, steps: Steps) -> None:
    """Do what is due, as a worker does."""
    logging.disable(logging.ERROR)  # of what the dead have left
    plant(steps)
    app = Market(dsn=dsn, settings=Settings(transfer_timing=timing), maintenance=False, watches=())
    with at_commits(steps.commit):
        asyncio.run(app.worker(replace(CONFIG, scheduler=fires)).drain())


def main() -> None:
    for late in ("aiosmtplib", "httpx2", "stripe", "mainspring.worker"):  # what a worker imports when it needs it
        import_module(late)
    _authorities()
    for line in sys.stdin:
        command: dict[str, Any] = json.loads(line)
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            code = 1
            try:
                steps = Steps(write, command["fatal"], command["reached"])
                work(command["dsn"], command["timing"], command["fires"], steps)
                code = 0
            except BaseException:
                traceback.print_exc()
            os._exit(code)
        os.close(write)
        with os.fdopen(read) as lines:
            reached = lines.read().splitlines()
        _, status = os.waitpid(child, 0)
        ended = os.WTERMSIG(status) if os.WIFSIGNALED(status) else -os.WEXITSTATUS(status)
        sys.stdout.write(f"{json.dumps(Ended(ended, reached))}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
