"""A connection that is open and says nothing any more."""

from __future__ import annotations

import asyncio
import time
from datetime import timedelta

import pytest
from tests.client.proxy import Proxy
from tests.worker.stage import SETTINGS, Stage

from mainspring import Registry
from mainspring.config import WorkerConfig
from mainspring.worker import Worker, wakeups

pytestmark = pytest.mark.anyio


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wakeups, "LISTEN_SILENCE_S", 0.3)
    monkeypatch.setattr(wakeups, "LISTEN_PATIENCE_S", 0.3)


async def test_a_listener_notices_silence_and_listens_again_while_polls_find_the_work(
    stage: Stage, tasks: Registry, proxy: Proxy
) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    heard: list[bool] = []
    config = WorkerConfig(
        **SETTINGS | {"wakeups": True, "poll_interval": timedelta(seconds=0.5), "listen_dsn": proxy.dsn}
    )
    worker = Worker(stage.dsn, tasks, config=config)
    await worker.start()
    try:
        await stage.until(lambda: worker.listening)
        assert worker._parts.listener is not None
        worker._parts.listener._changed = heard.append
        proxy.mute()
        silent = time.monotonic()
        assert await stage.result(await stage.enqueue(work.job())) == "done"
        await stage.until(lambda: heard == [False, True])
        assert worker.listening
        assert worker._parts.listener.last_heard is not None
        assert worker._parts.listener.last_heard > silent
    finally:
        await worker.stop()


async def test_an_exchange_that_falls_silent_is_given_up_within_a_lease_and_its_jobs_run_once(
    stage: Stage, tasks: Registry, proxy: Proxy
) -> None:
    began: list[int] = []

    @tasks.task
    async def work(*, n: int) -> None:
        began.append(n)

    lease = {"lease": timedelta(seconds=1.2), "renew_every": timedelta(seconds=0.4)}
    worker = Worker(proxy.dsn, tasks, config=WorkerConfig(**SETTINGS | lease))
    await worker.start()
    try:
        await stage.enqueue(work.job(n=1))
        await stage.until(lambda: worker.counts["succeeded"] == 1)
        proxy.mute()
        await stage.enqueue(work.job(n=2))
        await stage.until(lambda: worker.counts["succeeded"] == 2)
    finally:
        await worker.stop()

    assert began == [1, 2]


async def test_polling_alone_is_enough(stage: Stage, tasks: Registry, proxy: Proxy) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    proxy.down = True
    config = WorkerConfig(
        **SETTINGS | {"wakeups": True, "poll_interval": timedelta(seconds=0.3), "listen_dsn": proxy.dsn}
    )
    worker = Worker(stage.dsn, tasks, config=config)
    await worker.start()
    try:
        await asyncio.sleep(0.2)
        assert not worker.listening
        assert await stage.result(await stage.enqueue(work.job())) == "done"
        assert stage.one("select last_value from mainspring.idle_until") == 0  # nobody is asked for hints in vain
    finally:
        await worker.stop()
