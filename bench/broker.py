"""What a broker saves a worker that polls, and what it costs those who enqueue."""

from __future__ import annotations

import asyncio
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from tests.contrib.rabbitmq.server import MISSING, RabbitMQServer, installed

import mainspring as ms
from bench import ours
from bench.report import Pairs, Sample
from mainspring.contrib.rabbitmq import RabbitMQ
from mainspring.worker import Worker

INTERVAL = 1.0
FALLS_ASLEEP = 1.8  # seconds until a worker without work polls at its longest interval
POLLING = ms.WorkerConfig(wakeups=False, poll_interval=timedelta(seconds=INTERVAL))

tasks = ms.Registry("broker")
_started: dict[str, float] = {}


@tasks.task
async def mark(*, where: str) -> None:
    """Note when the handler was entered."""
    _started[where] = time.perf_counter()


@contextmanager
def rabbitmq(number: int) -> Iterator[list[RabbitMQ]]:
    """Blocks at a broker of their own, each at its own exchange: none hears what is said to another."""
    if not installed():
        raise RuntimeError(MISSING)
    with tempfile.TemporaryDirectory(prefix="bench-broker-") as folder:
        server = RabbitMQServer(Path(folder))
        server.start()
        blocks = [RabbitMQ(server.url, enabled=True, exchange=f"bench-{n}") for n in range(number)]
        try:
            yield blocks
        finally:
            for block in blocks:
                block.close()
            server.stop()


async def pickup(dsn: str, offset: float, block: RabbitMQ | None = None) -> float:
    """The ms from the call of enqueue to the handler's entry, at an instant of the poll interval."""
    ours.clear(dsn)
    worker = Worker(dsn, tasks, config=POLLING, triggers=block.triggers if block else ())
    await worker.start()
    try:
        async with ms.AsyncClient(dsn, observers=block.observers if block else ()) as client:
            await asyncio.sleep(FALLS_ASLEEP + INTERVAL * offset)
            begun = time.perf_counter()
            await client.enqueue(mark.job(where=dsn))
            while dsn not in _started:
                await asyncio.sleep(0.0005)
            return (_started.pop(dsn) - begun) * 1000
    finally:
        await worker.stop()


async def pickups(dsns: Sequence[str], blocks: Sequence[RabbitMQ]) -> Pairs:
    """With the broker and without, a database and a worker each, all at once: they sleep most of the time."""
    n = len(blocks)
    whose = [*blocks, *[None] * n]
    taken = await asyncio.gather(
        *(
            pickup(dsn, (number % n + 0.5) / n, block)
            for number, (dsn, block) in enumerate(zip(dsns, whose, strict=True))
        )
    )
    return Pairs(Sample(taken[:n]), Sample(taken[n:]))
