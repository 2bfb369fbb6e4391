from __future__ import annotations

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, TypeAlias
from uuid import UUID, uuid4

import pytest
from psycopg.conninfo import conninfo_to_dict
from sqlalchemy import create_engine
from sqlalchemy.orm import Session
from tests.contrib.rabbitmq.broker import Broker, Wire
from tests.contrib.rabbitmq.conftest import Apps
from tests.worker.stage import Stage

import mainspring as ms
from mainspring.contrib.rabbitmq.config import QueueConfig
from mainspring.contrib.rabbitmq.publisher import PUBLISH_ROOM, Publisher
from mainspring.events import Event, JobEnqueued

pytestmark = pytest.mark.anyio

SCRIPT = """
import sys
import mainspring as ms
from mainspring.contrib.rabbitmq import RabbitMQ

tasks = ms.Registry("script")

@tasks.task
async def work() -> None: ...

app = ms.App(tasks, dsn=sys.argv[1], blocks=[RabbitMQ(sys.argv[2], exchange=sys.argv[3], enabled=True)])
with app.client() as client:
    print(client.enqueue(work.job()).id)
"""

END = """
import atexit, time
from mainspring.contrib.rabbitmq import publisher
atexit.unregister(publisher._leave)
begun = time.monotonic()
publisher._leave()
print(time.monotonic() - begun)
"""

Work: TypeAlias = "ms.Task[[], None, Coroutine[Any, Any, None]]"


def enqueued(*ids: UUID) -> list[Event]:
    return [JobEnqueued(each, "work", "q:default", "acme", None, "r", "c", 0) for each in ids]


@pytest.fixture
def work(tasks: ms.Registry) -> Work:
    @tasks.task
    async def work() -> None: ...

    return work


@pytest.mark.rule("ENG-17.02", "ENG-17.03")
@pytest.mark.parametrize("colour", ["sync", "async"])
async def test_an_enqueue_publishes_the_job_s_id_and_nothing_more(
    broker: Broker, app: Apps, work: Work, colour: str
) -> None:
    made = app(broker.block())
    async with broker.ear() as ear:
        if colour == "sync":
            with made.client() as client:
                job = (await asyncio.to_thread(client.enqueue, work.job())).id
        else:
            async with made.async_client() as aclient:
                job = (await aclient.enqueue(work.job())).id
        message = await ear.message()

    assert message.body == b'{"job_id":"%s"}' % str(job).encode()
    assert message.routing_key == "jobs.trigger"
    assert not message.headers


@pytest.mark.rule("ENG-17.02")
async def test_exchange_and_routing_key_are_as_configured(broker: Broker, app: Apps, work: Work) -> None:
    made = app(broker.block(routing_key="eu.wake"))
    async with broker.ear("eu.*") as ear, made.async_client() as client:
        job = await client.enqueue(work.job())

        assert await ear.next() == {"job_id": str(job.id)}


@pytest.mark.rule("ENG-17.02", "ENG-17.07")
async def test_what_is_rolled_back_is_not_published_and_what_commits_is_afterwards(
    stage: Stage, broker: Broker, app: Apps, work: Work
) -> None:
    made = app(broker.block())
    engine = create_engine("postgresql+psycopg://", connect_args=conninfo_to_dict(stage.dsn))
    async with broker.ear() as ear:
        with made.client() as client, Session(engine) as session:
            client.enqueue(work.job(), conn=session)
            session.rollback()
            job = client.enqueue(work.job(), conn=session)
            await asyncio.sleep(0.1)
            assert ear.silent, "before the commit"
            session.commit()
        assert await ear.next() == {"job_id": str(job.id)}
    engine.dispose()


@pytest.mark.rule("ENG-17.02")
async def test_a_follow_up_of_a_job_is_published_too(broker: Broker, app: Apps, tasks: ms.Registry, work: Work) -> None:
    @tasks.task
    async def first(ctx: ms.Context) -> None:
        async with ctx.complete():
            await ctx.enqueue(work.job())

    made = app(broker.block())
    async with broker.ear() as ear, made.async_client() as client:
        worker = made.worker()
        await worker.start()
        job = await client.enqueue(first.job())
        told = [await ear.next(), await ear.next()]
        await worker.stop()

    assert told[0] == {"job_id": str(job.id)}
    follow_up = await client_job(made, told[1]["job_id"])
    assert follow_up.task == "work"
    assert follow_up.parent_id == job.id


async def client_job(app: ms.App, job: str) -> ms.Job:
    async with app.async_client() as client:
        return await client.get(UUID(job))


@pytest.mark.rule("ENG-17.07", "ENG-17.06")
async def test_with_the_broker_down_an_enqueue_succeeds_and_a_warning_is_said_once(
    broker: Broker, wire: Wire, app: Apps, work: Work, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    block = broker.block(url=wire.url.replace("guest:guest", "guest:gu%65st"))
    made = app(block)
    wire.cut()
    async with broker.ear() as ear, made.async_client() as client:
        jobs = [await client.enqueue(work.job()) for _ in range(20)]  # none of them waits for the wire
        await until(lambda: warnings(caplog))
        await asyncio.sleep(0.7)  # it tries again meanwhile

        assert [await client.get(job.id) for job in jobs]
        assert len(warnings(caplog)) == 1
        assert "cannot be used, jobs are found by polling" in warnings(caplog)[0]
        assert "gu%65st" not in caplog.text
        assert "guest" not in "".join(warnings(caplog))

        wire.mend()
        assert [await ear.next() for _ in jobs] == [{"job_id": str(job.id)} for job in jobs]
        await until(lambda: len(warnings(caplog)) == 2)
        assert "is back after" in warnings(caplog)[-1]
    assert "aiormq" not in {record.name.partition(".")[0] for record in caplog.records if record.levelno > 20}


async def test_a_broker_that_is_silent_slows_no_enqueue(broker: Broker, wire: Wire, app: Apps, work: Work) -> None:
    made = app(broker.block(url=wire.url))
    async with made.async_client() as client:
        await client.enqueue(work.job())
        await until(lambda: made.blocks[0].observers[0].link().up)  # type: ignore[attr-defined]  # the publisher
        wire.mute = True
        for _ in range(50):  # none of them waits: nobody would ever answer
            await client.enqueue(work.job())


def test_while_nobody_takes_them_the_oldest_ids_make_room() -> None:
    publisher = Publisher(QueueConfig(enabled=True, url="amqp://127.0.0.1:1/"))
    ids = [uuid4() for _ in range(PUBLISH_ROOM + 5)]

    publisher(enqueued(*ids[:10]))
    publisher(enqueued(*ids[10:]))

    assert publisher.dropped == 5
    assert list(publisher._waiting) == ids[5:]
    publisher.close()


async def test_a_closed_publisher_begins_anew_with_the_next_job(broker: Broker) -> None:
    publisher = broker.block()._publisher
    async with broker.ear() as ear:
        for job in (uuid4(), uuid4()):
            publisher(enqueued(job))
            assert await ear.next() == {"job_id": str(job)}
            await asyncio.to_thread(publisher.close)
            assert not publisher.started


async def test_a_flood_is_published_in_order_and_its_last_id_in_any_case(broker: Broker) -> None:
    publisher = broker.block()._publisher
    ids = [uuid4() for _ in range(200)]
    async with broker.ear() as ear:
        for at in range(0, 200, 50):
            publisher(enqueued(*ids[at : at + 50]))
        assert [(await ear.next())["job_id"] for _ in ids] == [str(job) for job in ids]
    publisher.close()


@pytest.mark.filterwarnings("ignore:.*multi-threaded.*fork")
async def test_a_forked_process_publishes_by_a_connection_of_its_own(broker: Broker) -> None:
    publisher = broker.block()._publisher
    ours, theirs, later = uuid4(), uuid4(), uuid4()
    async with broker.ear() as ear:
        publisher(enqueued(ours))
        assert await ear.next() == {"job_id": str(ours)}
        child = os.fork()
        if child == 0:
            publisher(enqueued(theirs))
            publisher.close()
            os._exit(0)
        assert await ear.next() == {"job_id": str(theirs)}
        assert (await asyncio.to_thread(os.waitpid, child, 0))[1] == 0
        publisher(enqueued(later))
        assert await ear.next() == {"job_id": str(later)}
    publisher.close()


async def test_a_script_that_enqueues_and_ends_is_heard(stage: Stage, broker: Broker) -> None:
    url = broker.url.replace("127.0.0.1", "localhost")  # a name must be looked up while the interpreter ends
    async with broker.ear() as ear:
        ended = await asyncio.to_thread(run, SCRIPT, stage.dsn, url, broker.exchange)

        assert ended.stderr == ""
        assert await ear.next() == {"job_id": ended.stdout.strip()}


async def test_a_script_does_not_wait_for_a_broker_that_is_silent(stage: Stage, broker: Broker, wire: Wire) -> None:
    wire.mute = True
    ended = await asyncio.to_thread(run, SCRIPT + END, stage.dsn, wire.url, broker.exchange)

    job, seconds = ended.stdout.split()
    assert UUID(job)
    assert float(seconds) < 20


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", *arguments], capture_output=True, text=True, check=True, timeout=30
    )


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name == "mainspring.rabbitmq"]


async def until(holds: Callable[[], object], seconds: float = 60.0) -> None:
    async with asyncio.timeout(seconds):
        while not holds():
            await asyncio.sleep(0.005)


def test_where_no_thread_can_be_started_enqueuing_and_ending_go_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuses(_: Any) -> None:
        raise RuntimeError("can't start new thread")

    publisher = Publisher(QueueConfig())
    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refuses)
        publisher(enqueued(uuid4()))
    publisher.close()
