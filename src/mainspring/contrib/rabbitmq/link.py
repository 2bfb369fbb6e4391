"""One connection to the broker, kept: opened again whenever it is lost, after a delay that grows.

Nothing depends on it, so nobody waits for it. Who loses it says so once, and once more when it is back.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

from mainspring.contrib.rabbitmq.config import QueueConfig
from mainspring.retry import exponential

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractExchange

    Serve = Callable[[AbstractChannel, AbstractExchange], Awaitable[None]]

log = logging.getLogger("mainspring.rabbitmq")

FIRST_ASKED_S = 1.0  # so many seconds after it was opened it is asked first: by then it has refused what it refuses
BROKER_SILENCE_S = 5.0  # every so many seconds the broker is asked whether it lives
BROKER_PATIENCE_S = 5.0  # the broker has so many to answer whatever it is asked
LINK_CLOSING_S = 0.5  # saying goodbye may take so many
RECONNECT_PAUSES = exponential(base=0.2, cap=10)  # pauses before the next try

_ours: ContextVar[bool] = ContextVar("mainspring_rabbitmq", default=False)


class BrokerUnavailable(ConnectionError):
    """The message broker could not be reached."""


class BrokerLink:
    """One connection, kept as long as somebody keeps it."""

    def __init__(self, config: QueueConfig, purpose: str) -> None:
        self._config, self._purpose = config, purpose
        self.up = False
        self.known = False  # whether we know if it is
        self._opened = self._heard = 0.0  # by the monotonic clock: when the broker last showed that it lives
        self._ask_at = 0.0
        self._lost: float | None = None  # when an outage began that somebody was told of
        self._event = asyncio.Event()
        self._closed: BaseException | None = None  # why this connection ended

    async def keep(self, serve: Serve) -> None:
        """Serve over a connection, and over the next when it is lost, until cancelled."""
        _ours.set(True)
        _quieten()
        failures = 0
        while True:
            begun = time.monotonic()
            try:
                async with self._open() as (channel, exchange):
                    await serve(channel, exchange)
            except Exception as error:
                steady = (
                    time.monotonic() - begun > 2 * BROKER_SILENCE_S
                )  # else it may be refused what it does each time
                failures = 1 if steady else failures + 1
                self._down(error)
            finally:
                self.up = False
            await asyncio.sleep(RECONNECT_PAUSES.delay(failures).total_seconds())

    def opened(self) -> None:
        """Everything is in place: from here on it serves."""
        self.up = self.known = True
        self._opened = self._heard = time.monotonic()
        self._ask_at = self._opened + FIRST_ASKED_S

    def ring(self) -> None:
        """Make `rung` return."""
        self._event.set()

    async def rung(self, ask: Callable[[], Awaitable[object]]) -> None:
        """Wait for a ring, and raise when the connection is lost; now and then `ask` the broker whether it lives."""
        while True:
            if time.monotonic() >= self._ask_at:
                async with asyncio.timeout(BROKER_PATIENCE_S):
                    await ask()
                self._answered()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(self._ask_at - time.monotonic(), 0.0)):
                    await self._event.wait()
            if self._closed is not None:
                raise self._closed
            if self._event.is_set():
                return self._event.clear()

    def check(self) -> None:
        """Return if it is well and was heard of just now."""
        if not self.up or time.monotonic() - self._heard > BROKER_SILENCE_S + 2 * BROKER_PATIENCE_S:
            raise BrokerUnavailable("The message broker does not answer.")

    @asynccontextmanager
    async def _open(self) -> AsyncIterator[tuple[AbstractChannel, AbstractExchange]]:
        import aio_pika
        from yarl import URL

        self._event.clear()
        self._closed = None
        url = URL(self._config.url)
        if "heartbeat" not in url.query:
            url = url.update_query(heartbeat=int(2 * BROKER_SILENCE_S))
        connection = aio_pika.Connection(url, client_properties={"connection_name": f"mainspring {self._purpose}"})
        try:
            async with asyncio.timeout(BROKER_PATIENCE_S):
                await connection.connect()
                channel, exchange = await self._enter(connection)
            yield channel, exchange
        finally:
            with suppress(Exception):
                async with asyncio.timeout(LINK_CLOSING_S):
                    await connection.close()
            await connection.close()  # where that took too long: now it has nobody to wait for

    async def _enter(self, connection: AbstractConnection) -> tuple[AbstractChannel, AbstractExchange]:
        """A channel, and the exchange as it is: made only where there is none, since not everybody may."""
        from aio_pika import ExchangeType
        from aio_pika.exceptions import ChannelNotFoundEntity

        name = self._config.exchange
        channel = await connection.channel(publisher_confirms=False)
        try:
            exchange = await channel.get_exchange(name)
        except ChannelNotFoundEntity:
            channel = await connection.channel(publisher_confirms=False)
            exchange = await channel.declare_exchange(name, ExchangeType.TOPIC, durable=True)
        channel.close_callbacks.add(self._gone)
        return channel, exchange

    def _gone(self, _: Any, error: BaseException | None) -> None:
        ordinary = isinstance(error, Exception)
        self._closed = error if ordinary else ConnectionError("the connection was closed")
        self._event.set()

    def _answered(self) -> None:
        self._heard = time.monotonic()
        self._ask_at = self._heard + BROKER_SILENCE_S
        if self._lost is not None:
            seconds, self._lost = self._opened - self._lost, None
            log.warning("the broker %s is back after %.1f s: %s", self._config.place, seconds, self._purpose)

    def _down(self, error: Exception) -> None:
        self.up, self.known = False, True
        if self._lost is None:
            self._lost = time.monotonic()
            reason = self._config.masked(f"{type(error).__name__} {error}".strip())
            text = "the broker %s cannot be used, jobs are found by polling: %s: %s"
            log.warning(text, self._config.place, self._purpose, reason)


def _quieten() -> None:
    """Keep the library from telling each failure of our connections anew: what there is to say, we say once."""
    for name in ("aiormq.connection", "aiormq.channel"):
        logging.getLogger(name).addFilter(_not_ours)  # the same filter is added once


def _not_ours(_: logging.LogRecord) -> bool:
    return not _ours.get()
