"""Rotation: both secrets sign for a while, and no delivery is refused on the way."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import msgspec
import pytest
from tests.contrib.webhooks.hooks import Reply, Request, World

from mainspring import ValidationError
from mainspring.contrib.webhooks import verify, verify_plain
from mainspring.declare.block import SignatureRefused

pytestmark = pytest.mark.anyio

DELIVERIES = 1000


async def test_a_thousand_deliveries_across_a_rotation_and_none_is_refused(make: Callable[..., World]) -> None:
    world = make(concurrency=None)
    added = await world.add()
    now = await world.client.now()  # the clock stands still
    known = [added.secret]  # to the receiver, who has one at a time
    refused: list[Request] = []

    def judge(request: Request) -> Reply:
        try:
            verify(request.headers, request.body, known, now=now)
        except SignatureRefused:
            refused.append(request)
            return 401
        return 204

    world.inbox.judge = judge
    publish = (
        "select mainspring.publish('default', gen_random_uuid(), 'a.b', 'A', '1', '{}', %s) from generate_series(1, %s)"
    )
    world.stage.rows(publish, msgspec.json.encode(world.hooks.job()).decode(), DELIVERIES)

    worker = world.worker()
    await worker.start()
    try:
        await world.stage.until(lambda: len(world.inbox.requests) >= DELIVERIES // 4, 60)
        secret = await world.endpoints.rotate(added.endpoint.id)
        rotated_at = len(world.inbox.requests)
        await world.stage.until(lambda: len(world.inbox.requests) >= DELIVERIES // 2, 60)
        known[:] = [secret]
        switched_at = len(world.inbox.requests)
        await world.stage.until(lambda: len(world.inbox.requests) >= DELIVERIES, 60)
    finally:
        await worker.stop()

    assert refused == []
    assert rotated_at < switched_at < DELIVERIES
    assert world.stage.rows("select status, attempts, count(*) from mainspring.deliveries group by 1, 2") == [
        ("delivered", 1, DELIVERIES)
    ]


@pytest.mark.rule("ENG-24.09", "PASS-7.14")
async def test_every_attempt_after_a_rotation_is_signed_with_the_new_secret(world: World) -> None:
    added = await world.add()
    world.inbox.plan = [500]
    await world.publish()
    await world.drain()
    secret = await world.endpoints.rotate(added.endpoint.id)
    world.stage.clock.advance(seconds=2)
    await world.drain()

    before, after = world.inbox.requests
    verify_plain(before.headers["x-bpc-signature"], before.body, [added.secret])
    verify_plain(after.headers["x-bpc-signature"], after.body, [secret])
    with pytest.raises(SignatureRefused):
        verify_plain(after.headers["x-bpc-signature"], after.body, [added.secret])
    # Receivers of the Standard Webhooks scheme may still know the old one; the new one comes first.
    now = await world.client.now()
    for known in ([secret], [added.secret]):
        assert verify(after.headers, after.body, known, now=now)
    newest = after.headers["webhook-signature"].split(" ")[0]
    assert verify(after.headers | {"webhook-signature": newest}, after.body, [secret], now=now)


async def test_when_the_overlap_is_over_the_old_secret_signs_nothing(world: World) -> None:
    added = await world.add()
    secret = await world.endpoints.rotate(added.endpoint.id, overlap=timedelta(hours=1))
    world.stage.clock.advance(hours=1)
    await world.publish()
    await world.drain()

    (request,) = world.inbox.requests
    now = await world.client.now()
    assert verify(request.headers, request.body, [secret], now=now)
    with pytest.raises(SignatureRefused):
        verify(request.headers, request.body, [added.secret], now=now)


async def test_a_secret_that_others_know_is_gone_at_once(world: World) -> None:
    added = await world.add()
    await world.endpoints.rotate(added.endpoint.id)
    secret = await world.endpoints.rotate(added.endpoint.id, overlap=timedelta(0), reason="it leaked")
    await world.publish()
    await world.drain()

    (request,) = world.inbox.requests
    assert len(request.headers["webhook-signature"].split(" ")) == 1
    assert verify(request.headers, request.body, [secret], now=await world.client.now())
    assert world.stage.one("select count(*) from mainspring.webhook_secret") == 1
    detail = "select detail ->> 'reason' from mainspring.audit where event = 'webhook.secret_rotated' order by id desc"
    assert world.stage.one(detail) == "it leaked"


async def test_a_shorter_overlap_shortens_and_a_longer_one_does_not_prolong(world: World) -> None:
    added = await world.add()
    await world.endpoints.rotate(added.endpoint.id, overlap=timedelta(hours=2))
    await world.endpoints.rotate(added.endpoint.id, overlap=timedelta(hours=9))
    left = (
        "select extract(epoch from expires_at - mainspring.now())::int / 3600 from mainspring.webhook_secret order by 1"
    )
    assert [row[0] for row in world.stage.rows(left)] == [2, 9, None]


async def test_an_endless_row_of_valid_secrets_and_an_odd_overlap_are_refused(world: World) -> None:
    added = await world.add()
    for _ in range(4):
        await world.endpoints.rotate(added.endpoint.id)
    with pytest.raises(ValidationError, match="overlap: five secrets are valid already"):
        await world.endpoints.rotate(added.endpoint.id)
    for overlap in (timedelta(seconds=-1), timedelta(days=31), None, 5):
        with pytest.raises(ValidationError, match="overlap"):
            await world.endpoints.rotate(added.endpoint.id, overlap=overlap)  # type: ignore[arg-type] # on purpose
    await world.endpoints.rotate(added.endpoint.id, overlap=timedelta(0))
