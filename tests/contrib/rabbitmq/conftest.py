from __future__ import annotations

import fcntl
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from tests.contrib.rabbitmq.broker import Broker, Wire
from tests.contrib.rabbitmq.server import MISSING, RabbitMQServer, installed
from tests.contrib.rabbitmq.shared import locked, shared
from tests.databases import Database
from tests.worker.conftest import stage
from tests.worker.stage import SETTINGS

import mainspring as ms
from mainspring.contrib.rabbitmq import RabbitMQ
from mainspring.testing.plugin import run_name

__all__ = ["stage"]

Apps = Callable[..., ms.App]


@pytest.fixture(scope="session")
def server(pytestconfig: pytest.Config) -> Iterator[RabbitMQServer]:
    """The run's RabbitMQ."""
    if not installed():
        pytest.fail(MISSING) if os.environ.get("CI") == "true" else pytest.skip(MISSING)
    with shared(run_name(pytestconfig)) as server:
        yield server


@pytest.fixture
def mortal(server: RabbitMQServer) -> Iterator[RabbitMQServer]:
    """The same, while nobody else uses it: a test may kill it."""
    with locked(server.folder / "mortal", fcntl.LOCK_EX):
        yield server
        if not server.running:
            server.start()


@pytest.fixture
def broker(server: RabbitMQServer) -> Iterator[Broker]:
    with locked(server.folder / "mortal", fcntl.LOCK_SH):
        yield Broker(server.port)


@pytest.fixture
def wire(broker: Broker) -> Iterator[Wire]:
    wire = Wire(broker.port)
    yield wire
    wire.cut()


@pytest.fixture
def tasks() -> ms.Registry:
    return ms.Registry("test")


@pytest.fixture
def app(database: Database, tasks: ms.Registry) -> Iterator[Apps]:
    """Makes applications with a block, whose threads end with the test."""
    with ExitStack() as end:

        def make(block: RabbitMQ, **settings: Any) -> ms.App:
            end.callback(block.close)
            config = ms.WorkerConfig(**(SETTINGS | settings))
            return ms.App(tasks, dsn=database.dsn, blocks=[block], config=config)

        yield make
