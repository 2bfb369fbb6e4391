"""What a broker saves a worker that polls, and what it costs those who enqueue."""

from __future__ import annotations

import asyncio
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from tests.rabbitmq.server import MISSING, RabbitMQServer, installed

import mainspring as ms
from bench import ours
from mainspring.contrib.rabbitmq import RabbitMQ
from mainspring.worker import Worker

INTERVAL = 1.0
FALLS_ASLEEP = 1.8  # seconds until a worker without work polls at its longest interval
POLLING = ms.WorkerConfig(wakeups=False, poll_interval=timedelta(seconds=INTERVAL))

tasks = ms.Registry("broker")
_started: list[float] = []


@tasks.task
async def mark() -> None:
    """Note when the handler was entered."""
    _started.append(time.perf_counter())


@contextmanager
def rabbitmq() -> Iterator[RabbitMQ]:
    """A block with a broker of its own."""
    if not installed():
        raise RuntimeError(MISSING)
    with tempfile.TemporaryDirectory(prefix="bench-broker-") as folder:
        server = RabbitMQServer(Path(folder))
        server.start()
        block = RabbitMQ(server.url, enabled=True)
        try:
            yield block
        finally:
            block.close()
            server.stop()


async def pickup(dsn: str, n: int, block: RabbitMQ | None = None) -> float:
    """The mean ms from the call of enqueue to the handler's entry, at instants spread over the poll interval."""
    ours.install(dsn)
    worker = Worker(dsn, tasks, config=POLLING, triggers=block.triggers if block else ())
    await worker.start()
    taken = []
    try:
        async with ms.AsyncClient(dsn, observers=block.observers if block else ()) as client:
            for number in range(n):
                await asyncio.sleep(FALLS_ASLEEP + INTERVAL * (number + 0.5) / n)
                _started.clear()
                begun = time.perf_counter()
                await client.enqueue(mark.job())
                while not _started:
                    await asyncio.sleep(0.0005)
                taken.append(_started[0] - begun)
    finally:
        await worker.stop()
    return statistics.mean(taken) * 1000
