"""Resume means resume: no delivery that read `paused` a moment before waits any longer."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from datetime import timedelta
from uuid import UUID

import psycopg
import pytest
from tests.contrib.webhooks.hooks import World
from tests.databases import Database
from tests.db.engine import Engine

from mainspring.job import Job
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio
SET = "select mainspring.set_endpoint('default', %s, %s, 'user', 'ada', 'why')"
PARKED = "select count(*) from mainspring.waiting where due_at = 'infinity'"


class Held:
    """A delivery whose attempt has read that its endpoint is paused, and not said so yet."""

    def __init__(self, engine: Engine, endpoint: UUID, job: Job) -> None:
        self.engine, self.endpoint = engine, endpoint
        (self.claim,) = (claim for claim in engine.claim(queues=[job.queue], tasks=[job.task]) if claim.id == job.id)

    def settle(self) -> None:
        move = {"epoch": self.claim.epoch, "verb": "defer", "started": True, "gate": f"endpoint:{self.endpoint}"}
        assert self.engine.settle("w1", {**move, "delay": "0 s"}) == [self.claim.epoch]


async def held(world: World) -> Held:
    endpoint = (await world.add()).endpoint
    await world.endpoints.pause(endpoint.id)
    (delivery,) = await world.publish()
    return Held(Engine(world.stage.conn), endpoint.id, await world.client.get(delivery))


async def test_who_read_paused_before_resume_and_says_so_after_goes_on_at_once(world: World) -> None:
    found = await held(world)
    await world.endpoints.resume(found.endpoint)
    found.settle()

    assert world.stage.one(PARKED) == 0
    world.stage.clock.advance(milliseconds=250)
    await world.drain()
    assert len(world.inbox.requests) == 1


async def test_who_says_so_while_somebody_resumes_neither_waits_for_them_nor_is_parked(
    world: World, database: Database
) -> None:
    found = await held(world)
    with database.connect() as other, other.transaction():
        other.execute(SET, [found.endpoint, "active"])
        world.stage.conn.execute("set lock_timeout = '100 ms'")
        found.settle()

    assert world.stage.one(PARKED) == 0


async def test_who_resumes_waits_for_who_is_being_parked_and_lets_it_go(world: World, database: Database) -> None:
    found = await held(world)
    with database.connect() as other:
        other.execute("set lock_timeout = '100 ms'")
        with world.stage.conn.transaction():
            found.settle()
            with pytest.raises(psycopg.errors.LockNotAvailable):
                other.execute(SET, [found.endpoint, "active"])
        assert world.stage.one(PARKED) == 1
        other.execute(SET, [found.endpoint, "active"])

    assert world.stage.one(PARKED) == 0
    await world.drain()
    assert len(world.inbox.requests) == 1


async def test_what_waits_at_an_endpoint_that_is_disabled_ends(world: World) -> None:
    found = await held(world)
    found.settle()
    world.stage.conn.execute(SET, [found.endpoint, "disabled"])
    await world.drain()

    assert (await world.client.get(found.claim.id)).error["code"] == "WebhookDisabled"  # type: ignore[index]  # it has one


async def test_five_hundred_deliveries_and_a_resume_in_their_midst_leave_nobody_waiting(
    make: Callable[..., World],
) -> None:
    world = make(concurrency=None)
    endpoint = (await world.add()).endpoint
    await world.endpoints.pause(endpoint.id)
    deliveries = [(await world.publish())[0] for _ in range(500)]
    parked = random.randint(1, 400)  # how many wait already when it is resumed, and the others are on their way
    worker: Worker = world.worker(concurrency=50)
    await worker.start()
    try:
        await world.stage.until(lambda: world.stage.one(PARKED) >= parked, 60)
        began = world.stage.clock.now()
        await world.endpoints.resume(endpoint.id)

        async with asyncio.timeout(60):  # of a busy machine
            while world.stage.one("select count(*) from mainspring.finished") < len(deliveries):
                world.stage.clock.advance(milliseconds=50)
                await asyncio.sleep(0.05)
    finally:
        await worker.stop()

    took = world.stage.clock.now() - began
    assert (parked, took < timedelta(minutes=10)) == (parked, True)  # as time passed in the test; never an hour
    assert len(world.inbox.requests) == len(deliveries)
