"""What it costs to set, move and cancel one timer by its key, beside a thousand others and beside a million."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import Any

import psycopg

import mainspring as ms
from bench import ours
from bench.report import Pairs, Sample

FEW = 1_000
OPS = ("schedule", "reschedule", "cancel")

#: Timers as enqueue would write them, by the server itself: a million in seconds.
FILL = """
with made as (
  insert into mainspring.job (id, org_id, task, queue, priority, max_attempts, cancellable, payload, actor_type,
                              actor_id, request_id, correlation_id, key, created_at, scheduled_for)
  select mainspring.uuid7(), 'default', 'approve', 'q:default', 2, 5, true, jsonb_build_object('sheet_id', n), 'system',
         'SYSTEM', 'r', 'c', 'approve:' || n, statement_timestamp(),
         statement_timestamp() + interval '1 day' + n * interval '10 ms'
  from generate_series(1, %(n)s) n returning id, key, task, payload, scheduled_for
), keyed as (
  insert into mainspring.idempotency (org_id, key, fingerprint, job_id, ttl, first_seen_at, last_seen_at)
  select 'default', key, mainspring.fingerprint(task, payload), id, interval '30 days', statement_timestamp(),
         statement_timestamp() from made
)
insert into mainspring.waiting (id, org_id, task, queue, priority, due_at)
select id, 'default', 'approve', 'q:default', 2, scheduled_for from made
"""
tasks = ms.Registry("timers")


@tasks.task
async def approve(*, sheet_id: int) -> None:
    """Approve a sheet."""


def fill(dsn: str, timers: int) -> None:
    """A database in which so many timers wait, as an idle one looks."""
    ours.install(dsn)
    with psycopg.connect(dsn, autocommit=True) as conn:
        conn.execute(FILL, {"n": timers})
        conn.execute("vacuum analyze")


class Clerk:
    """Somebody who sets, moves and cancels timers, each in a transaction of its own."""

    def __init__(self, dsn: str, timers: int, seed: int = 1) -> None:
        self._client = ms.Client(dsn, pool_size=1)
        self._last = timers
        self._source = random.Random(seed)
        self._keys = self._source.sample(range(1, timers + 1), min(timers, 100_000))  # each is cancelled once at most

    def close(self) -> None:
        self._client.close()

    def schedule(self) -> object:
        self._last += 1
        self._keys.append(self._last)
        return self._client.timers.set(approve.job(sheet_id=self._last).after(self._later()).with_key(self._key(-1)))

    def reschedule(self) -> object:
        return self._client.reschedule(key=self._key(self._source.randrange(len(self._keys))), delay=self._later())

    def cancel(self) -> object:
        place = self._source.randrange(len(self._keys))
        key, self._keys[place] = self._key(place), self._keys[-1]
        self._keys.pop()
        return self._client.timers.cancel(key)

    def _key(self, place: int) -> str:
        return f"approve:{self._keys[place]}"

    def _later(self) -> timedelta:
        return timedelta(hours=self._source.randrange(1, 100))


def costs(acts: Sequence[Callable[[], Any]], number: int) -> list[float]:
    """The median ms of each of some acts, which take turns: the machine's moods are the same for all."""
    taken: list[list[float]] = [[] for _ in acts]
    for turn in range(number):
        for place in sorted(range(len(acts)), reverse=bool(turn % 2)):
            begun = time.perf_counter()
            acts[place]()
            taken[place].append(time.perf_counter() - begun)
    return [statistics.median(each) * 1000 for each in taken]


def ops(few_dsn: str, many_dsn: str, many: int, *, rounds: int, number: int) -> dict[str, Pairs]:
    """For each act: its cost beside many timers and beside few, in turn; a first round warms both up."""
    fill(few_dsn, FEW)
    fill(many_dsn, many)
    few, beside = Clerk(few_dsn, FEW), Clerk(many_dsn, many)
    found: dict[str, tuple[list[float], list[float]]] = {op: ([], []) for op in OPS}
    try:
        for turn in range(rounds + 1):
            for op in OPS:
                both = costs([getattr(beside, op), getattr(few, op)], number)
                for place, cost in enumerate(both if turn else ()):
                    found[op][place].append(cost)
    finally:
        few.close()
        beside.close()
    return {op: Pairs(Sample(a), Sample(b)) for op, (a, b) in found.items()}
