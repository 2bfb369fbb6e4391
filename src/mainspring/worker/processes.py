"""CPU-bound handlers in processes of their own, one at a time each, so that one can be stopped without the others."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import signal
import time
from collections.abc import Callable
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from mainspring.declare.task import Task
from mainspring.outcome import Deferred, Error, Failed, Failure, Outcome, Snoozed, Stopped
from mainspring.text.raised import name_of, plain
from mainspring.worker.aside import judge
from mainspring.worker.service import log

_spawn = multiprocessing.get_context("spawn")
#: What a handler's exception may come to.
_OUTCOMES: dict[str, type[Outcome]] = {kind.__name__: kind for kind in (Failed, Snoozed, Stopped, Deferred)}


class Died(Failure):
    """The process of a CPU-bound handler died."""


class Late(Exception):
    """The share of a rate ran out before the handler was entered: the job goes back, nothing happened."""


class RaisedInChild(Failure):
    """What a process says about the exception of its handler: it is read there, and does not come here itself."""

    def __init__(self, outcome: Outcome, counts: bool | None) -> None:
        super().__init__("", counts=counts)
        self.outcome = outcome


class Child:
    """A process that runs CPU-bound handlers. Made on demand, kept for the next job, killed when it must stop."""

    def __init__(self) -> None:
        self._conn, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    async def call(
        self, task: Task[Any, Any], payload: str, start_by: float, entered: Callable[[], None] = lambda: None
    ) -> Any:
        """Run a handler and return its result, or raise what is told of its exception.

        Late: a process takes a while to start.
        """
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        loop.add_reader(self._conn.fileno(), answered.set)
        try:
            self._conn.send((task.fn.__module__, task.fn.__qualname__, payload, start_by))
            while True:
                await answered.wait()
                kind, value = self._conn.recv()
                if kind != "entered":
                    break
                answered.clear()
                entered()
                if self._conn.poll():
                    answered.set()
        except (EOFError, OSError):
            self._process.join(1)
            raise Died(f"the process of {task.name} died with exit code {self._process.exitcode}") from None
        finally:
            loop.remove_reader(self._conn.fileno())
        if kind == "error":
            name, outcome, counts = value
            raise RaisedInChild(msgspec.json.decode(outcome, type=_OUTCOMES[name]), counts)
        if kind == "late":
            raise Late
        if kind == "unwritable":  # the work is done: running it again would be worse than losing a value
            log.error("task %s: its result cannot be written as JSON: %s", task.name, value)
            return None
        return None if value is None else msgspec.json.decode(value)

    def kill(self) -> None:
        """Stop it at once."""
        self._process.kill()
        self._process.join(1)
        self._conn.close()

    @property
    def alive(self) -> bool:
        """Whether it can take another job."""
        return self._process.is_alive() and not self._conn.closed


class Children:
    """The idle processes of a worker."""

    def __init__(self) -> None:
        self._idle: list[Child] = []

    async def call(
        self,
        task: Task[Any, Any],
        payload: str,
        start_by: float = float("inf"),
        entered: Callable[[], None] = lambda: None,
    ) -> Any:
        """Run a handler in a free process; one that is interrupted is killed. `start_by` is an instant of the loop."""
        child = self._take()
        try:
            result = await child.call(task, payload, start_by, entered)
        except (asyncio.CancelledError, Died):
            child.kill()
            raise
        except BaseException:
            self._idle.append(child)
            raise
        self._idle.append(child)
        return result

    def _take(self) -> Child:
        while self._idle:
            child = self._idle.pop()
            if child.alive:
                return child
        return Child()

    def close(self) -> None:
        """End them all."""
        for child in self._idle:
            child.kill()
        self._idle.clear()


def _serve(conn: Connection) -> None:
    """The life of a child: Ctrl-C in the terminal is its parent's business."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    while True:
        try:
            module, name, payload, start_by = conn.recv()
        except EOFError:
            return
        try:
            task: Task[Any, Any] = getattr(importlib.import_module(module), name)
            arguments = task.codec.decode(payload)
            if time.monotonic() > start_by:  # the clock of the parent's loop: all processes share it
                answer: tuple[str, Any] = ("late", None)
            else:
                if start_by < float("inf"):
                    conn.send(("entered", None))
                answer = _written(task.fn(**arguments))
        except Exception as error:
            answer = ("error", _told(error))
        conn.send(answer)


def _written(result: Any) -> tuple[str, Any]:
    try:
        return "result", None if result is None else msgspec.json.encode(result)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return "unwritable", str(error)


def _told(error: Exception) -> tuple[str, bytes, bool | None]:
    """What an exception comes to, as plain values: made anew elsewhere, it might run any code there."""
    outcome = asyncio.run(judge(error))
    counts = plain(error, "counts") if issubclass(type(error), Failure) else None
    try:
        said = msgspec.json.encode(outcome)
    except (TypeError, ValueError, OverflowError):  # a delay of a kind of its own
        outcome = Failed(Error("INTERNAL_ERROR", "retryable", f"{name_of(error)}: it cannot be told."))
        said = msgspec.json.encode(outcome)
    return type(outcome).__name__, said, counts if type(counts) is bool else None
