"""A block: a ready-made part of an application, such as notifications or signed webhooks.

A block brings its tasks, and what belongs to them: limits, breakers, who listens to events, hints from elsewhere,
webhooks that it receives, pages that it serves, and what readiness asks. `App(blocks=[…])` puts it to work.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Protocol

from mainspring.errors import SignatureRefused as SignatureRefused  # what `Inbound.verify` raises

if TYPE_CHECKING:
    from mainspring.app import App
    from mainspring.circuit import Breaker
    from mainspring.declare.registry import Registry
    from mainspring.events import Observer
    from mainspring.job import NewJob
    from mainspring.limit import DeclaredLimit


class Trigger(Protocol):
    """Hints from elsewhere, such as a broker: never the truth, they only make the next claim come sooner."""

    async def listen(self, woke: Callable[[], None]) -> None:
        """Call `woke` for every hint, until cancelled; whoever runs it begins it anew when it raises."""


@dataclass(frozen=True, slots=True)
class Check:
    """Something that readiness asks: `probe` returns, or raises when it is not well."""

    name: str
    probe: Callable[[], Awaitable[None]]
    required: bool = False  # whether we are not ready without it; else it is shown as degraded


@dataclass(frozen=True, slots=True)
class Received:
    """A webhook that came and is verified."""

    event_id: str  # the provider's: under it the event is recorded once
    type: str
    body: str  # as it came
    org_id: str | None = None  # None: the application's own


class Inbound(Protocol):
    """A provider whose webhooks are received at `/v1/inbound/<name>`.

    Verified, recorded once by the provider's event id together with the job that acts on it, answered after the commit.
    """

    name: str

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Received:
        """What came, or SignatureRefused; `headers` have lower-case names, `now` is the database's time."""

    def job(self, received: Received) -> NewJob | None:
        """The job that acts on it; None: nobody wants events of this type, and it is only recorded."""


class Block:
    """What an application gets from a block; each says only what it has."""

    registry: Registry
    limits: Sequence[DeclaredLimit] = ()
    breakers: Sequence[Breaker] = ()
    observers: Sequence[Observer] = ()
    triggers: Sequence[Trigger] = ()
    inbound: Sequence[Inbound] = ()
    checks: Sequence[Check] = ()

    def routes(self) -> Sequence[Any]:
        """What it serves, as Starlette's routes with who may call each; asked only where something is served."""
        return ()

    def joined(self, app: App) -> None:
        """It became part of an application: its database, schema and cipher are known from here on."""
