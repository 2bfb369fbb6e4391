"""What a test has of the broker: an exchange of its own, an ear at it, a voice, and a line that can be cut."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any
from uuid import uuid4

import aio_pika
from aio_pika.abc import AbstractExchange, AbstractIncomingMessage

from mainspring.contrib.rabbitmq import RabbitMQ

KEY = "jobs.trigger"


class Broker:
    """The run's broker, seen by one test."""

    def __init__(self, port: int, exchange: str | None = None) -> None:
        self.port = port
        self.url = self.url_of("guest")
        self.exchange = exchange or f"test-{uuid4().hex[:8]}"

    def url_of(self, user: str, password: str | None = None) -> str:
        """The address, as somebody."""
        return f"amqp://{user}:{password or user}@127.0.0.1:{self.port}/"

    def block(self, **said: Any) -> RabbitMQ:
        """The block under test, switched on."""
        about: dict[str, Any] = {"url": self.url, "exchange": self.exchange, "enabled": True}
        return RabbitMQ(**about | said)

    @asynccontextmanager
    async def ear(self, key: str = KEY) -> AsyncIterator[Ear]:
        """Hears what is published; speaks, too."""
        async with await aio_pika.connect(self.url) as connection:
            channel = await connection.channel()
            exchange = await channel.declare_exchange(self.exchange, aio_pika.ExchangeType.TOPIC, durable=True)
            queue = await channel.declare_queue(exclusive=True)
            await queue.bind(exchange, key)
            ear = Ear(exchange)
            await queue.consume(ear.hear, no_ack=True)
            yield ear
            await channel.exchange_delete(self.exchange)


class Ear:
    """Hears messages, and publishes whatever a test wants to be heard."""

    def __init__(self, exchange: AbstractExchange) -> None:
        self._exchange = exchange
        self._heard: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()

    async def hear(self, message: AbstractIncomingMessage) -> None:
        self._heard.put_nowait(message)

    async def message(self, seconds: float = 60.0) -> AbstractIncomingMessage:
        return await asyncio.wait_for(self._heard.get(), seconds)

    async def next(self) -> Any:
        return json.loads((await self.message()).body)

    @property
    def silent(self) -> bool:
        return self._heard.empty()

    async def say(self, body: bytes, key: str = KEY) -> None:
        await self._exchange.publish(aio_pika.Message(body), key)


class Wire:
    """A line to the broker that can be cut, refuse, and fall silent."""

    def __init__(self, port: int) -> None:
        self._target = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self.came = 0  # connections that were accepted
        self.mute = False
        self._sockets: list[socket.socket] = []
        self._serve()

    @property
    def url(self) -> str:
        return f"amqp://guest:guest@127.0.0.1:{self.port}/"

    def cut(self) -> None:
        """End every connection, and refuse new ones."""
        for each in [self._listener, *self._sockets]:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # else the thread that waits on it keeps it open
            each.close()
        self._sockets.clear()

    def mend(self) -> None:
        """Accept connections again, at the same place."""
        self._listener = socket.create_server(("127.0.0.1", self.port))
        self._serve()

    def _serve(self) -> None:
        threading.Thread(target=self._accept, args=[self._listener], daemon=True).start()

    def _accept(self, listener: socket.socket) -> None:
        with suppress(OSError):
            while True:
                client, _ = listener.accept()
                self.came += 1
                server = socket.create_connection(("127.0.0.1", self._target))
                self._sockets += [client, server]
                for pair in ((client, server), (server, client)):
                    threading.Thread(target=self._carry, args=pair, daemon=True).start()

    def _carry(self, source: socket.socket, to: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if not self.mute:
                    to.sendall(data)
        for each in (source, to):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
