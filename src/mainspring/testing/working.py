"""A real worker in a thread of its own, and what it tells."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any, Self
from uuid import UUID

from mainspring.config import WorkerConfig
from mainspring.events import Event
from mainspring.text.span import Span, span_of
from mainspring.virtual.tasks import DeclaredTasks
from mainspring.worker import Hosting, Worker

#: What a test wants of a worker: that it finds work at once, and does not start a process for each core.
SETTINGS: dict[str, Any] = {
    "poll_interval": timedelta(milliseconds=20),
    "rescue_every": timedelta(milliseconds=100),
    "grace": timedelta(seconds=1),
    "processes": 1,
}


class Working:
    """The worker inside of `with mainspring.working()`."""

    def __init__(self, dsn: str, tasks: DeclaredTasks, settings: dict[str, Any]) -> None:
        self._dsn, self._tasks = dsn, tasks
        self._config = WorkerConfig(**(SETTINGS | settings))
        self._told = threading.Condition()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._work()), name="mainspring.testing worker")
        self._stop: Callable[[], object] = lambda: None
        self._failure: BaseException | None = None
        self._ended = self._leaving = False
        self.events: list[Event] = []

    def __enter__(self) -> Self:
        self._thread.start()
        try:
            self.wait_for("worker.started")
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._end()
        if self._failure is not None:
            raise self._failure

    def _end(self) -> None:
        self._leaving = True
        self._stop()
        self._thread.join()

    async def _work(self) -> None:
        loop, asked = asyncio.get_running_loop(), asyncio.Event()
        self._stop = lambda: loop.call_soon_threadsafe(asked.set)
        if self._leaving:  # already
            asked.set()
        try:
            tasks = self._tasks
            worker = Worker(
                self._dsn, tasks.registry, config=self._config, schema=tasks.schema, authorize=tasks.authorize,
                observers=[*tasks.observers, self._observe], cipher=tasks.cipher, breakers=tasks.breakers,
                hosting=Hosting(housekeeping=False),  # a test counts its own jobs
            )  # fmt: skip
            asking, starting = asyncio.create_task(asked.wait()), asyncio.create_task(worker.start())
            await asyncio.wait([asking, starting], return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():  # it waits for a database that does not come
                starting.cancel()
                return
            await starting
            await asking
            await worker.stop()
        except BaseException as error:
            self._failure = error
        finally:
            self._stop = lambda: None
            self._ended = True
            self._observe([])

    def _observe(self, batch: Sequence[Event]) -> None:
        with self._told:
            self.events += batch
            self._told.notify_all()

    def wait_for(
        self, event: str, *, job_id: UUID | None = None, task: str | None = None, timeout: Span = 10.0
    ) -> Event:
        """The first such event that the worker has told of; waits for it if there is none yet."""

        def first() -> Event | None:
            for told in self.events:
                if (
                    told.name == event
                    and job_id in (None, getattr(told, "job_id", None))
                    and task in (None, getattr(told, "task", None))
                ):
                    return told
            return None

        patience = span_of("timeout", timeout).total_seconds()
        with self._told:
            self._told.wait_for(lambda: first() is not None or self._ended, patience)
            found = first()
        if found is not None:
            return found
        about = "".join(f" of {what} {value}" for what, value in (("job", job_id), ("task", task)) if value is not None)
        last = ", ".join(told.name for told in self.events[-10:]) or "none"
        why = f"the worker has ended: {self._failure}" if self._ended else f"not within {patience:g} s"
        raise AssertionError(f"no event {event}{about}: {why}; its last events: {last}") from self._failure

    async def await_for(
        self, event: str, *, job_id: UUID | None = None, task: str | None = None, timeout: Span = 10.0
    ) -> Event:
        """`wait_for`, in a thread, so that the caller's loop goes on."""
        return await asyncio.to_thread(self.wait_for, event, job_id=job_id, task=task, timeout=timeout)
