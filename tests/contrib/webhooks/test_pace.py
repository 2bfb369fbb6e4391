"""One dead endpoint: it holds no slots, burns no attempts, and keeps nobody waiting."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.contrib.webhooks.hooks import Request, World

from mainspring import breaker
from mainspring.contrib.webhooks import Webhooks
from mainspring.errors import ConfigurationError, DeclarationError
from mainspring.retry import listed

pytestmark = pytest.mark.anyio


async def test_a_dead_endpoint_is_left_alone_and_the_others_go_on(make: Callable[..., World]) -> None:
    world = make(breaker=breaker("webhook", failures=3, pause=timedelta(seconds=60)))
    dead = (await world.add("/dead")).endpoint
    await world.add("/alive")
    answers = {"/hooks/dead": 500, "/hooks/alive": 204}
    world.inbox.judge = lambda request: answers[request.path]
    for _ in range(30):
        await world.publish()
    await world.drain()

    def called(path: str) -> int:
        return len([request for request in world.inbox.requests if request.path == path])

    assert called("/hooks/alive") == 30
    assert called("/hooks/dead") < 15  # 3 open it, and as many may be under way
    (state,) = await world.client.breakers.show("webhook", key=str(dead.id))
    assert state.state == "open"
    lost = world.stage.one(
        "select sum(attempt) from mainspring.waiting w join mainspring.webhook_delivery d on d.job_id = w.id"
    )
    assert lost <= called("/hooks/dead")

    answers["/hooks/dead"] = 204
    world.stage.clock.advance(seconds=130)
    await world.drain()
    world.stage.clock.advance(seconds=1)  # who met the breaker while it was being closed comes back a moment later
    await world.drain()
    assert [row.status for row in await world.deliveries.list(endpoint=dead.id)] == ["delivered"] * 30


async def test_one_endpoint_gets_so_many_calls_at_once_over_all_workers(make: Callable[..., World]) -> None:
    world = make(concurrency=2)
    await world.add()
    now: list[int] = [0, 0]

    async def slowly() -> None:
        now[0] += 1
        now[1] = max(now)
        await asyncio.sleep(0.02)
        now[0] -= 1

    world.inbox.before_answer = slowly
    for _ in range(12):
        await world.publish()
    workers = [world.worker(), world.worker()]
    await asyncio.gather(*(worker.drain() for worker in workers))
    await world.drain()

    assert now[1] <= 2
    assert len(world.inbox.requests) == 12


async def test_two_workers_send_each_delivery_once(make: Callable[..., World]) -> None:
    world = make(concurrency=None)
    await world.add()
    made = [(await world.publish())[0] for _ in range(40)]
    await asyncio.gather(world.worker().drain(), world.worker().drain())

    sent = [request.headers["webhook-id"] for request in world.inbox.requests]
    assert sorted(sent) == sorted(map(str, made))


async def test_a_lease_that_is_stolen_between_call_and_record_costs_one_more_call_and_never_a_delivery(
    make: Callable[..., World],
) -> None:
    world = make(concurrency=None)
    await world.add()
    made = [(await world.publish())[0] for _ in range(5)]
    stolen = asyncio.Event()

    async def steal(request: Request | None = None) -> None:
        if not stolen.is_set() and len(world.inbox.requests) == 5:
            with world.stage.conn.transaction():
                world.stage.clock.advance(seconds=61)
                world.stage.rows("select mainspring.rescue(1000, 3)")
            stolen.set()
        await stolen.wait()

    world.inbox.before_answer = steal
    await world.drain()
    await world.drain()

    sent = [request.headers["webhook-id"] for request in world.inbox.requests]
    assert {sent.count(str(delivery)) for delivery in made} == {2}
    assert {row.status for row in await world.deliveries.list()} == {"delivered"}
    assert {row.attempts for row in await world.deliveries.list()} == {2}


def test_the_breaker_has_the_name_that_operators_know() -> None:
    with pytest.raises(ConfigurationError, match="breaker: is not called webhook"):
        Webhooks(breaker=breaker("hooks"))
    with pytest.raises(ConfigurationError, match="timeout"):
        Webhooks(timeout=0)


def test_a_list_of_delays_has_some_and_none_is_negative() -> None:
    for seconds in ((), (5, -1)):
        with pytest.raises(DeclarationError, match="delays"):
            listed(*seconds)
    assert listed(5, jitter="none").delay(99) == timedelta(seconds=5)


@pytest.mark.rule("PASS-2.08", "PASS-2.02")
def test_deliveries_run_late_and_among_the_notifications() -> None:
    task = Webhooks(task="DELIVER_WEBHOOK").registry.get("DELIVER_WEBHOOK")
    assert (task.queue, task.priority, task.strand) == ("q:notifications", 3, "{endpoint_id}")
    assert [str(need) for need in task.needs] == ["webhook:{endpoint_id}"]
    assert task.retry.attempts == 10
    assert [task.retry.raw(n).total_seconds() for n in range(1, 10)] == [
        5, 300, 1800, 7200, 18000, 36000, 50400, 72000, 86400,
    ]  # fmt: skip
