from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import pytest
from tests.contrib.rabbitmq.broker import Broker, Wire
from tests.contrib.rabbitmq.conftest import Apps
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.contrib.rabbitmq import RabbitMQ, link
from mainspring.contrib.rabbitmq.listener import RING_PAUSE_S
from mainspring.worker import Worker

pytestmark = pytest.mark.anyio

#: Nothing but a message explains a start.
FAR: dict[str, Any] = {"wakeups": False, "poll_interval": timedelta(seconds=600), "scheduler": False}

MALFORMED = [b"xyz", b"", b"\xff\xfe", b"{}", b'{"job_id": 7}', b'["job_id"]', b"[" * 2000, b" " * 9000]


@asynccontextmanager
async def working(app: ms.App) -> AsyncIterator[Worker]:
    worker = app.worker()
    await worker.start()
    try:
        yield worker
    finally:
        await worker.stop()


async def asleep(stage: Stage, block: RabbitMQ, worker: Worker) -> None:
    """Wait until the worker listens and its polls are far apart."""
    await stage.until(lambda: [each for each in block._listener.links if each.up])
    await stage.until(lambda: worker._parts.exchange.pace.poll >= 1.6)
    worker._parts.exchange.pace.poll_at = asyncio.get_running_loop().time() + 600


@asynccontextmanager
async def listening(block: RabbitMQ, woke: Callable[[], None]) -> AsyncIterator[None]:
    """Somebody who listens, and has begun to."""
    begun = asyncio.Event()

    def rang() -> None:
        woke()
        begun.set()

    listener = asyncio.create_task(block._listener.listen(rang))
    await asyncio.wait_for(begun.wait(), 8)
    yield
    listener.cancel()
    await asyncio.wait([listener])


@pytest.mark.rule("ENG-17.04")
async def test_a_message_makes_a_sleeping_worker_look_at_once(
    stage: Stage, broker: Broker, app: Apps, tasks: ms.Registry
) -> None:
    @tasks.task
    async def work() -> str:
        return "awake"

    block = broker.block()
    made = app(block, **FAR)
    async with working(made) as worker, made.async_client() as client:
        await asleep(stage, block, worker)
        job = await client.enqueue(work.job())
        assert await stage.result(job.id) == "awake"


@pytest.mark.rule("ENG-17.04")
@pytest.mark.parametrize("lie", ["a timer", "nobody"])
async def test_whatever_id_a_message_holds_what_is_due_runs_in_the_usual_order(
    stage: Stage, broker: Broker, app: Apps, tasks: ms.Registry, lie: str
) -> None:
    ran: list[str] = []

    @tasks.task
    async def work(*, name: str) -> None:
        ran.append(name)

    block = broker.block()
    made = app(block, **FAR, concurrency=1, exchanges=1)
    async with broker.ear() as ear, working(made) as worker:
        await asleep(stage, block, worker)
        timer = await stage.enqueue(work.job(name="timer").after(timedelta(hours=1)))
        for name, seconds in (("third", 30), ("first", 10), ("second", 20)):
            await stage.enqueue(work.job(name=name).after(seconds))
        stage.clock.advance(seconds=60)
        assert not ran, "no message, no poll"
        await ear.say(b'{"job_id": "%s"}' % str(timer if lie == "a timer" else uuid4()).encode())
        await stage.until(lambda: len(ran) == 3)

        assert ran == ["first", "second", "third"]
        assert await stage.state(timer) == "scheduled"


@pytest.mark.rule("ENG-17.05")
@pytest.mark.parametrize(
    "body", [b"xyz", b"", b"\xff\xfe", b"{}", b'{"job_id": 7}', b'["job_id"]', b"[" * 2000, b" " * 9000]
)
async def test_a_malformed_message_is_acknowledged_said_once_and_wakes_as_any(
    stage: Stage, broker: Broker, body: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    woken: list[float] = []
    block = broker.block()
    async with broker.ear() as ear, listening(block, lambda: woken.append(time.monotonic())):
        for number in range(3):
            await ear.say(body)
            await stage.until(lambda number=number: len(woken) == number + 2)  # type: ignore[misc]  # bound early
        await ear.say(b'{"job_id": "%s"}' % str(uuid4()).encode())
        await stage.until(lambda: len(woken) == 5)  # with one message at once, each before was acknowledged

    (warning,) = [record for record in caplog.records if record.levelno >= logging.WARNING]
    assert "is no hint of a job" in warning.getMessage()
    assert not body or body.decode(errors="replace") not in warning.getMessage()


@pytest.mark.rule("ENG-17.05")
async def test_after_a_malformed_message_polling_goes_on(
    stage: Stage, broker: Broker, app: Apps, tasks: ms.Registry
) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    made = app(broker.block())
    async with broker.ear() as ear, working(made):
        await ear.say(b"xyz")

        assert await stage.result(await stage.enqueue(work.job())) == "done"


async def test_one_message_wakes_every_worker(stage: Stage, broker: Broker) -> None:
    woken: list[str] = []
    block, other = broker.block(), broker.block()
    async with (
        broker.ear() as ear,
        listening(block, lambda: woken.append("a")),
        listening(block, lambda: woken.append("b")),
        listening(other, lambda: woken.append("c")),
    ):
        woken.clear()
        await ear.say(b'{"job_id": "%s"}' % str(uuid4()).encode())
        await stage.until(lambda: len(woken) == 3)

    assert sorted(woken) == ["a", "b", "c"]


async def test_a_storm_of_messages_is_one_ring_after_the_other_and_the_last_is_heard(
    stage: Stage, broker: Broker
) -> None:
    woken: list[float] = []
    async with broker.ear() as ear, listening(broker.block(), lambda: woken.append(time.monotonic())):
        begun = time.monotonic()
        for _ in range(10):
            last = time.monotonic()
            await asyncio.gather(*(ear.say(b'{"job_id": "%s"}' % str(uuid4()).encode()) for _ in range(200)))
        await stage.until(lambda: woken[-1] >= last and time.monotonic() > woken[-1] + 0.2)

        assert len(woken) < (woken[-1] - begun) / RING_PAUSE_S + 3
        assert len(woken) < 1000


@pytest.mark.rule("ENG-17.06")
async def test_with_the_broker_gone_mid_run_jobs_run_within_a_poll_interval(
    stage: Stage, broker: Broker, wire: Wire, app: Apps, tasks: ms.Registry, caplog: pytest.LogCaptureFixture
) -> None:
    @tasks.task
    async def work() -> str:
        return "done"

    block = broker.block(url=wire.url)
    made = app(block, poll_interval=timedelta(milliseconds=300))
    async with working(made), made.async_client() as client:
        await stage.until(lambda: [each for each in block._listener.links if each.up])
        wire.cut()
        await stage.until(lambda: "listening" in caplog.text)  # at once, not when it is asked next
        for _ in range(3):
            job = await client.enqueue(work.job())
            assert await stage.result(job.id) == "done"

    told = [record.getMessage() for record in caplog.records if "jobs are found by polling" in record.getMessage()]
    assert len([text for text in told if "listening" in text]) == 1


@pytest.mark.rule("ENG-17.06")
async def test_a_broker_that_is_back_wakes_workers_again(
    stage: Stage, broker: Broker, wire: Wire, app: Apps, tasks: ms.Registry, caplog: pytest.LogCaptureFixture
) -> None:
    @tasks.task
    async def work() -> str:
        return "awake"

    block = broker.block(url=wire.url)
    made = app(block, **FAR)
    async with working(made) as worker, made.async_client() as client:
        await asleep(stage, block, worker)
        wire.cut()
        await stage.until(lambda: "listening" in caplog.text)
        missed = await client.enqueue(work.job())  # nobody tells of it: a worker that is back looks by itself
        wire.mend()
        assert await stage.result(missed.id) == "awake"
        await asleep(stage, block, worker)
        job = await client.enqueue(work.job())
        assert await stage.result(job.id) == "awake"

        await stage.until(lambda: "is back after" in caplog.text)


@pytest.mark.rule("ENG-17.06")
async def test_the_delay_before_the_next_try_grows(broker: Broker, wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    pauses: list[float] = []
    sleep = asyncio.sleep

    async def noted(seconds: float) -> None:
        if asyncio.current_task() is not listener:  # the thread of a publisher
            return await sleep(seconds)
        pauses.append(seconds)
        return await sleep(0)

    wire.cut()
    monkeypatch.setattr(asyncio, "sleep", noted)
    listener = asyncio.create_task(broker.block(url=wire.url)._listener.listen(lambda: None))
    async with asyncio.timeout(8):
        while len(pauses) < 10:
            await sleep(0.005)
    listener.cancel()
    await asyncio.wait([listener])

    raw = [min(0.2 * 2**n, 10.0) for n in range(len(pauses))]
    assert all(most / 2 <= pause <= most for pause, most in zip(pauses, raw, strict=True))
    assert len({round(pause / most, 6) for pause, most in zip(pauses, raw, strict=True)}) > 1, "spread"


async def test_a_broker_that_falls_silent_is_noticed(
    stage: Stage, broker: Broker, wire: Wire, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "FIRST_ASKED_S", 0.1)
    monkeypatch.setattr(link, "BROKER_SILENCE_S", 0.1)
    monkeypatch.setattr(link, "BROKER_PATIENCE_S", 0.4)
    async with listening(broker.block(url=wire.url), lambda: None):
        await asyncio.sleep(0.3)
        assert not caplog.messages, "it answers when asked"
        wire.mute = True
        await stage.until(lambda: "cannot be used" in caplog.text)
