"""Replay, redelivery, cancellation and clean-up: a delivery keeps its id, and stands where its job stands."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import pytest
from tests.contrib.webhooks.hooks import World

from mainspring import ValidationError, fixed
from mainspring.config import Retention
from mainspring.db.maintenance import prune_deliveries
from mainspring.db.wire.run import psycopg_door, run
from mainspring.db.wire.sql import Sql

pytestmark = pytest.mark.anyio


@pytest.mark.rule("PASS-7.17")
@pytest.mark.parametrize("how", ["replay of the dead job", "redelivery"])
async def test_a_dead_delivery_is_pending_again_under_the_same_id(make: Callable[..., World], how: str) -> None:
    world = make(retry=fixed(1, attempts=1))
    await world.add()
    world.inbox.plan = [500]
    (delivery,) = await world.publish()
    await world.drain()
    assert ((await world.delivery(delivery)).status, await world.job(delivery)) == ("failed", "dead")

    if how == "redelivery":
        assert await world.deliveries.redeliver(delivery, reason="it is mended") == delivery
    else:
        await world.client.replay(delivery, reason="it is mended")
    found = await world.delivery(delivery)
    assert (found.status, found.http_status) == ("pending", 500)
    await world.drain()

    assert (await world.delivery(delivery)).status == "delivered"
    first, second = world.inbox.requests
    assert first.headers["webhook-id"] == second.headers["webhook-id"] == str(delivery)
    assert first.body == second.body


async def test_a_delivered_one_is_sent_again_by_a_new_job_under_its_own_id(world: World) -> None:
    await world.add()
    (delivery,) = await world.publish()
    with pytest.raises(ValidationError, match=f"delivery: is still being tried, by job {delivery}"):
        await world.deliveries.redeliver(delivery, reason="now")
    await world.drain()

    job = await world.deliveries.redeliver(delivery, reason="they lost it")
    assert job != delivery
    assert (await world.delivery(delivery)).status == "pending"
    await world.drain()

    assert [request.headers["webhook-id"] for request in world.inbox.requests] == [str(delivery)] * 2
    found = await world.delivery(delivery)
    assert (found.status, found.job_id, found.attempts) == ("delivered", job, 2)
    detail = world.stage.one("select detail from mainspring.audit where event = 'webhook.redelivered'")
    assert (detail["reason"], detail["before"], detail["delivery"]) == ("they lost it", "delivered", str(delivery))


@pytest.mark.parametrize("reason", [None, "", "x" * 1001, "a\0b"])
async def test_whoever_has_it_sent_again_says_why(world: World, reason: str) -> None:
    await world.add()
    (delivery,) = await world.publish()
    await world.drain()
    with pytest.raises(ValidationError, match="reason"):
        await world.deliveries.redeliver(delivery, reason=reason)
    assert (await world.delivery(delivery)).status == "delivered"


async def test_a_cancelled_job_is_a_failed_delivery(world: World) -> None:
    await world.add()
    (delivery,) = await world.publish()
    await world.client.cancel(delivery)
    assert (await world.delivery(delivery)).status == "failed"
    await world.deliveries.redeliver(delivery, reason="after all")
    await world.drain()
    assert (await world.delivery(delivery)).status == "delivered"


async def test_deliveries_are_found_by_endpoint_status_and_event(make: Callable[..., World]) -> None:
    world = make(retry=fixed(1, attempts=1))
    first, second = (await world.add("/a")).endpoint, (await world.add("/b")).endpoint
    world.inbox.judge = lambda request: 500 if request.path.endswith("/b") else 204
    await world.publish("a.b")
    await world.drain()
    await world.publish("c.d")

    async def found(**filters: object) -> list[tuple[str, str, object]]:
        rows = await world.deliveries.list(**filters)  # type: ignore[arg-type] # a test's own
        return [(row.event_type, row.status, row.endpoint) for row in rows]

    assert await found(status="delivered") == [("a.b", "delivered", first.id)]
    assert await found(status="failed") == [("a.b", "failed", second.id)]
    assert {row[1] for row in await found(event="c.d")} == {"pending"}
    assert len(await found(endpoint=first.id)) == 2
    newest = (await world.deliveries.list())[0]
    assert len(await found(before=newest.id)) == 3
    for wrong in ({"status": "deliverd"}, {"limit": 0}, {"endpoint": "x"}, {"event": ""}):
        with pytest.raises(ValidationError, match=next(iter(wrong))):
            await found(**wrong)


async def test_clean_up_removes_what_has_ended_long_ago_and_nothing_else(world: World) -> None:
    added = await world.add()
    (delivered,) = await world.publish()
    await world.drain()
    await world.endpoints.rotate(added.endpoint.id)
    world.inbox.otherwise = 500
    (tried,) = await world.publish()
    keep = Retention(deliveries=timedelta(days=90))

    def swept() -> int:
        return run(psycopg_door(world.stage.conn), prune_deliveries(Sql(), keep))

    assert swept() == 0
    world.stage.clock.advance(days=91)
    assert swept() == 1
    assert [row.id for row in await world.deliveries.list()] == [tried]
    assert world.stage.one("select count(*) from mainspring.webhook_secret") == 1
    await world.client.cancel(tried)
    assert swept() == 1
    assert delivered != tried


async def test_an_open_dead_letter_keeps_its_delivery_so_that_its_replay_can_send_it(world: World) -> None:
    await world.add()
    world.inbox.plan = [500] * 5
    (delivery,) = await world.publish()
    for _ in range(5):
        await world.drain()
        world.stage.clock.advance(seconds=16)
    assert await world.job(delivery) == "dead"

    world.stage.clock.advance(days=100)
    assert run(psycopg_door(world.stage.conn), prune_deliveries(Sql(), Retention())) == 0
    await world.client.replay(delivery, reason="mended")
    await world.drain()
    assert (await world.delivery(delivery)).status == "delivered"
