from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.contrib.rabbitmq.broker import Broker
from tests.contrib.rabbitmq.conftest import Apps
from tests.contrib.rabbitmq.server import RabbitMQServer
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.declare.block import Trigger

pytestmark = pytest.mark.anyio

JOBS = 1_000


class Counted:
    """A trigger, and how often it woke somebody."""

    def __init__(self, trigger: Trigger) -> None:
        self._trigger, self.woken = trigger, 0

    async def listen(self, woke: Callable[[], None]) -> None:
        def counted() -> None:
            self.woken += 1
            woke()

        await self._trigger.listen(counted)


@pytest.mark.rule("ENG-17.06", "ENG-17.07")
async def test_killed_and_restarted_under_load_it_loses_no_job_and_rings_again(
    stage: Stage, mortal: RabbitMQServer, app: Apps, tasks: ms.Registry, caplog: pytest.LogCaptureFixture
) -> None:
    ran: Counter[int] = Counter()

    @tasks.task
    async def work(*, n: int) -> None:
        ran[n] += 1

    block = Broker(mortal.port).block()
    trigger = Counted(block.triggers[0])
    block.triggers = (trigger,)
    made = app(block, poll_interval=timedelta(milliseconds=500))
    workers = [made.worker() for _ in range(2)]
    for worker in workers:
        await worker.start()
    async with made.async_client() as client:

        async def load() -> None:
            for n in range(0, JOBS, 5):
                await client.enqueue_many([work.job(n=n + i) for i in range(5)])
                await asyncio.sleep(0.005)

        loading = asyncio.create_task(load())
        await stage.until(lambda: len(ran) > JOBS // 10 and trigger.woken > 10)
        await asyncio.to_thread(mortal.kill)
        await stage.until(lambda: caplog.text.count("cannot be used") == 3)  # one that publishes, two that listen
        starting = asyncio.create_task(asyncio.to_thread(mortal.start))
        await loading
        await stage.until(lambda: len(ran) == JOBS, 30)
        await starting
        await stage.until(lambda: caplog.text.count("is back after") == 3, 30)
        woken = trigger.woken
        await client.enqueue(work.job(n=JOBS))
        await stage.until(lambda: ran[JOBS] and trigger.woken >= woken + 2)  # both workers
    for worker in workers:
        await worker.stop()

    assert ran == Counter(range(JOBS + 1))
    assert stage.one("select count(*) from mainspring.finished where state = 'succeeded'") == JOBS + 1
    said = [record for record in caplog.records if record.levelno >= logging.WARNING and record.name != "asyncio"]
    assert len(said) == 6  # asyncio may tell of what was sent into the broken line before anybody knew
