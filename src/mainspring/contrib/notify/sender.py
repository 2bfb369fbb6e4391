"""The port of senders: one message to one address, over one provider."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

import msgspec

from mainspring.db.recipients import Channel
from mainspring.outcome import Permanent


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """A message as it leaves: rendered, addressed, with the key under which the provider knows it again."""

    channel: Channel
    to: str  # an address, a number, a token
    title: str
    text: str
    html: str | None = None
    key: str  # the same on every attempt
    others: frozenset[str] = frozenset()  # the provider's ids of other messages of the same words: `find` answers none

    def __repr__(self) -> str:  # personal data do not go to logs
        return f"<Outgoing {self.channel} {self.key}>"


class Receipt(msgspec.Struct, frozen=True, kw_only=True):
    """The provider has taken it."""

    provider: str
    provider_id: str | None = None


class Undeliverable(Permanent):
    """The address is wrong: trying again cannot help."""


class Sender(Protocol):
    """Sends messages of one channel by one provider; its name is also that of its breaker.

    `send` raises Undeliverable for a wrong address, RetryAfter where the provider says when, and Failure with
    TIMEOUT, RATE_LIMITED or HttpException for what may go better another time.
    """

    name: str
    channel: Channel

    async def send(self, message: Outgoing) -> Receipt:
        """Hand it to the provider, once."""

    async def find(self, message: Outgoing, since: datetime) -> Receipt | None:
        """Whether the provider took it at an earlier attempt whose end nobody saw; None: no, or it cannot say."""

    async def close(self) -> None:
        """Let go of connections."""
