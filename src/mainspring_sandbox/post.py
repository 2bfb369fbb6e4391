"""Carries events of a provider to webhook endpoints, signed, tried again, and as badly as somebody wishes."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import re
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Annotated, Any, NamedTuple, Protocol
from urllib.parse import urlsplit

import httpx2
import msgspec

from mainspring_sandbox.ledger import LedgerEntry
from mainspring_sandbox.world import World

_LAPSE_S = 0.5  # how often it is asked what has reached its end


class Manner(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How events are carried, instead of at once, once and in order.

    `hold`: kept back until somebody releases them, in the order that they choose. `drop`: never sent.
    `copies`: sent so often. `delay`: seconds later. `failures`: so many tries break before one gets through.
    """

    type: str = "*"  # of the events: payment_intent.succeeded, charge.*, *
    times: Annotated[int, msgspec.Meta(ge=0)] | None = None  # so many events at the most
    hold: bool = False
    drop: bool = False
    copies: Annotated[int, msgspec.Meta(ge=1, le=100)] = 1
    delay: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    failures: Annotated[int, msgspec.Meta(ge=0)] = 0


class WebhookRequest(NamedTuple):
    """What arrives at an endpoint."""

    url: str
    headers: dict[str, str]
    body: bytes


class Lost(Exception):
    """A delivery that nobody gets."""


class Carrier(Protocol):
    """Somebody who carries deliveries in place of the post, such as by a virtual clock."""

    def later(self, id: str, seconds: float) -> None:
        """Take a delivery, to be carried so much later; called from any thread."""


class PostSettings(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """How events are carried where nobody wishes otherwise, in seconds."""

    webhook_delay: Annotated[float, msgspec.Meta(ge=0)] = 0.0  # before the first try
    webhook_timeout: Annotated[float, msgspec.Meta(ge=0)] = 10.0
    webhook_gaps: tuple[Annotated[float, msgspec.Meta(ge=0)], ...] = (1.0, 5.0, 30.0, 120.0, 600.0)  # before new tries


class Post(ABC):
    """The deliveries of a provider: each is a `webhook` entry of the ledger, and says how it went."""

    provider: str

    def __init__(self, world: World) -> None:
        self._world = world
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # one at a time, in order, for each endpoint
        self._tasks: set[asyncio.Task[None]] = set()
        self._round = 0  # grows when everything is forgotten: ids begin anew, and what was under way is not theirs
        self.manners: list[Manner] = []
        self.carrier: Carrier | None = None  # None: the post itself, over HTTP and by real time

    def put(self, event: dict[str, Any]) -> int:
        """Hand in an event; the number of endpoints that will get it."""
        ledger = self._world.ledger
        wanting = [
            entry.body
            for entry in ledger.find(f"{self.provider}.webhook_endpoint", deleted=None)
            if self.wants(entry.body, event)
        ]
        if not wanting:
            return 0
        manner, delay = self._manner(event["type"]), self.settings.webhook_delay
        state = "dropped" if manner.drop else "held" if manner.hold else "waiting"
        for endpoint in reversed(wanting):  # the oldest first
            for _ in range(manner.copies):
                self._write(event, endpoint, state, manner.failures, delay + manner.delay)
        return len(wanting)

    def again(self, event_id: str) -> list[str]:
        """Deliver an event once more to every endpoint that wants it, as a person may ask of Stripe."""
        found = self._world.ledger.get(f"{self.provider}.event", event_id)
        if found is None:
            return []
        endpoints = self._world.ledger.find(f"{self.provider}.webhook_endpoint", deleted=None)
        return [self._write(found.body, one.body, "waiting") for one in endpoints if self.wants(one.body, found.body)]

    def held(self) -> list[LedgerEntry]:
        """What is kept back, the oldest first."""
        return self._world.ledger.find("webhook", provider=self.provider, state="held")[::-1]

    def release(self, ids: Iterable[str] | None = None) -> list[str]:
        """Let deliveries go in this order; without one, all of them in the order in which they came."""
        ledger = self._world.ledger
        with ledger.together():
            held = {entry.id for entry in self.held()}
            chosen = [entry.id for entry in self.held()] if ids is None else [id for id in ids if id in held]
            for id in chosen:
                ledger.change("webhook", id, state="waiting")
        for id in chosen:
            self._later(id)
        return chosen

    def waiting(self, id: str) -> dict[str, Any] | None:
        """A delivery that is to be carried; None: it was already, or its request was undone."""
        found = self._world.ledger.get("webhook", id)
        return found.body if found is not None and found.body["state"] == "waiting" else None

    def request(self, delivery: dict[str, Any]) -> WebhookRequest:
        """What arrives if a delivery is carried now, signed now; or Lost."""
        if delivery["attempts"] < delivery["failures"]:
            raise Lost("a failure that was wished for")
        ledger = self._world.ledger
        event = ledger.get(f"{self.provider}.event", delivery["event"])
        endpoint = ledger.get(f"{self.provider}.webhook_endpoint", delivery["endpoint"])
        if event is None or endpoint is None:
            raise Lost("the event or its endpoint is gone")
        headers, body = self.signed(event.body, endpoint.body)
        return WebhookRequest(delivery["url"], {"Content-Type": "application/json; charset=utf-8", **headers}, body)

    @property
    @abstractmethod
    def settings(self) -> PostSettings:
        """How its events are carried."""

    @abstractmethod
    def signed(self, event: dict[str, Any], endpoint: dict[str, Any]) -> tuple[dict[str, str], bytes]:
        """The headers and the body of an event for an endpoint, now."""

    @abstractmethod
    def wants(self, endpoint: dict[str, Any], event: dict[str, Any]) -> bool:
        """Whether an endpoint gets an event."""

    @abstractmethod
    def about(self, event: dict[str, Any]) -> str | None:
        """The id of what an event tells of."""

    def carried(self, id: str, status: int | None, error: str | None) -> None:
        """How a delivery went: the receiver's status, or what went wrong; what failed is tried again later."""
        ledger, gaps = self._world.ledger, self.settings.webhook_gaps
        found = ledger.get("webhook", id)
        if found is None:
            return  # everything was forgotten meanwhile
        attempts = found.body["attempts"] + 1
        changes: dict[str, Any] = {"status": status, "error": error, "attempts": attempts}
        if status is not None and 200 <= status < 300:
            ledger.change("webhook", id, **changes, state="delivered")
        elif attempts > len(gaps):
            ledger.change("webhook", id, **changes, state="failed")
        else:
            ledger.change("webhook", id, **changes)
            self._later(id, gaps[attempts - 1])

    def lapse(self) -> int:
        """End what has reached its end by the clock; how much there was."""
        return 0

    def reset(self) -> None:
        """Forget what is under way, and every manner."""
        self._round += 1
        self.manners.clear()
        self.carrier, loop = None, self._loop
        if loop is not None:
            with contextlib.suppress(RuntimeError):  # it stops
                loop.call_soon_threadsafe(self._drop)

    def _drop(self) -> None:
        for task in list(self._tasks):
            task.cancel()

    async def run(self) -> None:
        """Carry what waits, until cancelled."""
        self._loop = asyncio.get_running_loop()
        # Loopback alone, where certificates are people's own; and reading those of the world takes 20 ms.
        async with httpx2.AsyncClient(trust_env=False, verify=False) as self._client:
            for entry in self._world.ledger.find("webhook", provider=self.provider, state="waiting")[::-1]:
                self._later(entry.id)
            try:
                while True:
                    await asyncio.sleep(_LAPSE_S)
                    if self.carrier is None:  # else time is somebody else's, and so is what ends with it
                        self.lapse()
            finally:
                self._loop = None
                tasks = list(self._tasks)
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    def _manner(self, type: str) -> Manner:
        for manner in self.manners:
            if manner.times != 0 and fnmatchcase(type, manner.type):
                if manner.times is not None:
                    manner.times -= 1
                return manner
        return Manner()

    def _write(
        self, event: dict[str, Any], endpoint: dict[str, Any], state: str, failures: int = 0, delay: float = 0.0
    ) -> str:
        id = self._world.new_id("wh")
        body = {"provider": self.provider, "event": event["id"], "type": event["type"], "url": endpoint["url"]}
        body |= {"endpoint": endpoint["id"], "object": self.about(event), "state": state}
        body |= {"status": None, "error": None, "attempts": 0, "failures": failures}
        self._world.ledger.add("webhook", id, body)
        if state == "waiting":
            self._later(id, delay)
        return id

    def _later(self, id: str, seconds: float = 0.0) -> None:
        """From any thread; without a running server it waits in the ledger."""
        loop = self._loop
        if self.carrier is not None:
            self.carrier.later(id, seconds)
        elif loop is not None:
            with contextlib.suppress(RuntimeError):  # the server stops: it goes on at its next start
                loop.call_soon_threadsafe(loop.call_later, seconds, self._start, id, self._round)

    def _start(self, id: str, round: int) -> None:
        if self._loop is not None and round == self._round:
            task = self._loop.create_task(self._carry(id))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _carry(self, id: str) -> None:
        delivery = self.waiting(id)
        if delivery is not None:
            async with self._turns[delivery["endpoint"]]:
                status, error = await self._send(delivery)
            self.carried(id, status, error)

    async def _send(self, delivery: dict[str, Any]) -> tuple[int | None, str | None]:
        """The receiver's status, or what went wrong."""
        assert self._client is not None  # while the server runs
        try:
            request = self.request(delivery)
            async with asyncio.timeout(self.settings.webhook_timeout):
                answer = await self._client.post(request.url, content=request.body, headers=request.headers)
        except Lost as lost:
            return None, str(lost)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError) as error:
            return None, type(error).__name__
        return answer.status_code, None


def local(url: str) -> bool:
    """Whether an address is on this machine, by its letters alone: no name is looked up.

    >>> local("http://127.0.0.1:8000/hook"), local("http://[::1]/hook"), local("http://example.com/hook")
    (True, True, False)
    """
    try:
        parts = urlsplit(url)
        host, _ = parts.hostname, parts.port
    except ValueError:
        return False
    if parts.scheme not in ("http", "https") or not host or re.search(r"\s", url):
        return False
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"
