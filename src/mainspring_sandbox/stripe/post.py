"""Carries events to webhook endpoints, signed, tried again, and as badly as somebody wishes."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import hmac
import json
from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, Protocol

import httpx2
import msgspec

from mainspring_sandbox.ledger import LedgerEntry
from mainspring_sandbox.stripe.call import Thing, shown

if TYPE_CHECKING:
    from mainspring_sandbox.stripe.state import StripeStandIn

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


def signature(secret: str, at: int, body: str) -> str:
    """What stands in `Stripe-Signature`.

    >>> signature("whsec_1", 1700000000, "{}")[:20]
    't=1700000000,v1=c8cf'
    """
    mac = hmac.new(secret.encode(), f"{at}.{body}".encode(), hashlib.sha256)
    return f"t={at},v1={mac.hexdigest()}"


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


class Post:
    """The deliveries: each is a `webhook` entry of the ledger, and says how it went."""

    def __init__(self, stripe: StripeStandIn) -> None:
        self._stripe = stripe
        self._loop: asyncio.AbstractEventLoop | None = None
        self._client: httpx2.AsyncClient | None = None
        self._turns: dict[str, asyncio.Lock] = defaultdict(asyncio.Lock)  # one at a time, in order, for each endpoint
        self._tasks: set[asyncio.Task[None]] = set()
        self._round = 0  # grows when everything is forgotten: ids begin anew, and what was under way is not theirs
        self.manners: list[Manner] = []
        self.carrier: Carrier | None = None  # None: the post itself, over HTTP and by real time

    def put(self, event: Thing) -> int:
        """Hand in an event; the number of endpoints that will get it."""
        ledger = self._stripe.world.ledger
        wanting = [
            entry.body for entry in ledger.find("stripe.webhook_endpoint", deleted=None) if _wants(entry.body, event)
        ]
        if not wanting:
            return 0
        manner, delay = self._manner(event["type"]), self._stripe.settings.webhook_delay
        state = "dropped" if manner.drop else "held" if manner.hold else "waiting"
        for endpoint in reversed(wanting):  # the oldest first
            for _ in range(manner.copies):
                self._write(event, endpoint, state, manner.failures, delay + manner.delay)
        return len(wanting)

    def again(self, event_id: str) -> list[str]:
        """Deliver an event once more to every endpoint that wants it, as a person may ask of Stripe."""
        found = self._stripe.world.ledger.get("stripe.event", event_id)
        if found is None:
            return []
        endpoints = self._stripe.world.ledger.find("stripe.webhook_endpoint", deleted=None)
        return [self._write(found.body, one.body, "waiting") for one in endpoints if _wants(one.body, found.body)]

    def held(self) -> list[LedgerEntry]:
        """What is kept back, the oldest first."""
        return self._stripe.world.ledger.find("webhook", state="held")[::-1]

    def release(self, ids: Iterable[str] | None = None) -> list[str]:
        """Let deliveries go in this order; without one, all of them in the order in which they came."""
        ledger = self._stripe.world.ledger
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
        found = self._stripe.world.ledger.get("webhook", id)
        return found.body if found is not None and found.body["state"] == "waiting" else None

    def request(self, delivery: dict[str, Any]) -> WebhookRequest:
        """What arrives if a delivery is carried now, signed now; or Lost."""
        if delivery["attempts"] < delivery["failures"]:
            raise Lost("a failure that was wished for")
        world = self._stripe.world
        event, endpoint = (
            world.ledger.get("stripe.event", delivery["event"]),
            world.ledger.get("stripe.webhook_endpoint", delivery["endpoint"]),
        )
        if event is None or endpoint is None:
            raise Lost("the event or its endpoint is gone")
        body = json.dumps(shown(event.body))
        signed = signature(endpoint.body["_secret"], int(world.now().timestamp()), body)
        headers = {
            "Content-Type": "application/json; charset=utf-8",
            "Stripe-Signature": signed,
            "User-Agent": "Stripe/1.0",
        }
        return WebhookRequest(delivery["url"], headers, body.encode())

    def carried(self, id: str, status: int | None, error: str | None) -> None:
        """How a delivery went: the receiver's status, or what went wrong; what failed is tried again later."""
        ledger, gaps = self._stripe.world.ledger, self._stripe.settings.webhook_gaps
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
            for entry in self._stripe.world.ledger.find("webhook", state="waiting")[::-1]:
                self._later(entry.id)
            try:
                while True:
                    await asyncio.sleep(_LAPSE_S)
                    if self.carrier is None:  # else time is somebody else's, and so is what ends with it
                        self._stripe.lapse()
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

    def _write(self, event: Thing, endpoint: Thing, state: str, failures: int = 0, delay: float = 0.0) -> str:
        id = self._stripe.world.new_id("wh")
        body = {"provider": "stripe", "event": event["id"], "type": event["type"], "url": endpoint["url"]}
        body |= {"endpoint": endpoint["id"], "object": event["data"]["object"].get("id"), "state": state}
        body |= {"status": None, "error": None, "attempts": 0, "failures": failures}
        self._stripe.world.ledger.add("webhook", id, body)
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
            async with asyncio.timeout(self._stripe.settings.webhook_timeout):
                answer = await self._client.post(request.url, content=request.body, headers=request.headers)
        except Lost as lost:
            return None, str(lost)
        except (httpx2.HTTPError, httpx2.InvalidURL, TimeoutError, OSError) as error:
            return None, type(error).__name__
        return answer.status_code, None


def _wants(endpoint: Thing, event: Thing) -> bool:
    """Events of connected accounts go to their own endpoints and to the platform's that asked for them."""
    if endpoint["status"] != "enabled" or not {"*", event["type"]} & set(endpoint["enabled_events"]):
        return False
    owner = event["_account"]
    return bool(endpoint["_account"] == owner and not (owner is None and endpoint["_connect"])) or (
        owner is not None and endpoint["_account"] is None and bool(endpoint["_connect"])
    )
