"""Hearing the bell: a queue of its own for each worker, which holds one message at the most."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

import msgspec

from mainspring.contrib.rabbitmq.config import QueueConfig
from mainspring.contrib.rabbitmq.link import BROKER_PATIENCE_S, BrokerLink, log

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractExchange, AbstractIncomingMessage

RING_PAUSE_S = 0.01  # seconds between two rings at least; what comes meanwhile is one ring
COMPLAINT_PAUSE_S = 60.0  # seconds between two complaints
LARGEST_MESSAGE = 4096  # bytes of a message that is looked at
#: The broker keeps the last message only: a flood of them is one ring after the other.
BELL: dict[str, Any] = {"x-queue-type": "classic", "x-max-length": 1}


class Hint(msgspec.Struct, frozen=True):
    """All that a message says. It is not believed."""

    job_id: UUID


class MessageListener:
    """Wakes a worker for every message, whatever it says."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self._complain_at = 0.0
        self.links: set[BrokerLink] = set()  # one for each worker that listens here

    async def listen(self, woke: Callable[[], None]) -> None:
        """Call `woke` for every message, and whenever some may have been missed; until cancelled."""
        link = BrokerLink(self._config, "listening")
        self.links.add(link)
        try:
            await link.keep(partial(self._hear, link, woke))
        finally:
            self.links.discard(link)

    async def _hear(
        self, link: BrokerLink, woke: Callable[[], None], channel: AbstractChannel, exchange: AbstractExchange
    ) -> None:
        name = f"mainspring.{secrets.token_hex(8)}"
        heard: deque[AbstractIncomingMessage] = deque()

        async def arrived(message: AbstractIncomingMessage) -> None:
            heard.append(message)
            link.ring()

        async with asyncio.timeout(BROKER_PATIENCE_S):
            await channel.set_qos(prefetch_count=1)
            queue = await channel.declare_queue(name, exclusive=True, auto_delete=True, arguments=BELL)
            await queue.bind(exchange, self._config.routing_key)
            await queue.consume(arrived)
        link.opened()
        woke()  # what came while nobody listened
        while True:
            await link.rung(lambda: channel.get_queue(name))
            while heard:
                message = heard.popleft()
                self._look(message.body)
                woke()
                await asyncio.sleep(RING_PAUSE_S)
                async with asyncio.timeout(BROKER_PATIENCE_S):
                    await message.ack()

    def _look(self, body: bytes) -> None:
        """Complain about what is no hint, and seldom: whoever may publish could fill the log."""
        try:
            msgspec.json.decode(body if len(body) <= LARGEST_MESSAGE else b"", type=Hint)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if time.monotonic() >= self._complain_at:
                self._complain_at = time.monotonic() + COMPLAINT_PAUSE_S
                log.warning("a message of %d bytes is no hint of a job: ignored, as later ones", len(body))
