from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

import httpx2 as httpx
import pytest
from tests.contrib.rabbitmq.broker import Broker, Wire
from tests.contrib.rabbitmq.conftest import Apps
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.contrib.rabbitmq import RabbitMQ
from mainspring.contrib.rabbitmq.link import BrokerUnavailable
from mainspring.web import create

pytestmark = pytest.mark.anyio


async def ready(app: ms.App) -> tuple[int, Any]:
    """What the endpoint answers, to a fresh process that has not asked before."""
    async with httpx.AsyncClient(transport=httpx.ASGITransport(create(app)), base_url="http://localhost") as http:
        answer = await http.get("/v1/health/ready")
        return answer.status_code, answer.json()["checks"].get("queue")


@pytest.mark.rule("ENG-17.08")
@pytest.mark.parametrize(("flag", "down"), [("off", (200, "degraded")), ("on", (503, "unavailable"))])
async def test_readiness_requires_the_broker_only_if_the_flag_is_on(
    broker: Broker, wire: Wire, app: Apps, monkeypatch: pytest.MonkeyPatch, flag: str, down: tuple[int, str]
) -> None:
    monkeypatch.setenv("BPC_HEALTH_REQUIRE_QUEUE", flag)
    names = {"BPC_HEALTH_REQUIRE_QUEUE": "MAINSPRING_HEALTH_REQUIRE_QUEUE"}  # the passport's document has its own
    made = app(broker.block(url=wire.url, setting_aliases=names))

    assert await ready(made) == (200, "ok")
    wire.cut()
    await until(made.blocks[0], well=False)
    assert await ready(made) == down
    wire.mend()
    await until(made.blocks[0], well=True)
    assert await ready(made) == (200, "ok")


@pytest.mark.rule("ENG-17.01", "ENG-17.08")
async def test_where_it_is_off_readiness_does_not_speak_of_it(app: Apps) -> None:
    assert await ready(app(RabbitMQ())) == (200, None)


async def test_probes_open_one_connection_and_keep_it(broker: Broker, wire: Wire) -> None:
    block = broker.block(url=wire.url)
    (check,) = block.checks

    for _ in range(20):
        await check.probe()

    assert wire.came == 1
    block.close()


async def test_a_worker_is_asked_about_the_connection_by_which_it_listens(
    stage: Stage, broker: Broker, wire: Wire, app: Apps
) -> None:
    block = broker.block(url=wire.url)
    worker = app(block).worker()
    await worker.start()
    await stage.until(lambda: [each for each in block._listener.links if each.up])

    await block.checks[0].probe()
    assert wire.came == 1
    wire.cut()
    await until(block, well=False)
    await worker.stop()


async def test_a_broker_that_was_never_there_is_said_without_its_address(broker: Broker, wire: Wire) -> None:
    wire.cut()
    block = broker.block(url=wire.url)

    with pytest.raises(BrokerUnavailable) as caught:
        await block.checks[0].probe()
    assert str(wire.port) not in str(caught.value)
    block.close()


async def until(block: Any, *, well: bool) -> None:
    async with asyncio.timeout(8):
        while True:
            with suppress(BrokerUnavailable):
                await block.checks[0].probe()
                if well:
                    return
                await asyncio.sleep(0.01)
                continue
            if not well:
                return
            await asyncio.sleep(0.01)
