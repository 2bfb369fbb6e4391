"""Stripe's webhooks: verified, and given to the task that wants events of their type."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from mainspring.contrib.heard import LONGEST_EVENT_NAME, HeardEvents
from mainspring.contrib.stripe import signature
from mainspring.contrib.stripe.chargeback import Dispute
from mainspring.contrib.stripe.checkout_session import CheckoutSession
from mainspring.contrib.stripe.movement import Movement, movement
from mainspring.declare.block import Received, SignatureRefused
from mainspring.outcome import Snooze
from mainspring.text.texts import text_problem

LARGEST_STRIPE_BODY: Final = 1_048_576  # bytes of a body, as the table takes them


class _EventHead(msgspec.Struct):
    id: str
    type: str


class StripeEvent(msgspec.Struct, frozen=True, kw_only=True):
    """What happened at Stripe."""

    id: str  # evt_…
    type: str
    created: datetime
    livemode: bool
    account: str | None  # the connected account that it is about
    object: dict[str, Any]  # as it was then

    @property
    def checkout(self) -> CheckoutSession | None:
        """The payment page that it tells of, as it was then; None: something else."""
        return CheckoutSession.read(self.object) if self.object.get("object") == "checkout.session" else None

    @property
    def dispute(self) -> Dispute | None:
        """The dispute that it tells of, as it was then; None: something else."""
        return Dispute.read(self.object) if self.object.get("object") == "dispute" else None

    @property
    def movement(self) -> Movement | None:
        """The charge, transfer or refund that it tells of; None: something else."""
        return movement(self.object)

    @classmethod
    def read(cls, body: str) -> StripeEvent:
        """From the body of a webhook."""
        said = msgspec.json.decode(body)
        return cls(
            id=said["id"],
            type=said["type"],
            created=datetime.fromtimestamp(said.get("created") or 0, UTC),
            livemode=bool(said.get("livemode")),
            account=said.get("account"),
            object=(said.get("data") or {}).get("object") or {},
        )


class NotYet(Snooze):
    """The event came before our own row of it: try again soon, and take it as lost after the task's `snooze_limit`.

    >>> NotYet().after.total_seconds()
    10.0
    """

    def __init__(self, after: float = 10.0) -> None:
        super().__init__(after)


class StripeInbound(HeardEvents):
    """Where Stripe's webhooks come in: `/v1/inbound/stripe`."""

    def __init__(self, name: str, secrets: Sequence[str]) -> None:
        super().__init__(name)
        self._secrets = tuple(secrets)

    def verify(self, headers: Mapping[str, str], body: bytes, now: datetime) -> Received:
        """The event, if Stripe sent it within five minutes of now; several secrets: one is just being replaced."""
        if len(body) > LARGEST_STRIPE_BODY:
            raise SignatureRefused("the body is larger than 1 MiB")
        signature.check(headers.get(signature.HEADER), body, self._secrets, now)
        try:
            text = body.decode()
            head = msgspec.json.decode(text, type=_EventHead)
        except (UnicodeDecodeError, msgspec.MsgspecError, RecursionError):
            raise SignatureRefused("the body is not an event in JSON, with an id and a type") from None
        if text_problem(head.id, LONGEST_EVENT_NAME) or text_problem(head.type, LONGEST_EVENT_NAME):
            raise SignatureRefused("the event's id or type is empty, too long or not a text")
        return Received(head.id, head.type, text)
