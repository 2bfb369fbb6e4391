"""Two sessions in the one order that matters: interleavings that processes meet too rarely to wait for.

And single acts that must come to an end. Each race returns what it saw go wrong, or None.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import psycopg
from tests.databases import Database
from tests.db.engine import Engine
from tests.proofs.chaos import workload
from tests.proofs.nemesis.hostile import circular
from tests.proofs.nemesis.proxy import Proxy

import mainspring as ms
from mainspring.client.aio import AsyncSeam
from mainspring.errors import DatabaseUnavailable
from mainspring.virtual.clock import Clock
from mainspring.worker import Worker
from mainspring.worker.classify import classify
from mainspring.worker.statements import ExchangeStatements

PATIENCE = 10.0  # seconds, for what takes milliseconds


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
    asked = AsyncSeam.run
    lost: list[int] = []

    async def cut(self: AsyncSeam, *args: Any, **kwargs: Any) -> Any:
        answer = await asked(self, *args, **kwargs)
        if not lost:
            lost.append(1)
            raise DatabaseUnavailable
        return answer

    AsyncSeam.run = cut  # type: ignore[method-assign]  # the wire is cut here, after the commit
    try:
        async with ms.AsyncClient(database.dsn) as client:
            answers: Sequence[ms.Enqueued] = await client.enqueue_many([workload.effect.job(pause=0.0)])
    finally:
        AsyncSeam.run = asked  # type: ignore[method-assign]  # back again
    with psycopg.connect(database.dsn) as conn:
        jobs = [row[0] for row in conn.execute("select id from mainspring.job")]
    return None if jobs == [answers[0].id] else f"one enqueue made {len(jobs)} jobs"


def crash_of_many(database: Database) -> str | None:
    """Jobs that shared a crash keep their attempts, and come back as many at a time as a worker asks for."""
    with database.connect() as conn:
        engine = Engine(conn)
        engine.enqueue_many([{} for _ in range(8)])
        engine.claim("w1", 8)
        engine.clock.advance(hours=1)
        engine.rescue()
        burnt = engine.rows("select count(*) from mainspring.waiting where attempt > 0")[0][0]
        back = len(engine.claim("w2", 8, rescued=8))
    if burnt:
        return f"a crash that 8 jobs shared burned an attempt of {burnt}"
    return None if back == 8 else f"of 8 jobs that shared a crash {back} came back"


def breaker_forgotten(database: Database) -> str | None:
    """A job that was parked behind a breaker is let go when nobody remembers the breaker any more."""
    rule = '[{"name": "depot", "failures": 1, "within": "30 s", "pause": "60 s", "longest": "60 s", "probes": 1}]'
    with database.connect() as conn:
        engine = Engine(conn)
        engine.rows("select mainspring.declare_breakers(%s::json)", rule)
        engine.rows("select mainspring.open_breaker('depot', 'user', 'ada', 'away')")
        engine.end(engine.started(), "defer", gate="breaker:depot", delay="00:01:00")
        conn.execute("delete from mainspring.breaker")
        engine.rows("select mainspring.release_gates(null, '{q:default}', '{t}', 100)")
        (due,) = engine.rows("select count(*) from mainspring.waiting where due_at <= mainspring.now()")[0]
    return None if due else "a job waits for a breaker that nobody remembers"


def circular_error(_: Database) -> str | None:
    """An error that was caused by itself is read in no time."""
    reading = multiprocessing.get_context("fork").Process(target=classify, args=[circular()])
    reading.start()
    reading.join(PATIENCE)
    late = reading.is_alive()
    reading.kill()
    return f"reading a circular error has not ended after {PATIENCE:g} s" if late else None


async def silent_server(database: Database) -> str | None:
    """A client whose server falls silent says so, and does not wait until it speaks again."""
    proxy = Proxy(database.dsn)
    try:
        async with ms.AsyncClient(proxy.dsn, answered_within=0.5, timeout=1.0) as client:
            await client.enqueue(workload.effect.job(pause=0.0))
            proxy.silence()
            await asyncio.wait_for(client.enqueue(workload.effect.job(pause=0.0)), PATIENCE)
    except DatabaseUnavailable:
        return None
    except TimeoutError:
        return f"the client still waits after {PATIENCE:g} s"
    finally:
        proxy.speak()
        proxy.close()
    return "a silent server answered"


async def backlog_in_one_queue(database: Database) -> str | None:
    """A worker that starts on a backlog in one of several queues finds some of it with every claim."""
    tasks = ms.Registry("backlog")

    @tasks.task(queue="q:exports")
    async def export() -> None: ...

    with ms.Client(database.dsn) as client:
        client.enqueue_many([export.job() for _ in range(1000)])
    with database.connect() as conn:
        Clock(conn).advance(minutes=1)  # it is older than any margin
    queues = dict.fromkeys(("q:default", "q:critical", "q:exports", "q:planning", "q:maintenance", "q:other"), 1)
    worker = Worker(database.dsn, tasks, config=ms.WorkerConfig(exchanges=1, queues=queues))
    taken: list[int] = []
    accept = ExchangeStatements.send

    async def counted(self: ExchangeStatements, *args: Any) -> Any:
        answer = await accept(self, *args)
        if sum(taken) < 1000:
            taken.append(sum(len(found.jobs) for found in answer.found))
        return answer

    ExchangeStatements.send = counted  # type: ignore[method-assign, assignment]  # what each claim brought
    try:
        await worker.drain()
    finally:
        ExchangeStatements.send = accept  # type: ignore[method-assign]  # back again
    vain = taken.count(0)
    return f"{vain} of {len(taken)} claims found nothing while up to {1000 - taken[0]} jobs waited" if vain else None
