from __future__ import annotations

import asyncio
import time
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.worker.stage import Stage

from mainspring import Context, Registry
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio

#: Polls are too far apart to explain a start.
FAR: dict[str, Any] = {"wakeups": True, "poll_interval": timedelta(seconds=600)}
LISTENERS = "select pid from pg_stat_activity where datname = current_database() and query ilike 'listen%%'"


async def sleeps(stage: Stage, worker: Worker) -> None:
    """Wait until the worker listens, and has looked and found nothing for a while."""
    await stage.until(lambda: stage.rows(LISTENERS))
    await stage.until(lambda: worker._parts.exchange.pace.poll >= 0.8)


@pytest.mark.rule("ENG-7.06")
@pytest.mark.parametrize("way", ["client", "caller's transaction", "SQL"])
async def test_a_hint_wakes_an_idle_worker_long_before_its_next_poll(stage: Stage, tasks: Registry, way: str) -> None:
    @tasks.task
    async def work() -> str:
        return "awake"

    async with stage.work(tasks, **FAR) as worker:
        await sleeps(stage, worker)
        worker._parts.exchange.pace.poll_at = time.monotonic() + 600
        if way == "client":
            job = await stage.enqueue(work.job())
        elif way == "SQL":
            job = stage.one("select job_id from mainspring.enqueue('work')")
        else:
            async with await psycopg.AsyncConnection.connect(stage.dsn) as conn:
                job = (await stage.client.enqueue(work.job(), conn=conn)).id
        assert await stage.result(job) == "awake"


@pytest.mark.rule("ENG-16.01")
async def test_a_worker_whose_listener_was_cut_off_listens_again(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> str:
        return "awake"

    async with stage.work(tasks, **FAR) as worker:
        await sleeps(stage, worker)
        ((pid,),) = stage.rows(LISTENERS)
        stage.rows("select pg_terminate_backend(%s, 5000)", pid)
        await stage.until(lambda: stage.rows(LISTENERS))
        assert stage.one(LISTENERS) != pid
        await asyncio.sleep(0.05)
        worker._parts.exchange.pace.poll_at = time.monotonic() + 600
        assert await stage.result(await stage.enqueue(work.job())) == "awake"


async def test_what_came_while_nobody_listened_is_found_when_the_listener_is_back(
    stage: Stage, tasks: Registry
) -> None:
    @tasks.task
    async def work() -> str:
        return "awake"

    async with stage.work(tasks, **FAR) as worker:
        await sleeps(stage, worker)
        listener = next(service for service in worker._parts.services if type(service).__name__ == "HintListener")
        await listener.stop()
        worker._parts.exchange.pace.poll_at = time.monotonic() + 600
        job = await stage.enqueue(work.job())
        await asyncio.sleep(0.1)
        assert await stage.state(job) == "ready"
        listener.start()
        assert await stage.result(job) == "awake"


async def test_enqueuers_are_asked_for_hints_until_the_next_poll_at_the_latest(stage: Stage, tasks: Registry) -> None:
    @tasks.task
    async def work() -> None: ...

    async with stage.work(tasks, **FAR) as worker:
        await sleeps(stage, worker)
        worker._parts.exchange.pace.poll = 12.0
        worker._parts.exchange.pace.poll_at = 0.0
        worker._parts.state.signal.set()
        await stage.until(lambda: worker._parts.exchange.pace.poll > 12.0)

        def asked() -> float:
            until = stage.one("select last_value from mainspring.idle_until")
            return float(until) / 1000 - time.time()

        await stage.until(lambda: asked() >= worker._parts.exchange.pace.poll_at - time.monotonic() > 5)


async def test_a_request_to_cancel_is_heard_at_once(stage: Stage, tasks: Registry) -> None:
    seen = asyncio.Event()

    @tasks.task
    async def work(ctx: Context) -> None:
        while not ctx.cancelled:
            await asyncio.sleep(0.002)
        seen.set()

    async with stage.work(tasks, **FAR):
        await stage.until(lambda: stage.rows(LISTENERS))
        job = await stage.enqueue(work.job())
        await stage.until(lambda: stage.rows("select 1 from mainspring.running"))
        await asyncio.sleep(0.05)
        await stage.client.cancel(job)
        await asyncio.wait_for(seen.wait(), 0.5)
