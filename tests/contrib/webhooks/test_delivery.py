"""A delivery: one job per endpoint and event, signed, retried, recorded, and never lost."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Callable
from datetime import timedelta
from itertools import pairwise
from typing import Any
from uuid import UUID

import msgspec
import pytest
from standardwebhooks import Webhook
from tests.contrib.webhooks.hooks import World

from mainspring import Context, NewJob, Registry
from mainspring.contrib.webhooks import Endpoint, verify
from mainspring.events import EndpointDisabled

pytestmark = pytest.mark.anyio


@pytest.mark.rule("ENG-24.01", "PASS-7.01", "PASS-7.03", "PASS-7.07", "PASS-1.12")
async def test_each_endpoint_gets_the_event_by_a_job_of_its_own(world: World) -> None:
    await world.add("/a")
    await world.add("/b")

    first, second = await world.publish(
        "PASSPORT_SIGNED", {"passport_version_id": 9, "key_id": "k1"}, event_id=UUID(int=7)
    )
    assert await world.publish("PASSPORT_SIGNED", {}, event_id=UUID(int=7)) == []
    await world.drain()

    assert first != second
    assert sorted(request.path for request in world.inbox.requests) == ["/hooks/a", "/hooks/b"]
    for request in world.inbox.requests:
        assert request.headers["content-type"] == "application/json"
        assert request.headers["x-bpc-event-type"] == "PASSPORT_SIGNED"
        assert UUID(request.headers["x-bpc-delivery-id"]) in (first, second)
        assert request.headers["user-agent"].startswith("Mainspring/")
        body = msgspec.json.decode(request.body)
        assert body.pop("occurred_at").endswith("Z")
        assert body == {
            "event_id": str(UUID(int=7)),
            "event_type": "PASSPORT_SIGNED",
            "aggregate_type": "Order",
            "aggregate_id": "42",
            "payload": {"passport_version_id": 9, "key_id": "k1"},
        }
    found = await world.delivery(first)
    assert (found.status, found.http_status, found.error, found.attempts) == ("delivered", 204, None, 1)
    assert found.delivered_at is not None
    assert await world.job(first) == await world.job(second) == "succeeded"


@pytest.mark.rule("ENG-24.02", "PASS-7.02", "PASS-7.05")
async def test_exactly_the_bytes_that_are_sent_are_signed_in_both_manners(world: World) -> None:
    secret = (await world.add()).secret

    (delivery,) = await world.publish(payload={"note": "Zoë\u2028 ✓", "n": 2**53 + 1})
    await world.drain()

    (request,) = world.inbox.requests
    # By hand, as a receiver would.
    expected = "sha256=" + hmac.new(secret.encode(), request.body, hashlib.sha256).hexdigest()
    assert request.headers["x-bpc-signature"] == expected
    changed = "sha256=" + hmac.new(secret.encode(), request.body + b" ", hashlib.sha256).hexdigest()
    assert request.headers["x-bpc-signature"] != changed
    # By the Standard Webhooks scheme, with our function.
    now = await world.client.now()
    message = verify(request.headers, request.body, [secret], now=now)
    assert message.id == str(delivery) == request.headers["x-bpc-delivery-id"]
    assert abs(message.sent_at - now) < timedelta(seconds=5)


@pytest.mark.rule("ENG-24.02")
async def test_the_standard_library_of_receivers_accepts_a_delivery(world: World) -> None:
    import time

    secret = (await world.add()).secret
    world.stage.clock.advance(seconds=time.time() - (await world.client.now()).timestamp())  # it asks the real clock

    await world.publish()
    await world.drain()

    (request,) = world.inbox.requests
    assert Webhook(secret).verify(request.body, request.headers)["event_type"] == "order.paid"


@pytest.mark.rule("ENG-24.03", "ENG-24.05", "PASS-7.06", "PASS-7.08", "PASS-7.11")
async def test_a_delivery_is_tried_again_with_the_same_bytes_and_id(world: World) -> None:
    await world.add()
    world.inbox.plan = [503, 404, 302, 200]

    (delivery,) = await world.publish()
    for seen in (503, 404, 302):
        await world.drain()
        found = await world.delivery(delivery)
        assert (found.status, found.http_status) == ("pending", seen)
        assert found.error == f"WebhookNon2xx: the receiver answered {seen}"
        assert await world.job(delivery) == "retrying"
        world.stage.clock.advance(seconds=16)
    await world.drain()

    found = await world.delivery(delivery)
    assert (found.status, found.http_status, found.error, found.attempts) == ("delivered", 200, None, 4)
    assert len(world.inbox.requests) == 4  # and none at where a redirect leads
    assert len({request.body for request in world.inbox.requests}) == 1
    assert {request.headers["webhook-id"] for request in world.inbox.requests} == {str(delivery)}
    assert {request.headers["x-bpc-delivery-id"] for request in world.inbox.requests} == {str(delivery)}
    stamps = [int(request.headers["webhook-timestamp"]) for request in world.inbox.requests]
    assert [after - before for before, after in pairwise(stamps)] == [16, 16, 16]


@pytest.mark.rule("ENG-24.06")
async def test_a_redirect_is_a_failure_and_its_target_is_not_called(world: World) -> None:
    await world.add()
    world.inbox.plan = [(302, {"location": f"{world.inbox.url}/elsewhere"}, b"")]

    (delivery,) = await world.publish()
    await world.drain()

    assert [request.path for request in world.inbox.requests] == ["/hooks"]
    assert await world.job(delivery) == "retrying"


@pytest.mark.rule("PASS-7.09")
async def test_when_attempts_are_used_up_job_and_delivery_have_failed(world: World) -> None:
    await world.add()
    world.inbox.otherwise = 500

    (delivery,) = await world.publish()
    began = await world.client.now()
    for pause in (2, 4, 8, 16):
        await world.drain()
        assert (await world.delivery(delivery)).status == "pending"
        world.stage.clock.advance(seconds=pause)
    await world.drain()

    found = await world.delivery(delivery)
    assert (found.status, found.attempts, found.http_status, found.delivered_at) == ("failed", 5, 500, None)
    assert await world.job(delivery) == "dead"
    assert await world.client.now() - began < timedelta(seconds=31)


@pytest.mark.rule("PASS-7.10", "ENG-24.06")
async def test_a_receiver_that_is_gone_gets_nothing_more_and_its_organisation_is_told(
    make: Callable[..., World],
) -> None:
    tasks = Registry("own")

    @tasks.task
    async def tell_them(ctx: Context, *, endpoint_id: UUID) -> None: ...

    def notice(endpoint: Endpoint) -> NewJob:
        return tell_them.job(endpoint_id=endpoint.id)

    world = make(disabled=notice)
    endpoint = (await world.add()).endpoint
    world.inbox.plan = [410]
    (delivery,) = await world.publish()
    await world.drain()

    found = await world.delivery(delivery)
    assert (found.status, found.attempts, found.http_status) == ("failed", 1, 410)
    assert await world.job(delivery) == "failed"
    endpoint = await world.endpoints.get(endpoint.id)
    assert (endpoint.state, endpoint.reason) == ("disabled", "the receiver answered 410 Gone")
    assert [told for told in world.told if isinstance(told, EndpointDisabled)] == [
        EndpointDisabled(endpoint.id, "default", "the receiver answered 410 Gone")
    ]
    assert world.stage.rows(
        "select event, actor_id from mainspring.audit where event like 'webhook.%%' order by id"
    ) == [
        ("webhook.endpoint_added", "SYSTEM"),
        ("webhook.endpoint_disabled", "SYSTEM"),
    ]
    (job,) = await world.client.jobs(task="tell_them")
    assert job.payload == {"endpoint_id": str(endpoint.id)}

    assert await world.publish() == []  # nothing more is written for it
    await world.drain()
    assert len(world.inbox.requests) == 1


async def test_what_waits_for_an_endpoint_that_was_disabled_fails_without_a_call(world: World) -> None:
    await world.add()
    world.inbox.plan = [410]
    first, second = (await world.publish())[0], (await world.publish())[0]
    world.stage.rows("update mainspring.waiting set due_at = due_at + interval '1 hour' where id = %s", second)
    await world.drain()
    world.stage.clock.advance(hours=1)
    await world.drain()

    assert len(world.inbox.requests) == 1
    assert [(await world.delivery(id)).status for id in (first, second)] == ["failed", "failed"]
    job = await world.client.get(second)
    assert (job.state, job.error["code"] if job.error else None) == ("failed", "WebhookDisabled")


@pytest.mark.rule("PASS-7.08", "ENG-24.04", "ENG-24.05")
async def test_silence_is_a_time_out_and_a_closed_port_a_network_error(make: Callable[..., World]) -> None:
    world = make(timeout=0.2)
    await world.add()
    world.inbox.plan = [None]
    (delivery,) = await world.publish()
    await world.drain()
    found = await world.delivery(delivery)
    assert (found.status, found.http_status) == ("pending", None)
    assert found.error is not None
    assert found.error.startswith("WebhookTimeout: ")

    world.stage.rows("update mainspring.webhook_endpoint set url = 'http://127.0.0.1:1/'")
    world.stage.clock.advance(seconds=2)
    await world.drain()
    found = await world.delivery(delivery)
    assert (found.status, found.http_status) == ("pending", None)
    assert found.error is not None
    assert found.error.startswith("HttpException: ")


@pytest.mark.rule("PASS-7.18", "ENG-24.04")
async def test_every_endpoint_has_thirty_seconds(make: Callable[..., World]) -> None:
    seen: list[float] = []

    class Slow:
        async def post(self, url: str, headers: Any, body: bytes, *, timeout: float) -> Any:
            seen.append(timeout)
            raise TimeoutError

        async def check(self, url: str) -> Any:
            from mainspring.contrib.webhooks.target import check

            return check(url, make().hooks.transport.policy)

    world = make(transport=Slow())
    for path in "abc":
        await world.add(f"/{path}")
    await world.publish()
    await world.drain()

    assert seen == [30.0, 30.0, 30.0]


@pytest.mark.rule("PASS-7.13", "ENG-24.08")
async def test_what_is_kept_of_an_answer_is_bounded_and_holds_no_credentials(world: World) -> None:
    await world.add()
    headers = {"set-cookie": "id=7", "authorization": "Basic abcdefgh", "x-request": "r-1", "x-auth-token": "t0p"}
    world.inbox.plan = [(200, headers, b"x" * 2**20)]

    (delivery,) = await world.publish()
    await world.drain()

    found = await world.delivery(delivery)
    assert found.response_body == b"x" * 64 * 1024
    assert found.response_cut
    assert found.response_headers is not None
    assert found.response_headers["x-request"] == "r-1"
    assert found.response_headers["x-auth-token"] == "***"
    assert not {"set-cookie", "authorization"} & found.response_headers.keys()


async def test_a_receiver_says_when_to_come_back_up_to_a_day(world: World) -> None:
    await world.add()
    world.inbox.plan = [(503, {"retry-after": said}, b"") for said in ("7200", "999999", "soon")]

    (delivery,) = await world.publish()
    for seconds in (7200, 86400, 8):  # its own pause where nothing can be read
        await world.drain()
        due = world.stage.one("select due_at - mainspring.now() from mainspring.waiting where id = %s", delivery)
        assert due == timedelta(seconds=seconds)
        world.stage.clock.advance(due)


@pytest.mark.rule("PASS-7.16")
async def test_a_second_run_of_a_delivered_job_calls_nobody(world: World) -> None:
    await world.add()
    (delivery,) = await world.publish()
    world.stage.rows("update mainspring.webhook_delivery set delivered_at = mainspring.now()")

    await world.drain()

    assert world.inbox.requests == []
    assert await world.job(delivery) == "succeeded"
    assert (await world.delivery(delivery)).attempts == 0


async def test_a_worker_that_lost_its_lease_after_the_call_records_nothing_and_it_is_sent_once_more(
    world: World,
) -> None:
    await world.add()
    (delivery,) = await world.publish()
    stolen: list[int] = []

    def steal() -> None:
        if not stolen:
            with world.stage.conn.transaction():
                world.stage.clock.advance(seconds=61)
                world.stage.rows("select mainspring.rescue(1000, 3)")
            stolen.append(1)

    world.inbox.before_answer = steal
    await world.drain()
    await world.drain()

    found = await world.delivery(delivery)
    assert found.status == "delivered"
    assert [request.headers["webhook-id"] for request in world.inbox.requests] == [str(delivery)] * 2
    assert len({request.body for request in world.inbox.requests}) == 1


@pytest.mark.parametrize("fault", ["raises", "is refused"])
async def test_a_notice_that_cannot_be_given_keeps_no_receiver_that_is_gone_alive(
    make: Callable[..., World], fault: str
) -> None:
    tasks = Registry("own")

    @tasks.task(queue="q:full", best_effort=True)
    async def tell_them(ctx: Context) -> None: ...

    def notice(endpoint: Endpoint) -> NewJob:
        if fault == "raises":
            raise RuntimeError("a bug of the application")
        return tell_them.job()

    world = make(disabled=notice)
    endpoint = (await world.add()).endpoint
    await world.client.enqueue(tell_them.job())
    await world.client.limits.depth("q:full", 1, reason="a drill")
    world.inbox.otherwise = 410
    (delivery,) = await world.publish()
    await world.drain()

    assert (await world.endpoints.get(endpoint.id)).state == "disabled"
    assert ((await world.delivery(delivery)).http_status, await world.job(delivery)) == (410, "failed")
    assert [told for told in world.told if isinstance(told, EndpointDisabled)]


@pytest.mark.parametrize(("status", "became"), [(200, "delivered"), (410, "failed"), (500, "failed")])
async def test_an_endpoint_that_is_removed_during_a_call_keeps_how_it_ended(
    world: World, status: int, became: str
) -> None:
    endpoint = (await world.add()).endpoint
    world.inbox.plan, world.inbox.before_answer = [status], lambda: world.endpoints.remove(endpoint.id)
    (delivery,) = await world.publish()
    await world.drain()

    found = await world.delivery(delivery)
    assert (found.status, found.http_status, found.attempts) == (became, status, 1)
    assert len(world.inbox.requests) == 1
