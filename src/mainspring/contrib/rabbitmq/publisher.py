"""Ringing the bell: from a thread of its own, so that no enqueue ever waits for the broker or fails by it."""

from __future__ import annotations

import asyncio
import atexit
import os
import threading
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar, TypeVarTuple, cast
from uuid import UUID
from weakref import WeakSet

import msgspec

from mainspring.contrib.rabbitmq.config import QueueConfig
from mainspring.contrib.rabbitmq.link import BROKER_PATIENCE_S, LINK_CLOSING_S, BrokerLink, log
from mainspring.contrib.rabbitmq.listener import Hint
from mainspring.events import Event, JobEnqueued

if TYPE_CHECKING:
    from aio_pika.abc import AbstractChannel, AbstractExchange
    from aiormq import Channel as Line

PUBLISH_ROOM = 1_000  # so many ids wait for the broker; past that the oldest make room: the last one rings as well
PUBLISH_PAUSE_S = 0.02  # seconds between two rounds
_BURST = 10  # so many go out in one: more would take time from those who enqueue, and wake nobody sooner
_FLUSH_S = 0.8  # seconds that a program which ends waits for what is left

T = TypeVar("T")
Ts = TypeVarTuple("Ts")


class Publisher:
    """An observer that publishes the id of every job that was created."""

    def __init__(self, config: QueueConfig) -> None:
        self._config = config
        self.dropped = 0  # so many ids had to make room
        self._anew()
        _publishers.add(self)

    def _anew(self) -> None:
        """Begin without a thread: at first, and in a process that was forked, where the thread is not."""
        self._waiting: deque[UUID] = deque(maxlen=PUBLISH_ROOM)
        self._starting = threading.Lock()
        self._running: _PublisherThread | None = None
        self._looks = True  # whether it looks at what waits without being told

    def __call__(self, batch: Sequence[Event]) -> None:
        """Take the ids of new jobs; costs some microseconds."""
        ids = [event.job_id for event in batch if isinstance(event, JobEnqueued)]
        if not ids:
            return
        self.dropped += max(len(self._waiting) + len(ids) - PUBLISH_ROOM, 0)
        self._waiting.extend(ids)
        running = self._run()
        if not self._looks:
            self._looks = True
            running.call(running.link.ring)

    @property
    def started(self) -> bool:
        """Whether it keeps a connection."""
        return self._running is not None

    def link(self) -> BrokerLink:
        """Its connection, which is opened if it is not."""
        return self._run().link

    def close(self) -> None:
        """Send what waits if that is quickly done, and let go of the connection; the next job opens it anew."""
        with self._starting:
            running, self._running = self._running, None
        if running is not None:
            running.call(running.end.set)
            if running.thread.ident is not None:  # it could be started
                running.thread.join(_FLUSH_S + 2 * LINK_CLOSING_S)

    def _run(self) -> _PublisherThread:
        running = self._running
        if running is None:
            with self._starting:
                running = self._running = self._running or self._start()
        return running

    def _start(self) -> _PublisherThread:
        loop, link, end = _Loop(), BrokerLink(self._config, "publishing"), asyncio.Event()

        def run() -> None:
            with asyncio.Runner(loop_factory=lambda: loop) as runner:
                runner.run(self._keep(link, end))

        running = _PublisherThread(
            threading.Thread(target=run, name="mainspring rabbitmq", daemon=True), loop, link, end
        )
        try:
            running.thread.start()
        except RuntimeError as error:  # the interpreter ends
            loop.close()
            log.warning("no thread for the broker, jobs are found by polling: %s", error)
        return running

    # -- in its thread ----------------------------------------------------------------------------------------------

    async def _keep(self, link: BrokerLink, end: asyncio.Event) -> None:
        keeping = asyncio.create_task(link.keep(partial(self._serve, link)))
        await end.wait()
        with suppress(TimeoutError):
            async with asyncio.timeout(_FLUSH_S):
                while self._waiting and (link.up or not link.known):  # noqa: ASYNC110 (threads fill it)
                    await asyncio.sleep(PUBLISH_PAUSE_S)
        keeping.cancel()
        await asyncio.wait([keeping])

    async def _serve(self, link: BrokerLink, channel: AbstractChannel, exchange: AbstractExchange) -> None:
        line = cast("Line", await channel.get_underlay_channel())
        link.opened()
        try:
            while True:
                await self._send(line)
                await asyncio.sleep(PUBLISH_PAUSE_S)
                self._looks = False
                if self._waiting:
                    link.ring()
                await link.rung(lambda: channel.get_exchange(exchange.name))
        finally:
            self._looks = True

    async def _send(self, line: Line) -> None:
        """Publish some of what waits. Nobody confirms it: a hint that is lost costs one poll interval.

        One layer below the library's usual way, which costs the enqueuer more than twice as much (95 and 41 us).
        """
        from pamqp.commands import Basic

        exchange, key = self._config.exchange, self._config.routing_key
        async with asyncio.timeout(BROKER_PATIENCE_S):
            for _ in range(min(len(self._waiting), _BURST)):
                job_id = self._waiting[0]
                body = msgspec.json.encode(Hint(job_id))
                about = Basic.Properties(content_type="application/json", delivery_mode=1)  # not persistent
                await line.basic_publish(body, exchange=exchange, routing_key=key, properties=about, wait=False)
                if self._waiting[0] is job_id:  # else it had to make room meanwhile
                    self._waiting.popleft()


@dataclass(frozen=True, slots=True)
class _PublisherThread:
    """The thread of a publisher, and how others speak to it."""

    thread: threading.Thread
    loop: asyncio.AbstractEventLoop
    link: BrokerLink
    end: asyncio.Event

    def call(self, function: Callable[[], object]) -> None:
        with suppress(RuntimeError):  # it has ended
            self.loop.call_soon_threadsafe(function)


class _Loop(asyncio.SelectorEventLoop):
    """Looks names up in its own thread: where the interpreter ends, no other takes work any more."""

    def run_in_executor(self, executor: Executor | None, func: Callable[[*Ts], T], *args: *Ts) -> asyncio.Future[T]:
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


_publishers: WeakSet[Publisher] = WeakSet()


@atexit.register
def _leave() -> None:
    for publisher in [*_publishers]:
        publisher.close()


def _forked() -> None:
    for publisher in [*_publishers]:
        publisher._anew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
