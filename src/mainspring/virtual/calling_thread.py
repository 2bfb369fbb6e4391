"""Running async code from a plain test: the loop in a thread of its own, plain handlers in the test's.

So a plain handler meets what it meets in production, no running loop, and finds what belongs to the test's thread, such
as Django's connection. The same holds for what async code sends to threads by `sync_to_async`.
"""

from __future__ import annotations

import asyncio
import contextvars
import sys
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from queue import Empty, SimpleQueue
from typing import Any, ParamSpec, TypeVar

CANCEL_AGAIN_S = 0.5

P = ParamSpec("P")
T = TypeVar("T")


class CallingThread(Executor):
    """Calls what is submitted in the thread that waits in `serve`."""

    def __init__(self) -> None:
        self._calls: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._deserted = False

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        """Have a function called there."""
        future: Future[T] = Future()

        def call() -> None:
            if self._deserted:
                future.cancel()
            elif future.set_running_or_notify_cancel():
                try:
                    future.set_result(fn(*args, **kwargs))
                except BaseException as error:
                    future.set_exception(error)
                    if isinstance(error, KeyboardInterrupt):  # Ctrl-C means everything, not the handler that it met
                        raise

        self._calls.put(call)
        if self._deserted:
            self.desert()
        return future

    def serve(self, until: Future[Any]) -> None:
        """Call what is submitted until something has ended."""
        until.add_done_callback(lambda _: self._calls.put(lambda: None))
        while not until.done():
            self._calls.get()()

    def desert(self) -> None:
        """Cancel what is submitted: nobody serves any more, and an attempt waits for its thread, cancelled or not."""
        self._deserted = True
        with suppress(Empty):
            while True:
                self._calls.get_nowait()()


def run_from_thread(main: Callable[[Executor], Coroutine[Any, Any, T]]) -> T:
    """Run a coroutine function to its end; it is given an executor that calls in this thread."""
    caller = CallingThread()
    loop: asyncio.AbstractEventLoop | None = None
    task: asyncio.Task[T] | None = None

    async def wrapped() -> T:
        nonlocal loop, task
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        asgiref = sys.modules.get("asgiref.sync")
        if asgiref is None:
            return await main(caller)
        asgiref.AsyncToSync.loop_thread_executors[loop] = caller  # as `async_to_sync` does for its own loop
        try:
            return await main(caller)
        finally:
            del asgiref.AsyncToSync.loop_thread_executors[loop]

    with ThreadPoolExecutor(1, thread_name_prefix="mainspring.testing") as thread:
        done = thread.submit(contextvars.copy_context().run, asyncio.run, wrapped())
        try:
            caller.serve(until=done)
        except BaseException:  # Ctrl-C, said again until it is heard: a cancellation may be lost on its way
            while not done.done():
                caller.desert()
                if loop is not None and task is not None:
                    with suppress(RuntimeError):  # it is closed already
                        loop.call_soon_threadsafe(task.cancel)
                wait([done], CANCEL_AGAIN_S)
            raise
        return done.result()
