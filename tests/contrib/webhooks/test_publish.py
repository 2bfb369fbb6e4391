"""Publishing: in the caller's transaction, for who wants it, once."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import msgspec
import psycopg
import pytest
from tests.contrib.webhooks.hooks import Inbox, World
from tests.worker.stage import SETTINGS, Stage

import mainspring as ms
from mainspring import App, Context, Registry, SyncContext, ValidationError, WorkerConfig
from mainspring.contrib.webhooks import Policy, Webhooks
from mainspring.contrib.webhooks.event import event
from mainspring.errors import ConfigurationError, UnknownName
from mainspring.events import Event, JobEnqueued
from mainspring.uuid7 import uuid7

pytestmark = pytest.mark.anyio


async def test_endpoints_get_the_events_that_they_want(world: World) -> None:
    await world.add("/all")
    await world.add("/exact", events=["order.paid"])
    await world.add("/prefix", events=["invoice.sent", "order.*"])
    await world.add("/other", events=["order.paid.twice", "ord.*", "order"])

    await world.publish("order.paid")
    await world.publish("orders.paid")
    await world.drain()

    paths = [request.path for request in world.inbox.requests]
    assert sorted(paths) == ["/hooks/all", "/hooks/all", "/hooks/exact", "/hooks/prefix"]


async def test_organisations_get_their_own_events_only(world: World) -> None:
    await world.add("/ours", org="acme")
    await world.add("/theirs", org="globex")

    (delivery,) = await world.publish(org="acme")
    await world.drain()

    assert [request.path for request in world.inbox.requests] == ["/hooks/ours"]
    with pytest.raises(UnknownName, match=f"delivery: there is no delivery {delivery}"):
        await world.deliveries.get(delivery, org="globex")


async def test_an_event_commits_with_the_change_that_it_tells_of(world: World) -> None:
    await world.add()

    async with await psycopg.AsyncConnection.connect(world.stage.dsn) as conn:
        await world.publish(conn=conn)
        await conn.rollback()
        assert await world.deliveries.list() == []
        (delivery,) = await world.publish(conn=conn)
    await world.drain()

    assert [request.headers["webhook-id"] for request in world.inbox.requests] == [str(delivery)]


async def test_sync_code_publishes_in_its_own_transaction_as_well(world: World) -> None:
    await world.add()
    with world.app.client() as client, psycopg.connect(world.stage.dsn) as conn:
        made = world.hooks.publish("a.b", {}, ("A", 1), by=client, conn=conn)
        conn.rollback()
        assert world.hooks.deliveries(client).list() == []
        assert len(made) == 1
        made = world.hooks.publish("a.b", {}, ("A", 1), by=client)
        assert [each.id for each in world.hooks.deliveries(client).list()] == [made[0].id]
        assert [told.job_id for told in world.told if isinstance(told, JobEnqueued)] == [made[0].id]


async def test_who_can_not_publish_is_refused_at_once(world: World) -> None:
    with pytest.raises(ConfigurationError, match="by: is neither a client nor the context of a handler"):
        world.hooks.publish("a.b", {}, ("A", 1), by=world.app)  # type: ignore[call-overload]  # an App is neither


async def test_an_event_that_is_published_twice_is_delivered_once_to_each(world: World) -> None:
    await world.add("/a")
    id = uuid7()
    assert len(await world.publish(event_id=id)) == 1
    await world.add("/b")

    assert len(await world.publish(event_id=str(id))) == 1  # for the one that did not have it yet
    assert await world.publish(event_id=id) == []
    await world.drain()

    assert sorted(request.path for request in world.inbox.requests) == ["/hooks/a", "/hooks/b"]


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_a_handler_that_fails_and_publishes_again_tells_the_same_event(
    stage: Stage, inbox: Inbox, colour: str
) -> None:
    tasks, hooks = Registry("own"), Webhooks(policy=Policy.local())
    made: list[int] = []

    @tasks.task(retry=ms.fixed(0, attempts=3))
    async def sign(ctx: Context, *, version: int) -> None:
        made.append(len(await hooks.publish("PASSPORT_SIGNED", {"n": 1}, ("PassportVersion", version), by=ctx)))
        made.append(len(await hooks.publish("PASSPORT_SIGNED", {"n": 2}, ("PassportVersion", version), by=ctx)))
        if ctx.attempt == 1:
            raise RuntimeError("after the event")
        async with ctx.complete() as conn:
            made.append(len(await hooks.publish("DONE", {}, ("PassportVersion", version), by=ctx, conn=conn)))

    @tasks.task(retry=ms.fixed(0, attempts=3))
    def sign_in_thread(ctx: SyncContext, *, version: int) -> None:
        made.append(len(hooks.publish("PASSPORT_SIGNED", {"n": 1}, ("PassportVersion", version), by=ctx)))
        made.append(len(hooks.publish("PASSPORT_SIGNED", {"n": 2}, ("PassportVersion", version), by=ctx)))
        if ctx.attempt == 1:
            raise RuntimeError("after the event")
        with ctx.complete() as conn:
            made.append(len(hooks.publish("DONE", {}, ("PassportVersion", version), by=ctx, conn=conn)))

    app = App(tasks, dsn=stage.dsn, blocks=[hooks], maintenance=False)
    async with app.async_client() as client:
        await hooks.endpoints(client).add(inbox.url)
        job = await client.enqueue((sign if colour == "async" else sign_in_thread).job(version=9))
        await app.worker(WorkerConfig(**SETTINGS)).drain()

        assert made == [1, 1, 0, 0, 1]
        told = [msgspec.json.decode(request.body)["payload"] for request in inbox.requests]
        assert sorted(told, key=str) == [{"n": 1}, {"n": 2}, {}]
        children = {found.parent_id for found in await client.jobs(task="webhooks.deliver")}
        assert children == {job.id}


@pytest.mark.rule("PASS-1.11", "PASS-2.08")
async def test_a_new_delivery_is_pending_and_its_job_holds_ids_only(world: World) -> None:
    endpoint = (await world.add()).endpoint

    (delivery,) = await world.publish(payload={"name": "Jane"})

    found = await world.delivery(delivery)
    assert (found.status, found.attempts) == ("pending", 0)
    empty = (found.http_status, found.error, found.delivered_at, found.response_headers, found.response_body)
    assert empty == (None, None, None, None, None)
    job = await world.client.get(found.job_id)
    assert (job.queue, job.priority, job.id) == ("q:notifications", 3, delivery)
    assert job.payload == {"delivery_id": str(delivery), "endpoint_id": str(endpoint.id)}
    assert world.stage.one("select strand from mainspring.job") == str(endpoint.id)


ODD: list[tuple[str, dict[str, Any]]] = [
    ("event_type", {"type": ""}),
    ("event_type", {"type": "a b"}),
    ("event_type", {"type": "a\r\nx: y"}),
    ("event_type", {"type": "ä"}),
    ("event_type", {"type": "a" * 101}),
    ("event_type", {"type": None}),
    ("aggregate", {"aggregate": "Order"}),
    ("aggregate_type", {"aggregate": ("", 1)}),
    ("aggregate_id", {"aggregate": ("Order", "")}),
    ("aggregate_id", {"aggregate": ("Order", "x" * 201)}),
    ("aggregate_id", {"aggregate": ("Order", "a\0b")}),
    ("event_id", {"id": "7"}),
    ("occurred_at", {"occurred_at": datetime(2026, 1, 1)}),  # noqa: DTZ001 (that is what is refused)
    ("payload", {"payload": [1]}),
    ("payload", {"payload": None}),
    ("payload", {"payload": {"n": float("nan")}}),
    ("payload", {"payload": {"n": object()}}),
    ("payload", {"payload": {"n": "\ud800"}}),
    ("payload.n", {"payload": {"n": "a\0b"}}),
    ("payload", {"payload": {"n": "x" * 300_000}}),
    ("payload.api_key", {"payload": {"api_key": "x"}}),
]


@pytest.mark.parametrize(("field", "wrong"), ODD)
async def test_an_odd_event_is_refused_by_one_error_that_names_the_field(field: str, wrong: dict[str, Any]) -> None:
    fine: dict[str, Any] = {"type": "a.b", "payload": {}, "aggregate": ("A", 1)}
    with pytest.raises(ValidationError) as raised:
        event(**fine | wrong)
    assert raised.value.field == field


async def test_a_body_says_when_it_happened_in_utc() -> None:
    at = datetime.fromisoformat("2026-03-04T12:00:00+02:00")
    told = event("a.b", {}, ("A", 1), id=UUID(int=1), occurred_at=at)
    assert msgspec.json.decode(told.body(datetime.now(UTC)))["occurred_at"] == "2026-03-04T10:00:00Z"


async def test_nothing_is_written_for_an_event_that_is_refused(make: Callable[..., World]) -> None:
    world = make()
    await world.add()
    with pytest.raises(ValidationError):
        await world.publish(payload={"n": float("inf")})
    assert await world.deliveries.list() == []


@pytest.mark.parametrize("colour", ["async", "sync"])
async def test_what_a_handler_publishes_is_told_to_observers_as_any_enqueue(
    stage: Stage, inbox: Inbox, colour: str
) -> None:
    tasks, hooks, told = Registry("own"), Webhooks(policy=Policy.local()), list[Event]()

    @tasks.task
    async def sign(ctx: Context) -> None:
        await hooks.publish("A", {}, ("A", 1), by=ctx)
        async with ctx.complete() as conn:
            await hooks.publish("B", {}, ("A", 1), by=ctx, conn=conn)

    @tasks.task
    def sign_in_thread(ctx: SyncContext) -> None:
        hooks.publish("A", {}, ("A", 1), by=ctx)
        with ctx.complete() as conn:
            hooks.publish("B", {}, ("A", 1), by=ctx, conn=conn)

    app = App(tasks, dsn=stage.dsn, blocks=[hooks], maintenance=False, observers=[told.extend])
    async with app.async_client() as client:
        await hooks.endpoints(client).add(inbox.url)
        await client.enqueue((sign if colour == "async" else sign_in_thread).job())
        await app.worker(WorkerConfig(**SETTINGS)).drain()
        made = {each.job_id for each in await hooks.deliveries(client).list()}

    assert len(made) == 2
    assert {each.job_id for each in told if isinstance(each, JobEnqueued) and each.task == "webhooks.deliver"} == made


def test_events_of_a_handler_are_told_apart_by_each_of_their_parts() -> None:
    job = uuid7()
    first = event("a", {}, ("Order Line", "7"), job=job)
    assert event("a", {}, ("Order Line", "7"), job=job).id == first.id
    assert event("a", {}, ("Order", "Line 7"), job=job).id != first.id
