from __future__ import annotations

import time
from datetime import timedelta

import pytest
from tests.worker.stage import Stage

import mainspring as ms

pytestmark = pytest.mark.anyio


@pytest.mark.rule("ENG-17.10")
async def test_without_a_broker_the_database_rings_and_a_ring_that_is_lost_costs_a_poll_interval(
    stage: Stage, tasks: ms.Registry
) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    async with stage.work(tasks, wakeups=True, poll_interval=timedelta(seconds=1)) as worker:
        await stage.until(lambda: worker.listening and worker._parts.exchange.pace.poll >= 0.8)
        worker._parts.exchange.pace.poll_at = time.monotonic() + 600
        assert await stage.result(await stage.enqueue(work.job())) == "done", "heard"

        assert worker._parts.listener is not None
        lost: list[bool] = []
        worker._parts.listener._heard = lambda _: lost.append(True)
        await stage.until(lambda: worker._parts.exchange.pace.poll >= 0.8)
        assert await stage.result(await stage.enqueue(work.job())) == "done", "found"

    assert lost
