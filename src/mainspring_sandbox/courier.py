"""Carries the webhooks of Stripe and Resend by a virtual clock, into the very function that receives them over HTTP."""

from __future__ import annotations

import heapq
import threading
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import urlsplit

from starlette.exceptions import HTTPException

from mainspring.app import App
from mainspring.errors import MainspringError
from mainspring_sandbox.environment import RESEND_SECRET, WEBHOOK_SECRET
from mainspring_sandbox.post import Lost, Post, WebhookRequest

if TYPE_CHECKING:
    from mainspring.web.backend import Backend
    from mainspring_sandbox.server import Sandbox

_DELAY: Final = timedelta(seconds=2)  # as with Stripe itself: later than the answer to the charge
INBOUND: Final = "/v1/inbound/"
COURIER_URL: Final = f"http://127.0.0.1{INBOUND}"  # nothing listens there, nor is anything sent


class _Bag:
    """What one provider's post hands over."""

    def __init__(self, courier: Courier, post: Post) -> None:
        self._courier, self._post = courier, post

    def later(self, id: str, seconds: float) -> None:
        """Take a delivery."""
        self._courier.later(self._post, id, seconds)


class Courier:
    """Takes over the post of a sandbox's Stripe and Resend: what is due by its clock is handed to an application.

    ::

        with Sandbox(clock=mainspring.now) as sandbox:
            mainspring.visitors.append(Courier(sandbox, app))
            mainspring.advance(hours=4)  # charges, and webhooks two seconds after each

    An event is verified, and recorded once with its job, as `/v1/inbound/stripe` does; what is refused is tried again
    after the post's gaps. Manners hold: held, dropped, doubled and late events are just that, in virtual time. Unless
    endpoints are registered already, it registers one for every event, and one for those of connected accounts, under
    `secret`.
    """

    def __init__(self, sandbox: Sandbox, app: App, *, delay: timedelta = _DELAY, secret: str = WEBHOOK_SECRET) -> None:
        self._sandbox, self._app = sandbox, app
        self._lock, self._numbers = threading.Lock(), count()
        self._due: list[tuple[datetime, int, str, Post]] = []  # when, in which order, and the id of the delivery
        self._backend: Backend | None = None
        self._sources = [source for block in app.blocks for source in block.inbound]
        for post in sandbox.posts:
            post.carrier = _Bag(self, post)
            post.settings.webhook_delay = delay.total_seconds()
        sandbox.closing.append(self.close)
        names = {source.name for source in self._sources}
        if "stripe" in names and not sandbox.ledger.find("stripe.webhook_endpoint", deleted=None):
            for connect in (False, True):
                sandbox.stripe.register(f"{COURIER_URL}stripe", secret=secret, connect=connect)
        if "resend" in names and not sandbox.ledger.find("resend.webhook_endpoint", deleted=None):
            sandbox.resend.register(f"{COURIER_URL}resend", secret=RESEND_SECRET)

    def later(self, post: Post, id: str, seconds: float) -> None:
        """Take a delivery from a post, to be carried so much later."""
        due = self._sandbox.world.now() + timedelta(seconds=seconds)
        with self._lock:
            heapq.heappush(self._due, (due, next(self._numbers), id, post))

    def due(self) -> list[tuple[datetime, dict[str, Any]]]:
        """What is under way and when it arrives, the next first."""
        with self._lock:
            queue = sorted(self._due)
        found = ((at, post.waiting(id)) for at, _, id, post in queue)
        return [(at, delivery) for at, delivery in found if delivery is not None]

    def next_at(self, now: datetime) -> datetime | None:
        """When the next delivery arrives; None: nothing is under way."""
        ends = self._sandbox.stripe.deadlines.next()
        with self._lock:
            due = [self._due[0][0]] if self._due else []
        return min([*due, *([] if ends is None else [max(datetime.fromtimestamp(ends, UTC), now)])], default=None)

    def deliver(self, now: datetime) -> int:
        """Hand over what is due, in order, and end what has reached its end; how much of both there was."""
        ended = self._sandbox.stripe.lapse()
        return ended + (self._sandbox.run(self._deliver(now)) if self._due else 0)

    visit = deliver

    def close(self) -> None:
        """Let go of the application's database; the sandbox does it when it stops or is reset."""
        backend, self._backend = self._backend, None
        with self._lock:
            self._due.clear()
        if backend is not None:
            self._sandbox.run(backend.close())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    async def _deliver(self, now: datetime) -> int:
        carried = 0
        while (taken := self._taken(now)) is not None:
            id, post = taken
            delivery = post.waiting(id)
            if delivery is None:
                continue
            carried += 1
            try:
                status, error = await self._hand_over(post.request(delivery)), None
            except Lost as lost:
                status, error = None, str(lost)
            post.carried(id, status, error)
        return carried

    def _taken(self, now: datetime) -> tuple[str, Post] | None:
        with self._lock:
            return heapq.heappop(self._due)[2:] if self._due and self._due[0][0] <= now else None

    async def _hand_over(self, request: WebhookRequest) -> int:
        """What the application's own server would answer."""
        from mainspring.web.answers import answer_to  # 40 ms, for those who receive something
        from mainspring.web.backend import Backend
        from mainspring.web.inbound import InboundReceiver

        if self._backend is None:
            self._backend = Backend(self._app, None)
            self._receiver = InboundReceiver(self._backend, self._sources)
        path = urlsplit(request.url).path
        if not path.startswith(INBOUND):
            return 404
        headers = {name.lower(): value for name, value in request.headers.items()}
        try:
            await self._receiver.receive(path.removeprefix(INBOUND), headers, request.body)
        except HTTPException as refused:
            return refused.status_code
        except MainspringError as error:
            if (answer := answer_to(error)) is None:
                raise
            return answer.status_code
        return 200
