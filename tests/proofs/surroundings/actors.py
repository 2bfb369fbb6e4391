"""Processes of a failover: `python -m tests.proofs.surroundings.actors (writer|worker) DSN FOLDER [unfenced]`."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from datetime import timedelta
from pathlib import Path

from tests.proofs.chaos.journal import Journal

import mainspring as ms
from mainspring.config import WorkerConfig
from mainspring.db.wire import fence
from mainspring.errors import DatabaseUnavailable
from mainspring.uuid7 import uuid7
from mainspring.worker import Worker

tasks = ms.Registry("failover")


@tasks.task(retry=ms.fixed(0.2, attempts=50))
async def effect(ctx: ms.Context) -> None:
    async with ctx.complete() as conn:
        await conn.execute("insert into ledger (job) values (%s)", [ctx.job.id])


async def write(dsn: str, journal: Journal) -> None:
    """Enqueue a job after another, and note each that was acknowledged."""
    async with ms.AsyncClient(dsn) as client:
        while True:
            job = effect.job().with_id(uuid7())
            try:
                await client.enqueue(job)
                journal.write(job.id, repr(time.time()))
            except DatabaseUnavailable:
                await asyncio.sleep(0.05)
            await asyncio.sleep(0.01)


async def work(dsn: str) -> None:
    soon = timedelta(seconds=0.7)
    await Worker(dsn, tasks, config=WorkerConfig(lease=3 * soon, renew_every=soon, rescue_every=soon)).run()


def blind() -> None:
    """Believe every server: what happens without the fence."""
    fence.Fence.admit = lambda *_: None  # type: ignore[method-assign]  # the bug to be shown
    fence.ServerIdentity.stale = property(lambda _: False)  # type: ignore[method-assign, assignment]


if __name__ == "__main__":
    role, address, folder, *how = sys.argv[1:]
    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    if how:
        blind()
    if role == "worker":
        asyncio.run(work(address))
    else:
        asyncio.run(write(address, Journal(Path(folder) / f"acked-{time.time_ns()}.txt")))
