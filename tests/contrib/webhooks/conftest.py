from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.contrib.webhooks.hooks import Inbox, World
from tests.worker.conftest import stage as stage
from tests.worker.stage import Stage


@pytest.fixture
async def inbox() -> AsyncIterator[Inbox]:
    inbox = Inbox()
    server = await asyncio.start_server(inbox.serve, "127.0.0.1", 0)
    inbox.port = server.sockets[0].getsockname()[1]
    yield inbox
    server.close()
    await server.wait_closed()


@pytest.fixture
async def make(stage: Stage, inbox: Inbox) -> AsyncIterator[Callable[..., World]]:
    """Makes worlds, with the options of the block."""
    worlds: list[World] = []

    def make(**options: Any) -> World:
        worlds.append(World(stage, inbox, **options))
        return worlds[-1]

    yield make
    for world in worlds:
        await world.close()


@pytest.fixture
async def world(make: Callable[..., World]) -> World:
    return make()
