"""Two sessions in the one order that matters: interleavings that processes meet too rarely to wait for.

Each race returns what it saw go wrong, or None.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from tests.chaos import workload
from tests.databases import Database
from tests.db.engine import Engine

import mainspring as ms
from mainspring.client import AsyncClient
from mainspring.errors import DatabaseUnavailable


class Late:
    """A call in a thread of its own, on a connection of its own."""

    def __init__(self, database: Database, call: Callable[[Engine], Any]) -> None:
        self.answer: Any = None
        self._conn = database.connect()
        self._thread = threading.Thread(target=self._run, args=[call])
        self._thread.start()

    def _run(self, call: Callable[[Engine], Any]) -> None:
        self.answer = call(Engine(self._conn))

    def waits(self, watcher: Engine, seconds: float = 5.0) -> bool:
        """Whether it waits for a lock; false once it has ended."""
        deadline = time.monotonic() + seconds
        query = "select coalesce(bool_or(wait_event_type = 'Lock'), false) from pg_stat_activity where pid = %s"
        while self._thread.is_alive() and time.monotonic() < deadline:
            if watcher.rows(query, self._conn.info.backend_pid)[0][0]:
                return True
            time.sleep(0.002)
        return False

    def end(self) -> Any:
        self._thread.join(10)
        self._conn.close()
        return self.answer


def two_claims(database: Database) -> str | None:
    """While one claim is open, another takes other jobs and waits for nobody."""
    with database.connect() as conn, database.connect() as watching:
        first = Engine(conn)
        first.enqueue_many([{} for _ in range(6)])
        with conn.transaction():
            one = first.claim("w1", 3)
            late = Late(database, lambda engine: engine.claim("w2", 3))
            waited = late.waits(Engine(watching))
        two = late.end()
    if waited:
        return "the second claim waited for the first"
    return None if len({c.id for c in [*one, *two]}) == 6 else f"claims of {len(one)} and {len(two)} overlap"


def cancel_meets_claim(database: Database) -> str | None:
    """A cancel that meets an open claim answers by what the claim made of the job."""
    with database.connect() as conn, database.connect() as watching:
        engine = Engine(conn)
        job = engine.enqueue().id
        with conn.transaction():
            claimed = engine.claim("w1")
            late = Late(database, lambda other: other.cancel(job))
            late.waits(Engine(watching))
        answer = late.end()
        places = [table for table in ("waiting", "running", "finished")
                  if engine.rows(f"select from mainspring.{table} where id = %s", job)]  # fmt: skip
    if answer == "cancel_requested" and len(claimed) == 1 and places == ["running"]:
        return None
    return f"cancel answered {answer} for a job that runs; its tickets: {', '.join(places)}"


def pause_meets_claim(database: Database) -> str | None:
    """A pause that returned is complete: no claim that had begun before it commits afterwards."""
    with database.connect() as conn, database.connect() as watching:
        engine = Engine(conn)
        engine.enqueue()
        with conn.transaction():
            claimed = engine.claim("w1")
            late = Late(database, lambda other: other.pause("q:default"))
            waited = late.waits(Engine(watching))
        late.end()
    return None if waited and claimed else "pause returned while a claim of the queue was still open"


async def reply_lost(database: Database) -> str | None:
    """An enqueue that committed though its answer was lost makes one job."""
    asked = AsyncClient._run
    lost: list[int] = []

    async def cut(self: AsyncClient, *args: Any, **kwargs: Any) -> Any:
        answer = await asked(self, *args, **kwargs)
        if not lost:
            lost.append(1)
            raise DatabaseUnavailable
        return answer

    AsyncClient._run = cut  # type: ignore[method-assign]  # the wire is cut here, after the commit
    try:
        async with ms.AsyncClient(database.dsn) as client:
            answers: Sequence[ms.Enqueued] = await client.enqueue_many([workload.effect.job(pause=0.0)])
    finally:
        AsyncClient._run = asked  # type: ignore[method-assign]  # back again
    with psycopg.connect(database.dsn) as conn:
        jobs = [row[0] for row in conn.execute("select id from mainspring.job")]
    return None if jobs == [answers[0].id] else f"one enqueue made {len(jobs)} jobs"
