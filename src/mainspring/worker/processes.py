"""CPU-bound handlers in processes of their own, one at a time each, so that one can be stopped without the others."""

from __future__ import annotations

import asyncio
import importlib
import multiprocessing
import signal
import time
from multiprocessing.connection import Connection
from typing import Any

import msgspec

from mainspring.outcome import Failure
from mainspring.task import Task
from mainspring.worker.service import log

_spawn = multiprocessing.get_context("spawn")


class Died(Failure):
    """The process of a CPU-bound handler died."""


class Late(Exception):
    """The permit of a rate limit ran out before the handler was entered: the job goes back, nothing happened."""


class Child:
    """A process that runs CPU-bound handlers. Made on demand, kept for the next job, killed when it must stop."""

    def __init__(self) -> None:
        self._conn, theirs = _spawn.Pipe()
        self._process = _spawn.Process(target=_serve, args=(theirs,), daemon=True)
        self._process.start()
        theirs.close()

    async def call(self, task: Task[Any, Any], payload: str, start_by: float) -> Any:
        """Run a handler and return its result, or raise what it raised, or Late: a process takes a while to start."""
        loop = asyncio.get_running_loop()
        answered = asyncio.Event()
        loop.add_reader(self._conn.fileno(), answered.set)
        try:
            self._conn.send((task.fn.__module__, task.fn.__qualname__, payload, start_by))
            await answered.wait()
            kind, value = self._conn.recv()
        except (EOFError, OSError):
            self._process.join(1)
            raise Died(f"the process of {task.name} died with exit code {self._process.exitcode}") from None
        finally:
            loop.remove_reader(self._conn.fileno())
        if kind == "error":
            raise value
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

    async def call(self, task: Task[Any, Any], payload: str, start_by: float = float("inf")) -> Any:
        """Run a handler in a free process; one that is interrupted is killed. `start_by` is an instant of the loop."""
        child = self._take()
        try:
            result = await child.call(task, payload, start_by)
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
            late = time.monotonic() > start_by  # the clock of the parent's loop: all processes share it
            answer = ("late", None) if late else _written(task.fn(**arguments))
        except Exception as error:
            answer = ("error", _portable(error))
        conn.send(answer)


def _written(result: Any) -> tuple[str, Any]:
    try:
        return "result", None if result is None else msgspec.json.encode(result)
    except (TypeError, ValueError, OverflowError, RecursionError) as error:
        return "unwritable", str(error)


def _portable(error: Exception) -> Exception:
    """The error as it can cross to the parent: as it is if it pickles, else its text."""
    import pickle

    try:
        pickle.loads(pickle.dumps(error))  # noqa: S301 (our own bytes)
    except Exception:
        return RuntimeError(f"{type(error).__name__}: {error}")
    return error
