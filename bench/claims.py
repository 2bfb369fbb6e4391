"""What a claim of 200 jobs costs when the tables around it are full, and what a worker keeps in memory."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import statistics
import time
from pathlib import Path
from typing import Any

import psycopg

from bench import ours
from mainspring.cli.worker import collect_seldom
from mainspring.db.wire.sql import Sql
from mainspring.job import Claim
from mainspring.worker.bounds import Bounds

BATCH = 200
WORKER = "bench"
QUEUES = ["q:default", "q:critical", "q:notifications", "q:planning", "q:exports", "q:maintenance"]
sql = Sql()

#: Tickets written by the server itself: a million of them in seconds.
FILL = """
with made as (
  insert into mainspring.job (id, org_id, task, queue, priority, max_attempts, cancellable, payload, actor_type,
                              actor_id, request_id, correlation_id, created_at)
  select mainspring.uuid7(), 'default', 'noop', 'q:default', n %% 4, 5, true, '{"user": 1}', 'system', 'SYSTEM',
         'r', 'c', statement_timestamp()
  from generate_series(1, %(n)s) n returning id, priority
)
"""
WAITING = FILL + (
    "insert into mainspring.waiting (id, org_id, task, queue, priority, due_at) "
    "select id, 'default', 'noop', 'q:default', priority,"
    " statement_timestamp() + %(due)s::interval + random() * interval '1 s' from made"
)
FINISHED = FILL + (
    "insert into mainspring.finished (id, org_id, state, attempt, started_at, finished_at) "
    "select id, 'default', 'succeeded', 1, statement_timestamp(), statement_timestamp() from made"
)


def claim_cost(dsn: str, rounds: int, *, timers: int = 0, finished: int = 0, held: int = 0) -> float:
    """The median ms of a claim of 200 due jobs, as a worker asks for it, beside so many other rows.

    `held`: so many jobs are first run while another transaction holds a snapshot, and it goes on holding it.
    """
    ours.clear(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn, psycopg.connect(dsn) as other:
        if timers:
            conn.execute(WAITING, {"n": timers, "due": "1 day"})
        if finished:
            conn.execute(FINISHED, {"n": finished})
        conn.execute("vacuum analyze")
        if held:
            other.execute("set transaction isolation level repeatable read")
            other.execute("select count(*) from mainspring.job")
        claimer = _Claimer(conn)
        if held:
            conn.execute(WAITING, {"n": held, "due": "-1 s"})
            claimer.run(held // 500 + 10, 500)
        conn.execute(WAITING, {"n": BATCH * (rounds + 2), "due": "-1 s"})
        return statistics.median(claimer.run(rounds, BATCH)) * 1000


class _Claimer:
    """Claims and completes on one connection, with the bounds that a worker keeps."""

    def __init__(self, conn: psycopg.Connection[Any]) -> None:
        self._cursor = conn.cursor(binary=True)
        self._bounds = Bounds()

    def run(self, rounds: int, batch: int) -> list[float]:
        taken = []
        for _ in range(rounds):
            begun = time.perf_counter()
            low, bounded = self._bounds.of(QUEUES, begun)
            limits = [batch] * len(QUEUES)
            parameters = [WORKER, "60 s", batch, QUEUES, limits, *low, ["noop"], False, 1, False, None]
            rows = self._cursor.execute(sql["claim"], parameters, prepare=True).fetchall()
            ended = time.perf_counter()
            taken.append(ended - begun)
            claims = [Claim(*row) for row in rows]
            dry = () if len(claims) >= batch else QUEUES
            now = claims[0].claimed_at if claims else None
            self._bounds.learn(claims, dry, bounded=bounded, now=now, started=begun, ended=ended)
            self._cursor.execute(sql["complete"], [WORKER, [claim.epoch for claim in claims]], prepare=True)
        return taken


def growth(dsn: str, jobs: int) -> float:
    """How many MB a worker process has grown after so many jobs."""
    ours.clear(dsn)
    context = multiprocessing.get_context("spawn")
    theirs, mine = context.Pipe()
    process = context.Process(target=_grow, args=(dsn, jobs, theirs))
    process.start()
    assert mine.poll(600), "the worker does not end"
    grown: float = mine.recv()
    process.join()
    return grown


def _grow(dsn: str, jobs: int, answer: Any) -> None:
    import uvloop

    async def grow() -> float:
        async with ours.working(dsn) as worker:

            async def run(number: int) -> None:
                target = worker.counts["succeeded"] + number
                while number > 0:
                    await ours.fill(dsn, ours.noops(min(number, 2_000)))
                    number -= 2_000

                async def done() -> bool:
                    return worker.counts["succeeded"] >= target

                await ours.until(done)

            await run(5_000)  # caches fill
            await asyncio.sleep(0.2)
            before = _rss()
            await run(jobs)
            await asyncio.sleep(0.2)
            return _rss() - before

    collect_seldom()
    answer.send(uvloop.run(grow()))


def _rss() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20
