from __future__ import annotations

import asyncio
from uuid import uuid4

import pytest
from tests.contrib.rabbitmq.broker import Broker
from tests.contrib.rabbitmq.server import USERS
from tests.contrib.rabbitmq.test_listener import listening
from tests.contrib.rabbitmq.test_publisher import enqueued
from tests.docs.pages import ROOT
from tests.worker.stage import Stage

from mainspring.contrib.rabbitmq.link import BrokerUnavailable

pytestmark = pytest.mark.anyio


async def test_the_rights_in_the_guide_are_enough(stage: Stage, broker: Broker) -> None:
    guide = (ROOT / "docs" / "guides" / "rabbitmq.md").read_text()
    for user in ("shop-web", "shop-worker"):
        assert f"set_permissions {user} {' '.join(repr(each) for each in USERS[user])}".replace("\\\\", "\\") in guide
    woken: list[bool] = []
    ours, key = Broker(broker.port, "mainspring"), f"test.{uuid4().hex[:8]}"
    web = ours.block(url=ours.url_of("shop-web"), routing_key=key)
    worker = ours.block(url=ours.url_of("shop-worker"), routing_key=key)
    async with ours.ear(key) as ear, listening(worker, lambda: woken.append(True)):
        web._publisher(enqueued(job := uuid4()))
        worker._publisher(enqueued(follow_up := uuid4()))
        assert {(await ear.next())["job_id"] for _ in range(2)} == {str(job), str(follow_up)}
        await stage.until(lambda: len(woken) >= 2)
        await web.checks[0].probe()
        await worker.checks[0].probe()
    web.close()
    worker.close()


@pytest.mark.parametrize(
    ("user", "password", "reason"), [("nobody", "nobody", "AccessRefused"), ("guest", "hush-hush", "Authentication")]
)
async def test_who_is_refused_is_told_why_and_not_by_which_password(
    broker: Broker, caplog: pytest.LogCaptureFixture, user: str, password: str, reason: str
) -> None:
    block = broker.block(url=broker.url_of(user, password))
    with pytest.raises(BrokerUnavailable):
        await block.checks[0].probe()
    block.close()

    (warning,) = [record.getMessage() for record in caplog.records if record.name == "mainspring.rabbitmq"]
    assert reason in warning
    assert "hush-hush" not in caplog.text


async def test_who_may_connect_but_not_publish_is_told_so_once(
    broker: Broker, caplog: pytest.LogCaptureFixture
) -> None:
    block = broker.block(url=broker.url_of("nobody"))
    async with broker.ear():  # the exchange is there, and may be looked at
        link = block._publisher.link()
        opened: set[float] = set()
        async with asyncio.timeout(8):
            while len(opened) < 4:  # it is opened, refused, and tried again
                block._publisher(enqueued(uuid4()))
                opened.add(link._opened)
                await asyncio.sleep(0.01)
    await asyncio.to_thread(block.close)

    (warning,) = [record.getMessage() for record in caplog.records if record.name == "mainspring.rabbitmq"]
    assert "ACCESS_REFUSED" in warning
