"""Slots that never come back: handlers that outlive their time limit, and hold all slots of their kind.

A plain function in a thread cannot be stopped, and an async handler may swallow its cancellation. Each keeps its slot
while it goes on. Once they hold all slots of a kind, no job of that kind runs here any more: only a new process helps.
"""

from __future__ import annotations

import asyncio
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg

from mainspring.db.wire.sql import Sql
from mainspring.worker.attempt import LiveAttempt
from mainspring.worker.connection import SharedConnection
from mainspring.worker.crew import Crew
from mainspring.worker.ending import Ending
from mainspring.worker.executor import Executor
from mainspring.worker.service import Service
from mainspring.worker.state import WorkerState

OUTLIVED_PATIENCE_S: Final = 10.0  # seconds beyond its time limit in which a handler may still end, at most a lease
THREADS: Final = "mainspring"  # as the threads of plain functions are called, before their number
SLOT_FRAMES: Final = 12  # of each stack
SLOT_WORDS: Final = {"async": "async handlers", "thread": "plain functions", "process": "CPU-bound functions"}


class SlotWatch(Service):
    """Ends the process, or inside of another program says so, when they hold all slots and a job waits for one."""

    def __init__(
        self,
        connection: SharedConnection,
        sql: Sql,
        state: WorkerState,
        queues: Sequence[str],
        crews: Mapping[str, Crew],
        executor: Executor,
        ending: Ending,
        alone: bool,
    ) -> None:
        lease = state.config.lease.total_seconds()
        super().__init__(min(1.0, lease / 10))
        self._connection, self._sql, self._queues = connection, sql, list(queues)
        self._crews, self._attempts, self._executor = crews, state.attempts, executor
        self._ending, self._alone = ending, alone
        self._patience = min(OUTLIVED_PATIENCE_S, lease)
        self._told: set[str] = set()  # kinds

    async def tick(self) -> None:
        """Look at every kind."""
        for kind, crew in self._crews.items():
            over = self._outlived(crew)
            if len(over) < crew.size:
                self._told.discard(kind)
            elif kind not in self._told and (self._alone or await self._waits(crew)):
                self._told.add(kind)
                self._found(kind, crew, over)

    def _outlived(self, crew: Crew) -> list[LiveAttempt]:
        if crew.running < crew.size:
            return []
        before = asyncio.get_running_loop().time() - self._patience
        mine = [attempt for attempt in self._attempts.values() if attempt.crew is crew]
        over = [attempt for attempt in (*crew.left, *mine) if attempt.deadline <= before]
        return sorted(over, key=lambda attempt: attempt.deadline)

    async def _waits(self, crew: Crew) -> bool:
        """Whether a free slot would be used."""

        async def look(conn: psycopg.AsyncConnection[Any]) -> bool:
            row = await (await conn.execute(self._sql["slot_wanted"], [self._queues, crew.tasks])).fetchone()
            return row is not None and bool(row[0])

        return await self._connection.use(look)

    def _found(self, kind: str, crew: Crew, over: list[LiveAttempt]) -> None:
        counts = Counter(attempt.claim.task for attempt in over)
        whose = ", ".join(f"{count} of {task}" for task, count in counts.items())
        seconds = asyncio.get_running_loop().time() - over[0].deadline
        words = f"all {crew.size} slots for {SLOT_WORDS[kind]} are held by handlers that have outlived their time limit"
        stacks = _of_threads() if kind == "thread" else _of_tasks(over)
        self._ending.report("slots", f"{words}, {whose}", stacks, over[0], seconds)
        if self._ending.handover is not None:
            for attempt in over:
                self._executor.time_out(attempt)  # else it would be given back unburnt, and do it again for ever
            self._ending.end([])


def _of_threads() -> str:
    frames = sys._current_frames()  # the only way to another thread's
    found = [thread for thread in threading.enumerate() if thread.name.startswith(f"{THREADS}_")]
    stacks = ((thread, frames.get(thread.ident or 0)) for thread in found)
    return "".join(
        f"thread {thread.name}:\n{''.join(traceback.format_stack(frame)[-SLOT_FRAMES:])}"
        for thread, frame in stacks
        if frame
    )


def _of_tasks(attempts: Sequence[LiveAttempt]) -> str:
    found = [(attempt.claim.id, _awaited(attempt.handle.get_coro())) for attempt in attempts if attempt.handle]
    return "".join(f"job {job}:\n{''.join(traceback.format_list(frames)[-SLOT_FRAMES:])}" for job, frames in found)


def _awaited(coroutine: Any) -> traceback.StackSummary:
    """Where a coroutine stands, through all that it awaits."""
    frames = []
    while (frame := getattr(coroutine, "cr_frame", None)) is not None:
        frames.append((frame, frame.f_lineno))
        coroutine = coroutine.cr_await
    return traceback.StackSummary.extract(iter(frames))
