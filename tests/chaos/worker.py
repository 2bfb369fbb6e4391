"""One worker process of the run: `python -m tests.chaos.worker ORDERS`."""

from __future__ import annotations

import asyncio
import logging
import sys
from pathlib import Path

from mainspring.worker import Worker
from tests.chaos import plants, workload
from tests.chaos.plan import Orders


async def work(orders: Orders) -> None:
    await Worker(orders.dsn, workload.tasks, config=orders.plan.config()).run()


if __name__ == "__main__":
    given = Orders.decode(sys.argv[1])
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(name)s %(levelname)s %(message)s")
    plants.in_process(given.plan.bugs)
    workload.open_journal(Path(given.folder))
    asyncio.run(work(given))
