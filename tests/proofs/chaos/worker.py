"""One worker process of the run: `python -m tests.proofs.chaos.worker ORDERS`."""

from __future__ import annotations

import asyncio
import logging
import sys
import time
from pathlib import Path

from tests.proofs.chaos import plants, workload
from tests.proofs.chaos.plan import Orders

from mainspring.worker import Worker


def go_wrong(seconds: float) -> None:
    """Set the wall clock of this process wrong; nothing may be decided by it."""
    right = time.time
    time.time = lambda: right() + seconds


async def work(orders: Orders) -> None:
    await Worker(orders.dsn, workload.tasks, config=orders.plan.config()).run()


if __name__ == "__main__":
    given = Orders.decode(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    go_wrong(given.plan.skews[given.number % len(given.plan.skews)])
    plants.in_process(given.plan.bugs, given.dsn)
    workload.open_journal(Path(given.folder))
    asyncio.run(work(given))
