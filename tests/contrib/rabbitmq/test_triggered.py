from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.config import WorkerConfig
from mainspring.worker import Worker
from mainspring.worker.wakeups import TriggerListener

pytestmark = pytest.mark.anyio


class Failing:
    """A trigger that fails at first."""

    def __init__(self, failures: int) -> None:
        self.failures, self.begun = failures, 0

    async def listen(self, woke: Callable[[], None]) -> None:
        self.begun += 1
        if self.begun <= self.failures:
            raise OSError("no line")
        woke()
        await asyncio.Event().wait()


async def test_a_trigger_that_fails_is_begun_anew_and_ends_with_its_service() -> None:
    woken: list[bool] = []
    trigger = Failing(2)
    service = TriggerListener(trigger, lambda: woken.append(True))

    service.start()
    async with asyncio.timeout(8):
        while not woken:
            await asyncio.sleep(0.005)
    await service.stop()

    assert trigger.begun == 3
    assert woken == [True]


async def test_a_worker_works_though_its_trigger_always_fails(stage: Stage, tasks: ms.Registry) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    worker = Worker(stage.dsn, tasks, config=WorkerConfig(wakeups=False), triggers=[Failing(1000)])
    await worker.start()
    try:
        assert await stage.result(await stage.enqueue(work.job())) == "done"
    finally:
        await worker.stop()
