"""Calls handlers: async ones in the loop, plain functions in threads, CPU-bound ones in processes."""

from __future__ import annotations

import asyncio
import contextvars
import sys
import threading
from collections.abc import Awaitable
from concurrent.futures import Executor as Threads
from typing import Any, Final

from mainspring.errors import MainspringError
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.context import JobContext
from mainspring.worker.processes import Children, Late
from mainspring.worker.rates import Rates
from mainspring.worker.resources import Resources
from mainspring.worker.service import log
from mainspring.worker.thread_context import ThreadContext

#: So long a thread or a process may be held up between two lines, and at most this part of a window.
_SWITCH_S: Final = 0.05
_LOOK_S: Final = 0.005  # between two looks at a thread that is on its way to its handler
_ENDING_S: Final = 30.0  # a transaction that its thread does not end, beyond the task's time


class Handlers:
    """Where the functions of an application are entered, and counted by the rates that let them through."""

    def __init__(self, resources: Resources, threads: Threads, children: Children, rates: Rates) -> None:
        self.resources, self.threads = resources, threads
        self._children, self._rates = children, rates
        self._loop = asyncio.get_running_loop()

    def call(self, attempt: LiveAttempt) -> Awaitable[Any]:
        """Enter the handler; what is awaited is its own coroutine where it wants no context, so that none is added."""
        task = attempt.task
        if task.runs == "async":
            arguments = task.codec.decode(attempt.claim.payload)
            if attempt.passing:
                attempt.entered = True
                self._rates.enters(attempt)
            return self._with_context(attempt, arguments) if task.wants_ctx else task.fn(**arguments)
        attempt.entered = True
        if task.runs == "thread":
            attempt.thread = self._in_thread(attempt)
            return asyncio.shield(attempt.thread)
        return self._children.call(task, attempt.claim.payload, attempt.start_by, lambda: self._entered(attempt))

    async def _with_context(self, attempt: LiveAttempt, arguments: dict[str, Any]) -> Any:
        context = JobContext(attempt, self.resources)
        try:
            try:
                result = await attempt.task.fn(context, **arguments)
            finally:
                if self.resources.reports:
                    await context.write_last_report()
                if context.completed_elsewhere:
                    await context.learn_end()
            if context.ends_with(result):
                async with context.complete():
                    pass
        except Exception as error:
            if (put_off := context.put_off_by(error)) is not None:
                raise put_off from error
            raise
        return context.result if result is None else result

    async def end_transaction(self, attempt: LiveAttempt) -> None:
        """End the transaction that holds its job's row, by ctx.complete_in() in a thread that goes on after its time.

        Else whoever writes how the attempt ended, or another's beside it, waits as long as that thread likes.
        """
        attempt.deadline += _ENDING_S  # until then nobody interrupts this
        try:
            await JobContext(attempt, self.resources).learn_end()
        except MainspringError as error:  # the database is away, and so is that session
            attempt.committing = False
            log.warning(
                "job %s of %s: its own transaction was not ended: %s", attempt.claim.id, attempt.claim.task, error
            )

    def _in_thread(self, attempt: LiveAttempt) -> asyncio.Future[Any]:
        def call() -> Any:
            try:
                return self._work(attempt)
            except StopIteration as error:  # a future cannot carry it, and would never end
                raise RuntimeError("the handler raised StopIteration") from error

        running = self._loop.run_in_executor(self.threads, contextvars.copy_context().run, call)
        if attempt.passing:
            self._look_soon(attempt, None)
        return running

    def _work(self, attempt: LiveAttempt) -> Any:
        """In a thread."""
        arguments = attempt.task.codec.decode(attempt.claim.payload)
        if attempt.start_by < self._loop.time():  # while it waited for a thread
            raise Late
        if not attempt.task.wants_ctx:
            attempt.entered_by = threading.get_ident()
            return attempt.task.fn(**arguments)
        context = ThreadContext(attempt, self.resources)
        try:
            try:
                attempt.entered_by = threading.get_ident()
                result = attempt.task.fn(context, **arguments)
            finally:
                context.write_last_report()
                if context.completed_elsewhere:
                    context.learn_end()
            if context.ends_with(result):
                with context.complete():
                    pass
        except Exception as error:
            if (put_off := context.put_off_by(error)) is not None:
                raise put_off from error
            raise
        return context.result if result is None else result

    def _look_soon(self, attempt: LiveAttempt, seen: tuple[float, int] | None) -> None:
        self._loop.call_later(min(_LOOK_S, self._switch(attempt)), self._look, attempt, seen)

    def _look(self, attempt: LiveAttempt, seen: tuple[float, int] | None) -> None:
        """Count an entry once its thread is seen to have got on in its handler; when it ends, it counts anyway.

        Between any two of its lines a thread may wait long for the interpreter. It does not tell by itself that it is
        there: to wake the loop is to give the interpreter away, a line before its handler.
        """
        if not attempt.passing:
            return
        now, place = self._loop.time(), _place_in_handler(attempt.entered_by)
        if seen is not None and (place != seen[1] or now >= seen[0] + self._switch(attempt)):
            self._rates.entered(attempt)
        else:
            self._look_soon(attempt, seen if place is None or seen is not None else (now, place))

    def _entered(self, attempt: LiveAttempt) -> None:
        """It is entered by a process that may be held up on its way to the first line.

        So it is counted a moment later, or when it ends: whatever holds up the whole machine holds up this timer, too.
        """
        if attempt.passing:
            self._loop.call_later(self._switch(attempt), self._rates.entered, attempt)

    def _switch(self, attempt: LiveAttempt) -> float:
        window: float = min(1.0, *(share.per for share in attempt.shares))
        return _SWITCH_S * window

    def close(self) -> None:
        """Let go of threads, processes and keys."""
        self.resources.close()
        self._children.close()
        self.threads.shutdown(wait=False, cancel_futures=True)


def _place_in_handler(thread: int | None) -> int | None:
    """Which instruction of its handler, or of what that calls, a thread is at; None: it has not come there."""
    top = frame = None if thread is None else sys._current_frames().get(thread)
    while frame is not None and frame.f_back is not None and frame.f_back.f_code is not _WORK:
        frame = frame.f_back
    return None if top is None or frame is None or frame.f_back is None else hash((id(top), top.f_lasti))


_WORK: Final = Handlers._work.__code__
