"""One producer process of the run: `python -m tests.proofs.chaos.producer ORDERS`.

It enqueues its share of the jobs over the time of the run and notes each id in one of three files: `acked` once the
enqueue returned, `unsure` when it raised (it may have committed or not), `undone` when its own transaction was rolled
back. Producers share the keys of some jobs, so that they race for them.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import psycopg
from tests.proofs.chaos import plants, workload
from tests.proofs.chaos.journal import Journal, say
from tests.proofs.chaos.plan import Orders

import mainspring as ms
from mainspring.errors import DatabaseUnavailable
from mainspring.job import NewJob
from mainspring.uuid7 import uuid7

#: A key sent again and again gives one job, whoever was first.
ONCE = "once:"
BATCH = 40


class Producer:
    """Sends jobs in every way there is, at an even pace."""

    def __init__(self, orders: Orders) -> None:
        plan, number, folder = orders.plan, orders.number, Path(orders.folder)
        self._plan = plan
        self._random = random.Random(plan.seed * 1000 + number)
        self._dsn = orders.dsn
        self._acked, self._unsure, self._undone = (
            Journal(folder / f"{kind}-{number}.txt") for kind in ("acked", "unsure", "undone")
        )
        self._quota = -(-plan.jobs // plan.producers)
        self._sent = 0  # acknowledged, without those that other producers send as well
        self._keys = 0

    async def run(self) -> None:
        began = time.monotonic()
        async with self._connect() as client:
            ways: list[Callable[[Any, list[NewJob]], Awaitable[None]]] = [self._together, self._singly, self._joined]
            while self._sent < self._quota:
                jobs = [self._job() for _ in range(self._random.randint(1, BATCH))]
                jobs += [self._plain() for _ in range((len(jobs) + 5) // 10)]
                await self._random.choice(ways)(client, jobs)
                pace = self._plan.seconds * self._sent / self._quota
                await asyncio.sleep(max(0.0, began + pace - time.monotonic()))

    def _connect(self) -> ms.AsyncClient:
        return ms.AsyncClient(self._dsn)

    def _job(self) -> NewJob:
        choice, pause = self._random.random(), self._random.uniform(0, self._plan.longest)
        if choice < 0.1:  # raced for: the payload belongs to the key
            self._keys += 1
            name = f"{ONCE}{self._keys}"
            return workload.effect.job(pause=0.01).with_key(name, "keep").with_id(uuid7())
        threaded = self._random.random() < self._plan.threads
        job = (workload.effect_in_thread if threaded else workload.effect).job(pause=pause).with_id(uuid7())
        if choice < 0.2:
            job = job.with_key(f"own:{job.id}")
        if self._random.random() < 0.2:
            job = job.after(self._random.uniform(0.1, 3.0))
        return job

    def _plain(self) -> NewJob:
        return workload.plain.job(pause=self._random.uniform(0, self._plan.longest)).with_id(uuid7())

    async def _together(self, client: ms.AsyncClient, jobs: list[NewJob]) -> None:
        """All in one statement."""
        await self._noted(jobs, client.enqueue_many(jobs))

    async def _singly(self, client: ms.AsyncClient, jobs: list[NewJob]) -> None:
        """Each for itself, at the same time."""
        await asyncio.gather(*(self._noted([job], self._one(client, job)) for job in jobs))

    async def _one(self, client: ms.AsyncClient, job: NewJob) -> list[ms.Enqueued]:
        return [await client.enqueue(job)]

    async def _joined(self, _: ms.AsyncClient, jobs: list[NewJob]) -> None:
        """In a transaction of our own with the sync client; every fourth one is rolled back."""
        undo = self._random.random() < 0.25
        await self._noted(jobs, asyncio.to_thread(self._in_transaction, jobs, undo), undo=undo)
        if undo:
            again = [job.with_id(uuid7()) for job in jobs]
            await self._noted(again, asyncio.to_thread(self._in_transaction, again, False))

    def _in_transaction(self, jobs: list[NewJob], undo: bool) -> list[ms.Enqueued]:
        with psycopg.connect(self._dsn) as conn, ms.Client(self._dsn) as client:
            answers = client.enqueue_many(jobs, conn=conn)
            time.sleep(self._random.uniform(0, self._plan.held))  # commits do not arrive in the order of due times
            if undo:
                conn.rollback()
        return answers

    async def _noted(
        self, jobs: Sequence[NewJob], sending: Awaitable[list[ms.Enqueued]], *, undo: bool = False
    ) -> None:
        sent_at = time.time()
        try:
            answers = await sending
        except (ms.MainspringError, psycopg.Error) as error:
            for job in jobs:
                (self._undone if undo else self._unsure).write(job.id, type(error).__name__)
            if not isinstance(error, DatabaseUnavailable | psycopg.OperationalError):
                say(f"unexpected {error!r}")  # to the log of this process
            await asyncio.sleep(0.1)
            return
        for job, answer in zip(jobs, answers, strict=True):
            if undo:
                if answer.answer == "created":
                    self._undone.write(job.id, "rollback")
                continue
            due = sent_at + job.delay.total_seconds() if job.delay and answer.answer == "created" else 0.0
            self._acked.write(answer.id, repr(due))
            self._sent += not (job.key or job.task).startswith((ONCE, workload.plain.name))


if __name__ == "__main__":
    given = Orders.decode(sys.argv[1])
    plants.in_process(given.plan.bugs, given.dsn)
    with contextlib.suppress(KeyboardInterrupt):
        asyncio.run(Producer(given).run())
