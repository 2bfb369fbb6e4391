"""A block brings its parts to an application, and its hints to the worker."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from datetime import timedelta

import pytest
from tests.databases import Database

import mainspring as ms
from mainspring.declare.block import Block
from mainspring.errors import DeclarationError
from mainspring.events import Event, JobEnqueued
from mainspring.testing import Harness

FAR = timedelta(hours=1)


class Bell:
    """A trigger that rings when the test does, and fails once."""

    def __init__(self) -> None:
        self.listens, self.failures = asyncio.Event(), 0
        self.ring: Callable[[], None] = lambda: None

    async def listen(self, woke: Callable[[], None]) -> None:
        if not self.failures:
            self.failures += 1
            raise ConnectionError("the broker is away")
        self.ring = woke
        self.listens.set()
        await asyncio.Event().wait()


class Greeting(Block):
    """A block with one of everything that the engine uses."""

    def __init__(self) -> None:
        self.registry = ms.Registry("greeting")
        self.registry.task(name="greet", needs=("postman",))(self._greet)
        self.limits = [ms.rate("q:default", 50, per="1s")]
        self.breakers = [ms.breaker("postman")]
        self.told: list[Event] = []
        self.observers = [self._tell]
        self.bell = Bell()
        self.triggers = [self.bell]
        self.app: ms.App | None = None

    async def _greet(self, *, name: str) -> str:
        return f"hello {name}"

    def _tell(self, batch: Sequence[Event]) -> None:
        self.told += batch

    def joined(self, app: ms.App) -> None:
        self.app = app


@pytest.mark.anyio
async def test_a_block_brings_its_tasks_limits_breakers_and_observers(database: Database) -> None:
    block = Greeting()
    app = ms.App(dsn=database.dsn, blocks=[block])

    async with app.async_client() as client:
        job = await client.enqueue(block.registry.get("greet").job(name="ada"))
        summary = await app.arun_due()
        assert await client.result(job.id, timeout=0) == "hello ada"

    assert summary.succeeded == 1
    assert app.limits == tuple(block.limits)
    assert [breaker.name for breaker in app.breakers] == ["postman"]
    assert [event.task for event in block.told if isinstance(event, JobEnqueued)] == ["greet"]
    assert block.app is app


@pytest.mark.anyio
async def test_a_trigger_wakes_a_worker_that_would_poll_in_an_hour_and_is_begun_anew_when_it_fails(
    database: Database,
) -> None:
    block = Greeting()
    app = ms.App(dsn=database.dsn, blocks=[block])
    worker = app.worker(ms.WorkerConfig(wakeups=False, poll_interval=FAR, rescue_every=FAR, seal_every=FAR))
    await worker.start()
    try:
        async with app.async_client() as client, asyncio.timeout(20):
            await block.bell.listens.wait()
            job = await client.enqueue(block.registry.get("greet").job(name="ada"))
            while (await client.get(job.id)).state != "succeeded":
                block.bell.ring()
                await asyncio.sleep(0.01)
    finally:
        await worker.stop()

    assert block.bell.failures == 1


def test_in_tests_and_simulations_nobody_elsewhere_is_told(database: Database) -> None:
    block = Greeting()
    own: list[Event] = []
    mainspring = Harness(database.dsn, ms.App(dsn=database.dsn, blocks=[block], observers=[own.extend]))
    try:
        mainspring.client.enqueue(block.registry.get("greet").job(name="ada"))
        mainspring.drain()
    finally:
        mainspring.close()

    assert block.told == []
    assert own


def test_what_is_no_block_is_refused_by_name() -> None:
    with pytest.raises(DeclarationError, match=r"blocks: <class '.*Block'> is not a block"):
        ms.App(blocks=[Block])  # type: ignore[list-item]  # the class in place of one made from it
