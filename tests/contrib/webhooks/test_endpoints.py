"""Endpoints: registered after a check, paused, resumed, removed; secrets shown once and known to nobody else."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

import psycopg
import pytest
from tests.contrib.webhooks.hooks import Inbox, World
from tests.databases import Database
from tests.secured import Secured
from tests.worker.stage import SETTINGS

from mainspring import App, Cipher, ValidationError, WorkerConfig
from mainspring.contrib.webhooks import Policy, TargetRefused, Webhooks, verify
from mainspring.contrib.webhooks.endpoint import check_prefix
from mainspring.errors import ConfigurationError, NotPermitted, UnknownName
from mainspring.uuid7 import uuid7

pytestmark = pytest.mark.anyio


@pytest.mark.rule("ENG-24.07", "PASS-7.12")
async def test_an_endpoint_must_be_https_at_a_public_address(make: Callable[..., World]) -> None:
    world = make(policy=Policy())
    for url in (
        "http://example.com/",
        "https://127.0.0.1/",
        "https://10.0.0.7/",
        "https://[::1]/",
        "https://localhost/",
    ):
        with pytest.raises(TargetRefused):
            await world.endpoints.add(url)
    assert await world.endpoints.list() == []


@pytest.mark.rule("ENG-24.07", "PASS-7.12")
async def test_an_address_is_checked_again_at_each_attempt(make: Callable[..., World]) -> None:
    lenient, strict = make(), make(policy=Policy())
    await lenient.add()
    (delivery,) = await lenient.publish()

    await strict.drain()  # the configuration has changed; so might the address have

    assert strict.inbox.requests == []
    found = await strict.delivery(delivery)
    assert (found.status, found.http_status) == ("failed", None)
    assert found.error is not None
    assert found.error.startswith("WEBHOOK_TARGET_REFUSED: url: ")
    assert await strict.job(delivery) == "failed"


ODD: list[tuple[str, dict[str, Any]]] = [
    ("events", {"events": "order.paid"}),
    ("events", {"events": [""]}),
    ("events", {"events": ["*"]}),
    ("events", {"events": [".*"]}),
    ("events", {"events": ["a b"]}),
    ("events", {"events": [7]}),
    ("events", {"events": [f"e{n}" for n in range(101)]}),
    ("description", {"description": "a\0b"}),
    ("description", {"description": "x" * 1001}),
    ("headers", {"headers": {f"x-{n}": "y" for n in range(21)}}),
    ("headers", {"headers": {"X-Key": "a\r\nb: c"}}),
    ("headers", {"headers": {"X-Key": "a\0b"}}),
    ("headers", {"headers": {"X Key": "a"}}),
    ("headers", {"headers": {"X-Key": "y" * 9000}}),
    *(
        ("headers", {"headers": {name: "x"}})
        for name in ("Host", "content-length", "Transfer-Encoding", "Webhook-Id", "X-BPC-Signature", "x-bpc-other",
                     "User-Agent", "Content-Type", "Connection")
    ),
]  # fmt: skip


async def test_an_odd_endpoint_is_refused_by_one_error_that_names_the_field(world: World) -> None:
    for field, wrong in ODD:
        with pytest.raises(ValidationError) as raised:
            await world.add(**wrong)
        assert raised.value.field == field, wrong
    assert await world.endpoints.list() == []


@pytest.mark.parametrize("prefix", ["", "X_Y", "X-", "Webhook", "a b", "x" * 51])
def test_a_prefix_is_the_beginning_of_a_header(prefix: str) -> None:
    with pytest.raises(ConfigurationError, match="prefix"):
        check_prefix(prefix)


async def test_headers_of_an_endpoint_go_with_each_request(world: World) -> None:
    await world.add(headers={"Authorization": "Bearer t0ps3cret", "X-Tenant": "7"})
    await world.publish()
    await world.drain()
    (request,) = world.inbox.requests
    assert (request.headers["authorization"], request.headers["x-tenant"]) == ("Bearer t0ps3cret", "7")


@pytest.mark.rule("PASS-1.10", "PASS-7.15")
async def test_a_secret_is_shown_once_and_stands_nowhere_else(world: World, caplog: pytest.LogCaptureFixture) -> None:
    first, second = await world.add("/a", headers={"X-Key": "canary-header"}), await world.add("/b")
    world.inbox.plan = [500, (400, {}, b"no"), 410, 204]
    await world.publish()
    await world.drain()
    world.stage.clock.advance(minutes=1)
    await world.drain()

    assert first.secret != second.secret
    assert first.secret not in repr(first)
    secrets = {first.secret, second.secret, "canary-header"}
    said = "".join([caplog.text, *map(str, world.told), *(str(job) for job in await world.client.jobs())])
    tables = [row[0] for row in world.stage.rows("select relname from pg_class where relkind in ('r', 'v') and"
                                                 " relnamespace = 'mainspring'::regnamespace")]  # fmt: skip
    for table in {*tables} - {"webhook_secret", "webhook_endpoint"}:
        said += str(world.stage.rows(f"select x::text from mainspring.{table} x"))
    said += "".join(map(str, await world.endpoints.list()))
    assert [secret for secret in secrets if secret in said] == []


async def test_deliveries_of_a_paused_endpoint_wait_and_lose_no_attempt(world: World) -> None:
    endpoint = (await world.add()).endpoint
    assert await world.endpoints.pause(endpoint.id, reason="the customer asked")
    assert not await world.endpoints.pause(endpoint.id, reason="again")
    (delivery,) = await world.publish()
    for _ in range(3):
        await world.drain()
        world.stage.clock.advance(days=4)

    assert world.inbox.requests == []
    found = await world.delivery(delivery)
    assert (found.status, found.attempts) == ("pending", 0)
    job = await world.client.get(delivery)
    assert (job.attempt, job.snoozes, job.gate) == (0, 0, f"endpoint:{endpoint.id}")
    assert (await world.client.explain(delivery)).verdict.startswith(
        f"Its endpoint {endpoint.id} is paused, since 12 d"
    )
    assert world.stage.events(delivery) == ["job.deferred"]  # once, however long it waits

    assert await world.endpoints.resume(endpoint.id)
    await world.drain()  # at once

    assert (await world.delivery(delivery)).status == "delivered"
    events = world.stage.rows(
        "select event, detail ->> 'reason' from mainspring.audit where event like 'webhook.%%' order by id"
    )
    assert events[1:] == [("webhook.endpoint_paused", "the customer asked"), ("webhook.endpoint_resumed", None)]


async def test_an_endpoint_that_is_removed_takes_its_secrets_and_what_waits_along(world: World) -> None:
    endpoint = (await world.add()).endpoint
    (delivery,) = await world.publish()

    await world.endpoints.remove(endpoint.id, reason="the contract ended")
    await world.drain()

    assert world.inbox.requests == []
    assert world.stage.rows("select 1 from mainspring.webhook_secret") == []
    assert (await world.delivery(delivery)).status == "failed"
    assert (await world.client.get(delivery)).state == "cancelled"
    for act in (world.endpoints.get, world.endpoints.remove, world.endpoints.rotate, world.endpoints.pause):
        with pytest.raises(UnknownName, match=f"endpoint: there is no endpoint {endpoint.id}"):
            await act(endpoint.id)
    with pytest.raises(ValidationError, match="endpoint: was removed"):
        await world.deliveries.redeliver(delivery, reason="they want it")


async def test_another_organisation_does_not_reach_an_endpoint(world: World) -> None:
    endpoint = (await world.add(org="acme")).endpoint
    for act in (world.endpoints.get, world.endpoints.remove, world.endpoints.rotate, world.endpoints.pause):
        with pytest.raises(UnknownName):
            await act(endpoint.id, org="globex")
    assert (await world.endpoints.get(endpoint.id)).state == "active"


async def test_a_ping_reaches_one_endpoint_whatever_it_wants(world: World) -> None:
    await world.add("/a")
    wanted = await world.add("/b", events=["never.this"])

    delivery = await world.endpoints.ping(wanted.endpoint.id)
    await world.drain()

    (request,) = world.inbox.requests
    assert (request.path, request.headers["x-bpc-event-type"]) == ("/hooks/b", "webhook.ping")
    assert (await world.delivery(delivery)).status == "delivered"


async def test_endpoints_in_sync_code(world: World) -> None:
    with world.app.client() as client:
        endpoints = world.hooks.endpoints(client)
        added = endpoints.add(world.inbox.url, events=["a.*"], org="acme")
        assert endpoints.list(org="acme") == [added.endpoint] == [endpoints.get(added.endpoint.id)]
        secret = endpoints.rotate(added.endpoint.id)
        assert secret != added.secret
        assert endpoints.pause(added.endpoint.id, reason="later")
        assert endpoints.resume(added.endpoint.id)
        delivery = endpoints.ping(added.endpoint.id)
        assert world.hooks.deliveries(client).get(delivery).status == "pending"
        endpoints.remove(added.endpoint.id)
        assert endpoints.list() == []
        with pytest.raises(ValidationError, match="endpoint: is not a UUID"):
            endpoints.get("7")  # type: ignore[arg-type] # what a caller may pass all the same


# -- encrypted


async def test_with_a_cipher_the_database_knows_neither_secrets_nor_bodies(make: Callable[..., World]) -> None:
    world = make(cipher=Cipher(Cipher.new_master_key()))
    added = await world.add(headers={"X-Key": "canary-header"}, org="acme")
    world.inbox.plan = [(500, {"x-canary": "canary-answer"}, b"canary-answer")]

    (delivery,) = await world.publish(payload={"name": "canary-body"}, org="acme")
    await world.drain()
    kept = str(world.stage.rows("select d::text, encode(response_body, 'escape') from mainspring.webhook_delivery d"))
    kept += str(world.stage.rows("select e::text from mainspring.webhook_endpoint e"))
    kept += str(world.stage.rows("select s::text from mainspring.webhook_secret s"))
    assert [canary for canary in ("canary", added.secret, added.secret[6:30]) if canary in kept] == []

    found = await world.delivery(delivery)
    assert found.body is not None
    assert "canary-body" in found.body
    assert found.response_body == b"canary-answer"
    assert found.response_headers is not None
    assert found.response_headers["x-canary"] == "canary-answer"

    secret = await world.endpoints.rotate(added.endpoint.id, overlap=timedelta(0))
    world.stage.clock.advance(seconds=2)
    await world.drain()
    first, second = world.inbox.requests
    now = await world.client.now()
    assert verify(first.headers, first.body, [added.secret], now=now)
    assert verify(second.headers, second.body, [secret], now=now).body == first.body
    assert second.headers["x-key"] == "canary-header"


async def test_a_secret_that_was_moved_to_another_endpoint_cannot_be_read(make: Callable[..., World]) -> None:
    world = make(cipher=Cipher(Cipher.new_master_key()))
    await world.add("/a")
    await world.add("/b")
    world.stage.rows(
        "update mainspring.webhook_secret set secret = (select min(secret) from mainspring.webhook_secret)"
    )

    await world.publish()
    await world.drain()

    states = sorted([job.state for job in await world.client.jobs()])
    assert states == ["failed", "succeeded"]  # one of them has its own


# -- on a secured schema


async def test_roles_do_what_is_theirs_on_a_secured_schema(secured: Secured, inbox: Inbox) -> None:
    def app(role: str) -> tuple[App, Webhooks]:
        hooks = Webhooks(policy=Policy.local())
        return App(dsn=secured.dsn(role), blocks=[hooks], maintenance=False, secured=True), hooks

    (tenants, hooks), (workers, _), (operators, theirs) = app("api"), app("worker"), app("operator")
    inbox.plan = [410]
    async with tenants.async_client() as client, operators.async_client() as operator:
        endpoint = (await hooks.endpoints(client).add(inbox.url, org="acme")).endpoint
        made = await hooks.publish("a.b", {}, ("A", 1), by=client, org="acme")
        await hooks.endpoints(client).rotate(endpoint.id, org="acme")
        await workers.worker(WorkerConfig(**SETTINGS)).drain()

        assert (await hooks.endpoints(client).get(endpoint.id, org="acme")).state == "disabled"
        assert await hooks.endpoints(client).list(org="globex") == []
        assert await hooks.deliveries(client).list(org="globex") == []
        with pytest.raises(UnknownName):
            await hooks.endpoints(client).pause(endpoint.id, org="globex")
        with pytest.raises(NotPermitted):
            await hooks.deliveries(client).redeliver(made[0].id, reason="please", org="acme")

        assert await hooks.endpoints(client).resume(endpoint.id, org="acme")
        await theirs.deliveries(operator).redeliver(made[0].id, reason="please", org="acme")
        await workers.worker(WorkerConfig(**SETTINGS)).drain()
        assert (await hooks.deliveries(client).get(made[0].id, org="acme")).status == "delivered"

        await hooks.endpoints(client).pause(endpoint.id, org="acme")
        (waits,) = await hooks.publish("a.b", {}, ("A", 2), by=client, org="acme")
        await workers.worker(WorkerConfig(**SETTINGS)).drain()
        assert "is paused" in (await operator.explain(waits.id, org="acme")).verdict
        assert await hooks.endpoints(client).resume(endpoint.id, org="acme")
        await workers.worker(WorkerConfig(**SETTINGS)).drain()
        assert (await hooks.deliveries(client).get(waits.id, org="acme")).status == "delivered"
    for role in ("api", "operator"):
        with secured.connect(role, "acme") as conn:
            for query in ("secret from mainspring.webhook_secret", "headers from mainspring.webhook_endpoint"):
                with pytest.raises(psycopg.errors.InsufficientPrivilege):
                    conn.execute(f"select {query}".encode())


def test_an_unknown_endpoint_is_named(database: Database) -> None:
    hooks = Webhooks(policy=Policy.local())
    with App(dsn=database.dsn, blocks=[hooks], maintenance=False).client() as client:
        with pytest.raises(UnknownName, match="endpoint: there is no endpoint"):
            hooks.endpoints(client).rotate(uuid7())
        with pytest.raises(UnknownName, match="delivery: there is no delivery"):
            hooks.deliveries(client).redeliver(uuid7(), reason="x")


async def test_what_a_url_says_in_its_query_is_not_on_the_trail(world: World) -> None:
    await world.add("/in?key=canary-7f3a9c")

    (detail,) = world.stage.rows("select detail ->> 'url' from mainspring.audit where event = 'webhook.endpoint_added'")
    assert detail == (f"{world.inbox.url}/in",)


async def test_a_delivery_that_was_never_tried_says_why_it_failed(world: World) -> None:
    endpoint = (await world.add()).endpoint
    (delivery,) = await world.publish()
    await world.endpoints.remove(endpoint.id)

    found = await world.delivery(delivery)
    assert (found.status, found.error) == ("failed", "CANCELLED")
